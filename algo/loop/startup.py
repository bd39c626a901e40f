"""Start-up of training: checks, vLLM, the trainer, tracking of metrics."""

import asyncio
import logging
import os
import shutil
from contextlib import AsyncExitStack
from functools import partial
from importlib.util import find_spec

from verl.utils.tracking import Tracking

from algo.advantages.branching import check_branching
from algo.advantages.correction import check_correction
from algo.advantages.credit import check_credit
from algo.advantages.registry import check_estimator, needs_groups
from algo.league.league import League, folders_of
from algo.league.pool import LeagueState
from algo.league.results import past_name
from algo.loop.weight_transfer import policy_folder, push_policy, save_policy
from algo.machine.disk import atomic_folder
from algo.run.checkpoints import models_in, saved_states
from algo.run.folder import OpenedRun
from algo.run.summary import RunSummary
from algo.serving.policies import PolicyServers
from algo.serving.server_group import gather_or_cancel
from algo.training.engine import Engine
from algo.training.thread import TrainerThread
from algo.training.verl_configs import actor_config, check_engine
from configs.schema import Config
from configs.section import ConfigError

logger = logging.getLogger(__name__)

_BACKENDS_WITH_A_PACKAGE = frozenset({"swanlab", "trackio", "mlflow", "wandb"})


def check_before_starting(config: Config) -> None:
    """Raise ConfigError for errors that can be detected before anything starts."""
    check_engine(config)
    check_settings(config)


def check_settings(config: Config) -> None:
    """Raise ConfigError for errors that can be detected without the model's folder and GPUs."""
    actor_config(config.training, config.reference)
    check_estimator(config.advantage.estimator)
    check_branching(config.advantage)
    check_credit(config.advantage, config.training)
    check_correction(config.training.rollout_correction)
    check_log_backends(config)
    if config.rollout.rollouts_per_group < 2 and needs_groups(config.advantage.estimator):
        raise ConfigError(
            f"rollout.rollouts_per_group must be at least 2 for advantage.estimator {config.advantage.estimator!r}, "
            f"which has no baseline for a single rollout"
        )


def check_log_backends(config: Config) -> None:
    """Raise ConfigError for an unknown backend of verl's Tracking, or one without an installed package."""
    # Not all that verl has: ClearML's splits every metric at a slash, which policy_version lacks; others need services.
    known = {"console", "file", "tensorboard", *_BACKENDS_WITH_A_PACKAGE}
    unknown = sorted(set(config.log.backends) - known)
    if unknown:
        raise ConfigError(f"log.backends {unknown} cannot be used; known: {', '.join(sorted(known))}")
    for name in _BACKENDS_WITH_A_PACKAGE.intersection(config.log.backends):
        if find_spec(name) is None:
            raise ConfigError(f"log.backends: {name!r} is not installed: pip install {name}")


async def start_policy(opened: OpenedRun, stack: AsyncExitStack) -> tuple[PolicyServers, Engine, TrainerThread]:
    """Start vLLM and the trainer, with the run's current weights; ``stack`` stops both.

    Concurrently, unless they share GPUs: vLLM measures free memory at its start, which the trainer would distort. It
    then sleeps until the trainer has loaded.
    """
    config = opened.config

    async def serve() -> PolicyServers:
        # Runners with rollouts in flight may send requests before a resumed run has pushed its weights.
        weights_follow = opened.checkpoint is not None or config.model.lora_rank > 0
        servers = await PolicyServers.open(config, None if weights_follow else 0)
        stack.push_async_callback(servers.stop)
        return servers

    async def train() -> tuple[Engine, TrainerThread]:
        # Quick errors (a port in use, an unusable attached vLLM) come before Ray starts.
        await asyncio.wait([serving], timeout=None if config.serving.share_gpus else 4.0)
        if serving.done():
            await serving.result().sleep()
        return await start_trainer(config, stack)

    serving = asyncio.create_task(serve())
    training = asyncio.create_task(train())
    await gather_or_cancel([serving, training])
    servers, (engine, trainer) = serving.result(), training.result()
    await _restore(opened, servers, engine, trainer)
    await servers.wake()
    return servers, engine, trainer


async def start_trainer(config: Config, stack: AsyncExitStack) -> tuple[Engine, TrainerThread]:
    """Start the trainer; ``stack`` stops it, even while it loads."""
    trainer = TrainerThread()
    logger.info("starting the trainer: %d verl workers on %s", config.training.ranks, config.training.device)
    starting = trainer.submit(Engine, config)

    async def close() -> None:
        if not starting.done():
            logger.info("the trainer stops as soon as it has loaded")
        try:
            engine = await starting  # loading cannot be interrupted
        except Exception:
            return  # raised below
        await asyncio.to_thread(engine.close)

    stack.push_async_callback(close)
    engine = await asyncio.shield(starting)
    logger.info("the trainer has started")
    return engine, trainer


async def _restore(opened: OpenedRun, serving: PolicyServers, engine: Engine, trainer: TrainerThread) -> None:
    """Load the run's weights: both start with ``model.path``, an attached vLLM with any, and adapters are missing."""
    config, version = opened.config, opened.state.policy_version
    if opened.checkpoint is not None:
        logger.info("resuming from %s", opened.checkpoint)
        await trainer.run(engine.load, opened.checkpoint / "trainer")
    if config.model.lora_rank:
        # Rollouts of an earlier process continue as soon as the policy is served, and may use past selves.
        past = folders_of(config, opened.state.league or LeagueState())
        await serving.serve_past_selves({past_name(each): folder for each, folder in past.items()}, [], now=False)
        await push_policy(config, serving, engine, trainer, version)
    elif opened.checkpoint is not None:
        # A copy for restarts of vLLM, since the checkpoint may be deleted.
        folders = {}
        for learner, kept in models_in(config, opened.checkpoint).items():
            folders[learner] = config.folder_of(learner, policy_folder(config, version))
            with atomic_folder(folders[learner]) as unfinished:
                await asyncio.to_thread(shutil.copytree, kept / "huggingface", unfinished, dirs_exist_ok=True)
        await serving.push(folders, version)
    elif config.serving.mode == "attach":
        await serving.push(dict.fromkeys(config.learners, config.model.path), 0)


def open_tracking(config: Config, summary: RunSummary) -> Tracking:
    """verl's Tracking, its files inside the run's folder.

    summary: of a resumed run; its metrics are written again, since verl truncates its file, and TensorBoard shows a
    step twice if the run repeats it.
    """
    folder = config.run_dir.absolute()
    os.environ["VERL_FILE_LOGGER_PATH"] = str(folder / "metrics.jsonl")
    os.environ["TENSORBOARD_DIR"] = str(folder / "tensorboard")
    # Environment variables take precedence, such as an MLflow server's address.
    os.environ.setdefault("SWANLAB_LOG_DIR", str(folder / "swanlab"))
    os.environ.setdefault("WANDB_DIR", str(folder))
    os.environ.setdefault("MLFLOW_TRACKING_URI", f"sqlite:///{folder / 'mlflow.db'}")
    os.environ.setdefault("TRACKIO_DIR", str(folder / "trackio"))
    backends = sorted({"file", *config.log.backends})  # pages and reports read the file
    if "tensorboard" in backends:
        shutil.rmtree(folder / "tensorboard", ignore_errors=True)
    # verl reads wandb's proxy from its own section.
    shown = config.model_dump(mode="json") | {"trainer": {"wandb_proxy": None}}
    tracking = Tracking(config.project, config.run.name, backends, shown)
    for number, metrics in enumerate([summary.before, *summary.steps]):
        if metrics:
            tracking.log(metrics, step=number, backend=[name for name in backends if name in ("file", "tensorboard")])
    return tracking


async def start_league(
    opened: OpenedRun, serving: PolicyServers, engine: Engine, trainer: TrainerThread
) -> League | None:
    """Start the servers of past selves, if the run has a pool. Raises ServingError, and as ``League``."""
    config, state = opened.config, opened.state
    if config.pool is None:
        return None
    state.league = state.league or LeagueState()

    def in_checkpoints() -> set[int]:
        leagues = (saved.league or LeagueState() for saved in saved_states(config.run_dir))
        return {version for league in leagues for version in league.needed}

    await serving.start_pool()
    return League(config, state.league, serving, partial(save_policy, config, engine, trainer), in_checkpoints)
