"""Transfer of weights from the trainer to vLLM: through a folder, or between GPUs."""

import asyncio
import shutil
from collections.abc import Sequence
from pathlib import Path

from algo.machine.disk import atomic_folder, remove_on_error
from algo.serving.policies import PolicyServers
from algo.serving.preconditions import ServingError, WeightsSuperseded
from algo.serving.vllm_server import VllmServer
from algo.training.engine import Engine
from algo.training.thread import TrainerThread
from configs.schema import Config

_TRANSFER_TIMEOUT_SECONDS = 900.0


def policy_folder(config: Config, version: int) -> Path:
    """Folder of one version's weights, as pushed to vLLM; see ``Config.folder_of``."""
    return config.run_dir / "policy" / f"version-{version:06d}"


async def push_policy(
    config: Config, serving: PolicyServers, engine: Engine, trainer: TrainerThread, version: int
) -> None:
    """Push the trainer's weights to vLLM as ``version``, for all learning policies together.

    Adapters go through ``policy_folder``. Whole weights go by ``serving.weight_transfer``: "folder" likewise; "nccl"
    and "ipc" between GPUs through vLLM's interface (``algo.training.weight_sender``), which is experimental.
    Raises ServingError, and the engine's errors.
    """
    folder = policy_folder(config, version)
    folders = {learner: config.folder_of(learner, folder) for learner in config.learners}
    updates = engine.updates

    def write() -> None:
        if engine.updates != updates:
            raise WeightsSuperseded
        with remove_on_error(folder, "Free some space there; --resume auto continues from the last checkpoint"):
            for learner, into in folders.items():
                engine.select(learner)
                (engine.export_adapters if config.model.lora_rank else engine.export)(into)

    async def export() -> Path:
        if not folder.is_dir():
            await trainer.run(write)
        return folder

    async def send(servers: Sequence[VllmServer]) -> None:
        targets = [(server.base_url, server.starts) for server in servers]
        try:
            async with asyncio.timeout(_TRANSFER_TIMEOUT_SECONDS):
                await trainer.run(engine.send_weights, targets)
        except TimeoutError as error:  # NCCL hangs when a server dies during the transfer
            raise ServingError(
                f"the weights did not reach {', '.join(url for url, _ in targets)} by {config.serving.weight_transfer} "
                f"within {_TRANSFER_TIMEOUT_SECONDS:.0f} s; see vllm.log, or use serving.weight_transfer=folder"
            ) from error

    if config.serving.weight_transfer == "folder":
        await trainer.run(write)
        await serving.push(folders, version)
    else:
        shutil.rmtree(folder, ignore_errors=True)  # of steps lost in a crash
        await serving.transfer(version, send, export)
    _drop_old_policies(folder, config.rollout.max_policy_lag)


async def save_policy(config: Config, engine: Engine, trainer: TrainerThread, version: int, folder: Path) -> None:
    """Write the policies' current weights or adapters into a permanent folder, atomically.

    version: of these weights. Raises DiskFull, and the engine's errors.
    """
    pushed = policy_folder(config, version)

    def write() -> None:
        # Durable, since a checkpoint will refer to it.
        with atomic_folder(folder, "Free some space there, or lower league.size", durable=True) as unfinished:
            if pushed.is_dir():
                shutil.copytree(pushed, unfinished, dirs_exist_ok=True)
            else:  # transferred between GPUs
                engine.export(unfinished)

    await (asyncio.to_thread(write) if pushed.is_dir() else trainer.run(write))


def _drop_old_policies(pushed: Path, max_lag: int) -> None:
    """Delete the folders of old versions, and of later ones from steps lost in a crash.

    max_lag: number of older versions to keep, at least one: vLLM may reload adapters of unfinished replies.
    """
    others = sorted(folder for folder in pushed.parent.glob("version-*") if folder.name != pushed.name)
    before = [folder for folder in others if folder.name < pushed.name]
    for old in set(others) - set(before[-max(1, max_lag) :]):
        shutil.rmtree(old)
