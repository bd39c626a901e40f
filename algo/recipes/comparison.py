"""Compares runs of recipes: settings and results."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from algo.evaluation.page import Table, cells, signed_text, value_text
from algo.evaluation.statistics import paired_difference
from algo.recipes.recipe import Stage
from algo.recipes.report import DEAL, SIDE_TITLES, change_of, changes_of, games_won
from algo.recipes.results import RecipeRun
from algo.recipes.runner import RecipeFolder
from configs.section import ConfigError
from store.werewolf import SideName

_OF_THE_PLACE = ("run.name", "run.dir", "run.seed", "model.path", "store.url", "serving.port")
"""Settings that may differ without changing a stage."""


def comparison_tables(runs: Sequence[RecipeRun]) -> list[Table]:
    """Runs compared with the first: changed settings and results on shared deals or tasks, by seed; one for each side.

    Raises ConfigError for runs of different workloads.
    """
    if len({run.agents for run in runs}) > 1:
        workloads = (f"{run.opened.directory.name} is {run.opened.recipe.workload}" for run in runs)
        raise ConfigError(f"compare runs of one workload: {', '.join(workloads)}")
    if not runs[0].agents:
        return [_games(runs, side) for side in runs[0].sides]
    rows = []
    for run in runs:
        rewards = [change.after for _, change, _ in changes_of(run)]
        rows.append((run.opened.directory.name, ", ".join(map(value_text, rewards)), _changed(run, runs[0])))
    return [Table("Mean reward after training, by seed", ("run", "after", "settings"), rows)]


def _games(runs: Sequence[RecipeRun], side: SideName) -> Table:
    rows, first = [], runs[0]
    for run in runs:
        together, *by_seed = (
            change_of(seeds, side, first.opponent) for seeds in (run.complete, *((one,) for one in run.complete))
        )
        after_all = (games_won(of.complete, 1, side, [first.opponent]) for of in (run, first))
        gained = "" if run is first else signed_text(paired_difference(*after_all, 1, DEAL), 100, 1)
        after = ", ".join(cells(*(change.after for change in by_seed), digits=1))
        name, changed = run.opened.directory.name, _changed(run, first)
        rows.append(cells(name, together.before, together.after, gained, after, changed, digits=1))
    head = ("run", "before", "after", "points from the first", "after, by seed", "settings")
    return Table(f"Games won as {SIDE_TITLES[side]} against {first.opponent}, with 95 % intervals", head, rows)


def _changed(run: RecipeRun, first: RecipeRun) -> str:
    """The settings that differ, each once: with the names of its stages, unless training is among them."""
    stages, others = run.opened.recipe.stages, {stage.name: stage for stage in first.opened.recipe.stages}
    found: dict[str, list[str]] = {}
    for stage in sorted(stages, key=lambda one: one.do != "train"):
        if stage.name in others:
            own, other = _settings(run.opened, stage), _settings(first.opened, others[stage.name])
            for name in own | other:
                if own.get(name) != other.get(name) and name not in _OF_THE_PLACE:
                    where = "" if stage.do == "train" else stage.name
                    found.setdefault(f"{name}={own.get(name)}", []).append(where)
    changed = [text if "" in where else f"{'/'.join(where)}: {text}" for text, where in found.items()]
    names = [stage.name for stage in stages]
    return ", ".join(changed if names == [*others] else [*changed, f"stages={'/'.join(names)}"])


def _settings(opened: RecipeFolder, stage: Stage) -> dict[str, object]:
    """The settings of a stage by dotted name, and its command."""
    return dict(_named(opened.config(stage).model_dump(mode="json") | {"command": stage.command}))


def _named(section: Mapping[str, Any], prefix: str = "") -> Iterable[tuple[str, object]]:
    """Dotted name and value of every setting."""
    for name, value in section.items():
        if isinstance(value, dict) and value:
            yield from _named(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value
