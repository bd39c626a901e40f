"""Games of a hub, asked over the stock protocol, and cheaply: by cursor, a page at a time, each finished game once.

Rollouts come in the order in which they were enqueued, so the newest page is the last one: no sorting, and a hub with
50,000 games is asked no more than one with 50. What a finished game's last span says never changes and is kept here.
"""

import asyncio
from collections import OrderedDict
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

from agentlightning import Rollout
from agentlightning.semconv import AGL_ANNOTATION

from runners.werewolf.web.folders import NotThere, as_game
from runners.werewolf.web.live_game import LiveGame, turn_of
from runners.werewolf.web.transcripts import UnreadableGame, read_text
from runners.werewolf.web.views import ShownGame, number_in
from store.client import PatientStoreClient
from store.schema import VERSION_SEPARATOR
from store.token_spans import MalformedSpan
from store.werewolf import PEOPLE, AnswerSpan, GameTask, ResultSpan, TurnSpan, is_result, is_turn

PAGE = 40
_SCANNED_AT_MOST = 400
_RESULTS_KEPT = 20_000
_FOLLOW_SECONDS, _IDLE_FOLLOW_SECONDS = 1.5, 6.0
_LOOKS_PER_STATUS = 8
_ENDED = ("succeeded", "failed", "cancelled")
_PLAYED = ("preparing", "running")
_FILTERS = ("run", "step", "preset", "policy", "mode", "status", "result", "won", "leak", "unusable", "people")


class HubGames:
    """The games of one hub. A request to it is never made twice at once for the same game."""

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
        rows: list[dict[str, Any]] = []
        looked = 0
        while position > 0 and len(rows) < PAGE and looked < _SCANNED_AT_MOST:
            start = max(0, position - PAGE)
            found = await self._client.query_rollouts(limit=position - start, offset=start)
            looked += len(found.items)
            page = await self._rows(found.items, wanted)
            for index, row in reversed(page):
                if len(rows) == PAGE:
                    break
                rows.append(row)
                position = start + index
            else:
                position = start
        playing = await self._client.query_rollouts(status_in=list(_PLAYED), limit=PAGE)
        live = [] if query.get("before") else [row for _, row in await self._rows(playing.items, {})]
        return {"rows": rows, "playing": live, "next": position if position > 0 else None}

    async def _rows(self, rollouts: Sequence[Rollout], wanted: Mapping[str, str]) -> list[tuple[int, dict[str, Any]]]:
        rows = [(number, _row(rollout)) for number, rollout in enumerate(rollouts)]
        rows = [(number, row) for number, row in rows if row is not None and _fits(row, wanted)]
        facts = await asyncio.gather(*(self._facts_of(row) for _, row in rows))
        whole = [(number, row | fact) for (number, row), fact in zip(rows, facts, strict=True)]
        return [(number, row) for number, row in whole if _fits_end(row, wanted)]

    async def _facts_of(self, row: Mapping[str, Any]) -> dict[str, Any]:
        """What a finished game's result says; nothing of one that goes on."""
        rollout_id = row["id"].removeprefix("hub:")
        if row["status"] != "succeeded":
            return {}
        if rollout_id not in self._facts:
            result = await self._result(rollout_id)
            self._facts[rollout_id] = {} if result is None else _facts(result)
            while len(self._facts) > _RESULTS_KEPT:
                self._facts.popitem(last=False)
        return self._facts[rollout_id]

    async def _result(self, rollout_id: str) -> ResultSpan | None:
        async with self._at_once:
            spans = await self._client.query_spans(
                rollout_id, "latest", name=AGL_ANNOTATION, limit=1, sort_by="sequence_id", sort_order="desc"
            )
        for span in spans.items:
            if is_result(span):
                try:
                    return ResultSpan.decode(span)
                except MalformedSpan:
                    return None  # of another version: the game is listed without its end
        return None

    # --- one game -----------------------------------------------------------------------------------------------------

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
        """The game at once, and whenever there is more, until it ends. All who follow a game share one question."""
        followed = self._followed.get(game_id)
        if followed is None:
            followed = self._followed[game_id] = _Followed(_Watched(self._client, game_id))
            followed.task = asyncio.create_task(self._keep_looking(game_id, followed))
        followed.readers += 1
        seen = 0
        try:
            while True:
                async with followed.changed:
                    await followed.changed.wait_for(lambda seen=seen: followed.changes > seen)
                seen = followed.changes
                if followed.problem is not None:
                    raise followed.problem
                game = followed.game
                assert game is not None
                yield game
                if not game.live:  # as it was sent
                    return
        finally:
            followed.readers -= 1
            if followed.readers == 0:
                followed.task.cancel()
                if self._followed.get(game_id) is followed:
                    del self._followed[game_id]

    async def _keep_looking(self, game_id: str, followed: "_Followed") -> None:
        pause = _FOLLOW_SECONDS
        while True:
            try:
                news = await followed.watched.look()
                game = followed.watched.game() if news or followed.game is None else followed.game
                problem = None
            except (NotThere, UnreadableGame) as error:
                news, game, problem = True, None, error
            if news or followed.changes == 0:
                async with followed.changed:
                    followed.game, followed.problem = game, problem
                    followed.changes += 1
                    followed.changed.notify_all()
            if game is None or not game.live:
                return
            pause = _FOLLOW_SECONDS if news else min(pause * 1.3, _IDLE_FOLLOW_SECONDS)
            await asyncio.sleep(pause)


class _Followed:
    """A game that pages watch, and how often it has changed."""

    def __init__(self, watched: "_Watched"):
        self.watched = watched
        self.task: asyncio.Task[None]
        self.readers = 0
        self.changes = 0
        self.changed = asyncio.Condition()
        self.game: ShownGame | None = None
        self.problem: Exception | None = None


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
        self._live: LiveGame | None = None
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
            self._live = LiveGame(self._task)
        self._seen += len(spans)
        news = self._rollout.status != status
        for span in spans:
            try:
                if is_turn(span):
                    turn = TurnSpan.decode(span)
                    self.turns.append(turn)
                    self._live.take(turn)
                    news = True
                elif AnswerSpan.is_in(span):
                    self._live.take(AnswerSpan.decode(span))
                    news = True
                elif is_result(span):
                    self._result = ResultSpan.decode(span)
                    news = True
            except MalformedSpan as error:
                raise UnreadableGame(f"a span of this game cannot be read by this version: {error}") from error
        return news

    async def _read_rollout(self) -> None:
        found = await self._client.query_rollouts(rollout_id_in=[self._rollout_id], limit=1)
        if not found.items:
            raise NotThere(f"the hub has no game {self._rollout_id!r}; it may have archived it")
        self._rollout = found.items[0]
        if self._task is None:
            try:
                self._task = GameTask.decode(self._rollout.input)
                self._live = LiveGame(self._task)
            except ValueError as error:
                raise UnreadableGame(f"rollout {self._rollout_id} is no game of Werewolf: {error}") from error

    def game(self) -> ShownGame:
        """The game as the last look found it: as its transcript tells it once it has ended, and played again before."""
        about = _about(self._rollout, self._task)
        turns = tuple(turn_of(turn) for turn in self.turns)
        if self._result is not None:
            rewards = {str(seat.seat): seat.outcome for seat in self._result.seats}
            players = {seat.seat: seat.policy for seat in self._result.seats}
            read = read_text(self._result.transcript)
            about |= {"outcomes": rewards, "judgements": [vars(judgement) for judgement in self._result.judgements]}
            return as_game(self._id, self._task.game_id, read, players=players, turns=turns, about=about)
        live = self._rollout.status not in _ENDED
        notice = "" if live else self._rollout.status
        if live and self._rollout.status not in _PLAYED:
            notice = "waiting"
        elif live and self._live.blocked:
            notice = "blocked"
        return ShownGame(
            id=self._id,
            title=self._task.game_id,
            preset=self._task.preset,
            seats=self._live.seats,
            events=self._live.events,
            result=None,
            seed=self._task.seed,
            players=self._live.players,
            turns=turns,
            about=about,
            live=live,
            asked=self._live.asked if live else (),
            notice=notice,
        )


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


def _fits(row: Mapping[str, Any], wanted: Mapping[str, str]) -> bool:
    checks = {
        "run": lambda text: text in row["run"],
        "step": lambda text: str(row["version"]) == text,
        "preset": lambda text: row["preset"] == text,
        "policy": lambda text: any(text in name for name in row["players"]),
        "mode": lambda text: row["mode"] == text,
        "status": lambda text: row["status"] == text,
        "people": lambda text: row["people"],
        # Only a finished game can fit these; its end is looked at next.
        "result": lambda text: row["status"] == "succeeded",
        "won": lambda text: row["status"] == "succeeded",
        "leak": lambda text: row["status"] == "succeeded",
        "unusable": lambda text: row["status"] == "succeeded",
    }
    return all(checks[name](text) for name, text in wanted.items())


def _fits_end(row: Mapping[str, Any], wanted: Mapping[str, str]) -> bool:
    if "result" in wanted and row.get("result") != wanted["result"]:
        return False
    if "won" in wanted and wanted["won"] not in row.get("winners", ()):
        return False
    if "leak" in wanted and not row.get("leaks"):
        return False
    return not ("unusable" in wanted and not row.get("unusable"))
