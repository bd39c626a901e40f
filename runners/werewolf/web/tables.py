"""Tables that people play at in their browsers, each with a secret link of their own.

A table is a game like any other: the same AgentScope table, the same players for the other seats. It begins once all
its people have opened their links, and is kept as a transcript when it is over; if asked for, the hub gets it too.
"""

import asyncio
import json
import logging
import random
import re
import secrets
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Literal

import aiohttp
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from runners.attempt_spans import AttemptSpans
from runners.errors import CannotPlay
from runners.werewolf.agent import WerewolfGames
from runners.werewolf.brains import BRAINS
from runners.werewolf.game import PRESETS, get_preset, new_game
from runners.werewolf.transcript import event_data
from runners.werewolf.web.folders import NotThere, read_file
from runners.werewolf.web.seats import NotYourTurn, SeatView, UnusableTable
from runners.werewolf.web.views import PUBLIC, ShownGame, read_game, shown
from store.client import PatientStoreClient
from store.schema import TRAINED_POLICY, PolicyResources, TokenLimits
from store.token_spans import SpanRecord
from store.werewolf import DEMONSTRATION, EVALUATION, PEOPLE, PERSON, GameTask, ResultSpan, SeatingRule

__all__ = ["NotYourTurn", "SeatView", "Tables", "UnusableTable"]

logger = logging.getLogger(__name__)

RECORDS = ("no", EVALUATION, DEMONSTRATION)
_MOST_TABLES = 64
_ABANDONED_SECONDS = 30 * 60
"""A table is closed when no page of it has been open for so long."""
_LONGEST_CLOCK = 3600
_KEPT_NAME = re.compile(r"[\w-]+")

Resources = Callable[[], Awaitable[PolicyResources | None]]
Check = Callable[[PolicyResources], Awaitable[None]]
Turn = tuple[SpanRecord, float, float]


class Wanted(BaseModel):
    """A table as somebody asks for it; None stands for a field that is left out.

    people: how many. side: whose seats they take. others: who plays the other seats. clock: seconds for each answer, 0
    without a clock. record: what the hub keeps it as.
    """

    model_config = ConfigDict(frozen=True, strict=True)

    preset: Literal[*PRESETS] = "9p"
    people: int = Field(default=1, ge=1)
    side: Literal["any", "wolf", "good"] = "any"
    others: str = "scripted"
    clock: float = Field(default=120, ge=0, le=_LONGEST_CLOCK)
    seed: int = Field(default_factory=lambda: secrets.randbelow(2**31), ge=0, lt=2**31)
    record: Literal[RECORDS] = "no"

    @classmethod
    def read(cls, data: object) -> "Wanted":
        """Raises UnusableTable, naming what is wrong."""
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
        """The people's seats, drawn among those of their side."""
        deal = new_game(get_preset(self.preset), self.seed)
        free = [seat for seat in deal.preset.seats if self.side in ("any", deal.role_of(seat).side)]
        return sorted(random.Random(f"{self.seed}/people").sample(free, self.people))


class Tables:
    """All tables of this server.

    games: plays them. resources: what the other players are played with; None where only players without a model are.
    check: raises AddressRefused for resources with an address that is not to be called.
    keep: folder for finished games. tokenizer: of the policy that demonstrations are for; None takes the policy's own.
    client: the hub for games that are to be kept there. limits: the most tokens of a policy's call, and of a reply.
    """

    def __init__(
        self,
        games: WerewolfGames,
        keep: Path | None = None,
        resources: Resources | None = None,
        check: Check | None = None,
        tokenizer: Path | None = None,
        client: PatientStoreClient | None = None,
        limits: TokenLimits | None = None,
    ):
        self._games = games
        self._keep = keep
        self._resources = resources
        self._check = check
        self._tokenizer = tokenizer
        self._client = client
        self._limits = limits or TokenLimits(context_tokens=8192, reply_tokens=512)
        self._tables: dict[str, Table] = {}
        self._seats: dict[str, SeatView] = {}

    async def config(self) -> dict[str, Any]:
        """What can be asked for."""
        resources = await self._newest_resources()
        models: list[str] = []
        if resources is not None:
            models = [TRAINED_POLICY] if resources.endpoints else []
            models += [name for name in (*resources.players, *resources.frozen) if name != PERSON]
        return {
            "presets": {
                preset.name: {
                    "seats": len(preset.deck),
                    "wolves": sum(role.side == "wolf" for role in preset.deck),
                    "deck": sorted(role.value for role in preset.deck),
                }
                for preset in PRESETS.values()
            },
            "others": [*BRAINS, *models],
            "policy": None if resources is None else resources.resources_id,
            "records": self._records(resources),
            "kept": self._kept(),
        }

    async def open(self, data: object) -> dict[str, Any]:
        """A new table; its address is for the host, its links are one for each person. Raises UnusableTable."""
        wanted = Wanted.read(data)
        self._close_abandoned()
        playing = [table for table in self._tables.values() if table.phase in ("waiting", "playing")]
        if len(playing) >= _MOST_TABLES:
            raise UnusableTable(f"{_MOST_TABLES} tables are open already")
        if wanted.record != "no" and self._client is None:
            raise UnusableTable("there is no hub to keep the game in: start with --store URL")
        config, resources = await self.config(), await self._newest_resources()
        if wanted.record not in config["records"]:
            raise UnusableTable(
                "a demonstration is written down in a policy's tokens: start with --tokenizer DIR, or with its policy"
            )
        if resources is None:
            resources = PolicyResources(run_name="web", version=0, endpoints=(), model="")
        if wanted.others not in config["others"]:
            raise UnusableTable(f"others must be one of {', '.join(config['others'])}")
        try:
            if self._check is not None:
                await self._check(resources)
            longest = await self._games.context_tokens(resources, wanted.others, wanted.record == DEMONSTRATION)
        except CannotPlay as error:
            raise UnusableTable(str(error)) from error
        table = Table(wanted, resources, self._limits_within(longest), self._games, self._over)
        self._tables[table.id] = table
        self._seats |= table.links
        return {"table": table.id}

    def _close_abandoned(self) -> None:
        for table in [table for table in self._tables.values() if table.seconds_unseen > _ABANDONED_SECONDS]:
            table.stop()
            del self._tables[table.id]
            for secret in table.links:
                del self._seats[secret]

    def table(self, table_id: str) -> "Table":
        """A table by its host's address. Raises NotThere."""
        if table_id not in self._tables:
            raise NotThere("no such table; it is closed when nobody has looked at it for half an hour")
        table = self._tables[table_id]
        table.last_seen = time.monotonic()
        return table

    def seat(self, secret: str) -> SeatView:
        """A seat by its link. Raises NotThere."""
        if secret not in self._seats:
            raise NotThere("no such seat; a table is closed when nobody has looked at it for half an hour")
        return self._seats[secret]

    def game(self, game_id: str) -> ShownGame:
        """A finished table. Raises NotThere and UnreadableGame."""
        name = game_id.removeprefix("table:")
        if self._keep is None or not _KEPT_NAME.fullmatch(name) or not (self._keep / f"{name}.json").is_file():
            raise NotThere(f"no game {game_id!r}")
        return read_game(game_id, name, read_file(self._keep / f"{name}.json"))

    async def close(self) -> None:
        """End the tables that are still played."""
        for table in self._tables.values():
            table.stop()
        await asyncio.gather(*(table.task for table in self._tables.values() if table.task), return_exceptions=True)
        await self._games.close()

    def _records(self, resources: PolicyResources | None) -> list[str]:
        """What the hub can keep games as; a demonstration needs a policy in whose tokens it is written."""
        if self._client is None:
            return list(RECORDS[:1])
        served = resources is not None and (resources.endpoints or Path(resources.model or "-").is_dir())
        return [name for name in RECORDS if name != DEMONSTRATION or served or self._tokenizer is not None]

    def _limits_within(self, longest: int | None) -> TokenLimits:
        if longest is None or longest >= self._limits.context_tokens:
            return self._limits
        return TokenLimits(context_tokens=longest, reply_tokens=min(self._limits.reply_tokens, longest // 4))

    async def _newest_resources(self) -> PolicyResources | None:
        try:
            return None if self._resources is None else await self._resources()
        except ValueError as error:
            raise UnusableTable(str(error)) from error

    def _kept(self) -> list[dict[str, str]]:
        if self._keep is None or not self._keep.is_dir():
            return []
        names = sorted((path.stem for path in self._keep.glob("*.json")), reverse=True)
        return [{"id": f"table:{name}", "title": name} for name in names[:100]]

    async def _over(self, table: "Table", result: ResultSpan, turns: list[Turn]) -> None:
        """Keep a finished game: as a file, and in the hub if that was asked for."""
        if self._keep is not None:
            self._keep.mkdir(parents=True, exist_ok=True)
            data = result.as_data([turn for turn, *_ in turns])
            written = json.dumps(data, ensure_ascii=False, indent=1) + "\n"
            (self._keep / f"{table.name}.json").write_text(written, encoding="utf-8")
            table.replay = f"table:{table.name}"
        if table.wanted.record != "no" and self._client is not None:
            try:
                await self._store(table, result, turns)
            except (aiohttp.ClientError, ConnectionError, TimeoutError) as error:
                logger.exception("table %s is kept as a file only", table.name)
                table.problem = f"the hub could not be told of it ({type(error).__name__}); it is kept as a file"

    async def _store(self, table: "Table", result: ResultSpan, turns: list[Turn]) -> None:
        known = self._resources is not None and table.resources.endpoints
        rollout = await self._client.start_rollout(
            input=table.task_of_game.encode(),
            mode="train" if table.wanted.record == DEMONSTRATION else "val",
            resources_id=table.resources.resources_id if known else None,
            metadata={PEOPLE: table.wanted.record},
            worker_id="web",
        )
        spans: list[Any] = []
        writer = AttemptSpans(spans.append, (rollout.rollout_id, rollout.attempt.attempt_id))
        for turn in turns:
            writer.add_turn(*turn)
        writer.add_result(result, time.time())
        await self._client.upload_spans(spans)
        await self._client.update_attempt(rollout.rollout_id, rollout.attempt.attempt_id, status="succeeded")
        table.replay = f"hub:{rollout.rollout_id}"


class Table:
    """One game with people. id: the host's secret address. name: what it is called afterwards."""

    def __init__(
        self,
        wanted: Wanted,
        resources: PolicyResources,
        limits: TokenLimits,
        games: WerewolfGames,
        over: Callable[["Table", ResultSpan, list[Turn]], Awaitable[None]],
    ):
        self.id = secrets.token_urlsafe(18)
        self.name = f"{time.strftime('%Y%m%d-%H%M%S')}-{wanted.preset}-{secrets.token_hex(3)}"
        self.wanted = wanted
        self.resources = resources
        self._games = games
        self._over = over
        self.phase = "waiting"
        self.problem = ""
        self.replay = ""
        self._result: str | None = None
        self.task: asyncio.Task[None] | None = None
        self._views = {
            seat: SeatView(get_preset(wanted.preset), seat, wanted.clock, self._somebody_came)
            for seat in wanted.seats()
        }
        self.last_seen = time.monotonic()
        self.links = {secrets.token_urlsafe(18): view for view in self._views.values()}
        demonstrated = wanted.record == DEMONSTRATION
        self.task_of_game = GameTask(
            game_id=self.name,
            group_id=self.name,
            seed=wanted.seed,
            sampling_seed=secrets.randbelow(2**31),
            preset=wanted.preset,
            seating=(
                *(SeatingRule(seat=seat, players={PERSON: 1.0}) for seat in self._views),
                SeatingRule(players={wanted.others: 1.0}),
            ),
            trainable=frozenset(("wolf", "good")) if demonstrated else frozenset(),
            demonstrators=frozenset((PERSON,)) if demonstrated else frozenset(),
            limits=limits,
        )

    @property
    def seconds_unseen(self) -> float:
        """How long no page of the table has been open."""
        if any(view.watchers for view in self._views.values()):
            return 0.0
        return time.monotonic() - max(self.last_seen, *(view.last_seen for view in self._views.values()))

    def status(self) -> dict[str, Any]:
        """What the host sees: links, who has come, and what the whole table heard; never more."""
        heard = next(iter(self._views.values())).player.known
        events = tuple(event_data(event) for event in heard if event.audience is None)
        game = ShownGame("", "", self.wanted.preset, len(get_preset(self.wanted.preset).seats), events, self._result)
        return {
            "phase": self.phase,
            "problem": self.problem,
            "preset": self.wanted.preset,
            "clock": self.wanted.clock,
            "people": [{"link": f"/seat/{link}", "joined": view.joined} for link, view in self._shuffled_links()],
            "game": shown(game, PUBLIC),
            "replay": self.replay,
        }

    def _shuffled_links(self) -> list[tuple[str, SeatView]]:
        return sorted(self.links.items(), key=lambda item: item[0])  # by secret: the order tells nothing of the seats

    def stop(self) -> None:
        """End it where it is."""
        if self.task is not None:
            self.task.cancel()

    def _somebody_came(self) -> None:
        if self.task is None and all(view.joined for view in self._views.values()):
            self.task = asyncio.create_task(self._play())

    async def _play(self) -> None:
        turns: list[Turn] = []
        self._set("playing")
        guests = {PERSON: lambda seat: self._views[seat].player}
        try:
            result = await self._games.play(
                self.task_of_game, self.resources, lambda *turn: turns.append(turn), guests=guests
            )
            self._result = result.result
            await self._over(self, result, turns)
            self._set("over")
        except CannotPlay as error:
            self.problem = str(error)
            self._set("failed")
        except asyncio.CancelledError:
            raise
        except Exception as error:  # whatever went wrong, the people at the table are told
            logger.exception("table %s failed", self.name)
            self.problem = f"{type(error).__name__}; the server's log says more"
            self._set("failed")

    def _set(self, phase: str) -> None:
        self.phase = phase
        for view in self._views.values():
            view.phase, view.problem, view.result = phase, self.problem, self._result
            view.replay = self.replay if phase == "over" else ""
            view.notify()
