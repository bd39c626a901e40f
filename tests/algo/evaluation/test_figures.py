"""Actions and strengths by hand on made-up games; figures are held to those of recorded games by ``test_frozen``."""

import random

import numpy as np
import pytest

from algo.evaluation.actions import ODDS_OF_VOTES, VOTES_FOR_WOLVES, truth_of
from algo.evaluation.figures import Score, differences, figures_of, metrics_of
from algo.evaluation.statistics import wilson_interval
from algo.evaluation.strengths import fit_strengths
from store.werewolf_study import SpeechRecord, VoteRecord
from tests.support.algo.made_games import made_evaluation, made_row


def test_a_reported_check_of_a_seat_that_is_not_there_is_false():
    said = SpeechRecord(at=0, day=1, seat=2, claimed="seer", reports=((9, "good"),))
    assert truth_of(said, made_row()) == "false"


def test_games_of_the_same_deals_do_not_narrow_an_interval():
    results = ["good"] * 40 + ["wolf"] * 60
    games = [(result, "good", deal) for deal, result in enumerate(results)]
    once, thrice = (Score.of(games * times).win_rate for times in (1, 3))
    assert thrice.value == once.value == 0.4
    assert thrice.high - thrice.low == pytest.approx(once.high - once.low, rel=0.1)
    rows = [made_row(result=result, deal=deal) for deal, result in enumerate(results)]
    once, thrice = (figures_of(made_evaluation(rows * times)).cells[0].rate for times in (1, 3))
    assert once == wilson_interval(60, 100) and once.overlaps(thrice)
    assert thrice.high - thrice.low == pytest.approx(once.high - once.low, rel=0.1)


def test_games_against_other_initial_weights_are_in_no_difference():
    vote = VoteRecord(at=0, day=1, seat=2, target=1, best=1.0, chance=0.25, pivotal=False)
    rows = [made_row(wolf, "policy", votes=(vote,)) for wolf in ("initial", "scripted")]
    ours, same, other = (
        made_evaluation(rows, opponents=("initial", "scripted"), initial=weights) for weights in ("a", "a", "b")
    )
    assert [each.what for each in differences(ours, same)] == [
        "games won, side good against initial", "games won, side good against scripted", VOTES_FOR_WOLVES, ODDS_OF_VOTES
    ]  # fmt: skip
    assert [each.what for each in differences(ours, other)][:1] == ["games won, side good against scripted"]
    against_initial = made_evaluation(rows[:1], opponents=("initial", "scripted"), initial="b")
    assert list(differences(ours, against_initial)) == []


# --- strengths --------------------------------------------------------------------------------------------------------


def drawn_games(strengths, advantage, deals, seed=3):
    """Of every ordered pair of players one game a deal, by the model itself."""
    chance = random.Random(seed)
    rows = []
    for deal in range(deals):
        for wolf in strengths:
            for good in strengths:
                odds = advantage + strengths[good] - strengths[wolf]
                won = chance.random() < 1 / (1 + np.exp(-odds))
                rows.append(made_row(wolf, good, "good" if won else "wolf", deal))
    return rows


def test_the_fit_finds_what_games_were_drawn_from():
    drawn = {"scripted": 0.0, "strong": 1.2, "policy": -0.8}
    rows = drawn_games(drawn, advantage=-0.7, deals=400)
    fit = fit_strengths(rows, "scripted", seed=1)
    assert fit.advantage.low < -0.7 < fit.advantage.high and "scripted" not in fit.players
    for name in ("strong", "policy"):
        for found in (fit.players, fit.as_wolf, fit.as_good):
            assert found[name].low < drawn[name] < found[name].high
    assert list(fit.players) == ["strong", "policy"] and not fit.roles
    # How well a side is played, the policy's games against others do not tell; nor, with one side alone, who is strong.
    met = [row for row in rows if len(row.sides_of("policy")) == 1]
    fit = fit_strengths(met, "scripted", seed=1)
    assert all(found.low < drawn[name] < found.high for name, found in fit.players.items()) and len(fit.players) == 2
    assert fit.advantage is None and fit.as_wolf == fit.as_good == fit.roles == {}
    one_sided = [row for row in met if row.sides_of("policy") == ["wolf"]]
    assert fit_strengths(one_sided, "scripted", seed=1) is None
    figures = figures_of(made_evaluation(one_sided))
    assert figures.strength is None and "evaluation/strength" not in metrics_of(made_evaluation(one_sided), figures)


@pytest.mark.parametrize("not_finished", [0, 1])
def test_who_always_wins_has_a_finite_and_uncertain_strength_and_nobody_none(not_finished):
    rows = [made_row("policy", "random", "wolf", deal) for deal in range(30)]
    rows += [made_row("random", "policy", "good", deal) for deal in range(30)]
    found = fit_strengths(rows[not_finished:], "random", seed=1).players["policy"]
    assert 0 < found.low < found.value - 1 < found.value + 1 < found.high < 10
    assert fit_strengths([], "random", seed=1) is None


def test_single_seats_separate_a_role_from_its_side():
    """The policy wins with the seer's seat alone, and loses in a villager's."""
    rows = [
        made_row("scripted", "scripted", result, deal, single=(seat, "policy"))
        for deal in range(200)
        for seat, result in ((1, "wolf" if deal % 2 else "good"), (2, "good"), (3, "wolf"))
    ]
    rows += [made_row("scripted", "scripted", "wolf" if deal % 2 else "good", deal) for deal in range(200)]
    fit = fit_strengths(rows, "scripted", seed=1)
    assert fit.roles.keys() == {"seer", "villager"} and fit.roles["seer"].low > 0 > fit.roles["villager"].high
    assert fit.as_wolf["policy"].value == pytest.approx(0, abs=0.1)
