"""The report of a learning run: what it taught its policy, as one page and its figures.

The page needs nothing else: no network, no script, no other file. The figures also lie beside it as PNG files.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from algo.evaluation.statistics import Estimate
from algo.learning.counts import (
    POINTS_TO_GAIN,
    Change,
    change_of,
    pooled_behaviour,
    pooled_cells,
    role_win_rates,
)
from algo.learning.figures import SIDE_TITLES, draw_figures
from algo.learning.record import REPORT_FILE
from algo.learning.run import LearnedSeed, LearningRun, read_learning_run
from algo.machine.whole_files import write_whole
from algo.reports.charts import Picture
from algo.reports.page_parts import estimate_text, page_environment
from algo.werewolf.samples import SampleGame
from store.schema import TRAINED_POLICY
from store.werewolf import SideName

ALL_SEEDS = "all seeds together"


def write_report(folder: Path) -> Path:
    """Write the report of a learning run into its folder; returns the page's path.

    Raises ValueError or ConfigError, naming the file, where there is nothing to report or it cannot be read.
    """
    run = read_learning_run(folder)
    pictures = draw_figures(run)
    for picture in pictures.values():
        (folder / f"{picture.name}.png").write_bytes(picture.png)
    path = folder / REPORT_FILE
    write_whole(path, render_report(run, pictures))
    return path


def render_report(run: LearningRun, pictures: Mapping[str, Picture]) -> str:
    """The page's HTML. pictures: those of ``draw_figures``, by name."""
    environment = page_environment(Path(__file__).parent)
    environment.filters |= {
        "percent": percent,
        "points": points,
        "cells_of": lambda table: pooled_cells([table]),
    }
    tables = [seed.cross_table for seed in run.seeds if seed.cross_table is not None]
    return environment.get_template("page.html").render(
        run=run,
        config=run.config,
        headline=headline_of(run),
        facts=_facts(run),
        changes={side: _changes(run, side) for side in run.trained_first},
        side_titles=SIDE_TITLES,
        pictures=pictures,
        tables=tables,
        cells=pooled_cells(tables),
        roles=role_win_rates(run.complete, run.opponent),
        behaviour={side: behaviour_rows(run.complete, side) for side in run.trained_first},
        behaviour_by_seed={
            seed.seed: {side: behaviour_rows([seed], side) for side in run.trained_first} for seed in run.complete
        },
        sample_pairs=[pair for side in run.trained_sides if (pair := sample_pair(run, side)) is not None],
        points_to_gain=f"{POINTS_TO_GAIN:.0f}",
    )


# --- the headline -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Headline:
    """What a learning run comes to. met: whether all that is asked for holds, for every side trained and every seed.

    verdict: in one sentence. unmet: what does not hold, a sentence each. told: what happened, a sentence for each side.
    """

    met: bool
    verdict: str
    unmet: tuple[str, ...]
    told: tuple[str, ...]


def headline_of(run: LearningRun) -> Headline:
    """The verdict: asked of each trained side are POINTS_TO_GAIN or more than the opponent wins in its place, intervals
    apart, and conduct that is no worse."""
    unmet = [f"Seed {seed.seed} is not complete: {seed.missing}." for seed in run.seeds if seed.missing]
    if not run.complete:
        verdict = "Nothing can be said yet: no seed has an evaluation before and one after training."
        return Headline(False, verdict, tuple(unmet), ())
    failed: list[SideName] = []
    for side in run.trained_sides:
        changes = _changes(run, side)
        unmet += [
            f"As {SIDE_TITLES[side]}, {name}: {problem}."
            for name, change in changes.items()
            for problem in change.unmet()
        ]
        if list(changes.values())[-1].unmet():  # of all seeds together, or of the only one
            failed.append(side)
    for seed in run.complete:
        unmet += [f"Seed {seed.seed}: {problem}." for problem in _deals_problems(seed)]
    if failed:
        verdict = f"The policy does not meet what is asked of it as {_titles(failed)}."
    elif unmet:
        verdict = (
            f"The policy learned to win as {_titles(run.trained_sides)}, but not everything that is asked for holds."
        )
    else:
        verdict = f"The policy learned to win as {_titles(run.trained_sides)}: all that is asked for holds."
    return Headline(not unmet, verdict, tuple(unmet), tuple(_told(run, side) for side in run.trained_first))


def _titles(sides: Iterable[SideName]) -> str:
    return " and ".join(SIDE_TITLES[side] for side in sides)


def _told(run: LearningRun, side: SideName) -> str:
    """What became of one side, over all seeds, in words."""
    change = change_of(run.complete, side, run.opponent)
    who = f"As {SIDE_TITLES[side]}" + ("" if side in run.trained_sides else ", not trained,")
    moved = change.points
    if moved is None:
        return f"{who} the policy has no games to compare."
    worse = change.worsened()
    other = change.in_its_place
    place = "" if other is None else f" In its place {run.opponent} wins {percent(other)} against itself."
    conduct = "; ".join(worse) if worse else "invalid replies and identity leaks did not rise beyond their intervals"
    return (
        f"{who} the policy won {percent(change.before.win_rate)} of its games against {run.opponent} before training "
        f"and {percent(change.after.win_rate)} after: {points(moved)} points. The intervals "
        f"{'touch' if change.intervals_touch else 'do not touch'}.{place} {conduct[0].upper()}{conduct[1:]}."
    )


def _changes(run: LearningRun, side: SideName) -> dict[str, Change]:
    """Name -> how one side fared: each seed by itself, and, of several, all of them together."""
    changes = {f"seed {seed.seed}": change_of([seed], side, run.opponent) for seed in run.complete}
    return changes | ({ALL_SEEDS: change_of(run.complete, side, run.opponent)} if len(changes) > 1 else {})


def _deals_problems(seed: LearnedSeed) -> list[str]:
    """Why a seed's evaluations cannot be compared, or were not on deals that training never plays."""
    assert seed.before is not None and seed.after is not None
    problems = []
    if any(game.deal % 2 == 0 for evaluation in (seed.before, seed.after) for game in evaluation.games):
        problems.append("an evaluation played a deal with an even seed, which training may have played, too")
    for when, evaluation in (("before", seed.before), ("after", seed.after)):
        if missing := sum(evaluation.opponents.values()) - len(evaluation.games):
            problems.append(f"{missing} games of the evaluation {when} training did not finish and are not counted")
    return problems


def _facts(run: LearningRun) -> dict[str, str]:
    """What was run, by name."""
    config = run.config
    seeds = [str(seed.seed) for seed in run.seeds]
    deals = {game.deal for seed in run.complete for game in seed.before.against(run.opponent)} if run.complete else ()
    games = sum(
        len(found.against(run.opponent)) for seed in run.complete for found in (seed.before, seed.after) if found
    )
    return {
        "trained": _titles(run.trained_sides),
        "opponent, never learning": run.opponent,
        "preset": config.game.preset,
        "held-out deals": f"{len(deals)}, each played as both sides",
        "games compared": f"{games:,}, before and after, over all seeds",
        "seeds": ", ".join(seeds),
        "steps of each seed": str(config.run.steps),
        "model": "unknown" if run.parameters is None else f"{run.parameters:,} parameters",
        "minutes": f"{run.record.minutes:.0f} on {run.record.cpus} CPU cores, for all stages of all seeds",
        "command": "; ".join(run.record.commands),
        "versions": ", ".join(f"{name} {version}" for name, version in run.record.versions.items()),
    }


# --- behaviour and sample games ---------------------------------------------------------------------------------------


def behaviour_rows(seeds: Sequence[LearnedSeed], side: SideName) -> dict[str, list[tuple[str, str, str]]]:
    """What is counted -> (choice, how often before, how often after), over the evaluations of some seeds together."""
    before, after = (
        pooled_behaviour([found.behaviour[side] for found in evaluations if found and side in found.behaviour]).counts()
        for evaluations in ([seed.before for seed in seeds], [seed.after for seed in seeds])
    )
    return {
        group: [
            (choice, *(_count(counts.get(group, {}), choice) for counts in (before, after)))
            for choice in sorted({*before.get(group, {}), *after.get(group, {})})
        ]
        for group in dict.fromkeys([*before, *after])
    }


def _count(counts: Mapping[str, int], key: str) -> str:
    total, count = sum(counts.values()), counts.get(key, 0)
    return f"{100 * count / total:.1f} % ({count} of {total})" if total else "–"


@dataclass(frozen=True)
class SamplePair:
    """Two games of one deal with the policy as ``side``, before training and after."""

    seed: int
    side: SideName
    before: SampleGame
    after: SampleGame


def sample_pair(run: LearningRun, side: SideName) -> SamplePair | None:
    """The first sample game of a side, in the order of the deals, that was played before and after; None without one.

    Not chosen by what happened in it: of the first seed that has one, the first deal.
    """
    for seed in run.complete:
        assert seed.before is not None and seed.after is not None
        before, after = (
            {
                sample.deal: sample
                for sample in evaluation.samples
                if sample.players[side] == TRAINED_POLICY and run.opponent in sample.players.values()
            }
            for evaluation in (seed.before, seed.after)
        )
        for deal, sample in before.items():
            if deal in after:
                return SamplePair(seed.seed, side, sample, after[deal])
    return None


# --- how numbers are written ------------------------------------------------------------------------------------------


def percent(estimate: Estimate | None) -> str:
    """ "62.0 % (41.2–80.1)", or a dash."""
    return estimate_text(estimate, digits=1)


def points(estimate: Estimate | None) -> str:
    """ "+12.0 (+3.1 to +20.9)", or a dash."""
    if estimate is None:
        return "–"
    return f"{estimate.value:+.1f} ({estimate.low:+.1f} to {estimate.high:+.1f})"
