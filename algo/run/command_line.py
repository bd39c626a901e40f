"""Common start and end of programs with a run."""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, TypeVar

import aiohttp

from algo.machine.disk import DiskFull, disk_full
from algo.rollouts.played import UnusableRollouts
from algo.run.checkpoints import RunLocked
from algo.run.folder import OpenedRun, discard_rollouts, log_to, open_run
from algo.run.watch import Collapsed
from algo.serving.preconditions import ServingError
from configs.command_line import exit_on
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
    policy_version: int = 0,
) -> OpenedRun:
    """Open a run with its log file; exits with status 2 on an error, 1 on one that may pass (a lock, a full disk).

    check: raises ConfigError; for checks that are too slow for ``read_configuration``.
    log: name of the log file. suffix, resume, policy_version: see ``open_run``.
    """
    cannot = f"cannot open the run in run.dir {config.run.dir}: "
    with exit_on(ConfigError), exit_on(OSError, before=cannot, status=1), exit_on(RunLocked, status=1):
        check(config)
        opened = open_run(config, resume, suffix, policy_version)
    log_to(log_level, opened.config.run_dir / "logs" / log)
    return opened


def run_to_completion(
    work: Coroutine[Any, Any, _Result],
    config: Config,
    logger: logging.Logger,
    interrupted: str,
    messages: Mapping[type[Exception], str],
) -> _Result:
    """Run a program's work; returns its result. Logs errors in one line and exits with status 1.

    The status is 130 if interrupted, and 2 for a ConfigError or a Collapsed: a repetition cannot help.
    interrupted: message for Ctrl-C or SIGTERM.
    messages: of further expected errors, by type; ``{}`` is replaced by the error.
    """
    status = 1
    try:
        return asyncio.run(work)
    except asyncio.CancelledError:
        logger.warning("%s", interrupted)
        raise SystemExit(130) from None
    except ConfigError as error:
        logger.error("%s", error)
        raise SystemExit(2) from None
    except (StoreUnreachable, UnusableToken, ServingError, UnusableRollouts) as error:
        if isinstance(error, UnusableRollouts):
            discard_rollouts(config.run_dir)
        logger.error("%s", error)
    except aiohttp.ClientResponseError as error:
        logger.error("the hub at %s rejected a request: %d %s", config.store.url, error.status, error.message)
    except (aiohttp.ClientError, TimeoutError) as error:
        logger.error("the hub at %s stopped responding: %s", config.store.url, describe_error(error))
    except Exception as error:
        message = next((message for kind, message in messages.items() if isinstance(error, kind)), None)
        status = 2 if isinstance(error, Collapsed) else 1
        remedy = f"Free some space there and start again; the run's files are in {config.run_dir}"
        if isinstance(error, DiskFull):
            logger.error("%s", error)
        elif full := disk_full(error, getattr(error, "filename", None), remedy):
            logger.error("%s", full)
        elif message is not None:
            logger.error("%s", message.format(error))
        else:  # a bug: logged here, so that the log file has the traceback
            logger.exception("unexpected error")
    raise SystemExit(status)
