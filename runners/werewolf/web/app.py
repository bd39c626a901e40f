"""The web server: routes to games, seats and runs. ``views`` and ``seats`` decide what a viewer may see."""

import asyncio
import json
from collections.abc import AsyncGenerator, Iterable, Iterator, Mapping, Sequence
from contextlib import aclosing
from itertools import islice
from pathlib import Path
from typing import Any

import aiohttp
from aiohttp import web

from runners.werewolf.game import PRESETS, Role, Side
from runners.werewolf.game.roles import CARDS
from runners.werewolf.web.folders import NotThere, RunFolders, read_file
from runners.werewolf.web.guard import GUEST, add_headers, guard
from runners.werewolf.web.hub_games import HubGames
from runners.werewolf.web.run_numbers import RunNumbers
from runners.werewolf.web.seats import NotYourTurn, Seat, UnusableTable
from runners.werewolf.web.tables import Tables
from runners.werewolf.web.token_rows import TokenRows
from runners.werewolf.web.views import (
    GOD,
    ShownGame,
    UnknownViewer,
    UnreadableGame,
    number_in,
    read_game,
    shown,
    viewer_of,
)
from store.client import describe_error

STATIC = Path(__file__).parent / "static"
_LARGEST_REQUEST = 64 * 1024
_HEARTBEAT_SECONDS = 15.0
_GOLDEN_ID, _GOLDEN = "golden:1", Path(__file__).parent / "golden.json"
"""A sample game of the best players without a model."""
_REPORT_POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'; frame-ancestors 'none'; sandbox"
_SHOWN_RUNS, _SHOWN_GAMES, _GAMES_OF_A_RUN = 12, 24, 8
_PAGES = ("/", "/game", "/compare", "/run/{name}", "/runs", "/play", "/table/{table}", "/seat/{secret}")
"""Routes of the single page; ``pages`` of ``static/main.js`` selects the view."""


def make_app(pages: "Pages", token: str | None, hosts: tuple[str, ...]) -> web.Application:
    """The application. token, hosts: see ``guard``."""
    app = web.Application(middlewares=[_answers, guard(token, hosts)], client_max_size=_LARGEST_REQUEST)
    app.on_response_prepare.append(add_headers)
    app.add_routes([web.get(page, _page) for page in _PAGES])
    app.add_routes(
        [
            web.get("/api/config", pages.config),
            web.get("/api/games", pages.games),
            web.get("/api/game", pages.game),
            web.get("/api/game/live", pages.game_live),
            web.get("/api/tokens", pages.tokens),
            web.get("/api/run", pages.run),
            web.get("/report/{run}/{report}", pages.report),
            web.get("/api/tables", pages.choices),
            web.post("/api/tables", pages.open_table),
            web.get("/api/table/{table}", pages.table),
            web.get("/api/seat/{secret}", pages.seat),
            web.get("/api/seat/{secret}/live", pages.seat_live),
            web.get("/api/seat/{secret}/game", pages.seat_game),
            web.post("/api/seat/{secret}/act", pages.act),
        ]
    )
    app.router.add_get("/static/roles.js", _roles)
    app.router.add_get("/favicon.ico", _icon)
    app.router.add_static("/static", STATIC)
    return app


class Pages:
    """Handlers: one method per route, which returns JSON data or a response.

    Games have ids: ``file:``, ``run:``, ``table:`` (played here), ``hub:`` and ``golden:``.
    hub: None without ``--store``. tokenizer: folder of the tokenizer; None: the run's.
    """

    def __init__(
        self,
        tables: Tables,
        files: Sequence[Path],
        runs: RunFolders,
        hub: HubGames | None,
        tokenizer: Path | None,
    ):
        self._tables = tables
        self._files = {f"file:{number}": path for number, path in enumerate(files, start=1)}
        self._runs = runs
        self._hub = hub
        self._tokens = TokenRows(self._runs, tokenizer)
        self._numbers = RunNumbers(self._runs)

    async def close(self) -> None:
        """Stop open tables, and close the connection to the hub."""
        await self._tables.close()
        if self._hub is not None:
            await self._hub.close()

    # --- games ------------------------------------------------------------------------------------------------------

    async def config(self, request: web.Request) -> dict[str, Any]:
        return await asyncio.to_thread(self._lobby)

    def _lobby(self) -> dict[str, Any]:
        """The data of the home page except the hub's games. featured: the first of files, else the newest game."""
        names = self._runs.names()
        samples = [card for name in names[:_SHOWN_RUNS] for card in self._runs.samples(name, _GAMES_OF_A_RUN)]
        files, kept = self._cards(self._files.items()), self._cards(islice(self._tables.kept().items(), _SHOWN_GAMES))
        games = sorted(kept + samples, key=lambda card: card["when"], reverse=True)[:_SHOWN_GAMES]
        return {
            "hub": None if self._hub is None else self._hub.url,
            "games": files + games,
            "featured": (files or games or [{"id": _GOLDEN_ID}])[0]["id"],
            "runs": [self._numbers.card(name) for name in names[:_SHOWN_RUNS]],
            "more": names[_SHOWN_RUNS:],
        }

    def _cards(self, paths: Iterable[tuple[str, Path]]) -> list[dict[str, Any]]:
        """Cards of files; an invalid or deleted file has only its name, so that its page shows the error."""
        cards = []
        for game_id, path in paths:
            try:
                cards.append(self._runs.card(path, game_id) | {"file": path.name})
            except (UnreadableGame, OSError):
                cards.append({"id": game_id, "file": path.name, "when": 0.0})
        return cards

    async def games(self, request: web.Request) -> dict[str, Any]:
        if self._hub is None:
            raise NotThere("no hub: start with --store URL")
        return await self._hub.page(request.query)

    async def game(self, request: web.Request) -> dict[str, Any]:
        return self._shown(await self._found(request.query.get("id", "")), request)

    async def game_live(self, request: web.Request) -> web.StreamResponse:
        """Stream a hub's game; ``from`` and ``turns``: numbers of events and turns that the page has of ``attempt``."""
        return await _stream(request, self._news(request))

    async def tokens(self, request: web.Request) -> dict[str, Any]:
        game = await self._found(request.query.get("id", ""))
        seat, segment = _count(request, "seat"), _count(request, "segment")
        if viewer_of(request.query.get("view", GOD), game) not in (GOD, seat):
            raise UnknownViewer("a seat's tokens are secret: only the god view and the seat's own view show them")
        spans = await self._hub.turn_spans(game.id) if game.id.startswith("hub:") else ()
        of_seat = [span for span in spans if (span.seat, span.segment) == (seat, segment)]
        return await asyncio.to_thread(self._tokens.of, game, of_seat, seat, segment)

    async def _found(self, game_id: str) -> ShownGame:
        """A game in its current state. Raises NotThere and UnreadableGame."""
        kind = game_id.partition(":")[0]
        if kind == "hub" and self._hub is not None:
            return self._named(await self._hub.game(game_id))
        read = self._runs.game if kind == "run" else self._file
        return await asyncio.to_thread(lambda: self._tokens.without_lost(read(game_id)))

    def _file(self, game_id: str) -> ShownGame:
        path = (self._files | self._tables.kept() | {_GOLDEN_ID: _GOLDEN}).get(game_id)
        if path is None:
            raise NotThere(f"no game {game_id!r}")
        return read_game(read_file(path), id=game_id, title=path.name)

    def _named(self, game: ShownGame) -> ShownGame:
        """A game of an evaluation with the evaluation's label, since its policy version may be 0 for any step."""
        evaluated = self._runs.evaluation_of(game)
        about = {} if evaluated is None else {"evaluation": evaluated[0]}
        return game.model_copy(update={"about": game.about | about})

    def _shown(self, game: ShownGame, request: web.Request, events: int = 0, turns: int = 0) -> dict[str, Any]:
        return shown(game, viewer_of(request.query.get("view", GOD), game), events, turns)

    async def _news(self, request: web.Request) -> AsyncGenerator[Mapping[str, Any]]:
        game_id, attempt = request.query.get("id", ""), request.query.get("attempt", "")
        events, turns = _count(request, "from"), _count(request, "turns")
        if not game_id.startswith("hub:") or self._hub is None:
            raise NotThere(f"no running game {game_id!r}")
        before: dict[str, Any] = {}
        async with aclosing(self._hub.follow(game_id)) as follows:
            async for game in follows:
                if attempt and game.attempt != attempt:
                    events = turns = 0  # the game begins again
                attempt = game.attempt
                data = self._shown(self._named(game), request, events, turns)
                now = {name: data[name] for name in ("asked", "live", "result", "notice")}
                if not data["events"] and not data["turns"] and now == before:
                    continue
                before, events, turns = now, events + len(data["events"]), turns + len(data["turns"])
                for part in [data] if data["view"] == GOD else _one_by_one(data):
                    yield part

    # --- runs -------------------------------------------------------------------------------------------------------

    async def run(self, request: web.Request) -> dict[str, Any]:
        name, position = request.query.get("name", ""), _count(request, "from")
        return await asyncio.to_thread(self._numbers.of, name, position)

    async def report(self, request: web.Request) -> web.Response:
        """A report of ``algo``, in a sandbox without scripts."""
        name = request.match_info["report"]
        reports = self._runs.reports(request.match_info["run"])
        if name not in reports:
            raise NotThere(f"no report {name!r}")
        text = await asyncio.to_thread(reports[name].read_text, encoding="utf-8")
        headers = {"Content-Security-Policy": _REPORT_POLICY}
        return web.Response(text=text, content_type="text/html", headers=headers)

    # --- play -------------------------------------------------------------------------------------------------------

    async def choices(self, request: web.Request) -> dict[str, Any]:
        return await self._tables.choices()

    async def open_table(self, request: web.Request) -> dict[str, Any]:
        return await self._tables.open(await _json_body(request))

    async def table(self, request: web.Request) -> dict[str, Any]:
        return self._tables.table(request.match_info["table"]).status()

    async def seat(self, request: web.Request) -> dict[str, Any]:
        return self._seat(request).data() | {"guest": request[GUEST]}

    async def seat_live(self, request: web.Request) -> web.StreamResponse:
        return await _stream(request, self._seat(request).follow())

    async def seat_game(self, request: web.Request) -> dict[str, Any]:
        """The whole game, once it is over and no longer secret."""
        table = self._seat(request).table
        if table.phase != "over":
            raise NotThere("the game is not over")
        return self._shown(await self._found(table.replay), request)

    async def act(self, request: web.Request) -> dict[str, Any]:
        self._seat(request).answer(await _json_body(request))
        return {"taken": True}

    def _seat(self, request: web.Request) -> Seat:
        return self._tables.seat(request.match_info["secret"])


def _one_by_one(data: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """News for a seat, one event at a time, since batches would reveal hidden activity."""
    first, events, turns_after = data["first"], data["events"], data["firstTurn"] + len(data["turns"])
    for number, event in enumerate(events, start=first):
        yield data | {"events": [event], "first": number, "asked": [], "live": True, "result": None}
        data |= {"turns": [], "firstTurn": turns_after}
    if data["asked"] or not data["live"] or not events:
        yield data | {"events": [], "first": first + len(events)}


async def _page(request: web.Request) -> web.FileResponse:
    return web.FileResponse(STATIC / "index.html")


async def _icon(request: web.Request) -> web.FileResponse:
    return web.FileResponse(STATIC / "icon.svg")


async def _roles(request: web.Request) -> web.Response:
    """Roles and presets as a JavaScript module."""
    roles = {
        role: {
            "zh": card.name,
            "en": card.english,
            "mark": card.mark,
            "kind": "wolf" if role.side is Side.WOLF else "god" if role.is_god else "villager",
        }
        for role, card in CARDS.items()
    }
    presets = {
        name: {
            "seats": len(preset.deck),
            "wolves": sum(role.side is Side.WOLF for role in preset.deck),
            "named": [role for role in dict.fromkeys(preset.deck) if role not in (Role.WOLF, Role.VILLAGER)],
            "sheriff": preset.sheriff,
        }
        for name, preset in PRESETS.items()
    }
    known = {"ROLES": roles, "PRESETS": presets}
    module = "".join(f"export const {name} = {json.dumps(data, ensure_ascii=False)};\n" for name, data in known.items())
    return web.Response(text=module, content_type="text/javascript")


def _count(request: web.Request, name: str) -> int:
    return number_in(request.query.get(name, "")) or 0


async def _json_body(request: web.Request) -> Any:
    """The request's JSON. Raises UnusableTable for invalid JSON, deep nesting or an unknown charset."""
    try:
        return await request.json()
    except (ValueError, LookupError, RecursionError) as error:
        raise UnusableTable(f"the request body must be JSON: {error}") from error


@web.middleware
async def _answers(request: web.Request, handler: Any) -> web.StreamResponse:
    """Encode data as JSON, and errors of requests with their status; aiohttp logs other errors as status 500."""
    try:
        data, status = await handler(request), 200
        if isinstance(data, web.StreamResponse):
            return data
    except (web.HTTPNotFound, web.HTTPUnauthorized) as error:
        if "text/html" not in request.headers.get("Accept", ""):
            raise
        return web.FileResponse(STATIC / "index.html", status=error.status)  # shows the error in the reader's language
    except NotThere as error:
        data, status = {"problem": str(error)[:500]}, 404
    except (UnknownViewer, UnreadableGame, UnusableTable) as error:
        data, status = {"problem": str(error)[:500]}, 400
    except NotYourTurn as error:
        data, status = {"problem": str(error)}, 409
    except aiohttp.ClientResponseError as error:
        data, status = {"problem": f"the hub rejects the request: {error.status} {error.message}"}, 502
    except (aiohttp.ClientError, TimeoutError, ConnectionError) as error:
        data, status = {"problem": f"the hub does not answer: {describe_error(error)}"[:500]}, 502
    return web.Response(body=_encode(data), status=status, content_type="application/json")


def _encode(data: Any) -> bytes:
    return json.dumps(data, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode("utf-8", "replace")


async def _stream(request: web.Request, news: AsyncGenerator[Mapping[str, Any]]) -> web.StreamResponse:
    """Server-sent events, with regular comments to detect closed connections."""
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream", "X-Accel-Buffering": "no"})

    async def beats() -> None:
        while True:
            await asyncio.sleep(_HEARTBEAT_SECONDS)
            await response.write(b": heartbeat\n\n")

    async with aclosing(news):
        first = await anext(news)  # before the response begins, so that errors have their status
        await response.prepare(request)
        try:
            async with asyncio.TaskGroup() as group:
                heart = group.create_task(beats())
                await response.write(b"data: " + _encode(first) + b"\n\n")
                async for data in news:
                    await response.write(b"data: " + _encode(data) + b"\n\n")
                await response.write(b"event: end\ndata: {}\n\n")
                heart.cancel()
        except* (aiohttp.ClientError, ConnectionError, TimeoutError, NotThere, UnreadableGame):
            pass  # the page was closed, or reconnects and receives the error
    return response
