"""What recorded games lack; all other figures and strengths are held to those of recorded games by ``test_frozen``."""

import pytest

from algo.evaluation.actions import truth_of
from algo.evaluation.figures import Score, figures_of
from algo.evaluation.statistics import wilson_interval
from algo.evaluation.strengths import fit_strengths
from store.werewolf_study import SpeechRecord
from tests.support.algo.made_games import made_evaluation, made_row


def test_a_reported_check_of_a_seat_that_is_not_there_is_false():
    said = SpeechRecord(at=0, day=1, seat=2, claimed="seer", reports=((9, "good"),))
    assert truth_of(said, made_row()) == "false"


def test_games_of_the_same_deals_do_not_narrow_an_interval():
    results = ["good"] * 40 + ["wolf"] * 60
    once = Score.of_side(results, range(100), "good").win_rate
    thrice = Score.of_side(results * 3, [*range(100)] * 3, "good").win_rate
    assert thrice.value == once.value == 0.4
    assert thrice.high - thrice.low == pytest.approx(once.high - once.low, rel=0.1)


def test_over_all_opponents_no_game_counts_that_the_policy_plays_against_itself():
    rows = [made_row("scripted", "policy", "good" if deal else "wolf", deal) for deal in range(20)]
    itself = [made_row("policy", "policy", "good", deal) for deal in range(20)]
    figures = figures_of(made_evaluation([*rows, *itself], panel="cross", opponents=("scripted", "policy")))
    assert figures.all_games == figures.opponents["scripted"].both_sides == Score.of_rows(rows, "good")
    assert figures.all_games.win_rate == wilson_interval(19, 20)


def test_who_always_wins_has_a_finite_strength_and_nobody_none():
    rows = [made_row("policy", "random", "wolf", deal) for deal in range(30)]
    rows += [made_row("random", "policy", "good", deal) for deal in range(30)]
    fit = fit_strengths(rows, "random", seed=1)
    assert 1 < fit.players["policy"].value < 10
    assert fit_strengths([], "random", seed=1) is None
