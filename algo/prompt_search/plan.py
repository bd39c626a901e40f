"""What a search may spend, and the checks that need no hub. Light to import."""

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from algo.agents.data import read_tasks, split_tasks
from algo.prompt_search.prompts import Slots, Tree
from configs.roles_and_decks import Role, SideName
from configs.section import ConfigError
from configs.sections.game import FRAME
from configs.sections.opponents import BUILT_IN_PLAYERS

FIRST_LOOK = 8
"""Tasks of a prompt that has no rival yet, for the proposer to read."""
CONFIRMING_TASKS = 20
"""The fewest on which two prompts are compared: with fewer, the interval leaves out zero too often by chance."""
_RACE_TASKS = 4
_FEWEST_INPUTS = 4
_SIDES: tuple[SideName, ...] = ("wolf", "good")


@dataclass(frozen=True)
class SearchPlan:
    """budget: rollouts of the whole search. apart: see ``search.judge``.

    generations: rounds of edits of each prompt, 0 without a proposer. edits: of one round.
    """

    budget: int
    apart: bool
    generations: int
    edits: int

    def races(self, slots: Slots, tree: Tree) -> int:
        with_rivals = sum(len(tree.entrants(name)) > 1 for name in slots)
        return with_rivals + self.generations * len(slots) + (len(slots) > 1)

    def check(self, slots: Slots, tree: Tree, rollouts_of_task: int) -> None:
        """Raise ConfigError where there is nothing to compare, or the budget is too small.

        rollouts_of_task: rollouts that a prompt needs for one task, at most.
        """
        races = self.races(slots, tree)
        if not races:
            raise ConfigError("there is one prompt and no proposer: nothing to compare; add prompts, or --proposer-url")
        edits, together = (1 + self.edits) * (self.generations > 0), (2 + len(slots)) * (len(slots) > 1)
        entrants = max(edits, together, *(len(tree.entrants(name)) for name in slots))
        tasks = races * (_RACE_TASKS * entrants + FIRST_LOOK * (self.generations > 0))
        least = 2 * max(tasks, 2 * CONFIRMING_TASKS) * rollouts_of_task  # one half is for the races
        if self.budget < least:
            raise ConfigError(
                f"--budget {self.budget} is too small: {races} races of up to {entrants} prompts and a confirmation "
                f"on {CONFIRMING_TASKS} tasks need {least} rollouts"
            )


def read_halves(path: Path, held_out: float, seed: int) -> tuple[list[Any], list[Any]]:
    """(inputs to search with, inputs to confirm a winner with), drawn by the seed from a file of tasks.

    Equal inputs are in the same half. held_out: share of the second. Raises ConfigError.
    """
    inputs = read_tasks(path, "--tasks")
    confirming, searched = split_tasks(inputs, held_out, seed)
    if min(len(confirming), len(searched)) < _FEWEST_INPUTS:
        raise ConfigError(
            f"{len(inputs)} tasks are too few: {_FEWEST_INPUTS} to search with and {_FEWEST_INPUTS} others to confirm "
            f"a winner with are the least (--held-out is {held_out:g})"
        )
    return searched, confirming


def sides_of(slot: str | None, searched: Collection[str]) -> tuple[SideName, ...]:
    """The sides of each deal that are played to compare texts for ``slot``; None: for all of ``searched``."""
    names = searched if slot is None else (slot,)
    return tuple(side for side in _SIDES if FRAME in names or any(Role(name).side == side for name in names))


def check_players(player: str, opponent: str, searched: Collection[str]) -> None:
    """Raise ConfigError where the opponent reads the prompts that are searched."""
    if player == opponent:
        raise ConfigError(f"--player and --opponent are both {player!r}: the prompts of one must be searched alone")
    without_model = [name for name in BUILT_IN_PLAYERS if name != "policy"]
    if opponent not in without_model and (FRAME in searched or len(searched) > 1):
        raise ConfigError(
            f"--opponent {opponent!r} would read the same prompts: name one that reads none, for the frame of the "
            f"system prompt or for several prompts ({', '.join(without_model)})"
        )
