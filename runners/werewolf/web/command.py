"""``python -m runners.werewolf web``: the pages, on this machine alone unless told otherwise."""

import argparse
import asyncio
import contextlib
import secrets
import signal
import sys
from pathlib import Path
from typing import Any

_DEFAULT_PORT = 8765
_POLICY_PATIENCE_SECONDS = 20.0
"""How long people wait for a policy's server that is away."""


def add_web_command(commands: Any) -> None:
    """Add ``web`` to the subcommands of ``python -m runners.werewolf``."""
    parser = commands.add_parser(
        "web",
        help="watch, replay and play games in a browser, and look into their tokens",
        description="Watch the games of a hub, replay kept ones, look into their tokens, and play, in a browser.",
    )
    parser.add_argument("games", nargs="*", type=Path, metavar="GAME", help="games that `play --output FILE` wrote")
    parser.add_argument("--store", metavar="URL", help="a hub, to watch its games and to play against its policy")
    parser.add_argument(
        "--runs", type=Path, default=Path("runs"), metavar="DIR", help="folder of the runs (default: %(default)s)"
    )
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (default: %(default)s)")
    parser.add_argument("--port", type=int, default=_DEFAULT_PORT, help="(default: %(default)s; 0 takes a free one)")
    parser.add_argument(
        "--public-host",
        action="append",
        default=[],
        metavar="NAME",
        help="a name under which browsers may ask for the pages, beside localhost; may be repeated",
    )
    parser.add_argument(
        "--access-token-file",
        type=Path,
        metavar="FILE",
        help="token that browsers must bring, for any --host but this machine's; one is made up without it",
    )
    parser.add_argument(
        "--tokenizer", type=Path, metavar="DIR", help="tokenizer to show tokens with (default: the run's own)"
    )
    parser.add_argument(
        "--keep", type=Path, metavar="DIR", help="where finished tables are kept (default: web_games in --runs)"
    )
    group = parser.add_argument_group("whom people can play against", "beside players that need no model")
    group.add_argument("--policy", metavar="RUN", help="the policy of this run in the hub (default: of its newest)")
    group.add_argument(
        "--model-url",
        metavar="URL",
        help="a vLLM that serves a policy, such as a run's checkpoint, instead of where the hub says",
    )
    group.add_argument("--model", metavar="NAME", help="its name there (default: the first that is served)")
    group.add_argument(
        "--chat-model",
        action="append",
        default=[],
        metavar="NAME=MODEL@URL",
        help="a model behind an OpenAI-compatible address, by a name of your own; its key is in $NAME_API_KEY if set",
    )
    group.add_argument(
        "--allow-address",
        action="append",
        default=[],
        metavar="URL",
        help="call models there, too, if the hub says so; may be repeated. By default those on the hub's machine and "
        "in private networks are called, and none elsewhere",
    )
    group.add_argument("--context-tokens", type=int, default=8192, metavar="N", help="at most (default: %(default)s)")
    group.add_argument("--reply-tokens", type=int, default=512, metavar="N", help="at most (default: %(default)s)")
    parser.set_defaults(run=run_web)


def run_web(options: argparse.Namespace) -> int:
    """Serve until stopped; the process's exit status."""
    try:
        asyncio.run(_serve(options))
    except KeyboardInterrupt:
        return 130
    except (ValueError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


async def _serve(options: argparse.Namespace) -> None:
    # Loading these takes seconds: --help should not have to wait for it.
    from aiohttp import web

    from runners.werewolf.agent import WerewolfGames
    from runners.werewolf.web.app import Pages, make_app
    from runners.werewolf.web.folders import RunFolders
    from runners.werewolf.web.hub_games import HubGames
    from runners.werewolf.web.opponents import Opponents, keys_of
    from runners.werewolf.web.tables import Tables
    from store.addresses import is_loopback
    from store.client import connect
    from store.schema import TokenLimits

    for path in options.games:
        if not path.is_file():
            raise ValueError(f"{path} is no file; `python -m runners.werewolf play --output {path}` writes one")
    client = None if options.store is None else connect(options.store, retry_seconds=5.0)
    runs = RunFolders(options.runs)
    opponents = Opponents(
        client, runs, options.policy, options.model_url, options.model, options.chat_model, options.store or "",
        options.allow_address,
    )  # fmt: skip
    keys = keys_of(options.chat_model)
    games = WerewolfGames(opponents.addresses, options.tokenizer, _POLICY_PATIENCE_SECONDS, keys)
    limits = TokenLimits(context_tokens=options.context_tokens, reply_tokens=options.reply_tokens)
    keep = options.keep or options.runs / "web_games"
    tables = Tables(games, opponents, keep, options.tokenizer, client, limits)
    hub = None if client is None else HubGames(client, options.store)
    pages = Pages(tables, options.games, runs, hub, options.tokenizer)
    async with contextlib.AsyncExitStack() as stack:
        stack.push_async_callback(pages.close)
        await opponents.newest()  # an opponent that cannot be played is reported now
        token = None if is_loopback(options.host) else _access_token(options.access_token_file)
        app = make_app(pages, token, (*options.public_host, options.host))
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)
        stack.push_async_callback(runner.cleanup)
        await runner.setup()
        await web.TCPSite(runner, options.host, options.port).start()
        host, port = options.public_host[0] if options.public_host else options.host, runner.addresses[0][1]
        address = f"http://{f'[{host}]' if ':' in host else host}:{port}/"
        print(f"狼人杀 in a browser: {address}{'' if token is None else f'?token={token}'}", flush=True)
        stopped = asyncio.Event()
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, stopped.set)
        await stopped.wait()


def _access_token(file: Path | None) -> str:
    if file is None:
        return secrets.token_urlsafe(24)
    token = file.read_text(encoding="utf-8").strip()
    if len(token) < 16 or not token.isascii() or " " in token:
        raise ValueError(f"{file} must hold a token of at least 16 visible characters, such as `openssl rand -hex 32`")
    return token
