"""Reads the folders of a recipe for its report."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from algo.agents.evaluate import AttemptRow
from algo.evaluation.games import GameEvaluation, GameRow
from algo.evaluation.record import Evaluation, Record
from algo.evaluation.speech import Bits, read_bits
from algo.recipes.runner import RecipeFolder, read_recipe_folder
from algo.run.metrics import read_steps
from algo.werewolf.file_names import SUMMARY_FILE
from algo.werewolf.matches import OTHER_SIDE, SIDES
from configs.schema import Config
from configs.sections.opponents import INITIAL_POLICY
from configs.werewolf import WerewolfConfig
from store.players import PAST_SELVES
from store.werewolf import SideName


@dataclass(frozen=True)
class SeedRun:
    """Results of one seed. last_step: of its training. evaluations: of it, in order. steps: (number, metrics) of each.

    imitations: stage -> its summary. placed: evaluations of the evaluate stages. bits: see ``algo.evaluation.speech``.
    """

    seed: int
    last_step: int
    evaluations: tuple[Evaluation, ...]
    steps: tuple[tuple[int, dict[str, float]], ...]
    imitations: dict[str, dict[str, Any]]
    placed: tuple[GameEvaluation, ...]
    bits: Bits

    @cached_property
    def ends(self) -> tuple[Evaluation, Evaluation] | None:
        """The evaluations before the first update and after the last one; None unless both have ended.

        The games that end first are the shortest, whose winners are no sample.
        """
        ended = [one for one in self.evaluations if one.ended]
        before = [one for one in ended if one.header.step == 0]
        after = [one for one in ended if one.header.step == self.last_step]
        return (before[0], after[-1]) if before and after else None


@dataclass(frozen=True)
class RecipeRun:
    """Results of a recipe."""

    opened: RecipeFolder
    config: Config
    seeds: tuple[SeedRun, ...]

    @property
    def agents(self) -> bool:
        return self.opened.recipe.workload == "agents"

    @cached_property
    def complete(self) -> tuple[SeedRun, ...]:
        """Seeds with evaluations before and after training."""
        return tuple(seed for seed in self.seeds if seed.ends)

    @property
    def sides(self) -> tuple[SideName, ...]:
        """The sides that are trained."""
        assert isinstance(self.config, WerewolfConfig)
        return tuple(side for side in SIDES if side in self.config.game.train_sides)

    @property
    def opponent(self) -> str:
        """The opponent of training if it is evaluated, else the first opponent of the evaluations."""
        assert isinstance(self.config, WerewolfConfig)
        evaluated, trained_against = self.config.evaluation.opponents, self.config.game.opponent
        return trained_against if trained_against in evaluated else evaluated[0]

    def trained_against(self, side: SideName) -> frozenset[str]:
        """Players of the other side's seats in training."""
        assert isinstance(self.config, WerewolfConfig)
        other, game = OTHER_SIDE[side], self.config.game
        seated = {name for rule in game.seating if rule.may_concern(other) for name in rule.players}
        seated |= set() if any(rule.covers(other) for rule in game.seating) else {game.opponent}
        return frozenset(seated | ({INITIAL_POLICY} if PAST_SELVES in seated else set()))  # the first past self

    def groups(self) -> list[tuple[str, Sequence[SeedRun]]]:
        """Each complete seed alone and, if there are several, all of them together."""
        alone = [(f"seed {seed.seed}", (seed,)) for seed in self.complete]
        return [*alone, ("all seeds", self.complete)] if len(alone) > 1 else alone


def read_run(folder: Path) -> RecipeRun:
    """Read a recipe's folder. Raises ConfigError or ValueError for unreadable files."""
    opened = read_recipe_folder(folder)
    row = AttemptRow if opened.recipe.workload == "agents" else GameRow
    train = next((stage for stage in opened.recipe.stages if stage.do == "train"), opened.recipe.stages[-1])
    config, seeds = opened.config(train), []
    for number in opened.recipe.seeds:
        own = [step for step in opened.steps() if step.seed == number]
        summaries = {step.stage.name: step.folder / SUMMARY_FILE for step in own if step.stage.do == "imitate"}
        placed = (Record(step.folder, GameRow).read() for step in own if step.stage.do == "evaluate")
        trained = next((step.folder for step in own if step.stage.do == "train"), opened.directory)
        seeds.append(
            SeedRun(
                seed=number,
                last_step=config.run.steps,
                evaluations=tuple(Record(trained, row).read()),
                steps=tuple(read_steps(trained)),
                imitations={name: json.loads(path.read_bytes()) for name, path in summaries.items() if path.exists()},
                placed=tuple(found[-1] for found in placed if found and found[-1].ended),
                bits=read_bits(trained),
            )
        )
    return RecipeRun(opened, config, tuple(seeds))
