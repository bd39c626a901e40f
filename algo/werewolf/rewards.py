"""Recorded facts -> rewards: the outcome of a seat's side plus the rewards of its turns.

Runners measure facts, the configuration weights them (``configs.sections.rewards.RewardConfig``); a weight has the name
of its dimension. A seat's reward is its outcome plus the sum of its turn rewards, and a turn's reward is the
weighted sum of its dimensions, by default divided by the number of the seat's turns. Judge scores are divided by
the number of judged turns, so that a missing judgement does not lower the others.
"""

import math
from collections import defaultdict
from collections.abc import Mapping
from statistics import fmean

from algo.rollouts.triplets import FinishedRollout
from algo.sequences.trajectories import ActorReward
from configs.sections.rewards import OutcomeReward, RewardConfig
from store.werewolf import NEUTRAL_FACTS, SeatResult, seat_name

FACT_DIMENSIONS = (
    "invalid",
    "reask",
    "foreign_language",
    "repetition",
    "repeats_earlier",
    "overlong",
    "cut",
    "identity_leak",
    "vote_against_enemy",
    "attack_on_enemy",
)
"""Dimensions of every turn, 0.0 to 1.0: facts of the same name, and foreign_language = 1 - chinese_share."""

JUDGE_DIMENSIONS = ("judge_score", "low_judgement", "very_low_judgement")
"""Dimensions of a judged turn: the score from -1.0 to 1.0, and whether it is low (0.0 or 1.0)."""


def game_rewards(game: FinishedRollout, weights: RewardConfig) -> dict[str, ActorReward]:
    """Name of the seat (``store.werewolf.seat_name``) -> its reward."""
    facts: dict[int, dict[int, Mapping[str, float]]] = defaultdict(dict)
    for turn in game.turns:
        facts[turn.seat][turn.turn] = {**NEUTRAL_FACTS, **turn.facts}
    scores: dict[int, dict[int, float]] = defaultdict(dict)
    for judgement in game.outcome.judgements:
        scores[judgement.seat][judgement.turn] = judgement.score
    return {
        seat_name(seat.seat): seat_reward(seat, facts[seat.seat], scores[seat.seat], weights)
        for seat in game.outcome.seats
    }


def seat_reward(
    seat: SeatResult,
    facts: Mapping[int, Mapping[str, float]],
    scores: Mapping[int, float],
    weights: RewardConfig,
) -> ActorReward:
    """Reward of one seat. Dimensions are unweighted means over the seat's turns, and the outcome (1.0, -1.0 or 0.0);
    judge dimensions are means over the judged turns, absent without any.

    facts: number of the turn -> all its facts (``store.werewolf.TURN_FACTS``), for every model turn of the seat.
    scores: number of the turn -> the judge's score, 0.0 to 1.0, for the turns that were judged.
    """
    averaged = weights.turns == "averaged"
    shares = dict.fromkeys(FACT_DIMENSIONS, 1.0 / max(len(facts), 1) if averaged else 1.0)
    shares |= dict.fromkeys(JUDGE_DIMENSIONS, 1.0 / max(len(scores), 1) if averaged else 1.0)
    values = {turn: turn_dimensions(measured, scores.get(turn), weights) for turn, measured in facts.items()}
    turns = {
        turn: math.fsum(getattr(weights, name) * value * shares[name] for name, value in dimensions.items())
        for turn, dimensions in values.items()
    }
    worth: OutcomeReward = getattr(weights, seat.side)
    outcome = {1.0: worth.win, -1.0: worth.lose, 0.0: worth.draw}[seat.outcome]
    named = dict.fromkeys(name for dimensions in values.values() for name in dimensions)
    means = {name: fmean(of[name] for of in values.values() if name in of) for name in named}
    return ActorReward(
        role=seat.role,
        side=seat.side,
        total=outcome + math.fsum(turns.values()),
        outcome=outcome,
        turns=turns,
        dimensions={"outcome": seat.outcome, **means},
    )


def turn_dimensions(facts: Mapping[str, float], score: float | None, weights: RewardConfig) -> dict[str, float]:
    """Dimension -> value of one turn. score: the judge's, 0.0 to 1.0; None: not judged."""
    dimensions = {
        name: 1.0 - facts["chinese_share"] if name == "foreign_language" else facts[name] for name in FACT_DIMENSIONS
    }
    if score is not None:
        very_low = score < weights.very_low_judgement_below
        low = score < weights.low_judgement_below and not very_low
        judged = (2.0 * score - 1.0, float(low), float(very_low))
        dimensions |= zip(JUDGE_DIMENSIONS, judged, strict=True)
    return dimensions
