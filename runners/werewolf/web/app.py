"""The server: routes to games, seats and runs. What a viewer may know is decided in ``views`` and ``seats``."""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import aiohttp
from aiohttp import web

from runners.werewolf.web.folders import NotThere
from runners.werewolf.web.guard import add_headers, guard
from runners.werewolf.web.library import Library
from runners.werewolf.web.tables import NotYourTurn, SeatView, Tables, UnusableTable
from runners.werewolf.web.views import GOD, UnknownViewer, UnreadableGame, number_in, shown, viewer_of

STATIC = Path(__file__).parent / "static"
LIBRARY = web.AppKey("library", Library)
TABLES = web.AppKey("tables", Tables)
_LARGEST_REQUEST = 64 * 1024
_HEARTBEAT_SECONDS = 15.0
_PAGES = ("/", "/game", "/compare", "/run/{name}", "/runs", "/play", "/table/{table}", "/seat/{secret}")
"""Addresses that are answered with the one page, whose ``pages`` (``static/main.js``) shows what belongs there."""


def make_app(
    library: Library, tables: Tables, token: str | None = None, hosts: tuple[str, ...] = ()
) -> web.Application:
    """The application. token, hosts: as ``guard`` takes them."""
    app = web.Application(middlewares=[_clear_errors, guard(token, hosts)], client_max_size=_LARGEST_REQUEST)
    app[LIBRARY], app[TABLES] = library, tables
    app.on_response_prepare.append(add_headers)
    app.on_cleanup.append(_close)
    app.add_routes([web.get(page, _page) for page in _PAGES])
    app.add_routes(
        [
            web.get("/api/config", _config),
            web.get("/api/games", _games),
            web.get("/api/game", _game),
            web.get("/api/game/live", _game_live),
            web.get("/api/tokens", _tokens),
            web.get("/api/runs", _runs),
            web.get("/api/run", _run),
            web.post("/api/tables", _open_table),
            web.get("/api/table/{table}", _table),
            web.get("/api/seat/{secret}", _seat),
            web.get("/api/seat/{secret}/live", _seat_live),
            web.get("/api/seat/{secret}/game", _seat_game),
            web.post("/api/seat/{secret}/act", _act),
        ]
    )
    app.router.add_static("/static", STATIC)
    return app


async def _close(app: web.Application) -> None:
    await app[TABLES].close()
    await app[LIBRARY].close()


@web.middleware
async def _clear_errors(request: web.Request, handler: Any) -> web.StreamResponse:
    """What is wrong with a request, as text; what is wrong here is logged by aiohttp and answered with 500."""
    try:
        return await handler(request)
    except NotThere as error:
        return _problem(404, error)
    except (UnknownViewer, UnreadableGame, UnusableTable) as error:
        return _problem(400, error)
    except NotYourTurn as error:
        return _problem(409, error)
    except (aiohttp.ClientError, TimeoutError, ConnectionError) as error:
        if request.task is not None and isinstance(error, ConnectionResetError):
            raise
        return _problem(502, f"the hub does not answer: {type(error).__name__}")


def _problem(status: int, error: object) -> web.Response:
    return web.json_response({"problem": str(error)[:500]}, status=status)


async def _page(request: web.Request) -> web.FileResponse:
    return web.FileResponse(STATIC / "index.html")


async def _config(request: web.Request) -> web.Response:
    return _json(request.app[LIBRARY].config() | {"tables": await request.app[TABLES].config()})


async def _games(request: web.Request) -> web.Response:
    return _json(await request.app[LIBRARY].games(dict(request.query)))


async def _game(request: web.Request) -> web.Response:
    game = await request.app[LIBRARY].game(request.query.get("id", ""))
    return _json(shown(game, viewer_of(request.query.get("view", GOD), game)))


async def _game_live(request: web.Request) -> web.StreamResponse:
    """Server-sent events: what is new of a game, as it comes; ``from`` and ``turns`` say what the page has."""
    game_id, view = request.query.get("id", ""), request.query.get("view", GOD)
    events, turns = _count(request, "from"), _count(request, "turns")
    library = request.app[LIBRARY]

    async def news() -> AsyncIterator[Mapping[str, Any]]:
        nonlocal events, turns
        before: dict[str, Any] = {}
        async for game in library.follow(game_id):
            data = shown(game, viewer_of(view, game), events, turns)
            now = {name: data[name] for name in ("asked", "live", "result", "notice")}
            if data["events"] or data["turns"] or now != before:
                first, before = (events, turns), now
                events, turns = events + len(data["events"]), turns + len(data["turns"])
                if view != GOD:
                    # One by one: what comes at once, and what apart, would tell what went on unseen in between.
                    for number, event in enumerate(data["events"]):
                        own = data["turns"] if number == 0 else []
                        yield data | {
                            "events": [event], "first": first[0] + number, "total": first[0] + number + 1,
                            "turns": own, "firstTurn": first[1] if number == 0 else turns,
                            "asked": [], "live": True, "result": None,
                        }  # fmt: skip
                    if data["events"]:
                        data |= {"events": [], "turns": [], "first": events, "firstTurn": turns}
                        if not data["asked"] and data["live"]:
                            continue
                yield data

    return await _stream(request, news())


def _count(request: web.Request, name: str) -> int:
    return number_in(request.query.get(name, "")) or 0


async def _json_body(request: web.Request) -> Any:
    """What the page sent. Raises UnusableTable for what is no JSON, nested without end, or in an unknown charset."""
    try:
        return await request.json()
    except (ValueError, LookupError, RecursionError) as error:
        raise UnusableTable(f"no JSON: {error}") from error


async def _tokens(request: web.Request) -> web.Response:
    query = request.query
    game = await request.app[LIBRARY].game(query.get("id", ""))
    seat = _count(request, "seat")
    if viewer_of(query.get("view", GOD), game) not in (GOD, seat):
        raise UnknownViewer("a seat's tokens hold its secrets: only god and that seat may look into them")
    return _json(await request.app[LIBRARY].tokens(game, seat, _count(request, "segment")))


async def _runs(request: web.Request) -> web.Response:
    return _json(await asyncio.to_thread(request.app[LIBRARY].runs))


async def _run(request: web.Request) -> web.Response:
    library, name, position = request.app[LIBRARY], request.query.get("name", ""), _count(request, "from")
    return _json(await asyncio.to_thread(library.run, name, position))


# --- play -----------------------------------------------------------------------------------------------------------


async def _open_table(request: web.Request) -> web.Response:
    return _json(await request.app[TABLES].open(await _json_body(request)))


async def _table(request: web.Request) -> web.Response:
    return _json(request.app[TABLES].table(request.match_info["table"]).status())


def _seat_of(request: web.Request) -> SeatView:
    return request.app[TABLES].seat(request.match_info["secret"])


async def _seat(request: web.Request) -> web.Response:
    return _json(_seat_of(request).data())


async def _seat_live(request: web.Request) -> web.StreamResponse:
    return await _stream(request, _seat_of(request).follow())


async def _seat_game(request: web.Request) -> web.Response:
    """The whole game, once it is over: nothing of it is secret then, and a seat's link needs no token."""
    view = _seat_of(request)
    if view.phase != "over":
        raise NotThere("the game is not over")
    game = await request.app[LIBRARY].game(view.replay)
    return _json(shown(game, viewer_of(request.query.get("view", GOD), game)))


async def _act(request: web.Request) -> web.Response:
    _seat_of(request).answer(await _json_body(request))
    return _json({"taken": True})


# --- answers --------------------------------------------------------------------------------------------------------


def _json(data: Any) -> web.Response:
    return web.Response(body=_encode(data), content_type="application/json")


def _encode(data: Any) -> bytes:
    return json.dumps(data, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode("utf-8", "replace")


async def _stream(request: web.Request, news: AsyncIterator[Mapping[str, Any]]) -> web.StreamResponse:
    """Server-sent events from what comes; a comment now and then, so that a reader that left is noticed."""
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream", "X-Accel-Buffering": "no"})
    waiting: asyncio.Task[Mapping[str, Any]] | None = None
    try:
        waiting = asyncio.ensure_future(anext(news))
        first = True
        while True:
            done, _ = await asyncio.wait([waiting], timeout=_HEARTBEAT_SECONDS)
            if done:
                try:
                    data = waiting.result()
                except StopAsyncIteration:
                    break
            if first:  # only now, so that what is wrong is answered with its status
                await response.prepare(request)
                first = False
            if done:
                await response.write(b"data: " + _encode(data) + b"\n\n")
                waiting = asyncio.ensure_future(anext(news))
            else:
                await response.write(b": still here\n\n")
        if first:
            await response.prepare(request)
        await response.write(b"event: end\ndata: {}\n\n")
    except ConnectionResetError:
        pass  # the page was closed
    finally:
        if waiting is not None:
            waiting.cancel()
            await asyncio.gather(waiting, return_exceptions=True)
        await news.aclose()
    return response
