"""Learning runs side by side: what a setting changed, from the last evaluations of each, seed by seed.

Runs are compared by the folders of their trainings alone (``seed-N``), so that those of a few ``python -m
algo.werewolf_verl`` serve too, put into one folder.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from statistics import fmean
from typing import Any

from rich.console import Console
from rich.table import Table

from algo.evaluation.outcomes import Evaluation
from algo.evaluation.statistics import Estimate, mean_by_cluster, wilson_interval
from algo.learning.counts import pooled_behaviour
from algo.learning.run import LearnedSeed, read_seeds, step_of
from algo.reports.page_parts import estimate_text
from algo.werewolf.game_statistics import conduct_of, score_of_side, shares_won
from algo.werewolf.matches import SIDES
from store.schema import TRAINED_POLICY
from store.werewolf import SideName

_OF_THE_PLACE = ("run.name", "run.dir", "run.seed", "model.path", "store.url", "serving.port")
"""Settings that say where and as which seed a training ran."""


@dataclass(frozen=True)
class Compared:
    """One run beside the first. settings: name -> value, where it differs from the first's.

    by_seed, together: share of the games won after the last step, as the side compared, against all of its opponents.
    before: that of all seeds before the first step; None where one was not evaluated before.
    difference: of ``together`` from the first run's, over the deals and seeds that both played; None of the first.
    unusable: share of replies. hits: of the votes that name somebody, the share that names an enemy.
    minutes: of training, a seed on average, without evaluations. tokens: trained on, a seed on average.
    """

    name: str
    settings: Mapping[str, object]
    by_seed: Mapping[int, Estimate]
    before: Estimate | None
    together: Estimate
    difference: Estimate | None
    unusable: Estimate | None
    hits: Estimate | None
    minutes: float
    tokens: float


def compare_runs(folders: Sequence[Path], side: SideName | None = None) -> list[Compared]:
    """Compare runs with the first of them. side: whose games; None: the one that the first run trained.

    Raises ValueError, naming the folder, where one has no seed that came to its end, or was evaluated against others.
    """
    runs = [(folder, _finished(folder)) for folder in folders]
    first = runs[0][1]
    config = first[0].config
    assert config is not None
    side = side or config.game.train_sides[0]
    return [_compared(folder, seeds, first, side) for folder, seeds in runs]


def _finished(folder: Path) -> list[LearnedSeed]:
    seeds = [
        seed
        for seed in read_seeds(folder)
        if seed.config is not None and seed.after is not None and step_of(seed.after) >= seed.config.run.steps
    ]
    if not seeds:
        raise ValueError(f"{folder} has no seed-N with an evaluation after its last step")
    return seeds


def _compared(folder: Path, seeds: Sequence[LearnedSeed], first: Sequence[LearnedSeed], side: SideName) -> Compared:
    after = {seed.seed: _last(seed) for seed in seeds}
    met = _last(first[0]).opponents.keys()
    for number, found in after.items():
        if found.opponents.keys() != met:
            raise ValueError(
                f"{folder}, seed {number}, was evaluated against {', '.join(found.opponents)}, the first run against "
                f"{', '.join(met)}: their games cannot be compared"
            )
    games = list(chain.from_iterable(found.games for found in after.values()))
    together = score_of_side(games, TRAINED_POLICY, side).win_rate
    earlier = [seed.before.games for seed in seeds if seed.before is not None]
    before = score_of_side(list(chain.from_iterable(earlier)), TRAINED_POLICY, side).win_rate
    by_seed = {number: score_of_side(found.games, TRAINED_POLICY, side).win_rate for number, found in after.items()}
    if together is None:
        raise ValueError(f"{folder}: the policy played no game as {side}")
    votes = pooled_behaviour([found.behaviour[side] for found in after.values() if side in found.behaviour]).votes
    named = sum(votes.get(whom, 0) for whom in SIDES)
    shown, compared_with = (_settings(of[0]) for of in (seeds, first))
    changed = {name: shown.get(name) for name in compared_with | shown if shown.get(name) != compared_with.get(name)}
    return Compared(
        name=folder.name,
        settings=changed,
        by_seed={number: rate for number, rate in by_seed.items() if rate is not None},
        before=before if len(earlier) == len(seeds) else None,
        together=together,
        difference=None if seeds is first else _difference(seeds, first, side),
        unusable=conduct_of(games, TRAINED_POLICY, 0, sides=[side]).invalid_replies,
        hits=wilson_interval(named - votes.get(side, 0), named) if named else None,
        minutes=fmean(_minutes(seed) for seed in seeds),
        tokens=fmean(sum(metrics.get("tokens/trained", 0.0) for _, metrics in seed.steps) for seed in seeds),
    )


def _last(seed: LearnedSeed) -> Evaluation:
    assert seed.after is not None
    return seed.after


def _settings(seed: LearnedSeed) -> dict[str, object]:
    assert seed.config is not None
    return {name: value for name, value in _named(seed.config.model_dump(mode="json")) if name not in _OF_THE_PLACE}


def _named(section: Mapping[str, Any], prefix: str = "") -> Iterable[tuple[str, object]]:
    """Dotted name and value of every setting."""
    for name, value in section.items():
        if isinstance(value, dict) and value:
            yield from _named(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def _minutes(seed: LearnedSeed) -> float:
    stages = (f"training: {stage}" for stage in ("play", "assess", "update", "push"))
    return sum(seed.minutes.get(stage, 0.0) for stage in stages)


def _difference(seeds: Iterable[LearnedSeed], first: Iterable[LearnedSeed], side: SideName) -> Estimate | None:
    """Over deals, which all seeds share; None where no seed stands in both runs."""
    ours, theirs = (
        {seed.seed: shares_won(_last(seed).games, TRAINED_POLICY, side) for seed in of} for of in (seeds, first)
    )
    deals, differences = [], []
    for number in sorted(ours.keys() & theirs.keys()):
        for deal in sorted(ours[number].keys() & theirs[number].keys()):
            deals.append(deal)
            differences.append(ours[number][deal] - theirs[number][deal])
    return mean_by_cluster(deals, differences, 0) if deals else None


def show_comparison(found: Sequence[Compared], console: Console) -> None:
    """Print it as a table."""
    table = Table("", *(run.name for run in found), title="Games won, with 95 % intervals", title_justify="left")
    table.add_row("all seeds, before training", *(estimate_text(run.before, 1) for run in found))
    table.add_row("all seeds, after the last step", *(estimate_text(run.together, 1) for run in found))
    table.add_row(f"points from {found[0].name}", *(_points(run.difference) for run in found))
    for number in sorted({number for run in found for number in run.by_seed}):
        table.add_row(f"seed {number}", *(estimate_text(run.by_seed.get(number), 1) for run in found))
    table.add_section()
    table.add_row("unusable replies", *(estimate_text(run.unusable, 1) for run in found))
    table.add_row("votes that hit", *(estimate_text(run.hits, 1) for run in found))
    table.add_row("minutes a seed", *(f"{run.minutes:.1f}" for run in found))
    table.add_row("tokens trained a seed", *(f"{run.tokens:,.0f}" for run in found))
    console.print(table)
    for run in found[1:]:
        settings = ", ".join(f"{name}={value}" for name, value in run.settings.items())
        console.print(f"{run.name}: {settings or 'set alike'}", markup=False, soft_wrap=True)


def _points(difference: Estimate | None) -> str:
    if difference is None:
        return ""
    value, low, high = (f"{100 * bound:+.1f}" for bound in (difference.value, difference.low, difference.high))
    return f"{value} ({low} to {high})"
