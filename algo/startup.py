"""What comes before the first game: checks, the run's folder and logs, vLLM and the trainer, the published policy."""

import asyncio
import logging
import os
import secrets
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, TypeVar

import yaml
from verl.utils.tracking import Tracking

from algo.advantages import check_estimator, needs_groups
from algo.checkpoints import (
    RUN_FILE,
    RunState,
    check_same_run,
    fixed_settings,
    load_state,
    lock_run,
    newest_checkpoint,
    write_run_file,
)
from algo.engine import Engine
from algo.serving import Serving
from algo.tasks import chat_endpoint
from algo.verl_configs import check_engine
from algo.weighing import check_weighing
from configs.schema import Config
from configs.section import ConfigError
from store.schema import FrozenPolicy, PolicyResources, Sampling

logger = logging.getLogger("algo.werewolf_verl")

_Result = TypeVar("_Result")


@dataclass
class OpenedRun:
    """A run whose folder is ours.

    state: where it stands: at its beginning, or as its newest checkpoint has it.
    checkpoint: that checkpoint's folder; None at the beginning.
    began_before: an earlier process has worked on it, and may have left games in the hub.
    lock: open for as long as the run is ours.
    """

    config: Config
    state: RunState
    checkpoint: Path | None
    began_before: bool
    lock: IO[str]


def check_before_starting(config: Config) -> None:
    """Refuse what can be refused without starting anything. Raises ConfigError."""
    check_engine(config)
    check_estimator(config.advantage.estimator)
    check_weighing(config.advantage, config.training)
    unknown = sorted(set(config.log.backends) - set(Tracking.supported_backend))
    if unknown:
        raise ConfigError(f"log.backends {unknown} are unknown to verl; known: {', '.join(Tracking.supported_backend)}")
    if config.game.games_per_group < 2 and needs_groups(config.advantage.estimator):
        raise ConfigError(
            f"game.games_per_group must be at least 2 for advantage.estimator {config.advantage.estimator!r}: the "
            f"baseline of a single game is the game itself"
        )


def open_run(config: Config, resume: bool, suffix: str = "") -> OpenedRun:
    """Make or take up the run's folder, and hold it against other processes.

    resume: go on with the run of this name, from its newest checkpoint or, without one, from its beginning; if there is
        no such run, begin it. Otherwise a name that is taken gets a number, so that nothing is overwritten.
    suffix: added to the configured name, for what is not a training run.
    Raises ConfigError when another process has the run, or when it cannot be resumed with this configuration.
    """
    first = config.run.name + suffix
    name, number = first, 1
    while not resume and (config.run.dir / name / RUN_FILE).exists():
        number += 1
        name = f"{first}-{number}"
    config = config.model_copy(update={"run": config.run.model_copy(update={"name": name})})
    (config.run_dir / "logs").mkdir(parents=True, exist_ok=True)
    lock = lock_run(config.run_dir)
    checkpoint = None
    if resume and (config.run_dir / RUN_FILE).exists():
        checkpoint = newest_checkpoint(config.run_dir)
        state = load_state(checkpoint or config.run_dir)
        check_same_run(state.settings, config, config.run_dir)
        began_before = True
    else:
        # Runners cache resources by id, and several runs may share a hub: names alone could collide.
        state = RunState(run_id=f"{name}-{secrets.token_hex(4)}", settings=fixed_settings(config))
        write_run_file(config.run_dir, state)
        began_before = False
    (config.run_dir / "config.yaml").write_text(as_yaml(config), encoding="utf-8")
    return OpenedRun(config, state, checkpoint, began_before, lock)


def as_yaml(config: Config) -> str:
    """The configuration as it would be written in a file."""
    return yaml.safe_dump(config.model_dump(mode="json"), sort_keys=False, allow_unicode=True)


def set_up_logging(level: str, file: Path) -> None:
    """Log to the terminal and, in full, to the run's folder."""
    line = "%(asctime)s %(levelname).1s %(name)s: %(message)s"
    handlers = [logging.StreamHandler(), logging.FileHandler(file, encoding="utf-8")]
    logging.basicConfig(level=level, format=line, datefmt="%H:%M:%S", handlers=handlers, force=True)
    for noisy in ("httpx", "httpx2", "agentlightning", "ray", "verl"):
        logging.getLogger(noisy).setLevel(logging.WARNING)


def cancel_on_signals() -> None:
    """Let Ctrl-C and SIGTERM cancel the running task, so that everything started is stopped in order."""
    task = asyncio.current_task()
    assert task is not None
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, task.cancel)


class TrainerThread:
    """Runs the engine's blocking calls, all on one thread, beside the event loop."""

    def __init__(self) -> None:
        self._executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix="trainer")
        self.seconds = 0.0
        """How long its calls have taken, together."""

    def submit(self, call: Callable[..., _Result], *arguments: Any) -> asyncio.Future[_Result]:
        """Make a call on the trainer's thread."""
        return asyncio.wrap_future(self._executor.submit(self._timed, call, *arguments))

    def _timed(self, call: Callable[..., _Result], *arguments: Any) -> _Result:
        started = time.monotonic()
        try:
            return call(*arguments)
        finally:
            self.seconds += time.monotonic() - started

    async def run(self, call: Callable[..., _Result], *arguments: Any) -> _Result:
        """Make a call and await it. Cancelling the wait does not end the call; closing the engine does."""
        return await asyncio.shield(self.submit(call, *arguments))


async def start_policy(opened: OpenedRun, stack: AsyncExitStack) -> tuple[Serving, Engine, TrainerThread]:
    """Start vLLM and the trainer side by side, with the weights at which the run stands.

    Both are stopped when ``stack`` closes, and on any failure.
    """
    config = opened.config
    trainer = TrainerThread()
    serving = asyncio.create_task(Serving.open(config, lambda line: logger.info("%s", line)))
    engine: asyncio.Future[Engine] | None = None
    try:
        # What can be refused at once (a port in use, a vLLM that cannot be attached to) is, before Ray starts.
        await asyncio.wait([serving], timeout=4.0)
        if serving.done():
            serving.result()
        logger.info("starting the trainer: %d verl workers on %s", config.training.ranks, config.training.device)
        engine = trainer.submit(Engine, config)
        engine.add_done_callback(_tell_that_it_started)
        await asyncio.wait([serving, engine], return_when=asyncio.FIRST_EXCEPTION)
        for start in (serving, engine):
            if start.done():
                start.result()
        started = serving.result(), engine.result()
        await _restore(opened, *started, trainer)
    except BaseException:
        serving.cancel()
        # Loading cannot be interrupted half-way; whatever comes up after all is stopped again.
        starting = [serving] if engine is None else [serving, engine]
        for outcome in await asyncio.gather(*starting, return_exceptions=True):
            if isinstance(outcome, Serving):
                await outcome.stop()
            elif isinstance(outcome, Engine):
                await asyncio.to_thread(outcome.close)
        raise
    stack.push_async_callback(started[0].stop)
    stack.push_async_callback(asyncio.to_thread, started[1].close)
    return *started, trainer


async def _restore(opened: OpenedRun, serving: Serving, engine: Engine, trainer: TrainerThread) -> None:
    """Both begin with ``model.path``; an attached vLLM may serve anything."""
    if opened.checkpoint is not None:
        logger.info("going on from %s", opened.checkpoint)
        await trainer.run(engine.load, opened.checkpoint / "trainer")
        await serving.push_weights(opened.checkpoint / "huggingface", opened.state.policy_version)
    elif opened.config.serving.mode == "attach":
        await serving.push_weights(opened.config.model.path, 0)


def _tell_that_it_started(engine: asyncio.Future[Engine]) -> None:
    if not engine.cancelled() and engine.exception() is None:
        logger.info("the trainer has started")


def read_prompts(config: Config) -> dict[str, str]:
    """The configured prompts by name; read once, so that editing a file does not change a run. Raises ConfigError."""
    prompts = {}
    for name, path in config.game.prompts.items():
        try:
            prompts[name] = path.read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"game.prompts.{name}: cannot read {path}: {error}") from error
    return prompts


def policy_resources(
    config: Config,
    serving: Serving,
    frozen: Mapping[str, FrozenPolicy],
    run_id: str,
    version: int,
    prompts: dict[str, str],
) -> PolicyResources:
    """What runners are told about the served policy. run_id: names the resources, unlike those of any other run."""
    return PolicyResources(
        run_name=run_id,
        version=version,
        endpoints=serving.endpoints,
        model=serving.model,
        sampling=Sampling(temperature=config.game.temperature, thinking=config.game.thinking),
        prompt_templates=prompts,
        players={name: chat_endpoint(player) for name, player in config.players.items()},
        frozen=dict(frozen),
        judge=None if config.judge is None else chat_endpoint(config.judge),
    )


def open_tracking(config: Config, earlier_steps: Sequence[dict[str, float]]) -> Tracking:
    """verl's Tracking, its files inside the run's folder.

    earlier_steps: metrics of the steps that a resumed run has made: verl begins its file anew.
    """
    os.environ["VERL_FILE_LOGGER_PATH"] = str(config.run_dir / "metrics.jsonl")
    os.environ["TENSORBOARD_DIR"] = str(config.run_dir / "tensorboard")
    tracking = Tracking("werewolf", config.run.name, list(config.log.backends), config.model_dump(mode="json"))
    for number, metrics in enumerate(earlier_steps, start=1):
        tracking.log(metrics, step=number, backend=["file"])
    return tracking
