"""How good beliefs are: Brier score, log loss, AUC, calibration; beside those of the deaf and of exact odds.

Brier, Verification of Forecasts Expressed in Terms of Probability, Monthly Weather Review 78, 1950. That beliefs about
roles, asked beside the game, tell how well a player listens: arXiv 2502.06060.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from statistics import fmean

from pydantic import BaseModel, ConfigDict

from algo.belief.observed import Observed
from algo.evaluation.statistics import Estimate, mean_by_cluster
from store.werewolf_study import Chances

LEAST = 1e-4
"""What counts at least as the chance of what was true: one certain error is not to drown everything else."""
_BINS = 10


class CalibrationBin(BaseModel):
    """Seats about which a chance of being a wolf within one tenth was given. said: its mean. true: share of wolves."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    seats: int
    said: float
    true: float


class BeliefScores(BaseModel):
    """Scores of many answers, each the mean over the seats asked about; intervals by deals.

    answers: how many. brier: squared error of the chance that a seat is a wolf; 0 is best. log_loss: of its role, in
    nats. auc: how often a wolf is put above a seat that is none, in answers about both; 0.5 is blind; None without any
    such answer. calibration: by tenths of the chance given; calibration_error: its mean distance from what was true.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    answers: int
    brier: Estimate
    log_loss: Estimate
    auc: Estimate | None
    calibration: tuple[CalibrationBin, ...]
    calibration_error: float


class BeliefReport(BaseModel):
    """One player's beliefs between bounds, on the same answers.

    own: as it answered. ceiling: the expert's odds. deaf: the same without speeches and votes. floor: the deck's odds,
    which do not even know who died.
    mass: mean share of its whole probability that the names of roles had; None of a player without tokens.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    own: BeliefScores
    ceiling: BeliefScores
    deaf: BeliefScores
    floor: BeliefScores
    mass: float | None = None

    @property
    def listened(self) -> float | None:
        """How far it is from the Brier score of the deaf to the ceiling's: 1.0 all the way, 0.0 none; None: no way.

        Not from the floor's: who only counts the dead has left that behind, and listened to nobody.
        """
        way = self.deaf.brier.value - self.ceiling.brier.value
        return (self.deaf.brier.value - self.own.brier.value) / way if abs(way) > 1e-9 else None


def belief_report(answers: Sequence[Observed], seed: int) -> BeliefReport | None:
    """The scores of one player's answers; None without any. seed: of the resampling of deals."""
    if not answers:
        return None
    masses = [one.belief.mass for one in answers if one.belief.mass is not None]
    return BeliefReport(
        own=belief_scores(answers, lambda one: one.belief.beliefs or {}, seed),
        ceiling=belief_scores(answers, lambda one: one.belief.ceiling, seed),
        deaf=belief_scores(answers, lambda one: one.belief.deaf, seed),
        floor=belief_scores(answers, lambda one: one.floor, seed),
        mass=fmean(masses) if masses else None,
    )


def belief_scores(answers: Sequence[Observed], chances_of: Callable[[Observed], Chances], seed: int) -> BeliefScores:
    """The scores of some chances. chances_of: an answer's, about the seats of its ``truth``."""
    chances = [chances_of(one) for one in answers]
    wolves = [one.wolf_chances(given) for one, given in zip(answers, chances, strict=True)]
    ranked = [
        (one.deal, value)
        for one, given in zip(answers, wolves, strict=True)
        if (value := area_under_curve(given)) is not None
    ]
    deals = [one.deal for one in answers]
    bins = calibration([pair for given in wolves for pair in given])
    seats = sum(each.seats for each in bins)
    errors = [squared_error(given) for given in wolves]
    return BeliefScores(
        answers=len(answers),
        brier=mean_by_cluster(deals, errors, seed),
        log_loss=mean_by_cluster(
            deals, [log_loss(one, given) for one, given in zip(answers, chances, strict=True)], seed
        ),
        auc=mean_by_cluster([deal for deal, _ in ranked], [value for _, value in ranked], seed) if ranked else None,
        calibration=bins,
        calibration_error=sum(each.seats * abs(each.said - each.true) for each in bins) / seats,
    )


def squared_error(given: Sequence[tuple[float, bool]]) -> float:
    """The Brier score of chances of being a wolf, 0 to 1. given: as of ``Observed.wolf_chances``."""
    return fmean((said - is_wolf) ** 2 for said, is_wolf in given)


def log_loss(one: Observed, chances: Chances) -> float:
    """Of the true roles of the seats asked about, their mean, in nats; at most that of ``LEAST``."""
    return fmean(-math.log(max(chances[seat][role.value], LEAST)) for seat, role in one.truth.items())


def area_under_curve(given: Iterable[tuple[float, bool]]) -> float | None:
    """Share of pairs of a wolf and another in which the wolf was given more, ties half; None without pairs."""
    given = list(given)
    wolves = [said for said, is_wolf in given if is_wolf]
    others = [said for said, is_wolf in given if not is_wolf]
    pairs = [(wolf > other) + 0.5 * (wolf == other) for wolf in wolves for other in others]
    return fmean(pairs) if pairs else None


def calibration(given: Iterable[tuple[float, bool]]) -> tuple[CalibrationBin, ...]:
    """By tenths of the chance given, ascending; tenths without seats are left out."""
    bins: dict[int, list[tuple[float, bool]]] = {}
    for said, is_wolf in given:
        bins.setdefault(min(int(said * _BINS), _BINS - 1), []).append((said, is_wolf))
    return tuple(
        CalibrationBin(seats=len(of_bin), said=fmean(s for s, _ in of_bin), true=fmean(w for _, w in of_bin))
        for _, of_bin in sorted(bins.items())
    )
