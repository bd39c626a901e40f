"""What this room's programs have in common on the command line: which configuration they take, how they begin, and
how they end."""

import argparse
import asyncio
import logging
import sys
from collections.abc import Callable, Coroutine, Mapping
from pathlib import Path
from typing import Any, TypeVar

import aiohttp

from algo.loop.run_folder import OpenedRun, as_yaml, open_run, set_up_logging
from algo.rollouts.queue import NothingFinished
from algo.serving.preconditions import ServingError
from configs.loading import load_config
from configs.schema import Config
from configs.section import ConfigError
from store.auth import UnusableToken
from store.client import StoreUnreachable, described

_Result = TypeVar("_Result")


def add_configuration_options(parser: argparse.ArgumentParser, example: str) -> None:
    """Add ``--config``, ``--set``, ``--print-config`` and ``--log-level``. example: an override to show in the help."""
    parser.add_argument("--config", type=Path, metavar="FILE", help="configuration (default: configs/tiny_cpu.yaml)")
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="SECTION.KEY=VALUE",
        dest="overrides",
        help=f"override one setting, e.g. --set {example}; may be repeated",
    )
    parser.add_argument("--print-config", action="store_true", help="print the resulting configuration and exit")
    parser.add_argument(
        "--log-level", default="INFO", choices=["DEBUG", "INFO", "WARNING", "ERROR"], help="verbosity (default: INFO)"
    )


def begin_run(
    options: argparse.Namespace, check: Callable[[Config], None], *, suffix: str, log: str, resume: bool = False
) -> OpenedRun | int:
    """Open the run that the command line asks for, with its log file; or the exit status where there is nothing to run.

    options: with those of ``add_configuration_options``. check: raises ConfigError for what cannot be run.
    suffix: of the run's name. log: name of the log file.
    """
    try:
        config = load_config(options.config, options.overrides)
        if options.print_config:
            print(as_yaml(config), end="")
            return 0
        check(config)
        opened = open_run(config, resume, suffix)
    except ConfigError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except OSError as error:
        print(f"error: cannot write the run's folder under run.dir {config.run.dir}: {error}", file=sys.stderr)
        return 2
    set_up_logging(options.log_level, opened.config.run_dir / "logs" / log)
    return opened


def run_to_its_end(
    work: Coroutine[Any, Any, _Result],
    config: Config,
    logger: logging.Logger,
    interrupted: str,
    told: Mapping[type[Exception], str],
) -> tuple[int, _Result | None]:
    """Run a program's work; (exit status, its result if the status is 0). Every end but that is logged in a line.

    interrupted: what to say when Ctrl-C or SIGTERM ended it.
    told: further errors that are no bugs, and what to say of them; ``{}`` stands for the error.
    """
    try:
        return 0, asyncio.run(work)
    except asyncio.CancelledError:
        logger.warning("%s", interrupted)
        return 130, None
    except (StoreUnreachable, UnusableToken, ServingError, NothingFinished, ConfigError) as error:
        logger.error("%s", error)
    except aiohttp.ClientResponseError as error:
        hint = "; AGL_TOKEN holds the hub's token" if error.status == 401 else ""
        logger.error("the hub at %s refused a request: %d %s%s", config.store.url, error.status, error.message, hint)
    except (aiohttp.ClientError, TimeoutError) as error:
        logger.error("the hub at %s stopped answering: %s", config.store.url, described(error))
    except tuple(told) as error:
        sentence = next(sentence for kind, sentence in told.items() if isinstance(error, kind))
        logger.error("%s", sentence.format(error))
    except Exception:  # a bug: say so here, where the log file gets it too
        logger.exception("ended with an unexpected error")
    return 1, None
