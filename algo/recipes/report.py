"""The report of a recipe on one page: the policy before and after training."""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import itemgetter
from pathlib import Path
from statistics import fmean
from typing import Literal

from algo.agents.evaluate import evaluation_table, gain
from algo.agents.evaluate import figures_of as agent_figures
from algo.evaluation.charts import Chart, draw
from algo.evaluation.figures import Score, conduct_of, figures_of, games_of
from algo.evaluation.games import GameEvaluation, GameRow
from algo.evaluation.page import Page, Picture, Section, Table, cells, signed_text
from algo.evaluation.record import Evaluation
from algo.evaluation.report import cell_table, difference_table, sample_text, tables_of
from algo.evaluation.speech import speech_table
from algo.evaluation.statistics import Estimate, paired_difference
from algo.recipes.recipe import Success
from algo.recipes.results import RecipeRun, SeedRun
from algo.recipes.runner import REPORT_FILE
from algo.werewolf.matches import SIDES
from configs.loading import as_yaml
from store.schema import TRAINED_POLICY
from store.werewolf import SideName

Place = tuple[str, int]
"""(seed, opponent and conditions of an evaluation, deal): games at the same place are compared.

Where one seed lacks a game, another seed's of the same deal is no substitute.
"""
DEAL = itemgetter(1)

SIDE_TITLES = {"wolf": "the wolves", "good": "the good side"}


def write_report(run: RecipeRun) -> tuple[Path, Page]:
    """Write the report into the recipe's folder, and its first picture beside it; returns its path and the page."""
    page, path = report_of(run), run.opened.directory / REPORT_FILE
    if pictures := [picture for section in page.sections for picture in section.pictures]:
        path.with_suffix(".png").write_bytes(pictures[0].png)
    return page.write(path), page


def report_of(run: RecipeRun) -> Page:
    """The page of a recipe."""
    recipe = run.opened.recipe
    trains = any(stage.do == "train" for stage in recipe.stages)
    missing = [str(seed.seed) for seed in run.seeds if trains and not seed.ends]
    unmet = [
        f"{name}: {problem}"
        for name, change, in_place in changes_of(run)
        for problem in (change.problems(recipe.success, in_place) if recipe.success else ())
    ]
    if not trains:
        verdict = "This recipe has no stage train."
    elif not run.complete:
        verdict = "No result yet: no seed has an evaluation before and one after training."
    else:
        said = [*_gain_sentences(run)]
        if missing:
            said.append(f"Incomplete: no evaluation before or none after the training of seed {', '.join(missing)}.")
        if unmet:
            said.append(f"Criterion not met: {'; '.join(unmet)}.")
        elif recipe.success and not missing:
            said.append("Criterion met.")
        verdict = " ".join(said)
    against = {} if run.agents else {side: _by_opponent(run, side) for side in run.sides}
    pictures = [*_curves(run, against)] if any(seed.steps for seed in run.seeds) else []
    first, *others = _agent_sections(run) if run.agents else _game_sections(run, against)
    sections = [
        replace(first, pictures=pictures[:1]),
        *others,
        Section("Training", pictures=pictures[1:]),
        Section("Settings", texts=[("of the training", as_yaml(run.config))]),
    ]
    return Page(recipe.title, sections, verdict, not unmet and not missing, facts=_facts(run))


def _facts(run: RecipeRun) -> dict[str, str]:
    seconds: Counter[str] = Counter()
    for tried in run.opened.tries():
        seconds[tried["step"].partition(" of seed ")[0]] += tried["seconds"]
    return {
        "seeds": ", ".join(str(seed.seed) for seed in run.seeds),
        "minutes": ", ".join(f"{name} {spent / 60:.1f}" for name, spent in seconds.items()),
        "command": "; ".join(run.opened.commands),
        "versions": "; ".join(dict.fromkeys(run.opened.versions)) or "not recorded",
    }


# --- before and after -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Change:
    """Policies before and after training.

    score: the compared number. gain: paired by deal or task. flaws: name -> shares that must not rise.
    """

    score: str
    before: Estimate | None
    after: Estimate | None
    gain: Estimate | None
    flaws: Mapping[str, tuple[Estimate | None, Estimate | None]]

    def problems(self, success: Success, in_place: Estimate | None) -> Iterator[str]:
        """What of the criterion is not met, in words. in_place: win rate of the opponent in the policy's place."""
        if self.before is None or self.after is None or self.gain is None:
            yield "no evaluation before or after"
            return
        beats_opponent = (
            success.or_beats_opponent
            and self.gain.value > 0
            and in_place is not None
            and self.after.low > in_place.high
        )
        if self.gain.value < success.gain and not beats_opponent:
            gain, least = self.signed(self.gain.value), self.signed(success.gain)
            yield f"the {self.score} changed by {gain}, the criterion is {least}"
        if self.before.overlaps(self.after):
            yield "the intervals before and after overlap"
        for name, (before, after) in self.flaws.items():
            if before is not None and after is not None and after.low > before.high:
                yield f"{name} rose from {before.value:.1%} to {after.value:.1%}"

    def signed(self, value: float) -> str:
        """A difference of the score as text."""
        return f"{100 * value:+.1f} points" if self.score == "win rate" else f"{value:+.3f}"

    def sentence(self, what: str, seeds: str, comparison: str = "") -> str:
        """Gain with interval, before and after. what: name of the score, with the opponent. comparison: appended."""
        if self.before is None or self.after is None or self.gain is None:
            return f"{what}, {seeds}: no evaluation before or after training."
        percent = self.score == "win rate"
        before, after = (
            f"{100 * of.value:.1f} %" if percent else f"{of.value:.3f}" for of in (self.before, self.after)
        )
        low, high = (self.signed(end).removesuffix(" points") for end in (self.gain.low, self.gain.high))
        includes_0 = ", which includes 0" if self.gain.low <= 0 <= self.gain.high else ""
        return (
            f"{what}, {seeds}: {self.signed(self.gain.value)} (95 % interval {low} to {high}{includes_0}), from "
            f"{before} before training to {after} after it{comparison}."
        )


def changes_of(run: RecipeRun) -> Iterator[tuple[str, Change, Estimate | None]]:
    """The changes that the criterion applies to: (name, change, win rate of the opponent in the policy's place)."""
    if run.agents:
        yield from ((f"seed {seed.seed}", _agent_change(*seed.ends), None) for seed in run.complete if seed.ends)
        return
    for side in run.sides:
        for name, seeds in run.groups():
            yield f"as {SIDE_TITLES[side]}, {name}", change_of(seeds, side, run.opponent), _in_its_place(run, side)


def _gain_sentences(run: RecipeRun) -> Iterator[str]:
    """Gain with interval and opponent: of all seeds together in the game, of each seed for agents.

    Then that against the opponents that training has not met; a table has each.
    """
    if run.agents:
        for name, change, _ in changes_of(run):
            yield change.sentence("Mean reward on held-out tasks", name)
        return
    for side in run.sides:
        name, seeds = run.groups()[-1]
        change, in_place = change_of(seeds, side, run.opponent), _in_its_place(run, side)
        baseline = f"; {run.opponent} wins {100 * in_place.value:.1f} % in its place" if in_place else ""
        yield change.sentence(f"Held-out games won as {SIDE_TITLES[side]} against {run.opponent}", name, baseline)
        met = {run.opponent, *run.trained_against(side)}
        if held_out := [opponent for opponent in run.config.evaluation.opponents if opponent not in met]:
            what = f"Against {', '.join(held_out)}, which no training game has"
            yield change_of(seeds, side, *held_out).sentence(what, name)


def _agent_change(before: Evaluation, after: Evaluation) -> Change:
    earlier, later = agent_figures(before), agent_figures(after)
    flaws = {
        "invalid tool calls": (earlier["invalid_calls"], later["invalid_calls"]),
        "attempts that failed": (earlier["failed"], later["failed"]),
    }
    return Change("mean reward", earlier["reward"], later["reward"], gain(before, after), flaws)


def _agent_sections(run: RecipeRun) -> list[Section]:
    tables = [_of_seed(seed, evaluation_table(seed.evaluations)) for seed in run.seeds if seed.evaluations]
    return [Section("Before and after", tables=tables)]


def _of_seed(seed: SeedRun, table: Table) -> Table:
    return replace(table, caption=f"seed {seed.seed}: {table.caption}")


def change_of(seeds: Sequence[SeedRun], side: SideName, *opponents: str) -> Change:
    """Change of the policies of some seeds together, as one side against some opponents together."""
    ends = list(zip(*(seed.ends for seed in seeds if seed.ends), strict=True))
    rows = [[row for evaluation in of for row in evaluation.rows] for of in ends] or [[], []]
    before, after = (_won(of, TRAINED_POLICY, opponents, side) for of in rows)
    gain = paired_difference(*(games_won(seeds, end, side, opponents) for end in (1, 0)), 1, DEAL)
    earlier, later = (conduct_of(of, [side], 1) for of in rows)
    flaws = {
        "invalid replies": (earlier.invalid_replies, later.invalid_replies),
        "games with an identity leak": (earlier.games_with_leak, later.games_with_leak),
    }
    return Change("win rate", before, after, gain, flaws)


ByOpponent = Mapping[str, Change]
"""Of all seeds together; the name has "(not met)" where no training game has the opponent.

Empty for a single opponent, and without a complete seed.
"""


def _by_opponent(run: RecipeRun, side: SideName) -> ByOpponent:
    opponents, met = run.config.evaluation.opponents, run.trained_against(side)
    return {
        f"{opponent}{'' if opponent in met else ' (not met)'}": change_of(run.complete, side, opponent)
        for opponent in (opponents if len(opponents) > 1 and run.complete else ())
    }


def games_won(
    seeds: Iterable[SeedRun], end: Literal[0, 1], side: SideName, opponents: Sequence[str]
) -> dict[Place, float]:
    """Whether the policy won as one side against some opponents. end: before or after training."""
    return {
        (f"{seed.seed} {opponent} {seed.ends[end].header.digest}", row.cluster): float(row.result == side)
        for seed in seeds
        if seed.ends
        for opponent in opponents
        for row in games_of(seed.ends[end].rows, TRAINED_POLICY, side, opponent)
    }


def _in_its_place(run: RecipeRun, side: SideName) -> Estimate | None:
    """Win rate of the opponent as that side against itself, from evaluations of panel cross."""
    placed = [row for seed in run.seeds for evaluation in seed.placed for row in evaluation.rows]
    return _won(placed, run.opponent, [run.opponent], side)


def _won(rows: Collection[GameRow], player: str, opponents: Sequence[str], side: SideName) -> Estimate | None:
    played = [row for opponent in opponents for row in games_of(rows, player, side, opponent)]
    return Score.of_rows(played, side).win_rate


def _game_sections(run: RecipeRun, against: Mapping[SideName, ByOpponent]) -> list[Section]:
    tables = [_changes_table(run), _opponents_table(run, against), _imitations_table(run)]
    sections = [Section("Before and after", tables=tables)]
    placed: dict[str, list[GameEvaluation]] = {}
    for evaluation in (evaluation for seed in run.seeds for evaluation in seed.placed):
        placed.setdefault(evaluation.header.label, []).append(evaluation)
    for label, of_label in placed.items():
        sections.append(Section(f"Win table of the stage {label}", tables=[cell_table(figures_of(_pooled(of_label)))]))
    ends = [(seed, *seed.ends) for seed in run.complete if seed.ends]
    if ends:
        tables = [_of_seed(seed, speech_table((*seed.placed, *of), seed.bits)) for seed, *of in ends]
        sections.append(Section("Replies and speeches", tables=tables))
        tables = [
            _of_seed(seed, difference_table(after, before))
            for seed, before, after in ends
            if before.header.digest == after.header.digest
        ]
        sections.append(Section("Change, deal by deal", tables=tables))
        for place, when in ((1, "before"), (2, "after")):
            sections.append(
                Section(f"All seeds, {when}", tables=list(tables_of(_pooled([end[place] for end in ends]))))
            )
        sections.append(Section("Sample games", texts=list(_sample_games(run, *ends[0]))))
    return sections


def _changes_table(run: RecipeRun) -> Table:
    rows = []
    for side in (*run.sides, *(side for side in SIDES if side not in run.sides)):
        place = _in_its_place(run, side)
        for name, seeds in run.groups():
            change = change_of(seeds, side, run.opponent)
            if side not in run.sides and change.before is change.after is None:
                continue  # not evaluated
            who = f"{side}{'' if side in run.sides else ' (not trained)'}, {name}"
            gained = signed_text(change.gain, 100, 1)
            invalid = " → ".join(cells(*change.flaws["invalid replies"], digits=1))
            rows.append(cells(who, change.before, change.after, gained, place, invalid, digits=1))
    head = ("as", "before", "after", "points, deal by deal", f"{run.opponent} in its place", "invalid replies")
    return Table(f"Games won against {run.opponent} on held-out deals, with 95 % intervals", head, rows)


def _opponents_table(run: RecipeRun, against: Mapping[SideName, ByOpponent]) -> Table:
    rows = [
        cells(f"{side} against {name}, {seeds}", of.before, of.after, signed_text(of.gain, 100, 1), digits=1)
        for seeds, _ in run.groups()[-1:]
        for side, changes in against.items()
        for name, of in changes.items()
    ]
    head = ("as", "before", "after", "points, deal by deal")
    return Table("Games won against each opponent of the evaluations", head, rows)


def _imitations_table(run: RecipeRun) -> Table:
    losses = [
        (f"{name}, seed {seed.seed}", *(f"{summary['held_out_loss'][place]:.3f}" for place in (0, -1)))
        for seed in run.seeds
        for name, summary in seed.imitations.items()
    ]
    return Table("Imitation: held-out loss, nats per token", ("stage", "before", "after"), losses)


def _pooled(evaluations: Sequence[GameEvaluation]) -> GameEvaluation:
    """One evaluation with the games of several evaluations of equal matches."""
    first = evaluations[0].header
    several = len(evaluations)
    planned = {name: count * several for name, count in first.planned.items()}
    # A row's number tells its match, also where other rows are missing.
    rows = [
        row.model_copy(update={"number": several * row.number + place})
        for place, evaluation in enumerate(evaluations)
        for row in evaluation.rows
    ]
    return Evaluation(
        header=first.model_copy(update={"planned": planned}),
        rows=tuple(rows),
        failures=_summed(evaluation.failures for evaluation in evaluations),
        retried=_summed(evaluation.retried for evaluation in evaluations),
    )


def _summed(counts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    return dict(sum(map(Counter, counts), Counter()))


def _sample_games(run: RecipeRun, seed: SeedRun, *ends: GameEvaluation) -> Iterator[tuple[str, str]]:
    """For each trained side the first deal that was kept whole before and after, then all others after training."""
    kept = [{row.match_key: row for row in evaluation.rows if row.sample is not None} for evaluation in ends]
    for side in run.sides:
        places = [place for place, row in kept[0].items() if place in kept[1] and side in row.sides_of(TRAINED_POLICY)]
        shown = [("before", kept[0], place) for place in places[:1]] + [("after", kept[1], place) for place in places]
        for when, rows, place in shown:
            yield f"seed {seed.seed}, {when}: {place}", sample_text(rows[place], rows[place].sample)


# --- curves -----------------------------------------------------------------------------------------------------------


def _curves(run: RecipeRun, against: Mapping[SideName, ByOpponent]) -> Iterator[Picture]:
    """What was learned: win rates (of agents rewards) in training and evaluations; then other metrics of training."""
    shown: dict[str, Callable[[Mapping[str, float]], float | None]] = {}
    evaluated: dict[str, Callable[[Evaluation], Estimate | None]] = {}
    for side in () if run.agents else run.sides:
        title = f"games won as {SIDE_TITLES[side]}"
        shown[title] = lambda metrics, side=side: _won_share(metrics, side)
        evaluated[title] = lambda one, side=side: _won(one.rows, TRAINED_POLICY, [run.opponent], side)
    for name in sorted({name for seed in run.seeds for _, metrics in seed.steps for name in metrics}):
        if name.startswith("agents/reward/") or name in ("reward/wolf", "reward/good"):
            shown[name] = lambda metrics, name=name: metrics.get(name)
        if name.startswith("agents/reward/"):
            evaluated[name] = lambda one, name=name: agent_figures(one).get(name.removeprefix("agents/"))
    shown["valid replies"] = lambda metrics: metrics.get("turns/valid_share")
    charts: dict[bool, list[Chart]] = {True: [], False: []}
    for title, value in shown.items():
        lines = {f"seed {seed.seed}": _smooth(seed.steps, value) for seed in run.seeds}
        of = evaluated.get(title, lambda one: None)
        points = {
            f"evaluation, seed {seed.seed}": [
                (float(one.header.step or 0), rate)
                for one in seed.evaluations
                if one.ended and (rate := of(one)) is not None
            ]
            for seed in run.seeds
        }
        lines, points = ({label: known for label, known in each.items() if known} for each in (lines, points))
        chart = Chart(title, lines, points, percent=not title.startswith(("reward", "agents/")))
        charts[title in evaluated].append(chart)
    charts[True] += [_against_each(changes) for changes in against.values() if changes]
    lines = "Lines: training, means over a tenth of the steps."
    points = f"Points: held-out evaluations{'' if run.agents else f' against {run.opponent}'}."
    if charts[True]:
        yield draw(charts[True], f"{lines} {points}", "training steps")
    yield draw(charts[False], lines, "training steps")


def _against_each(changes: ByOpponent) -> Chart:
    points = {
        f"{when} training": [(place + shift, rate) for place, rate in enumerate(rates) if rate is not None]
        for when, shift, rates in (
            ("before", -0.1, [change.before for change in changes.values()]),
            ("after", 0.1, [change.after for change in changes.values()]),
        )
    }
    names = [name.replace(" ", "\n", 1) for name in changes]
    return Chart("… against each opponent, all seeds", {}, points, percent=True, names=names)


def _won_share(metrics: Mapping[str, float], side: SideName) -> float | None:
    games = metrics.get(f"policy/{side}/games", 0.0)
    return metrics.get(f"policy/{side}/wins", 0.0) / games if games else None


def _smooth(
    steps: Sequence[tuple[int, dict[str, float]]], value: Callable[[Mapping[str, float]], float | None]
) -> list[tuple[float, float]]:
    known = [(step, found) for step, metrics in steps if (found := value(metrics)) is not None]
    window = max(1, round(len(steps) / 10))
    return [
        (step, fmean(found for _, found in known[max(0, number - window + 1) : number + 1]))
        for number, (step, _) in enumerate(known)
    ]
