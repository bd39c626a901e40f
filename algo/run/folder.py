"""A run's folder: made or taken up, and the logs in it.

Training and evaluation begin alike; neither torch nor verl is needed here.
"""

import asyncio
import logging
import secrets
import signal
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from algo.machine.atomic_files import make_private_folder
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
    """A run whose folder is ours.

    state: where it stands: at its beginning, or as its newest checkpoint has it.
    checkpoint: that checkpoint's folder; None at the beginning.
    is_resumed: an earlier process has worked on it, and may have left rollouts in the hub.
    lock: open for as long as the run is ours.
    """

    config: Config
    state: RunState
    checkpoint: Path | None
    is_resumed: bool
    lock: IO[str]

    @property
    def resumption(self) -> ResumePoint | None:
        """Which of the rollouts in the hub it may go on with; None for a run that begins."""
        if not self.is_resumed:
            return None
        return ResumePoint(self.state.policy_version, self.state.resumes, tuple(self.state.resumed_at[:-1]))


def open_run(config: Config, resume: bool, suffix: str = "") -> OpenedRun:
    """Make or take up the run's folder, and hold it against other processes.

    resume: go on with the run of this name, from its newest checkpoint or, without one, from its beginning; if there is
        no such run, begin it. Otherwise a name that is taken gets a number, so that nothing is overwritten.
    suffix: added to the configured name, for what is not a training run.
    Raises ConfigError when another process has the run, or when it cannot be resumed with this configuration.
    """
    name = run_name(config, resume, suffix)
    config = config.model_copy(update={"run": config.run.model_copy(update={"name": name})})
    make_private_folder(config.run_dir)  # keys stand nowhere in it, but transcripts, settings and addresses do
    (config.run_dir / "logs").mkdir(exist_ok=True)
    lock = lock_run(config.run_dir)
    checkpoint = None
    is_resumed = resume and (config.run_dir / RUN_FILE).exists()
    if is_resumed:
        checkpoint = newest_checkpoint(config.run_dir)
        state = load_state(checkpoint or config.run_dir)
        check_same_run(state.settings, config, config.run_dir)
        began = load_state(config.run_dir)
        state.resumes = began.resumes = began.resumes + 1
        state.resumed_at = began.resumed_at = [*began.resumed_at, state.policy_version]
        write_run_file(config.run_dir, began)
        if (config.run_dir / "config.yaml").exists():
            (config.run_dir / "config.yaml").replace(config.run_dir / f"config-before-resume-{state.resumes}.yaml")
    else:
        # Runners cache resources by id, and several runs may share a hub: names alone could collide.
        state = RunState(run_id=f"{name}-{secrets.token_hex(4)}", settings=fixed_settings(config))
        write_run_file(config.run_dir, state)
    (config.run_dir / "config.yaml").write_text(as_yaml(config), encoding="utf-8")
    return OpenedRun(config, state, checkpoint, is_resumed, lock)


def discard_rollouts(run_dir: Path) -> None:
    """Let no later process of a run use the rollouts that were enqueued so far: it plays them again."""
    began = load_state(run_dir)
    began.resumes += 1
    began.resumed_at = [*began.resumed_at, -1]  # as if the run had lost all its updates (``ResumePoint``)
    write_run_file(run_dir, began)


class _LogFile(logging.FileHandler):
    """Without a traceback at each line that a full disk does not take: the run's own writing tells of it, once."""

    def handleError(self, record: logging.LogRecord) -> None:
        if not isinstance(sys.exc_info()[1], OSError):
            super().handleError(record)


def log_to(level: str, file: Path) -> None:
    """Log to the terminal and, in full, to the run's folder."""
    set_up_logging(level, _LogFile(file, encoding="utf-8"), force=True)


def cancel_on_signals() -> None:
    """Let Ctrl-C and SIGTERM cancel the running task, so that everything started is stopped in order."""
    task = asyncio.current_task()
    assert task is not None
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, task.cancel)
