"""The joint fit finds what games were drawn from, does not take one side's ease for strength, and never runs away."""

import random

import numpy as np
import pytest

from algo.evaluation.statistics import fit_logistic
from algo.protocol.power import deals_needed, difference_seen, half_width, power_text
from algo.protocol.strengths import fit_strengths
from configs.roles_and_decks import DECKS
from tests.support.algo.protocol_games import made_game


def drawn_games(strengths, advantage, deals, seed=3):
    """Of every ordered pair of different players one game a deal, by the model itself."""
    chance = random.Random(seed)
    games = []
    for deal in range(deals):
        for wolf in strengths:
            for good in strengths:
                if wolf == good:
                    continue
                odds = advantage + strengths[good] - strengths[wolf]
                won = chance.random() < 1 / (1 + np.exp(-odds))
                games.append(made_game(wolf, good, "good" if won else "wolf", deal))
    return games


def test_the_fit_finds_what_games_were_drawn_from():
    drawn = {"scripted": 0.0, "strong": 1.2, "weak": -0.8}
    fit = fit_strengths(drawn_games(drawn, advantage=-0.7, deals=400), "scripted", seed=1)
    assert fit.advantage.low < -0.7 < fit.advantage.high and "scripted" not in fit.players
    for name in ("strong", "weak"):
        for found in (fit.players, fit.as_wolf, fit.as_good):
            assert found[name].low < drawn[name] < found[name].high
            assert found[name].high - found[name].low < 1.3
    assert list(fit.players) == ["strong", "weak"]


def test_what_is_easy_to_win_with_is_no_strength():
    pairs = [("policy", "scripted"), ("scripted", "policy"), ("scripted", "scripted")]
    games = [
        made_game(wolf, good, "good" if (deal + 5 * number) % 17 == 0 else "wolf", deal)
        for deal in range(68)
        for number, (wolf, good) in enumerate(pairs)
    ]
    fit = fit_strengths(games, "scripted", seed=1)
    assert fit.advantage.high < -1.5 and abs(fit.players["policy"].value) < 1e-3


def test_who_always_wins_has_a_finite_strength_and_equal_games_equal_fits():
    games = [made_game("policy", "random", "wolf", deal) for deal in range(30)]
    games += [made_game("random", "policy", "good", deal) for deal in range(30)]
    fit = fit_strengths(games, "random", seed=1)
    assert 1 < fit.players["policy"].value < 10
    assert fit == fit_strengths(games, "random", seed=1)
    assert fit_strengths([], "random", seed=1) is None


def test_a_role_is_told_from_its_side_by_single_seats():
    games = []
    for deal in range(200):  # the policy wins with the seer's seat alone and loses in a villager's
        for single, result in ((2, "good"), (3, "wolf")):
            game = made_game("scripted", "scripted", result, deal, single=single)
            seats = tuple(
                seat.model_copy(update={"player": "policy"}) if seat.seat == single else seat for seat in game.seats
            )
            games.append(game.model_copy(update={"seats": seats}))
    fit = fit_strengths(games, "scripted", seed=1)
    assert fit.roles["seer"].low > 0 > fit.roles["villager"].high


def test_coefficients_are_those_at_which_the_gradient_is_nil():
    generator = np.random.default_rng(1)
    table = np.column_stack([np.ones(50), generator.normal(size=(50, 2))])
    won, weights = generator.integers(0, 2, 50).astype(float), generator.integers(0, 3, 50).astype(float)
    found = fit_logistic(table, won, weights, np.zeros(3))
    likely = 1 / (1 + np.exp(-table @ found))
    gradient = table.T @ (weights * (won - likely)) - np.array([0.01, 0.25, 0.25]) * found
    assert gradient == pytest.approx(np.zeros(3), abs=1e-6)
    halves = fit_logistic(table, np.full(50, 0.5), np.ones(50), np.zeros(3))
    assert halves == pytest.approx(np.zeros(3), abs=1e-9)


def test_power_is_that_of_the_text_books():
    assert deals_needed(0.05) == 1570  # 2 * 0.25 * (1.960 + 0.842)^2 / 0.05^2
    assert difference_seen(1570) == pytest.approx(0.05, abs=1e-4)
    assert half_width(100) == pytest.approx(0.098, abs=1e-3)
    told = power_text(400, DECKS["5p_tiny"], 50)
    assert "1570 deals" in told and "400 deals" in told and "asked on 50 deals" in told
    # A fifth of the single seats is the wolf's: 1.96 * 0.5 / 80 ** 0.5 = 11 points, and 5 for the 320 others.
    assert "good side (about 320 deals) to ± 5" in told and "wolf side (about 80 deals) to ± 11" in told
    for wrong in ((0.0, 0.5), (0.05, 1.0)):
        with pytest.raises(ValueError, match="between 0 and 1"):
            deals_needed(*wrong)
