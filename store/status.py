"""``python -m store status``: what a hub is doing, on one screen or as JSON, asked over the stock protocol."""

import asyncio
import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from email.utils import parsedate_to_datetime
from typing import Any

import aiohttp
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from store.auth import TOKEN_VARIABLE
from store.errors import OneLineError
from store.printable import printable

STATES = ("queuing", "requeuing", "preparing", "running", "succeeded", "failed", "cancelled")
"""The states of a game, in the order of its life."""

_PLAYED = ("preparing", "running")
_CLOSED = ("succeeded", "failed", "cancelled")
_RECENT_GAMES = 500
_RECENT_SECONDS = 600.0
_SILENT_SECONDS = 60.0
_LONGEST_KIND = 60
_REQUEST_SECONDS = 30.0
_OF_A_MACHINE = re.compile(r"(?P<host>.+?)-\d+(-[0-9a-f]{8}(-\d+)?)?", re.DOTALL)
"""Names of runners: host and process id, mostly with random letters behind, and then with the number of a process."""

Record = Mapping[str, Any]
"""A rollout, attempt or worker as the hub's JSON has it."""


class HubSilent(OneLineError):
    """The hub does not answer, or does not want to."""


@dataclass(frozen=True)
class Machine:
    """The runners of one machine: those whose worker id is ``<machine>-<process id>``.

    runners: those heard of in the last minute. playing: games under way. finished, failed: since the runners started.
    games_per_minute: succeeded, over the last ten minutes. silent_seconds: since one of them was heard of.
    """

    name: str
    runners: int
    playing: int
    finished: int
    failed: int
    games_per_minute: float
    silent_seconds: float | None


@dataclass(frozen=True)
class Running:
    """An attempt under way; ``seconds`` since it began."""

    rollout_id: str
    attempt_id: str
    worker_id: str | None
    seconds: float


@dataclass(frozen=True)
class HubStatus:
    """A hub at one moment.

    games: number by state, of ``STATES``. games_per_minute: succeeded, over the last ten minutes.
    policies: games under way by the resources they are played with. oldest: None when nothing is under way.
    errors: the latest games that failed or wait for another try, by kind of error, the most frequent first.
    What the hub's users call things has lost its escape codes.
    """

    url: str
    games: dict[str, int]
    games_per_minute: float
    machines: list[Machine]
    policies: dict[str, int]
    oldest: Running | None
    errors: dict[str, int]


async def show(url: str, token: str | None, *, every_seconds: float | None = None, as_json: bool = False) -> None:
    """Print a hub's status once, or again and again. Raises HubSilent, the latter only if it never answered."""
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    timeout = aiohttp.ClientTimeout(total=_REQUEST_SECONDS)
    async with aiohttp.ClientSession(headers=headers, timeout=timeout) as session:
        status = await ask(session, url)
        if as_json:
            while True:
                print(json.dumps(asdict(status), ensure_ascii=False), flush=True)
                if every_seconds is None:
                    return
                await asyncio.sleep(every_seconds)
                status = await ask(session, url)
        console = Console()
        if every_seconds is None:
            console.print(render(status))
            return
        with Live(render(status), console=console, screen=True, auto_refresh=False) as live:
            while True:
                await asyncio.sleep(every_seconds)
                try:
                    live.update(render(await ask(session, url)), refresh=True)
                except HubSilent as silence:  # it may come back, and then the screen goes on
                    live.update(Text(str(silence), style="red"), refresh=True)


async def ask(session: aiohttp.ClientSession, url: str) -> HubStatus:
    """A hub's status. Raises HubSilent."""
    root = url.rstrip("/")

    async def search(what: str, **query: Any) -> tuple[dict[str, Any], float]:
        async with session.post(f"{root}/v1/agl/{what}/search", json=query) as response:
            if response.status == 401:
                raise HubSilent(f"the hub at {root} wants another token: set {TOKEN_VARIABLE}, or --token-file")
            response.raise_for_status()
            return await response.json(), parsedate_to_datetime(response.headers["Date"]).timestamp()

    try:
        counts = {state: (await search("rollouts", status_in=[state], limit=1))[0]["total"] for state in STATES}
        played, _ = await search("rollouts", status_in=_PLAYED)
        closed, _ = await search(
            "rollouts", status_in=_CLOSED, sort_by="end_time", sort_order="desc", limit=_RECENT_GAMES
        )
        retried, _ = await search("rollouts", status_in=["requeuing"], limit=_RECENT_GAMES)
        workers, now = await search("workers")
    except (aiohttp.ClientError, TimeoutError, KeyError, ValueError) as error:
        raise HubSilent(f"no hub answers at {root}: {printable(str(error)) or type(error).__name__}") from error
    return summarise(root, counts, played["items"], closed["items"], retried["items"], workers["items"], now)


def summarise(
    url: str,
    counts: Mapping[str, int],
    played: Sequence[Record],
    closed: Sequence[Record],
    retried: Sequence[Record],
    workers: Sequence[Record],
    now: float,
) -> HubStatus:
    """The status that the hub's answers amount to.

    played: the rollouts under way; closed: the latest closed ones, newest first; retried: those that wait for another
    try. now: the hub's clock, in seconds since the epoch.
    """
    since = now - _RECENT_SECONDS
    if len(closed) == _RECENT_GAMES:  # there are more, which the hub was not asked for
        since = max(since, closed[-1]["end_time"])
    minutes = max(now - since, 1.0) / 60
    recent = Counter(
        _machine(_attempt(rollout).get("worker_id"))
        for rollout in closed
        if rollout["status"] == "succeeded" and rollout["end_time"] >= since
    )
    troubled = [*retried, *(rollout for rollout in closed if rollout["status"] == "failed")]
    oldest = min(played, key=lambda rollout: _attempt(rollout).get("start_time", now), default=None)
    return HubStatus(
        url=url,
        games=dict(counts),
        games_per_minute=recent.total() / minutes,
        machines=_machines(workers, played, recent, minutes, now),
        policies=dict(Counter(printable(rollout["resources_id"] or "(none)") for rollout in played).most_common()),
        oldest=None if oldest is None else _running(oldest, now),
        errors=dict(Counter(map(_kind_of_error, troubled)).most_common()),
    )


def _machines(
    workers: Sequence[Record], played: Sequence[Record], recent: Mapping[str, int], minutes: float, now: float
) -> list[Machine]:
    playing = Counter(_machine(_attempt(rollout).get("worker_id")) for rollout in played)
    of_machine: dict[str, list[Record]] = {name: [] for name in playing}
    for worker in workers:
        of_machine.setdefault(_machine(worker["worker_id"]), []).append(worker)
    machines = []
    for name, its_workers in sorted(of_machine.items()):
        heard = [time for worker in its_workers if (time := _last_heard(worker)) is not None]
        stats = [worker.get("heartbeat_stats") or {} for worker in its_workers]
        machines.append(
            Machine(
                name=name,
                runners=sum(now - time < _SILENT_SECONDS for time in heard),
                playing=playing[name],
                finished=sum(_number(one.get("finished")) for one in stats),
                failed=sum(_number(one.get("failed")) for one in stats),
                games_per_minute=recent.get(name, 0) / minutes,
                silent_seconds=max(now - max(heard), 0.0) if heard else None,
            )
        )
    return machines


def _machine(worker_id: str | None) -> str:
    """``host`` of a worker id that ends like a runner's own name or in one number; others stand for themselves."""
    if worker_id is None:
        return "(unnamed)"
    name = _OF_A_MACHINE.fullmatch(worker_id)
    return printable(name["host"] if name else worker_id)


def _last_heard(worker: Record) -> float | None:
    times = [worker.get(f"last_{what}_time") for what in ("heartbeat", "dequeue", "busy", "idle")]
    return max((time for time in times if time is not None), default=None)


def _number(value: object) -> int:
    return int(value) if isinstance(value, int | float) else 0


def _attempt(rollout: Record) -> Record:
    return rollout.get("attempt") or {}


def _running(rollout: Record, now: float) -> Running:
    attempt = _attempt(rollout)
    seconds = max(now - attempt.get("start_time", now), 0.0)
    worker_id = attempt.get("worker_id")
    return Running(
        printable(rollout["rollout_id"]),
        printable(attempt.get("attempt_id", "")),
        None if worker_id is None else printable(worker_id),
        seconds,
    )


def _kind_of_error(rollout: Record) -> str:
    """What stands before the colon of the reason that the runner gave, or how the hub closed the attempt."""
    attempt = _attempt(rollout)
    reason = (attempt.get("metadata") or {}).get("reason")
    if isinstance(reason, str) and reason.strip():
        return printable(reason.strip().split(":")[0].splitlines()[0][:_LONGEST_KIND])
    return printable(str(attempt.get("status", "no attempt")))


def render(status: HubStatus) -> RenderableType:
    """The status as one screen."""
    games = Table(title="games", title_justify="left")
    for state in STATES:
        games.add_column(state, justify="right")
    games.add_row(*(str(status.games[state]) for state in STATES))

    machines = Table(title="machines", title_justify="left")
    for column in ("machine", "runners", "playing", "finished", "failed", "games/min", "heard of"):
        machines.add_column(column, justify="left" if column == "machine" else "right")
    for machine in status.machines:
        machines.add_row(
            Text(machine.name),
            str(machine.runners),
            str(machine.playing),
            str(machine.finished),
            str(machine.failed),
            f"{machine.games_per_minute:.1f}",
            "never" if machine.silent_seconds is None else f"{_duration(machine.silent_seconds)} ago",
            style=None if machine.runners else "dim",
        )

    parts: list[RenderableType] = [Text(f"{status.url}: {status.games_per_minute:.1f} games/min", "bold"), games]
    if status.machines:
        parts.append(machines)
    if status.policies:
        parts.append(_count_table("policy in play", "games", status.policies))
    if status.oldest is not None:
        where = f" at {status.oldest.worker_id}" if status.oldest.worker_id else ""
        age = _duration(status.oldest.seconds)
        parts.append(Text(f"longest under way: {age}, rollout {status.oldest.rollout_id}{where}"))
    if status.errors:
        parts.append(_count_table("latest errors", "games", status.errors))
    return Group(*parts)


def _count_table(what: str, counted: str, counts: Mapping[str, int]) -> Table:
    table = Table()
    table.add_column(what)
    table.add_column(counted, justify="right")
    for name, count in counts.items():
        table.add_row(Text(name), str(count))
    return table


def _duration(seconds: float) -> str:
    for unit, length in (("d", 86_400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds:.0f} s"
