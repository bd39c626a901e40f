"""New weights on their way from the trainer to vLLM."""

import shutil
import time
from pathlib import Path

from algo.engine import Engine
from algo.serving import Serving
from algo.startup import TrainerThread
from configs.schema import Config

_KEPT_VERSIONS = 2


def policy_folder(config: Config, version: int) -> Path:
    """Folder of one version's weights, as pushed to vLLM."""
    return config.run_dir / "policy" / f"version-{version:06d}"


async def push_policy(config: Config, serving: Serving, engine: Engine, trainer: TrainerThread, version: int) -> float:
    """Have vLLM serve the trainer's weights from now on, as ``version``; returns the seconds it took.

    Raises ServingError, and what the engine raises.
    """
    started = time.monotonic()
    folder = policy_folder(config, version)
    await trainer.run(engine.export, folder)
    await serving.push_weights(folder, version)
    _drop_old_policies(config)
    return time.monotonic() - started


def _drop_old_policies(config: Config) -> None:
    """Keep the newest versions' weights: vLLM has long read the older ones."""
    for old in sorted((config.run_dir / "policy").glob("version-*"))[:-_KEPT_VERSIONS]:
        shutil.rmtree(old)
