"""A learning run as it lies in its folder: a warm start and reinforcement learning after it, of some seeds."""

import json
import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from itertools import count, takewhile
from pathlib import Path
from typing import Any

from algo.evaluation.cross_table import CrossTable
from algo.evaluation.outcomes import Evaluation, read_evaluations
from algo.learning.record import (
    LearningRecord,
    cross_table_folder,
    lesson_folder,
    training_folder,
    warm_start_folder,
)
from algo.run.metrics import read_steps
from algo.serving.weight_files import tensor_shapes
from algo.werewolf.file_names import CROSS_TABLE_FILE, MODEL_FOLDER, SUMMARY_FILE
from algo.werewolf.matches import SIDES
from configs.loading import load_config
from configs.werewolf import WerewolfConfig
from store.werewolf import SideName

_SEED_FOLDER = re.compile(r"seed-(\d+)(-.*)?")
_STEP_LABEL = re.compile(r"step (\d+)")


@dataclass(frozen=True)
class LearnedSeed:
    """What one seed's folders hold; a stage that has not ended has nothing.

    config, settings: of the training, as it was read and as it is written.
    evaluations: in their order. steps: (number, metrics) of each.
    warm_start: summary of the imitation (``algo.werewolf_sft``). minutes: by stage.
    """

    seed: int
    config: WerewolfConfig | None
    settings: str
    evaluations: tuple[Evaluation, ...]
    steps: tuple[tuple[int, dict[str, float]], ...]
    warm_start: dict[str, Any] | None
    cross_table: CrossTable | None
    minutes: dict[str, float]

    @property
    def before(self) -> Evaluation | None:
        """The evaluation before the first update, if there was one."""
        return next((found for found in self.evaluations if step_of(found) == 0), None)

    @property
    def after(self) -> Evaluation | None:
        """The last evaluation, if there was one after training had begun."""
        return next((found for found in self.evaluations[::-1] if step_of(found) > 0), None)

    @property
    def missing(self) -> str | None:
        """What the seed has not come to yet, in words; None if it is complete."""
        if self.config is None:
            return "training has not begun"
        made, asked = len(self.steps), self.config.run.steps
        if made < asked:
            return f"{made} of {asked} steps made"
        missing = [name for name in ("before", "after") if getattr(self, name) is None]
        if not missing and self.after is not None and step_of(self.after) < asked:
            missing = ["after the last step"]
        return f"no evaluation {' and '.join(missing)} training" if missing else None


@dataclass(frozen=True)
class LearningRun:
    """A learning run. record: what was asked. parameters: of the model; None where no weights lie in the folder."""

    folder: Path
    record: LearningRecord
    seeds: tuple[LearnedSeed, ...]
    parameters: int | None

    @cached_property
    def config(self) -> WerewolfConfig:
        """The training's configuration, of the first seed; those of the others differ in seed and model alone."""
        return next(seed.config for seed in self.seeds if seed.config is not None)

    @cached_property
    def complete(self) -> tuple[LearnedSeed, ...]:
        """The seeds that have an evaluation before and one after."""
        return tuple(seed for seed in self.seeds if seed.before is not None and seed.after is not None)

    @property
    def trained_sides(self) -> tuple[SideName, ...]:
        """The sides that the run trains."""
        return tuple(side for side in SIDES if side in self.config.game.train_sides)

    @property
    def trained_first(self) -> tuple[SideName, ...]:
        """Both sides in the order in which they are shown."""
        return (*self.trained_sides, *(side for side in SIDES if side not in self.trained_sides))

    @property
    def opponent(self) -> str:
        """Whom the policy is measured against: whom it trains against, or the first opponent of its evaluations."""
        evaluated, trained_against = self.config.evaluation.opponents, self.config.game.opponent
        return trained_against if trained_against in evaluated else evaluated[0]


def step_of(evaluation: Evaluation) -> int:
    """After how many steps an evaluation was made. Raises ValueError if its label does not tell."""
    found = _STEP_LABEL.fullmatch(evaluation.label)
    if found is None:
        raise ValueError(f"the evaluation {evaluation.label!r} was not made by a training run, which calls it 'step N'")
    return int(found[1])


def read_learning_run(folder: Path) -> LearningRun:
    """Read a learning run's folder. Raises ValueError, naming the file, if there is nothing to read or it cannot be."""
    record = LearningRecord.read(folder)
    seeds = read_seeds(folder, record.seeds)
    if not any(seed.config for seed in seeds):
        raise ValueError(
            f"{folder} holds no training: expected seed-1 with a config.yaml, as `python -m algo.learn` writes"
        )
    weights = [warm_start_folder(folder, seed.seed) / MODEL_FOLDER for seed in seeds]
    shapes = next(filter(None, map(tensor_shapes, [*weights, record.model_folder(folder)])), None)
    return LearningRun(folder, record, seeds, shapes and sum(map(math.prod, shapes.values())))


def read_seeds(folder: Path, asked: Iterable[int] = ()) -> tuple[LearnedSeed, ...]:
    """What ``seed-N`` in a folder hold, in their order. asked: seeds that are named even where they have no folder yet.

    Raises ValueError, naming the file, where one cannot be read.
    """
    found = (_SEED_FOLDER.fullmatch(path.name) for path in folder.glob("seed-*") if path.is_dir())
    numbers = {int(match[1]) for match in found if match} | set(asked)
    return tuple(_read_seed(folder, number) for number in sorted(numbers))


def _read_seed(folder: Path, number: int) -> LearnedSeed:
    training, warm_start = training_folder(folder, number), warm_start_folder(folder, number)
    config, table = training / "config.yaml", cross_table_folder(folder, number) / CROSS_TABLE_FILE
    imitation, summary = _read_json(warm_start / SUMMARY_FILE), _read_json(training / "summary.json")
    lessons = takewhile(Path.exists, (lesson_folder(folder, number, lesson) / SUMMARY_FILE for lesson in count(1)))
    imitations = {f"lesson {lesson}": _read_json(path) for lesson, path in enumerate(lessons, 1)}
    imitations["warm start"] = imitation
    seconds = {
        f"{kind}: {name}": value
        for kind, summary_of in imitations.items()
        for name, value in (summary_of or {}).get("seconds", {}).items()
    }
    seconds |= {f"training: {name}": value for name, value in (summary or {}).get("seconds_by_stage", {}).items()}
    return LearnedSeed(
        seed=number,
        config=load_config(config) if config.is_file() else None,
        settings=config.read_text(encoding="utf-8") if config.is_file() else "",
        evaluations=tuple(read_evaluations(training)),
        steps=tuple(read_steps(training)),
        warm_start=imitation,
        cross_table=CrossTable.read(table) if table.is_file() else None,
        minutes={name: value / 60 for name, value in seconds.items()},
    )


def _read_json(path: Path) -> dict[str, Any] | None:
    if not path.is_file():
        return None
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path} is not JSON: {error}") from error
    if not isinstance(document, dict):
        raise ValueError(f"{path} is not a JSON object")
    return document
