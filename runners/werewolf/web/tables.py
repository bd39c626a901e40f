"""Tables for people in browsers, each person with a secret link.

A table is a usual game with the same AgentScope table and players. It begins when all people have opened their links.
The finished game is stored as a file, optionally in the hub, too.
"""

import asyncio
import json
import logging
import os
import random
import secrets
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import aiohttp
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from runners.attempt_spans import AttemptSpans
from runners.errors import CannotPlay
from runners.werewolf.agent import WerewolfGames
from runners.werewolf.brains import BRAINS
from runners.werewolf.game import PRESETS, get_preset, new_game
from runners.werewolf.players import Player
from runners.werewolf.transcript import event_data
from runners.werewolf.web.folders import NotThere
from runners.werewolf.web.opponents import Opponents, Practice
from runners.werewolf.web.seats import PacedPlayer, Seat, UnusableTable
from runners.werewolf.web.views import PUBLIC, ShownGame, shown
from store.client import StoreClient, describe_error
from store.protocol import RolloutConfig
from store.schema import TRAINED_POLICY, PolicyResources, TokenLimits
from store.token_spans import SpanRecord
from store.werewolf import DEMONSTRATION, EVALUATION, PEOPLE, PERSON, GameTask, ResultSpan, SeatingRule

logger = logging.getLogger(__name__)

RECORDS = ("no", EVALUATION, DEMONSTRATION)
_MOST_TABLES = 64
_ABANDONED_SECONDS = 30 * 60
"""A table is closed after this time without an open page."""
_LONGEST_CLOCK = 3600
_STORED_WITHIN_SECONDS = 600
"""For all requests that store a game; then the hub closes its rollout."""

Turn = tuple[SpanRecord, float, float]


class TableRequest(BaseModel):
    """The request for a table; None means the default.

    people: number of people. side: of their seats. others: player of the other seats. clock: seconds for each answer;
    0: no limit. pace: delay of players without a model, in seconds. record: how the hub stores the game.
    """

    model_config = ConfigDict(frozen=True, strict=True)

    preset: Literal[*PRESETS] = "5p_tiny"
    people: int = Field(default=1, ge=1)
    side: Literal["any", "wolf", "good"] = "any"
    others: str = "scripted"
    clock: float = Field(default=120, ge=0, le=_LONGEST_CLOCK)
    pace: float = Field(default=2, ge=0, le=10)
    seed: int = Field(default_factory=lambda: secrets.randbelow(2**31), ge=0, lt=2**31)
    record: Literal[RECORDS] = "no"

    @classmethod
    def read(cls, data: object) -> "TableRequest":
        """Raises UnusableTable, naming the field at fault."""
        if not isinstance(data, dict):
            raise UnusableTable("the request body must be a JSON object")
        try:
            wanted = cls.model_validate({name: value for name, value in data.items() if value is not None})
        except ValidationError as error:
            wrong = error.errors()[0]
            raise UnusableTable(f"{'.'.join(map(str, wrong['loc']))}: {wrong['msg']}") from error
        most = sum(wanted.side in ("any", role.side) for role in get_preset(wanted.preset).deck)
        if wanted.people > most:
            raise UnusableTable(f"people must be a number from 1 to {most}")
        return wanted

    def seats(self) -> list[int]:
        """The people's seats, drawn from their side."""
        deal = new_game(get_preset(self.preset), self.seed)
        free = [seat for seat in deal.preset.seats if self.side in ("any", deal.role_of(seat).side)]
        return sorted(random.Random(f"{self.seed}/people").sample(free, self.people))


class Tables:
    """All tables of this server.

    games: plays them. opponents: of the people. keep: folder for finished games.
    tokenizer: for demonstrations; None: the policy's.
    client: of the hub for recorded games, or None. limits: of a policy's call and reply, in tokens.
    """

    def __init__(
        self,
        games: WerewolfGames,
        opponents: Opponents,
        keep: Path,
        tokenizer: Path | None,
        client: StoreClient | None,
        limits: TokenLimits,
    ):
        self._games = games
        self._opponents = opponents
        self._keep = keep
        self._tokenizer = tokenizer
        self._client = client
        self._limits = limits
        self._tables: dict[str, Table] = {}
        self._seats: dict[str, Seat] = {}

    async def choices(self) -> dict[str, Any]:
        """Options of a request. Raises UnusableTable if the vLLM of ``--model-url`` is unreachable."""
        resources = await self._resources()
        practice = self._opponents.practice(resources) if resources.endpoints else None
        about = practice and {"preset": practice.preset, "sides": practice.sides}
        return self._choices(resources) | {"practice": about}

    def kept(self) -> dict[str, Path]:
        """The stored games by id, newest first."""
        return {f"table:{path.stem}": path for path in sorted(self._keep.glob("*.json"), reverse=True)}

    async def _resources(self) -> PolicyResources:
        try:
            return await self._opponents.newest()
        except ValueError as error:
            raise UnusableTable(str(error)) from error

    def _choices(self, resources: PolicyResources) -> dict[str, Any]:
        models = [name for name in (*resources.players, *resources.frozen) if name != PERSON]
        records = RECORDS if self._client is not None else RECORDS[:1]
        # A demonstration is recorded in a policy's tokens.
        known = self._tokenizer or resources.endpoints or Path(resources.model or "-").is_dir()
        return {
            "others": [*BRAINS, *((TRAINED_POLICY,) if resources.endpoints else ()), *models],
            "policy": resources.resources_id,
            "records": [name for name in records if name != DEMONSTRATION or known],
        }

    async def open(self, data: object) -> dict[str, Any]:
        """Open a table; returns the host's address and one for each person. Raises UnusableTable."""
        wanted = TableRequest.read(data)
        self._close_abandoned()
        if sum(table.phase in ("waiting", "playing") for table in self._tables.values()) >= _MOST_TABLES:
            raise UnusableTable(f"{_MOST_TABLES} tables are open already; close one first")
        self._check_keep()
        resources = await self._resources()
        choices = self._choices(resources)
        if wanted.record not in choices["records"]:
            raise UnusableTable(
                "recording needs a hub: start with --store URL"
                if self._client is None
                else "a demonstration needs a policy's tokenizer: start with a policy, or with --tokenizer DIR"
            )
        if wanted.others not in choices["others"]:
            raise UnusableTable(f"others must be one of {', '.join(choices['others'])}")
        try:
            if wanted.others not in BRAINS or wanted.record == DEMONSTRATION:  # else no model is called
                await self._opponents.addresses.check(resources)
            longest = await self._games.context_tokens(resources, wanted.others, wanted.record == DEMONSTRATION)
        except CannotPlay as error:
            raise UnusableTable(str(error)) from error
        limits = self._limits
        if longest is not None and longest < limits.context_tokens:
            limits = TokenLimits(context_tokens=longest, reply_tokens=min(limits.reply_tokens, longest // 4))
        practice = self._opponents.practice(resources) if wanted.others == TRAINED_POLICY else None
        try:
            table = Table(wanted, resources, limits, self, practice)
        except ValueError as error:
            raise UnusableTable(f"the rules of the policy's run do not fit this version: {error}") from error
        self._tables[table.id] = table
        self._seats |= table.links
        return {"table": table.id, "seats": [f"/seat/{link}" for link in table.links]}

    def _check_keep(self) -> None:
        try:
            self._keep.mkdir(parents=True, exist_ok=True)
            writable = os.access(self._keep, os.W_OK)
        except OSError:
            writable = False
        if not writable:
            raise UnusableTable(f"games cannot be stored in {self._keep}: start with --keep and another folder")

    def _close_abandoned(self) -> None:
        for table in [table for table in self._tables.values() if table.seconds_unseen > _ABANDONED_SECONDS]:
            table.stop()
            del self._tables[table.id]
            for secret in table.links:
                del self._seats[secret]

    def table(self, table_id: str) -> "Table":
        """A table by its secret id. Raises NotThere."""
        if table_id not in self._tables:
            raise NotThere("no such table; tables are closed after half an hour without an open page")
        table = self._tables[table_id]
        table.last_seen = time.monotonic()
        return table

    def seat(self, secret: str) -> Seat:
        """A seat by its link. Raises NotThere."""
        if secret not in self._seats:
            raise NotThere("no such seat; tables are closed after half an hour without an open page")
        return self._seats[secret]

    async def close(self) -> None:
        """Stop all tables."""
        for table in self._tables.values():
            table.stop()
        await asyncio.gather(*(table.task for table in self._tables.values() if table.task), return_exceptions=True)
        await self._games.close()

    async def play(self, table: "Table") -> tuple[ResultSpan, str, str]:
        """Play and store a table's game; returns (result, replay id, problem). Raises CannotPlay."""
        turns: list[Turn] = []
        guests: dict[str, Callable[[int], Player]] = {PERSON: lambda seat: table.seats[seat]}
        if (brain := BRAINS.get(table.without_model)) and table.pace:
            key = table.task_of_game.sampling_seed
            guests[table.without_model] = lambda seat: PacedPlayer(
                seat, brain(random.Random(f"{key}/{seat}")), table.pace
            )
        result = await self._games.play(table.task_of_game, table.resources, lambda *turn: turns.append(turn), guests)
        replay = problem = ""
        written = json.dumps(result.as_data([turn for turn, *_ in turns]), ensure_ascii=False, indent=1) + "\n"
        try:
            (self._keep / f"{table.name}.json").write_text(written, encoding="utf-8")
            replay = f"table:{table.name}"
        except OSError as error:  # a full disk
            logger.exception("table %s is not stored", table.name)
            problem = f"the game could not be stored: {error}"
        if table.wanted.record != "no":
            try:
                replay = f"hub:{await self._store(table, result, turns)}"
            except (aiohttp.ClientError, ConnectionError, TimeoutError) as error:
                logger.exception("table %s is stored as a file only", table.name)
                problem = problem or f"the hub could not store it ({describe_error(error)}); it is stored as a file"
        return result, replay, problem

    async def _store(self, table: "Table", result: ResultSpan, turns: list[Turn]) -> str:
        resources = table.resources
        if resources.endpoints and not await self._client.query_resources(resources_id=resources.resources_id):
            # The run may use another hub.
            await self._client.update_resources(resources.resources_id, resources.encode())
        rollout = await self._client.start_rollout(
            input=table.task_of_game.encode(),
            mode="train" if table.wanted.record == DEMONSTRATION else "val",
            resources_id=resources.resources_id if resources.endpoints else None,
            config=RolloutConfig(timeout_seconds=_STORED_WITHIN_SECONDS),
            metadata={PEOPLE: table.wanted.record},
            worker_id="web",
        )
        spans: list[Any] = []
        writer = AttemptSpans(spans.append, (rollout.rollout_id, rollout.attempt.attempt_id))
        for turn in turns:
            writer.add_turn(*turn)
        writer.add_result(result, time.time())
        if rejected := await self._client.upload_spans(spans):
            raise ConnectionError(f"the hub rejects the game's spans: {'; '.join(rejected.values())}")
        await self._client.update_attempt(rollout.rollout_id, rollout.attempt.attempt_id, status="succeeded")
        return rollout.rollout_id


class Table:
    """One game with people. id: the host's secret. name: of the stored game. practice: of the policy at the table.

    without_model: name of the players without a model, or of the only other player.
    roles: seat -> role, known after the game. again: a request for another such table. replay: id of the stored game.
    phase: "waiting", "playing", "over" or "failed". clock: seconds for each answer; 0: no limit.
    """

    def __init__(
        self,
        wanted: TableRequest,
        resources: PolicyResources,
        limits: TokenLimits,
        tables: Tables,
        practice: Practice | None = None,
    ):
        self.id = secrets.token_urlsafe(18)
        self.name = f"{time.strftime('%Y%m%d-%H%M%S')}-{wanted.preset}-{secrets.token_hex(3)}"
        self.wanted = wanted
        self.resources = resources
        self._tables = tables
        rules = practice.rules if practice and practice.preset == wanted.preset else {}
        self.preset, self.clock, self.pace = get_preset(wanted.preset, rules), wanted.clock, wanted.pace
        self.phase, self.problem, self.replay, self.result = "waiting", "", "", None
        self.roles: dict[int, str] = {}
        self.again = wanted.model_dump(exclude={"seed"})
        self.task: asyncio.Task[None] | None = None
        self.last_seen = time.monotonic()
        self.seats = {seat: Seat(seat, self) for seat in wanted.seats()}
        # Sorted by secret, so that the order does not reveal seats.
        self.links = dict(sorted((secrets.token_urlsafe(18), seat) for seat in self.seats.values()))
        # A policy that trained one side plays that side; scripted players play the other.
        side = practice.sides[0] if practice and len(practice.sides) == 1 else None
        self.without_model = "scripted" if side else wanted.others
        demonstrated = wanted.record == DEMONSTRATION
        self.task_of_game = GameTask(
            game_id=self.name,
            group_id=self.name,
            seed=wanted.seed,
            sampling_seed=secrets.randbelow(2**31),
            preset=wanted.preset,
            rules=rules,
            seating=(
                *(SeatingRule(seat=seat, players={PERSON: 1.0}) for seat in self.seats),
                SeatingRule(side=side, players={wanted.others: 1.0}),
                *([SeatingRule(players={self.without_model: 1.0})] if side else []),
            ),
            trainable=frozenset(("wolf", "good")) if demonstrated else frozenset(),
            demonstrators=frozenset((PERSON,)) if demonstrated else frozenset(),
            limits=limits,
        )

    @property
    def nightfall(self) -> float:
        """Delay of nightfall for each person, in seconds; seats receive it one after the other."""
        return self.pace / len(self.seats)

    @property
    def seconds_unseen(self) -> float:
        """Seconds since a page of the table was open."""
        if any(seat.watchers for seat in self.seats.values()):
            return 0.0
        return time.monotonic() - max(self.last_seen, *(seat.last_seen for seat in self.seats.values()))

    def status(self) -> dict[str, Any]:
        """The host's view: links, who has joined, and public events only."""
        heard = next(iter(self.seats.values())).known
        events = [event_data(event) for event in heard if event.audience is None]
        game = ShownGame(preset=self.preset.name, events=events, result=self.result)
        return {
            "phase": self.phase,
            "problem": self.problem,
            "preset": self.preset.name,
            "people": [{"link": f"/seat/{link}", "joined": seat.joined} for link, seat in self.links.items()],
            "game": shown(game, PUBLIC),
            "replay": self.replay,
        }

    def stop(self) -> None:
        """Cancel the game."""
        if self.task is not None:
            self.task.cancel()

    def person_joined(self) -> None:
        """Begin when all people have joined."""
        if self.task is None and all(seat.joined for seat in self.seats.values()):
            self.task = asyncio.create_task(self._play())

    async def _play(self) -> None:
        self.phase = "playing"
        self._notify()
        try:
            result, self.replay, self.problem = await self._tables.play(self)
            self.roles = {seat.seat: seat.role for seat in result.seats}
            self.phase, self.result = "over", result.result
        except CannotPlay as error:
            self.phase, self.problem = "failed", str(error)
        except Exception as error:  # show any error to the people at the table
            logger.exception("table %s failed", self.name)
            self.phase, self.problem = "failed", f"{type(error).__name__}; see the server's log"
        self._notify()

    def _notify(self) -> None:
        for seat in self.seats.values():
            seat.notify()
