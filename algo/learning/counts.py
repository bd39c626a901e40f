"""What is counted over the seeds of a learning run: before against after, behaviour, curves.

Whatever is pooled over seeds is counted from the games of all of them; none is left out.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean

from algo.evaluation.cross_table import Cell, CrossTable
from algo.evaluation.statistics import Estimate, wilson_interval
from algo.learning.run import LearnedSeed
from algo.werewolf.behaviour import Behaviour
from algo.werewolf.game_statistics import (
    Conduct,
    Score,
    conduct_of,
    score_of_role,
    score_of_side,
)
from algo.werewolf.matches import GameRecord
from store.schema import TRAINED_POLICY
from store.werewolf import SideName

POINTS_TO_GAIN = 20.0
"""By how many percentage points a trained side's win rate has to rise for a run to have taught it something, unless it
ends above what the opponent itself wins as that side, where there is less to gain."""


@dataclass(frozen=True)
class Change:
    """How the policy fared as one side before training and after.

    conduct_before, conduct_after: how it kept to the game as that side.
    before_without_errors, after_without_errors: of the games alone in which every reply of either side could be used.
    in_its_place: what the opponent wins as that side against itself, by the cross tables; None without one.
    """

    side: SideName
    before: Score
    after: Score
    conduct_before: Conduct
    conduct_after: Conduct
    before_without_errors: Score
    after_without_errors: Score
    in_its_place: Estimate | None = None

    @property
    def points(self) -> Estimate | None:
        """The difference of the win rates in percentage points, with its 95 % interval.

        R. G. Newcombe, Interval Estimation for the Difference between Independent Proportions, Statistics in Medicine
        17, 1998, method 10: from the two Wilson intervals.
        """
        before, after = self.before.win_rate, self.after.win_rate
        if before is None or after is None:
            return None
        value = after.value - before.value
        low = ((after.value - after.low) ** 2 + (before.high - before.value) ** 2) ** 0.5
        high = ((after.high - after.value) ** 2 + (before.value - before.low) ** 2) ** 0.5
        return Estimate(value=100 * value, low=100 * (value - low), high=100 * (value + high))

    @property
    def intervals_touch(self) -> bool:
        """Whether the 95 % intervals of the two win rates have a point in common."""
        return touch(self.before.win_rate, self.after.win_rate)

    @property
    def surpasses(self) -> bool:
        """Whether the policy wins more after training than the opponent would in its place, intervals apart."""
        after, other = self.after.win_rate, self.in_its_place
        return after is not None and other is not None and after.low > other.high

    def unmet(self) -> list[str]:
        """Which conditions for having learned this side do not hold, in words; empty if all hold."""
        points, found = self.points, []
        if points is None:
            return ["no games before or after"]
        if points.value < POINTS_TO_GAIN and not self.surpasses:
            moved = f"rose by only {points.value:.1f}" if points.value > 0 else f"changed by {points.value:+.1f}"
            place = "" if self.in_its_place is None else ", or more than the opponent wins in its place"
            found.append(f"the win rate {moved} points; {POINTS_TO_GAIN:.0f} are asked for{place}")
        if self.intervals_touch:
            found.append("the intervals before and after touch, so that chance may explain the difference")
        return found + self.worsened()

    def worsened(self) -> list[str]:
        """Which rates of misconduct rose beyond their intervals, or cannot be told, in words."""
        found = []
        for name, before, after in (
            ("invalid replies", self.conduct_before.invalid_replies, self.conduct_after.invalid_replies),
            ("games with an identity leak", self.conduct_before.games_with_leak, self.conduct_after.games_with_leak),
        ):
            if before is None or after is None:
                found.append(f"nothing is recorded of {name}")
            elif after.low > before.high:
                found.append(f"{name} rose from {100 * before.value:.1f} % to {100 * after.value:.1f} %")
        return found


def touch(one: Estimate | None, other: Estimate | None) -> bool:
    """Whether two intervals have a point in common; also True where one of them is not known."""
    return one is None or other is None or one.touches(other)


def games_before_and_after(seeds: Iterable[LearnedSeed], opponent: str) -> tuple[list[GameRecord], list[GameRecord]]:
    """The games against one opponent of the evaluations before and of those after, of all seeds that have both."""
    before: list[GameRecord] = []
    after: list[GameRecord] = []
    for seed in seeds:
        if seed.before is not None and seed.after is not None:
            before += seed.before.against(opponent)
            after += seed.after.against(opponent)
    return before, after


def change_of(seeds: Sequence[LearnedSeed], side: SideName, opponent: str) -> Change:
    """How the policies of some seeds fared as one side against one opponent together."""
    games = games_before_and_after(seeds, opponent)
    seed_of_resampling = next((seed.before.seed for seed in seeds if seed.before is not None), 0)
    before, after = (score_of_side(found, TRAINED_POLICY, side) for found in games)
    clean = [score_of_side([game for game in found if game.without_errors], TRAINED_POLICY, side) for found in games]
    conducts = [conduct_of(found, TRAINED_POLICY, seed_of_resampling, sides=[side]) for found in games]
    own = pooled_cells([seed.cross_table for seed in seeds if seed.cross_table is not None]).get((opponent, opponent))
    return Change(side, before, after, *conducts, *clean, None if own is None else own.win_rate(side))


def role_win_rates(seeds: Sequence[LearnedSeed], opponent: str) -> dict[str, tuple[Estimate | None, Estimate | None]]:
    """Role -> win rate of the games with a seat of it before and after, over the games of some seeds together."""
    found = games_before_and_after(seeds, opponent)
    roles = {
        seat.role
        for games in found
        for game in games
        for seat in game.seats
        if seat.side in game.sides_of(TRAINED_POLICY)
    }
    before, after = ({role: score_of_role(games, TRAINED_POLICY, role).win_rate for role in roles} for games in found)
    return {role: (before[role], after[role]) for role in sorted(roles)}


def pooled_behaviour(found: Sequence[Behaviour]) -> Behaviour:
    """The counts of several evaluations added up."""
    claims: dict[str, Counter[str]] = defaultdict(Counter)
    for behaviour in found:
        for role, counts in behaviour.claims.items():
            claims[role] += Counter(counts)

    def added(name: str) -> dict[str, int]:
        return dict(sum((Counter(getattr(behaviour, name)) for behaviour in found), Counter()))

    return Behaviour(
        games=sum(behaviour.games for behaviour in found),
        kills=added("kills"),
        checks=added("checks"),
        votes=added("votes"),
        claims={role: dict(counts) for role, counts in claims.items()},
    )


def pooled_cells(tables: Sequence[CrossTable]) -> dict[tuple[str, str], Cell]:
    """(wolves, good side) -> the games of all seeds' tables, the policy of each being its own warm-started one."""
    cells: dict[tuple[str, str], list[Cell]] = defaultdict(list)
    for table in tables:
        for cell in table.cells:
            cells[cell.wolf, cell.good].append(cell)
    counted = ("games", "wolf_wins", "good_wins", "draws", "not_finished")
    return {
        (wolf, good): Cell(wolf=wolf, good=good, **{name: sum(getattr(cell, name) for cell in of) for name in counted})
        for (wolf, good), of in cells.items()
    }


def window_of(steps: int) -> int:
    """Over how many steps curves of a training of so many steps are pooled: a tenth, at least one."""
    return max(1, round(steps / 10))


def training_win_rate(seeds: Sequence[LearnedSeed], side: SideName, window: int) -> list[tuple[int, Estimate]]:
    """(step, share of the games won as one side, in training) over the games of ``window`` steps up to that one.

    Games of all the seeds are pooled; each game counts as one trial of Wilson's interval. Steps at the beginning have
    fewer than ``window`` before them, and take those that there are.
    """
    games: Counter[int] = Counter()
    wins: Counter[int] = Counter()
    for seed in seeds:
        for step, metrics in seed.steps:
            games[step] += int(metrics.get(f"policy/{side}/games", 0))
            wins[step] += int(metrics.get(f"policy/{side}/wins", 0))
    curve = []
    for step in sorted(games):
        over = range(step - window + 1, step + 1)
        if played := sum(games[other] for other in over):
            curve.append((step, wilson_interval(sum(wins[other] for other in over), played)))
    return curve


def curve_of(seeds: Sequence[LearnedSeed], name: str, window: int) -> list[tuple[int, float]]:
    """(step, mean of a metric) over ``window`` steps up to that one, and over the seeds, each step weighing alike."""
    values: dict[int, list[float]] = defaultdict(list)
    for seed in seeds:
        for step, metrics in seed.steps:
            if name in metrics:
                values[step].append(metrics[name])
    over = {step: range(step - window + 1, step + 1) for step in sorted(values)}
    return [
        (step, fmean(value for other in steps if other in values for value in values[other]))
        for step, steps in over.items()
    ]
