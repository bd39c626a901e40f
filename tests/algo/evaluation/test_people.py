"""Scores of people against the players of the other side."""

from types import SimpleNamespace

from algo.evaluation.people import people_scores
from store.schema import TRAINED_POLICY
from store.werewolf import PERSON


def game(number, version, result, wolves, good):
    sides = [("wolf", player) for player in wolves] + [("good", player) for player in good]
    seats = [SimpleNamespace(policy=player, side=side) for side, player in sides]
    outcome = SimpleNamespace(policy_version=version, seats=seats, result=result, seed=number)
    return SimpleNamespace(rollout_id=f"ro-{number}", outcome=outcome)


def test_opponents_of_people_are_the_players_of_the_other_side():
    policy_wolves = {"wolves": [TRAINED_POLICY], "good": [PERSON, "scripted"]}
    beside_the_policy = {"wolves": [TRAINED_POLICY, PERSON], "good": ["scripted"]}
    games = [
        game(1, 12, "good", **policy_wolves),
        game(2, 24, "wolf", **policy_wolves),
        game(3, 12, "wolf", **beside_the_policy),
        game(4, 24, "good", **beside_the_policy),
        game(5, 24, "wolf", [TRAINED_POLICY, "scripted"], [PERSON]),
        game(6, 24, "good", [PERSON], [PERSON]),
    ]
    scores = people_scores("run", games, {12: "step 12"})
    found = {
        one.label: (one.policy_version, *((score.wins, score.games) for score in one.by_side.values()))
        for one in scores.against
    }
    assert found == {
        "step 12": (12, (0, 0), (1, 1)),
        "version 24": (24, (0, 0), (0, 1)),
        "scripted": (None, (1, 2), (0, 0)),
        "version 24+scripted": (24, (0, 0), (0, 1)),
        PERSON: (None, (0, 1), (1, 1)),
    }
    assert next(one for one in scores.against if one.label == "scripted").games == ("ro-3", "ro-4")
