"""New weights on their way from the trainer to vLLM: through a folder, or from GPU to GPU."""

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
    """Have vLLM serve the trainer's weights from now on, as ``version``.

    All policies that learn are pushed together. Adapters are written to ``policy_folder``, and vLLM reads them. Whole
    weights go by ``serving.weight_transfer``: "folder" likewise; "nccl" and "ipc" transfer them between GPUs through
    vLLM's weight-transfer interface (``algo.training.weight_sender``), which is experimental.
    Raises ServingError, and what the engine raises.
    """
    folder = policy_folder(config, version)
    folders = {learner: config.folder_of(learner, folder) for learner in config.learners}
    updates = engine.updates

    def write() -> None:
        if engine.updates != updates:
            raise WeightsSuperseded
        with remove_on_error(folder, "Free some space there; --resume auto goes on from the last checkpoint"):
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
        except TimeoutError as error:  # a server that dies in its midst leaves NCCL waiting for ever
            raise ServingError(
                f"the weights did not reach {', '.join(url for url, _ in targets)} by {config.serving.weight_transfer} "
                f"within {_TRANSFER_TIMEOUT_SECONDS:.0f} s; see vllm.log. serving.weight_transfer=folder needs no link"
            ) from error

    if config.serving.weight_transfer == "folder":
        await trainer.run(write)
        await serving.push(folders, version)
    else:
        shutil.rmtree(folder, ignore_errors=True)  # of steps that a crash undid
        await serving.transfer(version, send, export)
    _drop_old_policies(folder, config.rollout.max_policy_lag)


async def save_policy(config: Config, engine: Engine, trainer: TrainerThread, version: int, folder: Path) -> None:
    """Write the policies' present weights, or adapters, into a folder that lasts; it is whole or not there.

    version: of these weights. Raises DiskFull, and what the engine raises.
    """
    pushed = policy_folder(config, version)

    def write() -> None:
        # A checkpoint will name it.
        with atomic_folder(folder, "Free some space there, or lower league.size", durable=True) as unfinished:
            if pushed.is_dir():
                shutil.copytree(pushed, unfinished, dirs_exist_ok=True)
            else:  # handed over on the GPUs
                engine.export(unfinished)

    await (asyncio.to_thread(write) if pushed.is_dir() else trainer.run(write))


def _drop_old_policies(pushed: Path, max_lag: int) -> None:
    """Keep what was pushed last and before that: vLLM has read the older ones, and later ones a crash undid.

    max_lag: so many of before may be read again, as adapters of replies that are not finished yet.
    """
    others = sorted(folder for folder in pushed.parent.glob("version-*") if folder.name != pushed.name)
    before = [folder for folder in others if folder.name < pushed.name]
    for old in set(others) - set(before[-max(1, max_lag) :]):
        shutil.rmtree(old)
