"""``python -m store status``: status of a hub, as a table or as JSON, over the stock protocol."""

import asyncio
import json
import re
from collections import Counter
from email.utils import parsedate_to_datetime
from typing import Any

import aiohttp
from rich.console import Console
from rich.table import Table
from rich.text import Text

from store.client import check_status
from store.errors import OneLineError
from store.printable import printable

STATES = ("queuing", "requeuing", "preparing", "running", "succeeded", "failed", "cancelled")
_RECENT_GAMES, _RECENT_SECONDS, _SILENT_SECONDS, _PAUSE_SECONDS = 500, 600.0, 60.0, 2.0
_HEARD = [f"last_{what}_time" for what in ("heartbeat", "dequeue", "busy", "idle")]
_PROCESS = re.compile(r"-\d+(-[0-9a-f]{8}(-\d+)?)?$")
"""The end of a runner's name, which differs between the processes of a machine."""


class HubUnreachable(OneLineError):
    """No hub answers, or it rejects the token."""


async def show(url: str, token: str | None, *, watch: bool = False, as_json: bool = False) -> None:
    """Print a hub's status once, or every two seconds. Raises HubUnreachable, which ``watch`` shows instead."""
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    console = Console()
    async with aiohttp.ClientSession(headers=headers, timeout=aiohttp.ClientTimeout(total=30)) as session:
        while True:
            try:
                status = await ask(session, url.rstrip("/"))
                shown = json.dumps(status, ensure_ascii=False) if as_json else table(status)
            except HubUnreachable as error:
                if as_json or not watch:
                    raise
                shown = Text(printable(str(error)), "red")
            if watch and not as_json:
                console.clear()
            print(shown, flush=True) if as_json else console.print(shown)
            if not watch:
                return
            await asyncio.sleep(_PAUSE_SECONDS)


async def ask(session: aiohttp.ClientSession, root: str) -> dict[str, Any]:
    """A hub's status. Raises HubUnreachable, also for another server."""

    async def search(what: str, **query: Any) -> tuple[dict[str, Any], float]:
        async with session.post(f"{root}/v1/agl/{what}/search", json=query, allow_redirects=False) as response:
            await check_status(response)
            return await response.json(), parsedate_to_datetime(response.headers["Date"]).timestamp()

    newest = {"sort_by": "end_time", "sort_order": "desc", "limit": _RECENT_GAMES}
    try:
        rollouts = {state: (await search("rollouts", status_in=[state], limit=1))[0]["total"] for state in STATES}
        closed = (await search("rollouts", status_in=["succeeded", "failed"], **newest))[0]["items"]
        retried = (await search("rollouts", status_in=["requeuing"], limit=_RECENT_GAMES))[0]["items"]
        workers, now = await search("workers")
        return {"url": root, "rollouts": rollouts, **summary(closed, retried, workers["items"], now)}
    except (aiohttp.ClientError, TimeoutError, LookupError, TypeError, ValueError, AttributeError) as error:
        if getattr(error, "status", None) == 401:
            problem = "rejects the token" if "Authorization" in session.headers else "requires a token"
            raise HubUnreachable(f"the hub at {root} {problem}: set AGL_TOKEN or --token-file") from None
        raise HubUnreachable(f"no hub answers at {root}: {str(error) or type(error).__name__}") from error


def summary(closed: list, retried: list, workers: list, now: float) -> dict[str, Any]:
    """The status, from a hub's responses. now: the hub's clock. Foreign texts are escaped."""
    known = closed[-1]["end_time"] if len(closed) == _RECENT_GAMES else 0.0
    began = min((one["start_time"] for one in closed), default=0.0)  # a new hub is not idle before its first rollout
    since = max(now - _RECENT_SECONDS, known, began)
    recent = sum(one["status"] == "succeeded" and one["end_time"] >= since for one in closed)
    heard = [(one["worker_id"], max(filter(None, map(one.get, _HEARD)), default=0.0)) for one in workers]
    failed = [*retried, *(one for one in closed if one["status"] == "failed")]
    return {
        "rollouts_per_minute": recent / max(now - since, 1.0) * 60,
        "runners": Counter(printable(_PROCESS.sub("", name)) for name, last in heard if now - last < _SILENT_SECONDS),
        "errors": Counter(map(_kind, failed)),
    }


def _kind(rollout: dict) -> str:
    """The runner's reason up to its colon, or the status of the attempt."""
    attempt = rollout.get("attempt") or {}
    reason = str((attempt.get("metadata") or {}).get("reason") or "").strip()
    kind = "".join(reason.split(":")[0].splitlines()[:1])[:60]
    return printable(kind or str(attempt.get("status", "no attempt")))


def table(status: dict[str, Any]) -> Table:
    """The status for a terminal."""
    shown = Table("", "what", "", title=Text(f"{status['url']}: {status['rollouts_per_minute']:.1f} rollouts/min"))
    for part in ("rollouts", "runners", "errors"):
        for name, number in status[part].items():
            shown.add_row(part, Text(name), str(number))
    return shown
