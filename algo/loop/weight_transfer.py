"""New weights on their way from the trainer to vLLM: through a folder, or from GPU to GPU."""

import asyncio
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

from algo.machine.disk import whole_or_removed
from algo.machine.whole_files import sync
from algo.serving.policy import Serving
from algo.serving.preconditions import ServingError
from algo.serving.server import VllmServer
from algo.serving.team import Team
from algo.training.engine import Engine
from algo.training.thread import TrainerThread
from configs.schema import Config

_TRANSFER_TIMEOUT_SECONDS = 900.0


def policy_folder(config: Config, version: int) -> Path:
    """Folder of one version's weights, as pushed to vLLM."""
    return config.run_dir / "policy" / f"version-{version:06d}"


async def push_policy(
    config: Config, serving: Serving | Team, engine: Engine, trainer: TrainerThread, version: int
) -> float:
    """Have vLLM serve the trainer's weights from now on, as ``version``; returns the seconds that vLLM took.

    Where several policies learn, all of them go together, each through a folder of its name in ``policy_folder``.
    Adapters are written to ``policy_folder``, and vLLM reads them. Whole weights go by ``serving.weight_transfer``:
    "folder" likewise; "nccl" and "ipc" hand them over on the GPUs through vLLM's weight-transfer interface
    (``algo.training.weight_sender``). These two need GPUs and have not been run on any yet.
    Raises ServingError, and what the engine raises.
    """

    folder = policy_folder(config, version)

    def write(export: Callable[[Path], None]) -> None:
        with whole_or_removed(folder, "Free some space there; --resume auto goes on from the last checkpoint"):
            export(folder)

    async def export() -> Path:
        if not folder.is_dir():
            await trainer.run(write, engine.export)
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

    def export_team(into: Path) -> None:
        for member in config.team:
            engine.select(member)
            (engine.export_adapters if config.model.lora_rank else engine.export)(into / member)

    if config.team:
        await trainer.run(write, export_team)
        seconds = await serving.push_team({member: folder / member for member in config.team}, version)
    elif config.model.lora_rank:
        await trainer.run(write, engine.export_adapters)
        seconds = await serving.push_weights(folder, version)
    elif config.serving.weight_transfer == "folder":
        await trainer.run(write, engine.export)
        seconds = await serving.push_weights(folder, version)
    else:
        shutil.rmtree(folder, ignore_errors=True)  # of steps that a crash undid
        seconds = await serving.transfer_weights(version, send, export)
    _drop_old_policies(folder, config.rollout.max_policy_lag)
    return seconds


async def keep_policy(config: Config, engine: Engine, trainer: TrainerThread, version: int, folder: Path) -> None:
    """Write the policy's present weights, or adapters, into a folder that lasts; it is whole or not there.

    version: of these weights. Raises DiskFull, and what the engine raises.
    """
    pushed, unfinished = policy_folder(config, version), folder.with_name(f"unfinished-{folder.name}")

    def write() -> None:
        with whole_or_removed(unfinished, "Free some space there, or lower league.size"):
            shutil.rmtree(unfinished, ignore_errors=True)
            unfinished.parent.mkdir(exist_ok=True)
            if pushed.is_dir():
                shutil.copytree(pushed, unfinished)
            else:  # handed over on the GPUs
                engine.export(unfinished)
            for path in [*unfinished.rglob("*"), unfinished]:
                sync(path)  # a checkpoint will name it
        unfinished.rename(folder)
        sync(folder.parent)

    await (asyncio.to_thread(write) if pushed.is_dir() else trainer.run(write))


def _drop_old_policies(pushed: Path, max_lag: int) -> None:
    """Keep what was pushed last and before that: vLLM has read the older ones, and later ones a crash undid.

    max_lag: so many of before may be read again, as adapters of replies that are not finished yet.
    """
    others = sorted(folder for folder in pushed.parent.glob("version-*") if folder.name != pushed.name)
    before = [folder for folder in others if folder.name < pushed.name]
    for old in set(others) - set(before[-max(1, max_lag) :]):
        shutil.rmtree(old)
