"""Games between two players: held-out deals, sides swapped, nothing to train on, facts kept of each game."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from algo.league.results import Match
from algo.werewolf.matches import held_out_deals, league_match
from algo.werewolf.tasks import held_out_deal, step_tasks, training_deal
from configs.loading import load_config
from configs.roles_and_decks import DECKS, Role, deal_roles
from runners.werewolf.game import PRESETS, new_game
from tests.support.fakes import make_result

numbers = st.integers(0, 2**63)


@given(numbers, numbers, numbers, numbers, numbers)
def test_no_deal_of_training_is_ever_one_of_evaluation(run_seed, step, group, seed, number):
    trained, held_out = training_deal(run_seed, step, group), held_out_deal(seed, number)
    assert (trained % 2, held_out % 2) == (0, 1)
    assert 0 <= trained < 2**31 and 0 <= held_out < 2**31


def test_deals_are_different_and_follow_from_the_seed(monkeypatch):
    assert len(set(held_out_deals(500, 1))) == 500
    assert held_out_deals(5, 1) == held_out_deals(9, 1)[:5] != held_out_deals(5, 2)
    monkeypatch.setattr("algo.werewolf.matches.held_out_deal", lambda seed, number: number // 2)
    assert held_out_deals(3, 1) == [0, 1, 2]


def test_balanced_deals_give_each_seat_each_role_about_equally_often():
    balanced = load_config(None, ["rollout.groups_per_step=15", "game.balanced_deals=true"])
    seen = set()
    for step in range(1, 6):
        deals = [task.seed for task in step_tasks(balanced, step)[:: balanced.rollout.rollouts_per_group]]
        roles = [deal_roles(DECKS["5p_tiny"], seed) for seed in deals]
        assert {of.index(Role.WOLF) for of in roles} == set(range(5)) and not any(seed % 2 for seed in deals)
        for role in (Role.WOLF, Role.SEER):
            counts = Counter(of.index(role) for of in roles).values()
            assert max(counts) - min(counts) <= 1, (step, role)
        seen.update(deals)
    assert len(seen) == 75
    assert all(new_game(PRESETS["5p_tiny"], seed).roles == deal_roles(DECKS["5p_tiny"], seed) for seed in seen)


@pytest.mark.parametrize(
    ("wolves", "good", "result", "expected"),
    [
        (["policy"], ["past-000002", "past-000002"], "wolf", ("past-000002", "wolf", 1.0)),
        (["policy"], ["past-000002", "past-000002"], "good", ("past-000002", "wolf", 0.0)),
        (["policy"], ["scripted"], "draw", ("scripted", "wolf", 0.5)),
        (["expert", "expert"], ["policy", "policy"], "good", ("expert", "good", 1.0)),
        (["policy"], ["policy"], "good", None),
        (["past-000002"], ["past-000002"], "good", None),
        (["policy"], ["past-000002", "scripted"], "good", None),
        (["policy"], ["policy", "past-000002"], "good", None),
        (["policy", "scripted"], ["past-000002"], "good", None),
    ],
)
def test_a_league_counts_games_of_the_policy_alone_against_one_other(wolves, good, result, expected):
    (seat,) = make_result().seats
    seats = [
        seat.model_copy(update={"side": side, "policy": name})
        for side, names in (("wolf", wolves), ("good", good))
        for name in names
    ]
    found = league_match(make_result(result).model_copy(update={"seats": tuple(seats)}))
    assert found == (None if expected is None else Match(*expected))
