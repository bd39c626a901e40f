"""Scores of beliefs by hand; those of recorded games are held by ``test_frozen``."""

import math
from statistics import fmean

import pytest

from algo.evaluation.beliefs import (
    area_under_curve,
    belief_report,
    calibration,
    deck_chances,
    probed_answers,
    wolf_chance,
)
from configs.roles_and_decks import DECKS, Role
from store.werewolf_study import BeliefRecord, StudySpan


def test_the_decks_odds_are_a_share_of_the_cards_that_are_left():
    roles = dict(enumerate(DECKS["7p"], start=1))
    seer = next(seat for seat, role in roles.items() if role is Role.SEER)
    wolves = [seat for seat, role in roles.items() if role is Role.WOLF]
    others = [seat for seat in roles if seat != seer]
    for chances in deck_chances(DECKS["7p"], seer, roles, others).values():
        assert chances == {"wolf": 2 / 6, "villager": 3 / 6, "witch": 1 / 6, "seer": 0.0}
    of_wolf = deck_chances(DECKS["7p"], wolves[0], roles, [wolves[1], seer])
    assert wolf_chance(of_wolf[wolves[1]]) == 1.0
    assert of_wolf[seer] == {"wolf": 0.0, "villager": 3 / 5, "witch": 1 / 5, "seer": 1 / 5}


def test_brier_score_log_loss_and_calibration_by_hand():
    roles = {1: Role.WOLF, 2: Role.SEER, 3: Role.VILLAGER}
    chances = {1: {"wolf": 0.8, "seer": 0.2}, 2: {"wolf": 0.3, "seer": 0.7}}
    belief = BeliefRecord(at=5, day=1, moment="vote", seat=3, beliefs=chances, mass=0.5, ceiling=chances, deaf=chances)
    study = StudySpan(game_id="g", beliefs=(belief,))
    report = belief_report([(7, answer) for answer in probed_answers(study, "5p_tiny", roles)], seed=1)
    assert report.own.brier.value == pytest.approx((0.2**2 + 0.3**2) / 2) and report.mass == 0.5
    assert report.own.log_loss.value == pytest.approx(-fmean([math.log(0.8), math.log(0.7)]))
    assert report.own.auc.value == 1.0 and report.own.calibration_error == pytest.approx((0.2 + 0.3) / 2)
    assert belief_report([], seed=1) is None


def test_the_area_under_the_curve_counts_pairs():
    assert area_under_curve([(0.9, True), (0.1, False), (0.9, False)]) == 0.75
    assert area_under_curve([(0.9, True)]) is None
    (low, high) = calibration([(0.05, False), (0.0, True), (1.0, True)])
    assert (low.seats, low.predicted, low.observed) == (2, 0.025, 0.5) and (
        high.seats,
        high.predicted,
        high.observed,
    ) == (1, 1.0, 1.0)
