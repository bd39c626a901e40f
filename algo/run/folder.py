"""Opens a run's folder, new or resumed, and its logs, without torch and verl."""

import asyncio
import logging
import secrets
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from algo.machine.atomic_files import make_private_folder
from algo.machine.processes import stop_signals
from algo.rollouts.hub_rollouts import ResumePoint
from algo.run.checkpoints import (
    RunState,
    check_same_run,
    fixed_settings,
    load_state,
    lock_run,
    newest_checkpoint,
    write_run_file,
)
from algo.run.names import RUN_FILE, run_name
from configs.loading import as_yaml
from configs.schema import Config
from store.printable import set_up_logging


@dataclass
class OpenedRun:
    """A run with a locked folder.

    state: initial, or from the newest checkpoint. checkpoint: its folder, or None.
    is_resumed: an earlier process may have left rollouts in the hub.
    lock: keeps the run locked while it is open.
    """

    config: Config
    state: RunState
    checkpoint: Path | None
    is_resumed: bool
    lock: IO[str]

    @property
    def resumption(self) -> ResumePoint | None:
        """For the choice of rollouts to adopt; None for a new run."""
        if not self.is_resumed:
            return None
        return ResumePoint(self.state.policy_version, self.state.resumes, tuple(self.state.resumed_at[:-1]))


def open_run(config: Config, resume: bool, suffix: str = "", policy_version: int = 0) -> OpenedRun:
    """Create or resume the run's folder, and lock it.

    resume: continue the run of this name from its newest checkpoint or, without one, from the start; create it if it
        does not exist. Otherwise a number is added to a name that is in use.
    suffix: of the configured name, for other than training runs. policy_version: at the start of a new run.
    Raises ConfigError for a locked run, and for one that cannot be resumed with this configuration.
    """
    name = run_name(config, resume, suffix)
    config = config.model_copy(update={"run": config.run.model_copy(update={"name": name})})
    make_private_folder(config.run_dir)  # it has transcripts, settings and addresses, but no keys
    (config.run_dir / "logs").mkdir(exist_ok=True)
    lock = lock_run(config.run_dir)
    checkpoint = None
    is_resumed = resume and (config.run_dir / RUN_FILE).exists()
    if is_resumed:
        checkpoint = newest_checkpoint(config.run_dir)
        state = load_state(checkpoint or config.run_dir)
        check_same_run(state.settings, config, config.run_dir)
        if 0 < config.run.steps <= state.step:  # nothing will be done with this configuration
            return OpenedRun(config, state, checkpoint, is_resumed, lock)
        state.settings |= fixed_settings(config)  # keeps the digests of a model that is gone
        began = load_state(config.run_dir)
        state.resumes = began.resumes = began.resumes + 1
        state.resumed_at = began.resumed_at = [*began.resumed_at, state.policy_version]
        write_run_file(config.run_dir, began)
        if (config.run_dir / "config.yaml").exists():
            (config.run_dir / "config.yaml").replace(config.run_dir / f"config-before-resume-{state.resumes}.yaml")
    else:
        # Runners cache resources by id, and names of runs on a shared hub could collide.
        run_id, settings = f"{name}-{secrets.token_hex(4)}", fixed_settings(config)
        state = RunState(run_id=run_id, policy_version=policy_version, settings=settings)
        write_run_file(config.run_dir, state)
    (config.run_dir / "config.yaml").write_text(as_yaml(config), encoding="utf-8")
    return OpenedRun(config, state, checkpoint, is_resumed, lock)


def discard_rollouts(run_dir: Path) -> None:
    """Prevent a resumed run from adopting the rollouts so far: it repeats them."""
    began = load_state(run_dir)
    began.resumes += 1
    began.resumed_at = [*began.resumed_at, -1]  # as if all updates were lost (``ResumePoint``)
    write_run_file(run_dir, began)


class _LogFile(logging.FileHandler):
    """Without a traceback for every line on a full disk, which the run reports once."""

    def handleError(self, record: logging.LogRecord) -> None:
        if not isinstance(sys.exc_info()[1], OSError):
            super().handleError(record)


def log_to(level: str, file: Path) -> None:
    """Log to the terminal and to a file."""
    set_up_logging(level, _LogFile(file, encoding="utf-8"), force=True)


def cancel_on_signals() -> None:
    """Make ``stop_signals`` cancel the current task, for an orderly shutdown."""
    task = asyncio.current_task()
    assert task is not None
    for number in stop_signals():
        asyncio.get_running_loop().add_signal_handler(number, task.cancel)
