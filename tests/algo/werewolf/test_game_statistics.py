"""Win rates and their intervals: games are the unit, draws are no wins, deals are resampled together."""

import numpy as np
import pytest

from algo.evaluation.statistics import clustered_share, wilson_interval
from algo.werewolf.game_statistics import (
    conduct_of,
    score_of_both_sides,
    score_of_role,
    score_of_side,
)
from tests.support.algo.evaluations import make_game


@pytest.mark.parametrize(
    ("successes", "trials", "low", "high"),
    [  # Newcombe, Statistics in Medicine 17, 1998, table I, score method without continuity correction
        (81, 263, 0.2553, 0.3662),
        (15, 148, 0.0624, 0.1605),
        (0, 20, 0.0, 0.1611),
        (1, 29, 0.0061, 0.1718),
    ],
)
def test_wilsons_interval_is_that_of_the_literature(successes, trials, low, high):
    found = wilson_interval(successes, trials)
    assert (round(found.low, 4), round(found.high, 4)) == (low, high)
    mirrored = wilson_interval(trials - successes, trials)
    assert (mirrored.low, mirrored.high) == pytest.approx((1 - found.high, 1 - found.low))


@pytest.mark.parametrize("successes", [-1, 4])
def test_impossible_shares_are_refused(successes):
    with pytest.raises(ValueError, match="give no share"):
        wilson_interval(successes, 3)
    with pytest.raises(ValueError, match="give no share"):
        wilson_interval(0, 0)


def test_an_interval_holds_its_share():
    for trials in range(1, 40):
        for successes in range(trials + 1):
            found = wilson_interval(successes, trials)
            assert 0 <= found.low <= found.value == successes / trials <= found.high <= 1


def test_clusters_count_as_one_where_their_parts_agree():
    # 40 games of 10 deals: if all games of a deal end alike, there is no more in them than in 10 games.
    alike = clustered_share([4, 0] * 5, [4] * 10, seed=1)
    mixed = clustered_share([2, 2, 1, 3] * 2 + [2, 2], [4] * 10, seed=1)
    assert alike.value == mixed.value == 0.5
    of_ten = wilson_interval(5, 10)
    assert alike.high - alike.low == pytest.approx(of_ten.high - of_ten.low, abs=0.1)
    assert mixed.high - mixed.low < 0.5 * (alike.high - alike.low)


def test_without_differences_between_clusters_each_is_one_trial():
    assert clustered_share([2, 2, 2], [2, 2, 2], seed=1) == wilson_interval(3, 3)
    assert clustered_share([0, 0], [7, 1], seed=1) == wilson_interval(0, 2)
    assert clustered_share([1, 0, 1], [2, 0, 2], seed=1) == wilson_interval(1, 2)


def test_a_share_weighs_clusters_by_their_totals_and_follows_from_the_seed():
    found = clustered_share([1, 0, 5], [1, 3, 8], seed=1)
    assert found.value == 0.5 and found == clustered_share([1, 0, 5], [1, 3, 8], seed=1)
    assert 0 <= found.low < 0.5 < found.high <= 1
    with pytest.raises(ValueError, match="no cluster"):
        clustered_share([0], [0], seed=1)


def test_the_intervals_of_clusters_cover_the_truth():
    # Deals whose two games have a win chance in common; the interval must cover 0.6 nearly as often as it says.
    generator = np.random.default_rng(3)
    covered = 0
    for trial in range(200):
        wins = generator.binomial(2, generator.beta(3, 2, size=60))
        found = clustered_share(list(wins), [2] * 60, seed=trial)
        covered += found.low <= 0.6 <= found.high
    assert 180 <= covered <= 199


GAMES = [
    make_game("wolf", "policy", "scripted", deal=1),
    make_game("good", "policy", "scripted", deal=3),
    make_game("draw", "policy", "scripted", deal=5),
    make_game("good", "scripted", "policy", deal=1),
    make_game("wolf", "random", "scripted", deal=1),
]


def test_scores_by_side_count_games_and_tell_draws_apart():
    wolf, good = score_of_side(GAMES, "policy", "wolf"), score_of_side(GAMES, "policy", "good")
    assert (wolf.games, wolf.wins, wolf.draws, wolf.losses) == (3, 1, 1, 1)
    assert wolf.win_rate == wilson_interval(1, 3)
    assert (good.games, good.wins, good.losses) == (1, 1, 0)
    nobody = score_of_side(GAMES, "strong", "wolf")
    assert (nobody.games, nobody.win_rate) == (0, None)
    scripted = score_of_side(GAMES, "scripted", "good")
    assert (scripted.games, scripted.wins, scripted.draws) == (4, 1, 1)


def test_a_game_counts_once_for_a_role_however_many_seats_have_it():
    villager = score_of_role(GAMES, "policy", "villager")
    assert (villager.games, villager.wins) == (1, 1)
    assert score_of_role(GAMES, "policy", "wolf") == score_of_side(GAMES, "policy", "wolf")
    assert score_of_role(GAMES, "policy", "guard").games == 0


def test_both_sides_are_resampled_by_deal():
    score = score_of_both_sides(GAMES, "policy", seed=1)
    assert (score.games, score.wins, score.draws) == (4, 2, 1)
    games = [
        make_game("wolf" if (wolf == "policy") == (deal % 2 == 0) else "good", wolf, good, deal)
        for deal in range(12)
        for wolf, good in (("policy", "random"), ("random", "policy"))
    ]
    by_deal = clustered_share([2, 0] * 6, [2] * 12, seed=1)
    one_by_one = clustered_share([1, 1, 0, 0] * 6, [1] * 24, seed=1)
    assert score_of_both_sides(games, "policy", seed=1).win_rate == by_deal
    assert by_deal.high - by_deal.low > 1.1 * (one_by_one.high - one_by_one.low)
    itself = score_of_both_sides([make_game("wolf", "policy", "policy")], "policy", seed=1)
    assert (itself.games, itself.wins) == (2, 1)


def test_conduct_is_of_the_players_own_seats():
    games = [
        make_game(wolf="policy", good="strong", turns=4, invalid=2, leaks=3, deal=1, days=1),
        make_game(wolf="policy", good="strong", turns=4, deal=3, days=2),
        make_game(wolf="strong", good="policy", turns=2, invalid=1, deal=1, days=6),
    ]
    both = conduct_of(games, "policy", 1, sides=("wolf", "good"))
    assert (both.games, both.turns, both.leaks, both.days) == (3, 4 + 4 + 6, 3, 3)
    assert both.turns_per_game == pytest.approx(14 / 3)
    assert both.invalid_replies.value == pytest.approx(3 / 14)
    assert both.games_with_leak.value == pytest.approx(1 / 3)
    wolf = conduct_of(games, "policy", 1, sides=("wolf",))
    assert (wolf.games, wolf.turns, wolf.days, wolf.invalid_replies.value) == (2, 8, 1.5, 0.25)


def test_of_players_that_say_nothing_token_by_token_no_conduct_is_claimed():
    scripted = conduct_of(GAMES, "scripted", 1, sides=("wolf", "good"))
    assert (scripted.games, scripted.turns, scripted.invalid_replies, scripted.games_with_leak) == (5, 0, None, None)
    nobody = conduct_of(GAMES, "strong", 1, sides=("wolf",))
    assert (nobody.games, nobody.days, nobody.turns_per_game) == (0, None, None)
