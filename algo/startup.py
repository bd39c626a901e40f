"""What comes before the first game: checks, the run's folder and logs, vLLM and the trainer, the published policy."""

import asyncio
import logging
import signal
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, TypeVar

import yaml
from verl.utils.tracking import Tracking

from algo.advantages import check_estimator, needs_groups
from algo.engine import Engine, actor_config, check_model_folder
from algo.serving import Serving
from algo.tasks import chat_endpoint
from configs.schema import Config
from configs.section import ConfigError
from store.schema import PolicyResources, Sampling

logger = logging.getLogger("algo.werewolf_verl")

_Result = TypeVar("_Result")


def check_before_starting(config: Config) -> None:
    """Refuse what can be refused without starting anything. Raises ConfigError."""
    check_model_folder(config.model.path)
    check_estimator(config.advantage.estimator)
    actor_config(config.training)
    unknown = sorted(set(config.log.backends) - set(Tracking.supported_backend))
    if unknown:
        raise ConfigError(f"log.backends {unknown} are unknown to verl; known: {', '.join(Tracking.supported_backend)}")
    if config.game.games_per_group < 2 and needs_groups(config.advantage.estimator):
        raise ConfigError(
            f"game.games_per_group must be at least 2 for advantage.estimator {config.advantage.estimator!r}: the "
            f"baseline of a single game is the game itself"
        )


def new_run_folder(config: Config, suffix: str = "") -> Config:
    """The configuration with a name that no earlier run has, so that nothing is overwritten; makes the run's folder.

    suffix: added to the configured name, for what is not a training run.
    """
    first = config.run.name + suffix
    name, number = first, 1
    while (config.run.dir / name / "config.yaml").exists():
        number += 1
        name = f"{first}-{number}"
    config = config.model_copy(update={"run": config.run.model_copy(update={"name": name})})
    (config.run_dir / "logs").mkdir(parents=True, exist_ok=True)
    (config.run_dir / "config.yaml").write_text(as_yaml(config), encoding="utf-8")
    return config


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

    def submit(self, call: Callable[..., _Result], *arguments: Any) -> asyncio.Future[_Result]:
        """Make a call on the trainer's thread."""
        return asyncio.wrap_future(self._executor.submit(call, *arguments))

    async def run(self, call: Callable[..., _Result], *arguments: Any) -> _Result:
        """Make a call and await it. Cancelling the wait does not end the call; closing the engine does."""
        return await asyncio.shield(self.submit(call, *arguments))


async def start_policy(config: Config, stack: AsyncExitStack) -> tuple[Serving, Engine, TrainerThread]:
    """Start vLLM and the trainer side by side; both are stopped when ``stack`` closes, and on any failure."""
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
        if config.serving.mode == "attach":  # whatever it serves now, this run begins with the configured model
            await serving.result().push_weights(config.model.path)
        started = serving.result(), engine.result()
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
    config: Config, serving: Serving, run_id: str, version: int, prompts: dict[str, str]
) -> PolicyResources:
    """What runners are told about the served policy. run_id: names the resources, unlike those of any other run."""
    return PolicyResources(
        run_name=run_id,
        version=version,
        endpoints=(serving.endpoint,),
        model=serving.model,
        sampling=Sampling(temperature=config.game.temperature, thinking=config.game.thinking),
        prompt_templates=prompts,
        players={name: chat_endpoint(player) for name, player in config.players.items()},
        judge=None if config.judge is None else chat_endpoint(config.judge),
    )
