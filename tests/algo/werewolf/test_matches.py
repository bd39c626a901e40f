"""Games between two players: held-out deals, sides swapped, nothing to train on, facts kept of each game."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from algo.league.results import Match
from algo.rollouts.triplets import FinishedRollout
from algo.werewolf.matches import held_out_deals, league_match, match_tasks, record_games
from algo.werewolf.tasks import held_out_deal, step_tasks, training_deal
from runners.werewolf.game import PRESETS, new_game
from runners.werewolf.seating import who_plays
from tests.support.fakes import make_result, make_turn
from tests.support.settings import werewolf_config

CONFIG = werewolf_config(preset="9p", rules={"win_rule": "parity"}, train_sides=("wolf",), opponent="random")
numbers = st.integers(0, 2**63)


@given(numbers, numbers, numbers, numbers, numbers)
def test_no_deal_of_training_is_ever_one_of_evaluation(run_seed, step, group, seed, number):
    trained, held_out = training_deal(run_seed, step, group), held_out_deal(seed, number)
    assert (trained % 2, held_out % 2) == (0, 1)
    assert 0 <= trained < 2**31 and 0 <= held_out < 2**31


def test_what_is_enqueued_keeps_to_its_kind_of_deals():
    config = werewolf_config(groups_per_step=50)
    trained = {task.seed for step in range(20) for task in step_tasks(config, step)}
    evaluated = {task.seed for task in match_tasks("policy", "random", held_out_deals(300, 1), config, "e")}
    assert len(trained) == 1000 and len(evaluated) == 300
    assert {seed % 2 for seed in trained} == {0} and {seed % 2 for seed in evaluated} == {1}


def test_deals_are_different_and_follow_from_the_seed(monkeypatch):
    assert len(set(held_out_deals(500, 1))) == 500
    assert held_out_deals(5, 1) == held_out_deals(9, 1)[:5] != held_out_deals(5, 2)
    monkeypatch.setattr("algo.werewolf.matches.held_out_deal", lambda seed, number: number // 2)
    assert held_out_deals(3, 1) == [0, 1, 2]


def test_each_deal_is_played_with_sides_swapped_and_the_same_cards():
    tasks = match_tasks("policy", "strong", [11, 13], CONFIG, "name")
    assert [task.seed for task in tasks] == [11, 11, 13, 13]
    assert len({task.game_id for task in tasks}) == len({task.sampling_seed for task in tasks}) == 4
    for number, task in enumerate(tasks):
        state = new_game(PRESETS[task.preset], task.seed)
        roles = {seat: state.role_of(seat) for seat in state.preset.seats}
        first_side = ("wolf", "good")[number % 2]
        for seat, name in who_plays(task, roles).items():
            assert name == ("policy" if roles[seat].side.value == first_side else "strong")
        assert (task.preset, task.rules) == ("9p", {"win_rule": "parity"})
        assert task.trainable == frozenset() and task.encode()["trainable"] == []
    assert tasks == match_tasks("policy", "strong", [11, 13], CONFIG, "name")
    others = [*match_tasks("policy", "strong", [11], CONFIG, "b"), *match_tasks("policy", "weak", [11], CONFIG, "name")]
    assert not {task.sampling_seed for task in others} & {task.sampling_seed for task in tasks}


def finished(task, **changes):
    (seat,) = make_result().seats
    seats = (
        seat.model_copy(update={"turns": 3, "invalid_turns": 1, "defaulted_decisions": 1}),
        seat.model_copy(update={"seat": 2, "role": "seer", "side": "good", "policy": "scripted", "turns": 0}),
    )
    result = make_result("good").model_copy(
        update={"game_id": task.game_id, "seed": task.seed, "seats": seats, "days": 3, **changes}
    )
    turns = [make_turn(seat=1, turn=turn, facts={"identity_leak": leak}) for turn, leak in enumerate((1.0, 0.0, 1.0))]
    turns.append(make_turn(seat=2, turn=0, facts={"identity_leak": 1.0}))
    return FinishedRollout("ro", "at", result, tuple(turns), (), Counter())


def test_of_a_finished_game_the_facts_are_kept():
    tasks = match_tasks("policy", "scripted", [11], CONFIG, "name")
    (game,) = record_games(tasks, [finished(tasks[0])])
    assert (game.game_id, game.deal, game.result, game.days) == ("name-policy-scripted-deal000-wolf", 11, "good", 3)
    assert game.players == {"wolf": "policy", "good": "scripted"}
    wolf, seer = game.seats
    assert (wolf.role, wolf.side, wolf.turns, wolf.invalid_turns, wolf.defaulted_decisions) == ("wolf", "wolf", 3, 1, 1)
    assert (wolf.leaks, seer.leaks) == (2, 1)
    assert game.sides_of("policy") == ["wolf"] and game.sides_of("random") == []


def test_a_game_that_was_played_otherwise_is_refused():
    tasks = match_tasks("policy", "scripted", [11], CONFIG, "name")
    with pytest.raises(ValueError, match=r"deal000-wolf was played with deal 12.*task says deal 11"):
        record_games(tasks, [finished(tasks[0], seed=12)])
    with pytest.raises(ValueError, match=r"deal000-good was played with deal 11 and players .*'wolf': 'scripted'"):
        record_games(tasks, [finished(tasks[1])])


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
