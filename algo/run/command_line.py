"""What programs have in common once their configuration is read: how they begin, and how they end."""

import asyncio
import logging
import sys
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, TypeVar

import aiohttp

from algo.machine.disk import DiskFull, disk_full
from algo.rollouts.played import AllRolloutsFailed, NoFinishedRollouts
from algo.run.folder import OpenedRun, discard_rollouts, log_to, open_run
from algo.serving.preconditions import ServingError
from configs.schema import Config
from configs.section import ConfigError
from store.auth import UnusableToken
from store.client import StoreUnreachable, describe_error

_Result = TypeVar("_Result")


def begin_run(
    config: Config,
    log_level: str,
    check: Callable[[Config], None] = lambda config: None,
    *,
    suffix: str,
    log: str,
    resume: bool = False,
) -> OpenedRun | int:
    """Open a run with its log file; or the exit status where it cannot be begun.

    check: raises ConfigError for what cannot be run, where telling takes longer than ``read_configuration`` may.
    suffix: of the run's name. log: name of the log file.
    """
    try:
        check(config)
        opened = open_run(config, resume, suffix)
    except ConfigError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except OSError as error:
        print(f"error: cannot write the run's folder under run.dir {config.run.dir}: {error}", file=sys.stderr)
        return 2
    log_to(log_level, opened.config.run_dir / "logs" / log)
    return opened


def run_to_completion(
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
    except (StoreUnreachable, UnusableToken, ServingError, NoFinishedRollouts, ConfigError) as error:
        if isinstance(error, AllRolloutsFailed):
            discard_rollouts(config.run_dir)
        logger.error("%s", error)
    except aiohttp.ClientResponseError as error:
        hint = "; AGL_TOKEN holds the hub's token" if error.status == 401 else ""
        logger.error("the hub at %s refused a request: %d %s%s", config.store.url, error.status, error.message, hint)
    except (aiohttp.ClientError, TimeoutError) as error:
        logger.error("the hub at %s stopped answering: %s", config.store.url, describe_error(error))
    except Exception as error:
        sentence = next((sentence for kind, sentence in told.items() if isinstance(error, kind)), None)
        remedy = f"Free some space there and start again; what the run wrote lies in {config.run_dir}"
        if isinstance(error, DiskFull):
            logger.error("%s", error)
        elif full := disk_full(error, getattr(error, "filename", None), remedy):
            logger.error("%s", full)
        elif sentence is not None:
            logger.error("%s", sentence.format(error))
        else:  # a bug: say so here, where the log file gets it too
            logger.exception("ended with an unexpected error")
    return 1, None
