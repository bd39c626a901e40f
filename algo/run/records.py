"""Writes a step's transcripts and its training batch."""

import json
import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from algo.advantages.branching import Worth
from algo.machine.atomic_files import write_atomically
from algo.machine.disk import remove_on_error
from algo.rollouts.triplets import FinishedRollout
from algo.sequences.trajectories import Trajectory
from configs.schema import Config

if TYPE_CHECKING:
    import torch


_OF_A_STEP = re.compile(r"(?:step|evaluation)-(\d+)")
"""Name of a folder of transcripts, or of a batch."""
Worths = Mapping[tuple[str, str, int], Worth]
"""(task, actor, turn) -> what the decision changed (``BranchCredit.worths``)."""


def write_transcripts(
    config: Config, step: int, finished: Sequence[FinishedRollout], worths: Worths = MappingProxyType({})
) -> None:
    """Write the transcripts of a step's first rollouts, those with a branched decision before others."""
    branched = {task_id for task_id, _, _ in worths}
    ordered = sorted(finished, key=lambda rollout: rollout.outcome.task not in branched)
    folder = config.run_dir / "transcripts" / f"step-{step:04d}"
    write_transcripts_to(folder, ordered[: config.log.transcripts_per_step], worths)


def write_transcripts_to(
    folder: Path, finished: Sequence[FinishedRollout], worths: Worths = MappingProxyType({})
) -> None:
    """Write each rollout's transcript to a file with its task's name, and its JSON data if it has any.

    A runner sends the name, so separators of paths are replaced.
    worths: what decisions changed, for the data of their turns.
    """
    for rollout in finished:
        name = re.sub(r"[/\\\0]", "-", rollout.outcome.task)
        write_atomically(folder / f"{name}.txt", rollout.outcome.transcript)
        data = rollout.outcome.as_data(rollout.turns)
        if data is not None:
            for turn, written in zip(rollout.turns, data["turns"], strict=True):
                if worth := worths.get((turn.task, turn.actor, turn.turn)):
                    written["worth"] = asdict(worth)
            write_atomically(folder / f"{name}.json", json.dumps(data, ensure_ascii=False))


def remove_later(run_dir: Path, step: int) -> None:
    """Remove the transcripts and batches of later steps: a repeated step may write others, and no batch at all."""
    for path in (*run_dir.glob("transcripts/*"), *run_dir.glob("batches/*")):
        if (found := _OF_A_STEP.fullmatch(path.stem)) and int(found[1]) > step:
            shutil.rmtree(path) if path.is_dir() else path.unlink()


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
