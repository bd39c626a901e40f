"""Games of a hub, asked over the stock protocol, and cheaply: by cursor, a page at a time, each finished game once.

Rollouts come in the order in which they were enqueued, so the newest page is the last one: no sorting, and a hub with
50,000 games is asked no more than one with 50. What a finished game's last span says never changes and is kept here.
"""

import asyncio
import json
from collections import OrderedDict
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

from agentlightning import Rollout
from agentlightning.semconv import AGL_ANNOTATION

from runners.werewolf.game import get_preset, new_game
from runners.werewolf.seating import who_plays
from runners.werewolf.transcript import asked_in, event_data
from runners.werewolf.web.folders import NotThere
from runners.werewolf.web.views import ShownGame, UnreadableGame, number_in, read_game, turn_of
from store.client import PatientStoreClient
from store.schema import VERSION_SEPARATOR
from store.token_spans import MalformedSpan
from store.werewolf import PEOPLE, GameTask, ResultSpan, TurnSpan, is_result, is_turn, read_events

PAGE = 40
_SCANNED_AT_MOST = 400
_RESULTS_KEPT = 20_000
_FOLLOW_SECONDS, _IDLE_FOLLOW_SECONDS = 1.5, 6.0
_LOOKS_PER_STATUS = 8
_ENDED = ("succeeded", "failed", "cancelled")
_PLAYED = ("preparing", "running")


class HubGames:
    """The games of one hub. All pages that follow a game share its requests."""

    def __init__(self, client: PatientStoreClient, url: str):
        self.url = url
        self._client = client
        self._facts: OrderedDict[str, dict[str, Any]] = OrderedDict()  # of finished games, by rollout
        self._at_once = asyncio.Semaphore(4)
        self._followed: dict[str, _Followed] = {}

    async def close(self) -> None:
        """Close the connection."""
        for followed in self._followed.values():
            followed.task.cancel()
        await self._client.close()

    async def page(self, query: Mapping[str, str]) -> dict[str, Any]:
        """A page of games, newest first.

        query: filters (``_FILTERS``), and ``before``: the cursor that the page before gave; without it from the newest.
        Answers {rows, playing, next}; ``next`` is None at the end. With filters at most 400 games are looked at
        for one page; ``next`` goes on from there.
        """
        wanted = {name: query[name] for name in _FILTERS if query.get(name)}
        total = (await self._client.query_rollouts(limit=1)).total  # the hub wants one at least
        position = min(number_in(query["before"]) or 0, total) if query.get("before") else total
        last = max(0, position - _SCANNED_AT_MOST)
        rows: list[dict[str, Any]] = []
        while position > last and len(rows) < PAGE:
            start = max(0, position - PAGE)
            found = await self._client.query_rollouts(limit=position - start, offset=start)
            page = (await self._rows(found.items, wanted))[::-1][: PAGE - len(rows)]
            rows += [row for _, row in page]
            position = start + page[-1][0] if len(rows) == PAGE else start
        playing = await self._client.query_rollouts(status_in=list(_PLAYED), limit=PAGE)
        live = [] if query.get("before") else [row for _, row in await self._rows(playing.items, {})]
        return {"rows": rows, "playing": live, "next": position if position > 0 else None}

    async def _rows(self, rollouts: Sequence[Rollout], wanted: Mapping[str, str]) -> list[tuple[int, dict[str, Any]]]:
        """(place, row) of each of the rollouts that is a game and fits."""
        rows = [(number, _row(rollout)) for number, rollout in enumerate(rollouts)]
        of_the_end = {name: text for name, text in wanted.items() if name in _OF_THE_END}
        rows = [
            (number, row)
            for number, row in rows
            if row is not None
            and (row["status"] == "succeeded" or not of_the_end)
            and all(_FILTERS[name](row, text) for name, text in wanted.items() if name not in of_the_end)
        ]
        facts = await asyncio.gather(*(self._facts_of(row) for _, row in rows))
        whole = [(number, row | fact) for (number, row), fact in zip(rows, facts, strict=True)]
        return [one for one in whole if all(_FILTERS[name](one[1], text) for name, text in of_the_end.items())]

    async def _facts_of(self, row: Mapping[str, Any]) -> dict[str, Any]:
        """What a finished game's result says; nothing of one that goes on."""
        rollout_id = row["id"].removeprefix("hub:")
        if row["status"] != "succeeded":
            return {}
        if rollout_id not in self._facts:
            async with self._at_once:
                spans = await self._client.query_spans(
                    rollout_id, "latest", name=AGL_ANNOTATION, limit=1, sort_by="sequence_id", sort_order="desc"
                )
            try:
                facts = [_facts(ResultSpan.decode(span)) for span in spans.items if is_result(span)]
            except MalformedSpan:
                facts = []  # of another version: the game is listed without its end
            self._facts[rollout_id] = facts[0] if facts else {}
            while len(self._facts) > _RESULTS_KEPT:
                self._facts.popitem(last=False)
        return self._facts[rollout_id]

    async def game(self, game_id: str) -> ShownGame:
        """A game as it stands. Raises NotThere and UnreadableGame."""
        followed = self._followed.get(game_id)
        if followed is not None and followed.game is not None:
            return followed.game
        watched = _Watched(self._client, game_id)
        await watched.look()
        return watched.game()

    async def turn_spans(self, game_id: str) -> list[TurnSpan]:
        """The game's model turns so far, in their order."""
        watched = _Watched(self._client, game_id)
        await watched.look()
        return watched.turns

    async def follow(self, game_id: str) -> AsyncIterator[ShownGame]:
        """The game at once, and whenever there is more, until it ends."""
        followed = self._followed.get(game_id)
        if followed is None:
            followed = self._followed[game_id] = _Followed(_Watched(self._client, game_id))
        followed.readers += 1
        seen = 0
        try:
            while True:
                async with followed.changed:
                    await followed.changed.wait_for(lambda seen=seen: followed.changes > seen)
                seen = followed.changes
                if followed.game is None:
                    raise followed.problem
                game = followed.game
                yield game
                if not game.live:  # as it was sent
                    return
        finally:
            followed.readers -= 1
            if followed.readers == 0:
                followed.task.cancel()
                if self._followed.get(game_id) is followed:
                    del self._followed[game_id]


class _Followed:
    """A game that pages watch, and how often it has changed."""

    def __init__(self, watched: "_Watched"):
        self.readers = 0
        self.changes = 0
        self.changed = asyncio.Condition()
        self.game: ShownGame | None = None
        self.problem: Exception = NotThere("not looked for yet")
        self.task = asyncio.create_task(self._keep_looking(watched))

    async def _keep_looking(self, watched: "_Watched") -> None:
        pause = _FOLLOW_SECONDS
        while self.changes == 0 or (self.game is not None and self.game.live):
            news = True
            try:
                news = await watched.look()
                self.game = watched.game() if news or self.game is None else self.game
            except (NotThere, UnreadableGame) as error:
                self.game, self.problem = None, error
            if news or self.changes == 0:
                async with self.changed:
                    self.changes += 1
                    self.changed.notify_all()
            pause = _FOLLOW_SECONDS if news else min(pause * 1.3, _IDLE_FOLLOW_SECONDS)
            await asyncio.sleep(pause)


class _Watched:
    """One rollout: its task, and the spans of its latest attempt, of which each look asks only for what is new."""

    def __init__(self, client: PatientStoreClient, game_id: str):
        self._client = client
        self._id = game_id
        self._rollout_id = game_id.removeprefix("hub:")
        self._rollout: Rollout | None = None
        self._task: GameTask | None = None
        self._attempt = ""
        self._seen = 0
        self._looks = 0
        self._result: ResultSpan | None = None
        self.turns: list[TurnSpan] = []

    async def look(self) -> bool:
        """Ask what is new; whether anything is. Raises NotThere and UnreadableGame."""
        status = None if self._rollout is None else self._rollout.status
        if self._rollout is None or self._looks % _LOOKS_PER_STATUS == 0 or self._result is not None:
            await self._read_rollout()
        self._looks += 1
        spans = (await self._client.query_spans(self._rollout_id, "latest", offset=self._seen)).items
        if spans and spans[0].attempt_id != self._attempt:  # it is played again, from its beginning
            if self._seen:
                self._seen = 0
                spans = (await self._client.query_spans(self._rollout_id, "latest")).items
            self._attempt, self.turns, self._result = spans[0].attempt_id, [], None
        self._seen += len(spans)
        before = len(self.turns), self._result
        try:
            self.turns += [TurnSpan.decode(span) for span in spans if is_turn(span)]
            self._result = next((ResultSpan.decode(span) for span in spans if is_result(span)), self._result)
        except MalformedSpan as error:
            raise UnreadableGame(f"a span of this game cannot be read by this version: {error}") from error
        return self._rollout.status != status or before != (len(self.turns), self._result)

    async def _read_rollout(self) -> None:
        found = await self._client.query_rollouts(rollout_id_in=[self._rollout_id], limit=1)
        if not found.items:
            raise NotThere(f"the hub has no game {self._rollout_id!r}; it may have archived it")
        self._rollout = found.items[0]
        if self._task is None:
            try:
                self._task = GameTask.decode(self._rollout.input)
            except ValueError as error:
                raise UnreadableGame(f"rollout {self._rollout_id} is no game of Werewolf: {error}") from error

    def game(self) -> ShownGame:
        """The game as the last look found it. Raises UnreadableGame."""
        spans = [*self.turns, self._result] if self._result is not None else [*self.turns]
        try:
            state = new_game(get_preset(self._task.preset, self._task.rules), self._task.seed)
            players = who_plays(self._task, {seat: state.role_of(seat) for seat in state.preset.seats})
            events = read_events(spans)
        except ValueError as error:
            raise UnreadableGame(f"this version cannot show the game: {error}") from error
        marks = [json.loads(span.events) for span in spans if span.events]
        asked = marks[-1].get("asked", ()) if marks else asked_in(state)
        live = self._rollout.status not in _ENDED and self._result is None
        notice = "" if live or self._result is not None else self._rollout.status
        about = _about(self._rollout, self._task)
        if self._result is not None:
            players = {seat.seat: seat.policy for seat in self._result.seats}
            about["outcomes"] = {str(seat.seat): seat.outcome for seat in self._result.seats}
            about["judgements"] = [vars(judgement) for judgement in self._result.judgements]
        data = {"preset": self._task.preset, "events": events or [event_data(event) for event in state.events]}
        return read_game(
            self._id,
            self._task.game_id,
            data,
            result=None if self._result is None else self._result.result,
            seed=self._task.seed,
            players=players,
            turns=tuple(map(turn_of, self.turns, first_events(self.turns))),
            about=about,
            live=live,
            asked=tuple(map(tuple, asked)) if live else (),
            notice="waiting" if live and self._rollout.status not in _PLAYED else notice,
        )


def first_events(turns: Sequence[TurnSpan]) -> list[int]:
    """Of each turn the number of the first event after it: that of the span that ends its round."""
    found: list[int] = []
    first = 0
    for turn in reversed(turns):
        first = json.loads(turn.events)["first"] if turn.events else first
        found.append(first)
    return found[::-1]


# --- rows -----------------------------------------------------------------------------------------------------------


def _row(rollout: Rollout) -> dict[str, Any] | None:
    """What the list says of a game before its end; None for a rollout that is no game."""
    given = rollout.input
    if not isinstance(given, Mapping) or "preset" not in given or "game_id" not in given:
        return None
    seated = sorted(
        {
            str(name)
            for rule in given.get("seating", ())
            if isinstance(rule, Mapping)
            for name in (rule.get("players") or {})
        }
    )
    run, _, version = (rollout.resources_id or "").rpartition(VERSION_SEPARATOR)
    return {
        "id": f"hub:{rollout.rollout_id}",
        "game": str(given["game_id"]),
        "group": str(given.get("group_id", "")),
        "preset": str(given["preset"]),
        "seed": given.get("seed"),
        "status": rollout.status,
        "mode": rollout.mode,
        "run": run,
        "version": int(version) if version.isdecimal() else None,
        "players": seated,
        "started": rollout.start_time,
        "ended": rollout.end_time,
        "people": bool((rollout.metadata or {}).get(PEOPLE)),
    }


def _facts(result: ResultSpan) -> dict[str, Any]:
    return {
        "result": result.result,
        "days": result.days,
        "turns": result.turns,
        "unusable": sum(seat.invalid_turns for seat in result.seats),
        "leaks": sum(seat.facts.get("identity_leak", 0.0) > 0 for seat in result.seats),
        "winners": sorted({seat.role for seat in result.seats if seat.outcome > 0}),
    }


def _about(rollout: Rollout, task: GameTask) -> dict[str, Any]:
    run, _, version = (rollout.resources_id or "").rpartition(VERSION_SEPARATOR)
    return {
        "run": run,
        "version": int(version) if version.isdecimal() else None,
        "game": task.game_id,
        "group": task.group_id,
        "mode": rollout.mode,
        "status": rollout.status,
    }


_FILTERS = {
    "run": lambda row, text: text in row["run"],
    "step": lambda row, text: str(row["version"]) == text,
    "preset": lambda row, text: row["preset"] == text,
    "policy": lambda row, text: any(text in name for name in row["players"]),
    "mode": lambda row, text: row["mode"] == text,
    "status": lambda row, text: row["status"] == text,
    "people": lambda row, text: row["people"],
    "result": lambda row, text: row.get("result") == text,
    "won": lambda row, text: text in row.get("winners", ()),
    "leak": lambda row, text: bool(row.get("leaks")),
    "unusable": lambda row, text: bool(row.get("unusable")),
}
"""Whether a row fits what is asked for, by the filter's name."""
_OF_THE_END = ("result", "won", "leak", "unusable")
"""Filters that only a finished game can fit, whose end is read for them."""
