"""Beliefs of seats about each other: Brier score, log loss, AUC and calibration, compared with exact odds.

A probe asks a seat for the role probabilities of every other seat. Three bounds score the same seats: ``exact``, the
expert's odds given all that the seat may know; ``deaf``, the odds without speeches and votes, from the cards, the
seat's private information and the deaths; ``deck``, the odds from the cards alone.

Brier, Verification of Forecasts Expressed in Terms of Probability, Monthly Weather Review 78, 1950. That beliefs about
roles measure how well a player listens: arXiv 2502.06060.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from statistics import fmean
from typing import Literal, Self, get_args

from algo.evaluation.statistics import Estimate, Frozen, mean_by_cluster
from configs.roles_and_decks import DECKS, Role, Side
from store.werewolf_study import Chances, StudySpan

MIN_CHANCE = 1e-4
"""Lower bound of the probability given to the true role, so that one certain error does not dominate the log loss."""

Source = Literal["own", "exact", "deaf", "deck"]


class AnswerChances(Frozen):
    """Probabilities of one answer. wolf: of being a wolf, for each seat of the answer. log_loss: of the true roles, a
    mean over these seats, in nats, each at most that of ``MIN_CHANCE``."""

    wolf: tuple[float, ...]
    log_loss: float

    @classmethod
    def of(cls, chances: Chances, truth: Mapping[int, Role]) -> Self:
        losses = [-math.log(max(chances[seat].get(role.value, 0.0), MIN_CHANCE)) for seat, role in truth.items()]
        return cls(wolf=tuple(wolf_chance(chances[seat]) for seat in truth), log_loss=fmean(losses))


class ProbedAnswer(Frozen):
    """One answer of a seat. wolves: whether each seat of the answer is a wolf, in the order of ``AnswerChances.wolf``.

    mass: mean probability of all role names together; None for a player without tokens.
    """

    seat: int
    wolves: tuple[bool, ...]
    mass: float | None
    own: AnswerChances
    exact: AnswerChances
    deaf: AnswerChances
    deck: AnswerChances

    def pairs(self, source: Source) -> list[tuple[float, bool]]:
        """(chance of being a wolf, whether it is one) of each seat of the answer."""
        return list(zip(getattr(self, source).wolf, self.wolves, strict=True))

    def squared_error(self, source: Source) -> float:
        """The Brier score of the chances of being a wolf, 0 to 1."""
        return fmean((given - wolf) ** 2 for given, wolf in self.pairs(source))


class CalibrationBin(Frozen):
    """Seats with a predicted wolf chance within one tenth. predicted: mean chance. observed: share of wolves."""

    seats: int
    predicted: float
    observed: float


class BeliefScores(Frozen):
    """Scores of many answers, each the mean over the seats of the answer; intervals by deals.

    brier: squared error of the chance that a seat is a wolf; 0 is best. log_loss: of its role, in nats. auc: how often
    a wolf is ranked above a good seat, in answers about both; 0.5 is chance; None without any such answer.
    calibration: by tenths of the predicted chance; calibration_error: mean distance of predicted and observed.
    """

    answers: int
    brier: Estimate
    log_loss: Estimate
    auc: Estimate | None
    calibration: tuple[CalibrationBin, ...]
    calibration_error: float


class BeliefReport(Frozen):
    """One player's beliefs between the bounds, on the same answers."""

    own: BeliefScores
    exact: BeliefScores
    deaf: BeliefScores
    deck: BeliefScores
    mass: float | None = None

    @property
    def listened(self) -> float | None:
        """Position of the Brier score from that of ``deaf`` (0.0) to that of ``exact`` (1.0); None if those are equal.

        ``deck`` is not the zero: a player that only counts the dead beats it without listening.
        """
        way = self.deaf.brier.value - self.exact.brier.value
        return (self.deaf.brier.value - self.own.brier.value) / way if abs(way) > 1e-9 else None


def probed_answers(note: StudySpan, preset: str, roles: Mapping[int, Role]) -> Iterator[ProbedAnswer]:
    """The answers before votes of one game, of seats that could answer. roles: of all seats."""
    for belief in note.beliefs:
        if belief.beliefs is not None and belief.moment == "vote":
            truth = {seat: roles[seat] for seat in belief.beliefs}
            deck = deck_chances(DECKS[preset], belief.seat, roles, truth)
            yield ProbedAnswer(
                seat=belief.seat,
                wolves=tuple(role.side is Side.WOLF for role in truth.values()),
                mass=belief.mass,
                own=AnswerChances.of(belief.beliefs, truth),
                exact=AnswerChances.of(belief.ceiling, truth),
                deaf=AnswerChances.of(belief.deaf, truth),
                deck=AnswerChances.of(deck, truth),
            )


def belief_report(answers: Sequence[tuple[int, ProbedAnswer]], seed: int) -> BeliefReport | None:
    """The scores of one player's answers, each with its deal; None without any. seed: of the resampling of deals."""
    if not answers:
        return None
    masses = [answer.mass for _, answer in answers if answer.mass is not None]
    scores = {source: _scores(answers, source, seed) for source in get_args(Source)}
    return BeliefReport(**scores, mass=fmean(masses) if masses else None)


def _scores(answers: Sequence[tuple[int, ProbedAnswer]], source: Source, seed: int) -> BeliefScores:
    deals = [deal for deal, _ in answers]
    areas = [(deal, area_under_curve(answer.pairs(source))) for deal, answer in answers]
    ranked = [(deal, area) for deal, area in areas if area is not None]
    bins = calibration(pair for _, answer in answers for pair in answer.pairs(source))
    errors = sum(each.seats * abs(each.predicted - each.observed) for each in bins)
    return BeliefScores(
        answers=len(answers),
        brier=mean_by_cluster(deals, [answer.squared_error(source) for _, answer in answers], seed),
        log_loss=mean_by_cluster(
            deals, [getattr(answer, source).log_loss for _, answer in answers], seed, shares=False
        ),
        auc=mean_by_cluster([deal for deal, _ in ranked], [area for _, area in ranked], seed) if ranked else None,
        calibration=bins,
        calibration_error=errors / sum(each.seats for each in bins),
    )


def area_under_curve(pairs: Sequence[tuple[float, bool]]) -> float | None:
    """Share of (wolf, good) pairs in which the wolf has the higher chance, ties count half; None without pairs."""
    wolves, others = ([chance for chance, is_wolf in pairs if is_wolf == wanted] for wanted in (True, False))
    found = [(wolf > other) + 0.5 * (wolf == other) for wolf in wolves for other in others]
    return fmean(found) if found else None


def calibration(pairs: Iterable[tuple[float, bool]]) -> tuple[CalibrationBin, ...]:
    """By tenths of the predicted chance, ascending; tenths without seats are left out."""
    bins: defaultdict[int, list[tuple[float, bool]]] = defaultdict(list)
    for chance, is_wolf in pairs:
        bins[min(int(chance * 10), 9)].append((chance, is_wolf))
    return tuple(
        CalibrationBin(seats=len(of_bin), predicted=fmean(s for s, _ in of_bin), observed=fmean(w for _, w in of_bin))
        for _, of_bin in sorted(bins.items())
    )


def deck_chances(deck: Sequence[Role], seat: int, roles: Mapping[int, Role], targets: Iterable[int]) -> Chances:
    """Role probabilities of ``targets`` from the deck, for a seat that knows its card and, as a wolf, its mates."""
    known = {seat}
    if roles[seat].side is Side.WOLF:
        known |= {other for other, role in roles.items() if role.side is Side.WOLF}
    left = Counter(deck) - Counter(roles[each] for each in known)
    return {
        target: {
            role.value: float(role is roles[target]) if target in known else left[role] / left.total()
            for role in sorted(set(deck))
        }
        for target in targets
    }


def wolf_chance(of_role: Mapping[str, float]) -> float:
    """Probability of all wolf roles together."""
    return sum(chance for role, chance in of_role.items() if Role(role).side is Side.WOLF)
