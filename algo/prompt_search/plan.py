"""Budget of a search, and the checks that need no hub. Light to import."""

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from algo.agents.data import read_tasks, split_tasks
from algo.prompt_search.prompts import Slots, Tree
from configs.roles_and_decks import Role, SideName
from configs.section import ConfigError
from configs.sections.game import FRAME
from configs.sections.opponents import unknown_player
from store.players import PLAYERS_WITHOUT_A_MODEL

PREVIEW_TASKS = 8
"""Tasks that a prompt without rivals plays for the proposer."""
CONFIRMING_TASKS = 20
"""Fewest held-out tasks of a comparison: with fewer, the interval excludes zero too often by chance."""
_RACE_TASKS = 4
_FEWEST_INPUTS = 4


@dataclass(frozen=True)
class SearchPlan:
    """budget: rollouts of the whole search. disjoint_intervals: see ``search.Verdict``.

    generations: rounds of edits of each prompt, 0 without a proposer. edits: of one round.
    """

    budget: int
    disjoint_intervals: bool
    generations: int
    edits: int

    def races(self, slots: Slots, tree: Tree) -> int:
        """Number of races: one for each prompt with rivals, for each round of edits, and for the combined winners."""
        with_rivals = sum(len(tree.entrants(name)) > 1 for name in slots)
        return with_rivals + self.generations * len(slots) + (len(slots) > 1)

    def check(self, slots: Slots, tree: Tree, rollouts_of_task: int) -> None:
        """Raise ConfigError where there is nothing to compare, or the budget is too small.

        rollouts_of_task: most rollouts of one task.
        """
        races = self.races(slots, tree)
        if not races:
            raise ConfigError("there is one prompt and no proposer: nothing to compare; add prompts, or --proposer-url")
        edits, together = (1 + self.edits) * (self.generations > 0), (2 + len(slots)) * (len(slots) > 1)
        entrants = max(edits, together, *(len(tree.entrants(name)) for name in slots))
        tasks = races * (_RACE_TASKS * entrants + PREVIEW_TASKS * (self.generations > 0))
        least = 2 * max(tasks, 2 * CONFIRMING_TASKS) * rollouts_of_task  # half of it is for the races
        if self.budget < least:
            raise ConfigError(
                f"--budget {self.budget} is too small: {races} races of up to {entrants} prompts and a confirmation "
                f"on {CONFIRMING_TASKS} tasks need {least} rollouts"
            )


def read_halves(path: Path, held_out: float, seed: int) -> tuple[list[Any], list[Any]]:
    """(inputs for the search, inputs for the confirmation), drawn by the seed from a file of tasks.

    Equal inputs are in the same half. held_out: share of the second. Raises ConfigError.
    """
    inputs = read_tasks(path, "--tasks")
    confirming, searched = split_tasks(inputs, held_out, seed)
    if min(len(confirming), len(searched)) < _FEWEST_INPUTS:
        raise ConfigError(
            f"{len(inputs)} tasks with --held-out {held_out:g} are too few: at least {_FEWEST_INPUTS} are needed for "
            f"the search and {_FEWEST_INPUTS} for the confirmation"
        )
    return searched, confirming


def sides_of(searched: Collection[str]) -> tuple[SideName, ...]:
    """Sides of each deal that are played to compare texts of these slots."""
    both: tuple[SideName, ...] = ("wolf", "good")
    return tuple(side for side in both if FRAME in searched or any(Role(name).side == side for name in searched))


def check_players(player: str, opponent: str, searched: Collection[str], configured: Collection[str] = ()) -> None:
    """Raise ConfigError for an unknown player, one without prompts, or an opponent that uses the searched ones.

    configured: names in the sections players and frozen.
    """
    for option, name in (("--player", player), ("--opponent", opponent)):
        if problem := unknown_player(name, configured):
            raise ConfigError(f"{option}: {problem}")
    if player in PLAYERS_WITHOUT_A_MODEL:
        raise ConfigError(f"--player {player!r} reads no prompts: choose policy, or a model of players or frozen")
    reads_them = opponent not in PLAYERS_WITHOUT_A_MODEL and (FRAME in searched or len(searched) > 1)
    if player == opponent or reads_them:
        raise ConfigError(
            f"--opponent {opponent!r} uses the same prompts as --player {player!r}: choose one without prompts "
            f"({', '.join(PLAYERS_WITHOUT_A_MODEL)}), or, for the guidance of one role alone, another model"
        )
