"""``python -m runners.werewolf web``: the web server, on loopback by default."""

import argparse
import asyncio
import contextlib
import errno
import re
import secrets
import signal
import sys
from collections.abc import Iterable
from ipaddress import ip_address
from pathlib import Path
from typing import Any
from urllib.parse import quote

from store.addresses import is_loopback
from store.printable import printable
from store.program import port

_DEFAULT_PORT = 8765
_POLICY_TIMEOUT_SECONDS = 20.0
"""How long to retry an unreachable policy server, while people wait."""


def add_web_command(commands: Any) -> None:
    """Add ``web`` to the subcommands of ``python -m runners.werewolf``."""
    parser = commands.add_parser(
        "web",
        help="watch, replay and play games in a browser, and inspect their tokens",
        description="Watch a hub's games, replay recorded ones, inspect tokens, and play, in a browser.",
    )
    parser.add_argument("games", nargs="*", type=Path, metavar="GAME", help="files from `play --output FILE`")
    parser.add_argument("--store", metavar="URL", help="hub with games to watch and a policy to play against")
    parser.add_argument(
        "--runs", type=Path, action="append", metavar="DIR", help="folder of runs (default: runs); may be repeated"
    )
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (default: %(default)s)")
    parser.add_argument("--port", type=port, default=_DEFAULT_PORT, help="port; 0: a free one (default: %(default)s)")
    parser.add_argument(
        "--public-host",
        type=_host_name,
        action="append",
        default=[],
        metavar="NAME",
        help="host name that browsers may use, in addition to localhost; may be repeated",
    )
    parser.add_argument(
        "--access-token-file",
        type=Path,
        metavar="FILE",
        help="file of the access token, which a --host or --public-host other than loopback needs (default: random)",
    )
    parser.add_argument("--tokenizer", type=Path, metavar="DIR", help="tokenizer of shown tokens (default: the run's)")
    parser.add_argument(
        "--keep", type=Path, metavar="DIR", help="folder for finished games (default: web_games in the first --runs)"
    )
    group = parser.add_argument_group("opponents", "in addition to rule-based players")
    group.add_argument("--policy", metavar="RUN", help="policy of this run in the hub (default: the newest run)")
    group.add_argument(
        "--model-url",
        metavar="URL",
        help="vLLM that serves a policy, e.g. a run's checkpoint, in place of the hub's endpoints",
    )
    group.add_argument("--model", metavar="NAME", help="the model's name at --model-url (default: the first)")
    group.add_argument(
        "--chat-model",
        action="append",
        default=[],
        metavar="NAME=MODEL@URL",
        help="a model behind an OpenAI-compatible API, under a name of your choice; its key is in the variable "
        "NAME_API_KEY if set, NAME in capitals with _ for -: QWEN_PLUS_API_KEY for qwen-plus",
    )
    group.add_argument(
        "--allow-address",
        action="append",
        default=[],
        metavar="URL",
        help="allow the hub's model servers at this origin; may be repeated. Always allowed: the hub's machine and "
        "private networks",
    )
    group.add_argument(
        "--context-tokens",
        type=int,
        default=8192,
        metavar="N",
        help="maximal tokens of one call (default: %(default)s)",
    )
    group.add_argument(
        "--reply-tokens", type=int, default=512, metavar="N", help="maximal tokens of one reply (default: %(default)s)"
    )
    parser.set_defaults(run=run_web)


def _host_name(text: str) -> str:
    with contextlib.suppress(ValueError):
        return str(ip_address(text))
    if not re.fullmatch(r"[\w-]+(\.[\w-]+)*", text):
        raise argparse.ArgumentTypeError(f"{text!r} is no host name: give the name alone, without http:// and port")
    return text


def run_web(options: argparse.Namespace) -> int:
    """Serve until stopped; returns the exit status."""
    try:
        asyncio.run(_serve(options))
    except KeyboardInterrupt:
        return 130
    except (ValueError, OSError) as error:
        print(f"error: {printable(str(error))}", file=sys.stderr)
        return 2
    return 0


async def _serve(options: argparse.Namespace) -> None:
    # Heavy imports, which --help does not need.
    from aiohttp import web

    from runners.werewolf.agent import WerewolfGames
    from runners.werewolf.web.app import Pages, make_app
    from runners.werewolf.web.folders import RunFolders
    from runners.werewolf.web.hub_games import HubGames
    from runners.werewolf.web.opponents import Opponents
    from runners.werewolf.web.tables import Tables
    from store.client import connect
    from store.schema import TokenLimits

    for path in options.games:
        if not path.is_file():
            raise ValueError(f"{path} is not a file; `python -m runners.werewolf play --output {path}` writes one")
    if options.model is not None and options.model_url is None:
        raise ValueError("--model names a model at --model-url, which is missing")
    if options.policy is not None and options.store is None:
        raise ValueError("--policy names a run of the hub at --store, which is missing")
    if options.tokenizer is not None and not (options.tokenizer / "tokenizer.json").is_file():
        raise ValueError(f"--tokenizer {options.tokenizer} holds no tokenizer.json: give the folder of a model")
    client = None if options.store is None else connect(options.store, retry_seconds=5.0)
    folders = options.runs or [Path("runs")]
    runs = RunFolders(*folders)
    opponents = Opponents(
        client, runs, options.policy, options.model_url, options.model, options.chat_model, options.store or "",
        options.allow_address,
    )  # fmt: skip
    games = WerewolfGames(opponents.addresses, options.tokenizer, _POLICY_TIMEOUT_SECONDS, opponents.keys)
    limits = TokenLimits(context_tokens=options.context_tokens, reply_tokens=options.reply_tokens)
    keep = options.keep or folders[0] / "web_games"
    tables = Tables(games, opponents, keep, options.tokenizer, client, limits)
    hub = None if client is None else HubGames(client, options.store)
    pages = Pages(tables, options.games, runs, hub, options.tokenizer)
    async with contextlib.AsyncExitStack() as stack:
        stack.push_async_callback(pages.close)
        await opponents.newest()  # report an invalid opponent at the start
        hosts = (*options.public_host, options.host)
        token = _access_token(hosts, options.access_token_file)
        app = make_app(pages, token, hosts)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)
        stack.push_async_callback(runner.cleanup)
        await runner.setup()
        try:
            await web.TCPSite(runner, options.host, options.port).start()
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
            raise ValueError(f"port {options.port} is in use: stop that server, or set --port") from error
        host, port = options.public_host[0] if options.public_host else options.host, runner.addresses[0][1]
        print(f"狼人杀 in a browser: {address_of(host, port, token)}", flush=True)
        stopped = asyncio.Event()
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, stopped.set)
        await stopped.wait()


def address_of(host: str, port: int, token: str | None) -> str:
    """The address of the first page, with the access token."""
    query = "" if token is None else f"?token={quote(token, safe='')}"
    return f"http://{f'[{host}]' if ':' in host else host}:{port}/{query}"


def _access_token(hosts: Iterable[str], file: Path | None) -> str | None:
    """hosts: the address to listen on, and the names under which a proxy shows these pages to others."""
    if file is None:
        return None if all(map(is_loopback, hosts)) else secrets.token_urlsafe(24)
    token = file.read_text(encoding="utf-8", errors="replace").strip()
    if len(token) < 16 or not token.isascii() or " " in token:
        raise ValueError(f"{file} must hold a token of at least 16 visible characters, such as `openssl rand -hex 32`")
    return token
