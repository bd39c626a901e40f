"""Writes a step's transcripts and its training batch."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from algo.machine.atomic_files import write_atomically
from algo.machine.disk import remove_on_error
from algo.rollouts.triplets import FinishedRollout
from algo.sequences.trajectories import Trajectory
from configs.schema import Config

if TYPE_CHECKING:
    import torch


def write_transcripts(config: Config, step: int, finished: Sequence[FinishedRollout]) -> None:
    """Write the transcripts of a step's first rollouts."""
    write_transcripts_to(
        config.run_dir / "transcripts" / f"step-{step:04d}", finished[: config.log.transcripts_per_step]
    )


def write_transcripts_to(folder: Path, finished: Sequence[FinishedRollout]) -> None:
    """Write each rollout's transcript to a file with its task's name, and its JSON data if it has any."""
    for rollout in finished:
        write_atomically(folder / f"{rollout.outcome.task}.txt", rollout.outcome.transcript)
        data = rollout.outcome.as_data(rollout.turns)
        if data is not None:
            write_atomically(folder / f"{rollout.outcome.task}.json", json.dumps(data, ensure_ascii=False))


def write_batch(
    path: Path,
    trained: Sequence[Trajectory],
    advantages: Sequence["torch.Tensor"],
    log_probs: Sequence["torch.Tensor"],
) -> None:
    """Write a training batch as JSON Lines, one trajectory per line, aligned with ``token_ids``.

    advantages, log_probs (the trainer's, before the update): a row for each trajectory.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    remedy = "Free some space there, or set log.save_batches=false; --resume auto continues from the last checkpoint"
    with remove_on_error(path, remedy), path.open("w", encoding="utf-8") as file:
        for trajectory, advantage, logprobs in zip(trained, advantages, log_probs, strict=True):
            of_it = {name: value for name, value in vars(trajectory).items() if name != "learner" or value is not None}
            row = of_it | {"advantages": advantage.tolist(), "trainer_logprobs": logprobs.tolist()}
            file.write(json.dumps(row) + "\n")
