"""Ratings: who wins rises, sides are told apart from players, the same games give the same ratings."""

import random

import pytest
from openskill.models import BradleyTerryFull

from algo.evaluation.ratings import Ratings
from tests.support.algo.evaluations import make_game


def play(strengths, rounds=60, wolf_chance=0.5, sides=((0, 1), (1, 0)), seed=1):
    """Games of all pairs; the stronger wins by the ratio of strengths, and wolves by ``wolf_chance``."""
    generator = random.Random(seed)
    names = list(strengths)
    games = []
    for deal in range(rounds):
        for number, first in enumerate(names):
            for second in names[number + 1 :]:
                for order in sides:
                    wolf, good = ((first, second)[index] for index in order)
                    wolf_weight, good_weight = strengths[wolf] * wolf_chance, strengths[good] * (1 - wolf_chance)
                    won = generator.random() < wolf_weight / (wolf_weight + good_weight)
                    games.append(make_game("wolf" if won else "good", wolf, good, deal))
    return games


def ratings_of(games, names=None):
    ratings = Ratings()
    ratings.add(games, names)
    return ratings.players()


def test_the_stronger_is_rated_higher_with_less_and_less_doubt():
    games = play({"weak": 1, "middle": 3, "strong": 9})
    found = ratings_of(games)
    assert list(found) == ["strong", "middle", "weak"]
    assert found["strong"].low < found["strong"].mu < found["strong"].high
    assert found["strong"].low > found["weak"].high
    assert found["weak"].games == 240
    assert ratings_of(games[:20])["weak"].sigma > found["weak"].sigma


def test_what_a_side_makes_easy_is_not_taken_for_strength():
    one_sided = play({"first": 1, "second": 1}, wolf_chance=0.9, sides=((0, 1),))
    balanced = play({"first": 1, "second": 1}, wolf_chance=0.9)
    ratings = Ratings()
    ratings.add(balanced)
    fair = ratings.players()
    ratings.add(one_sided)
    after = ratings.players()
    for found in (fair, after):
        assert found["first"].low < found["second"].mu < found["first"].high
    # Without knowing the sides, a rating takes nine wins in ten for strength.
    model = BradleyTerryFull(tau=0.0)
    wolf, good = model.rating(), model.rating()
    for game in one_sided:
        (wolf,), (good,) = model.rate([[wolf], [good]], ranks=[0, 1] if game.result == "wolf" else [1, 0])
    assert abs(after["first"].mu - after["second"].mu) < 0.5 * (wolf.mu - good.mu)


def test_the_same_games_give_the_same_ratings_told_at_once_or_in_parts():
    games = play({"a": 1, "b": 2}, rounds=10)
    parts = Ratings()
    parts.add(games[:7])
    parts.add(games[7:])
    assert parts.players() == ratings_of(games) == ratings_of(games)


def test_draws_move_players_together():
    ratings = Ratings()
    ratings.add([make_game("wolf", "a", "b"), make_game("good", "b", "a")])
    before = ratings.players()
    ratings.add([make_game("draw", "a", "b"), make_game("draw", "a", "b")])
    after = ratings.players()
    assert before["b"].mu < after["b"].mu < after["a"].mu < before["a"].mu


def test_players_go_by_the_names_they_are_given():
    games = play({"policy": 4, "scripted": 1}, rounds=5)
    ratings = Ratings()
    ratings.add(games, {"policy": "policy@0"})
    ratings.add(games, {"policy": "policy@5"})
    assert set(ratings.players()) == {"policy@0", "policy@5", "scripted"}
    assert ratings.players()["scripted"].games == 20


def test_a_game_against_itself_tells_nothing_of_a_player():
    ratings = Ratings()
    ratings.add([make_game("wolf", "a", "a")] * 3)
    assert ratings.players() == {}
    ratings.add([make_game("wolf", "a", "b")])
    # The wolves were seen to win anyway, so winning as the wolves says a little less.
    fresh = ratings_of([make_game("wolf", "a", "b")])
    assert 25 < ratings.players()["a"].mu < fresh["a"].mu
    assert fresh["a"].mu - 25 == pytest.approx(25 - fresh["b"].mu)
