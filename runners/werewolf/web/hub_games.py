"""A hub's games, over the stock protocol, one page at a time.

Rollouts are in the order of enqueueing, so the last page is the newest: without sorting, 50,000 games cost no more
than 50. Results of finished games never change and are cached.
"""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

from runners.werewolf.game import Side, get_preset, new_game
from runners.werewolf.seating import players_by_seat
from runners.werewolf.transcript import asked_in, event_data
from runners.werewolf.web.folders import NotThere
from runners.werewolf.web.views import ShownGame, UnreadableGame, number_in, read_game
from store.client import StoreClient
from store.protocol import AGL_ANNOTATION, CLOSED, Rollout
from store.schema import VERSION_SEPARATOR
from store.token_spans import MalformedSpan
from store.werewolf import PEOPLE, GameTask, ResultSpan, TurnSpan, read_events

PAGE = 40
_SCANNED_AT_MOST = 400
_RESULTS_KEPT = 20_000
_SOONEST_LOOK_SECONDS, _LATEST_LOOK_SECONDS = 1.5, 6.0
_LOOKS_PER_STATUS = 8
_PLAYED = ("preparing", "running")

_FILTERS = {
    "run": lambda row, text: text in row["run"],
    "step": lambda row, text: str(row["version"]) == text,
    "preset": lambda row, text: row["preset"] == text,
    "policy": lambda row, text: any(text in name for names in row["players"].values() for name in names),
    "mode": lambda row, text: row["mode"] == text,
    "status": lambda row, text: row["status"] == text,
    "people": lambda row, text: row["people"],
}
_FILTERS_OF_THE_END = {
    "result": lambda row, text: row.get("result") == text,
    "won": lambda row, text: text in row.get("winners", ()),
    "leak": lambda row, text: bool(row.get("leaks")),
    "unusable": lambda row, text: bool(row.get("unusable")),
}
"""Filters on results, which only finished games can pass."""


class HubGames:
    """The games of one hub. All pages that follow a game share requests."""

    def __init__(self, client: StoreClient, url: str):
        self.url = url
        self._client = client
        self._ends: dict[str, dict[str, Any]] = {}  # of finished games, by rollout
        self._at_once = asyncio.Semaphore(4)
        self._followed: dict[str, _Watched] = {}

    async def close(self) -> None:
        """Close the connection."""
        await self._client.close()

    async def page(self, query: Mapping[str, str]) -> dict[str, Any]:
        """A page of games, newest first.

        query: filters by name, and the cursor ``before`` of the previous page; without it the newest games.
        Returns {rows, playing, next}; ``next`` is None at the end. With filters a page scans at most 400 games;
        ``next`` continues from there.
        """
        total = (await self._client.query_rollouts(limit=1)).total  # the hub requires at least 1
        position = min(number_in(query["before"]) or 0, total) if query.get("before") else total
        last = max(0, position - _SCANNED_AT_MOST)
        rows: list[dict[str, Any]] = []
        while position > last and len(rows) < PAGE:
            start = max(0, position - PAGE)
            found = await self._client.query_rollouts(limit=position - start, offset=start)
            page = (await self._rows(found, query))[::-1][: PAGE - len(rows)]
            rows += [row for _, row in page]
            position = start + page[-1][0] if len(rows) == PAGE else start
        playing = await self._client.query_rollouts(status_in=list(_PLAYED), limit=PAGE)
        live = [] if query.get("before") else [row for _, row in await self._rows(playing, {})]
        return {"rows": rows, "playing": live, "next": position if position > 0 else None}

    async def _rows(self, rollouts: Sequence[Rollout], query: Mapping[str, str]) -> list[tuple[int, dict[str, Any]]]:
        """(index, row) of each rollout that is a game and passes the filters."""
        filters = [(fits, query[name]) for name, fits in _FILTERS.items() if query.get(name)]
        of_the_end = [(fits, query[name]) for name, fits in _FILTERS_OF_THE_END.items() if query.get(name)]
        rows = [
            (number, row)
            for number, rollout in enumerate(rollouts)
            if (row := _row(rollout)) is not None
            and (row["status"] == "succeeded" or not of_the_end)
            and all(fits(row, text) for fits, text in filters)
        ]
        ends = await asyncio.gather(*(self._end_of(row) for _, row in rows))
        whole = [(number, row | end) for (number, row), end in zip(rows, ends, strict=True)]
        return [one for one in whole if all(fits(one[1], text) for fits, text in of_the_end)]

    async def _end_of(self, row: Mapping[str, Any]) -> dict[str, Any]:
        """The result of a finished game; empty for a running one."""
        rollout_id = row["id"].removeprefix("hub:")
        if row["status"] != "succeeded":
            return {}
        if rollout_id not in self._ends:
            async with self._at_once:
                spans = await self._client.query_spans(
                    rollout_id, "latest", name=AGL_ANNOTATION, limit=1, sort_by="sequence_id", sort_order="desc"
                )
            try:
                ends = [_end(ResultSpan.decode(span)) for span in spans if ResultSpan.is_in(span)]
            except MalformedSpan:
                ends = []  # of another version: the game is listed without its result
            self._ends[rollout_id] = ends[0] if ends else {}
            while len(self._ends) > _RESULTS_KEPT:
                del self._ends[next(iter(self._ends))]
        return self._ends[rollout_id]

    async def game(self, game_id: str) -> ShownGame:
        """A game in its current state. Raises NotThere and UnreadableGame."""
        return (await self._watched(game_id)).game

    async def turn_spans(self, game_id: str) -> list[TurnSpan]:
        """The game's model turns so far, in order."""
        return (await self._watched(game_id)).turns

    async def _watched(self, game_id: str) -> "_Watched":
        watched = self._followed.get(game_id)
        if watched is None or watched.game is None:
            watched = _Watched(self._client, game_id)
            await watched.look()
        return watched

    async def follow(self, game_id: str) -> AsyncIterator[ShownGame]:
        """The game now, and after each change, until it ends."""
        watched = self._followed.setdefault(game_id, _Watched(self._client, game_id))
        watched.readers += 1
        seen = None
        try:
            while True:
                async with watched.lock:  # one reader polls for all
                    if watched.game is seen and watched.next_look <= time.monotonic():
                        await watched.look()
                if watched.game is not seen:
                    seen = watched.game
                    yield seen
                    if not seen.live:  # as it was sent
                        return
                await asyncio.sleep(max(0.0, watched.next_look - time.monotonic()))
        finally:
            watched.readers -= 1
            if watched.readers == 0:
                del self._followed[game_id]


class _Watched:
    """One rollout: its task, and the spans of its latest attempt, fetched incrementally.

    game: of the last poll, a new object after every change; None before the first.
    """

    def __init__(self, client: StoreClient, game_id: str):
        self.game: ShownGame | None = None
        self.turns: list[TurnSpan] = []
        self.readers = 0
        self.lock = asyncio.Lock()
        self.next_look = 0.0
        self._pause = _SOONEST_LOOK_SECONDS
        self._client = client
        self._id = game_id
        self._rollout_id = game_id.removeprefix("hub:")
        self._rollout: Rollout | None = None
        self._status: str | None = None  # of ``game``
        self._attempt = ""
        self._seen = 0
        self._looks = 0
        self._result: ResultSpan | None = None

    async def look(self) -> None:
        """Fetch news. Raises NotThere and UnreadableGame."""
        if self._looks % _LOOKS_PER_STATUS == 0 or self._result is not None:
            found = await self._client.query_rollouts(rollout_id_in=[self._rollout_id], limit=1)
            if not found:
                raise NotThere(f"the hub has no game {self._rollout_id!r}; it may have been deleted")
            self._rollout = found[0]
        self._looks += 1
        # The last known span comes again, since only its absence shows a new attempt with fewer spans.
        spans = await self._client.query_spans(self._rollout_id, "latest", offset=max(self._seen - 1, 0))
        is_retried = self._seen > 0 and not any(span.attempt_id == self._attempt for span in spans)
        if is_retried:
            self._seen, self._attempt, self.turns, self._result = 0, "", [], None
            spans = await self._client.query_spans(self._rollout_id, "latest")
        elif self._seen:
            del spans[0]
        if spans:
            self._attempt = spans[0].attempt_id
        self._seen += len(spans)
        try:
            self.turns += [TurnSpan.decode(span) for span in spans if TurnSpan.is_in(span)]
            self._result = next((ResultSpan.decode(span) for span in spans if ResultSpan.is_in(span)), self._result)
            has_news = bool(spans) or is_retried or self._rollout.status != self._status
            self.game = self._read_game() if has_news else self.game
            self._status = self._rollout.status
        except (ValueError, LookupError, TypeError) as error:
            raise UnreadableGame(f"rollout {self._rollout_id} is incompatible with this version: {error}") from error
        self._pause = _SOONEST_LOOK_SECONDS if has_news else min(self._pause * 1.3, _LATEST_LOOK_SECONDS)
        self.next_look = time.monotonic() + self._pause

    def _read_game(self) -> ShownGame:
        task, status, result = GameTask.decode(self._rollout.input), self._rollout.status, self._result
        state = new_game(get_preset(task.preset, task.rules), task.seed)
        spans = self.turns if result is None else [*self.turns, result]
        asked = next((json.loads(span.events)["asked"] for span in reversed(spans) if span.events), asked_in(state))
        live = status not in CLOSED and result is None
        row = _row(self._rollout)
        about = {name: row[name] for name in ("run", "version", "game", "mode", "status")} | {"group": task.group_id}
        if result is None:
            players = players_by_seat(task, {seat: state.role_of(seat) for seat in state.preset.seats})
        else:
            players = {seat.seat: seat.policy for seat in result.seats}
            about["outcomes"] = {str(seat.seat): seat.outcome for seat in result.seats}
        return read_game(
            {"preset": task.preset, "seed": task.seed, "players": players, "result": result and result.result},
            id=self._id,
            title=task.game_id,
            events=read_events(spans) or [event_data(event) for event in state.events],
            turns=[turn.as_data() for turn in self.turns],
            about=about,
            attempt=self._attempt,
            live=live,
            asked=asked if live else (),
            notice=status if not live and result is None else "waiting" if live and status not in _PLAYED else "",
        )


def _row(rollout: Rollout) -> dict[str, Any] | None:
    """The list's row of a game, as ``views.card_of``; None for a rollout that is not a game."""
    try:
        task = GameTask.decode(rollout.input)
    except ValueError:
        return None
    run, _, version = (rollout.resources_id or "").rpartition(VERSION_SEPARATOR)
    return {
        "id": f"hub:{rollout.rollout_id}",
        "game": task.game_id,
        "preset": task.preset,
        "status": rollout.status,
        "mode": rollout.mode,
        "run": run,
        "version": number_in(version),
        "players": {
            side: sorted({name for rule in task.seating if rule.side in (None, side) for name in rule.players})
            for side in Side
        },
        "people": bool((rollout.metadata or {}).get(PEOPLE)),
    }


def _end(result: ResultSpan) -> dict[str, Any]:
    return {
        "result": result.result,
        "days": result.days,
        "unusable": sum(seat.invalid_turns for seat in result.seats),
        "leaks": sum(seat.facts.get("identity_leak", 0.0) > 0 for seat in result.seats),
        "winners": sorted({seat.role for seat in result.seats if seat.outcome > 0}),
        "players": {side: sorted({seat.policy for seat in result.seats if seat.side == side}) for side in Side},
    }
