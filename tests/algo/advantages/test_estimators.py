"""Advantages against numbers worked out by hand; which estimators can be used; groups that say nothing."""

import json
import math
from dataclasses import replace

import pytest
import torch
from verl.trainer.ppo.core_algos import ADV_ESTIMATOR_REGISTRY

from algo.advantages.baseline import RoleBaselines
from algo.advantages.credit import check_credit
from algo.advantages.estimators import token_advantages
from algo.advantages.registry import ESTIMATORS, check_estimator
from configs.section import ConfigError
from configs.sections.training import AdvantageConfig, TrainingConfig
from tests.support.algo.trajectories import made_trajectory

REFUSED = {"remax", "optimal_token_baseline", "tir_optimal_token_baseline", "rloo", "rloo_vectorized", "grpo_passk"}


def seat(
    game, reward, *, number=1, side="good", group="deal", segment=0, mask=(0, 1, 0, 1), role="seer", turns=(), asked=()
):
    """turns: reward of each turn; every run of sampled tokens is one. asked: the question of each."""
    who = dict(task_id=game, group_id=group, actor=f"seat {number:02d}", role=role, side=side, segment=segment)
    return made_trajectory(mask, **who, reward=reward, turn_rewards=turns, turn_questions=asked)


def rows_of(result):
    return [row.tolist() for row in result.per_token]


def values(result, mask=(0, 1, 0, 1)):
    """The advantage of each trajectory, which must be the same at all its sampled tokens and 0 elsewhere."""
    for row in result.per_token:
        sampled = [value for value, own in zip(row.tolist(), mask, strict=True) if own]
        assert len(set(sampled)) == 1 and not any(value for value, own in zip(row.tolist(), mask) if not own)  # noqa: B905
    return [row[mask.index(1)].item() for row in result.per_token]


def test_grpo_by_hand_with_a_baseline_per_deal_and_side():
    trajectories = [
        # One deal, good side, three games: mean 0, sample standard deviation 1.
        seat("a", 1.0), seat("b", 0.0), seat("c", -1.0),
        # The wolves of the same games: mean 1/3, deviation 2/sqrt(3).
        seat("a", -1.0, number=2, side="wolf"), seat("b", 1.0, number=2, side="wolf"),
        seat("c", 1.0, number=2, side="wolf"),
        # Another deal: mean 0, deviation sqrt(2).
        seat("d", 1.0, group="other"), seat("e", -1.0, group="other"),
    ]  # fmt: skip
    result = token_advantages(trajectories, AdvantageConfig())
    deviation = 2 / math.sqrt(3)
    wolves = [-4 / 3 / deviation, 2 / 3 / deviation, 2 / 3 / deviation]
    expected = [1, 0, -1, *wolves, 1 / math.sqrt(2), -1 / math.sqrt(2)]
    assert values(result) == pytest.approx(expected, abs=1e-5)
    for row, advantage in zip(result.per_token, expected, strict=True):
        assert row.tolist() == pytest.approx([0, advantage, 0, advantage], abs=1e-5)
    assert result.informative == (True,) * 8
    assert result.metrics["advantage/groups"] == 3
    assert result.metrics["advantage/groups_of_one_rollout"] == 0


def test_groups_that_say_nothing_get_zero_and_are_counted():
    trajectories = [
        # One game only, though its two seats differ.
        seat("a", 1.0, group="lone"), seat("a", 0.9, group="lone", number=2),
        # Sums of fractions that differ in a last digit, which must not be blown up to an advantage of one.
        *(seat(game, reward, group="equal") for game, reward in [("b", 0.1 + 0.2), ("c", 0.3), ("d", 0.3 + 5e-7)]),
        seat("e", 1.0), seat("f", -1.0),
    ]  # fmt: skip
    result = token_advantages(trajectories, AdvantageConfig())
    assert values(result) == pytest.approx([0] * 5 + [1 / math.sqrt(2), -1 / math.sqrt(2)], abs=1e-5)
    assert all(not row.any() for row in result.per_token[:5])
    assert result.informative == (False,) * 5 + (True,) * 2
    assert token_advantages([], AdvantageConfig(estimator="gae")).returns == []
    assert result.metrics == {
        "advantage/groups": 3, "advantage/groups_of_one_rollout": 1, "advantage/groups_of_equal_rewards": 1,
        "advantage/actors": 7, "advantage/actors_without_information": 5,
        "advantage/reward_mean": pytest.approx((1.9 + 0.9) / 7),
        "advantage/reward_std": pytest.approx(torch.tensor([1, 0.9, 0.3, 0.3, 0.3, 1, -1]).std(correction=0)),
        # Of the rows that say something.
        "advantage/good/mean": pytest.approx(0, abs=1e-6),
        "advantage/good/std": pytest.approx(1 / math.sqrt(2), abs=1e-5),
        "advantage/good/abs_max": pytest.approx(1 / math.sqrt(2), abs=1e-5),
    }  # fmt: skip


def test_a_small_difference_of_rewards_says_something():
    told = token_advantages([seat("a", 0.3), seat("b", 0.3), seat("c", 0.31)], AdvantageConfig())
    assert told.informative == (True,) * 3 and told.per_token[2].max() > 1


@pytest.mark.parametrize("name", sorted(ESTIMATORS.keys() - {"gae", "role_baseline"}))
def test_every_other_estimator_of_verl_rewards_the_better_game(name):
    trajectories = [seat(game, reward, mask=(0, 1) + (1,) * int(reward * 2 + 2)) for game, reward in
                    [("a", 1.0), ("b", 0.5), ("c", -1.0)]]  # fmt: skip
    result = token_advantages(trajectories, AdvantageConfig(estimator=name))
    assert result.per_token[0].max() > 0 and result.per_token[0].max() > result.per_token[2].max()
    for row, one in zip(result.per_token, trajectories, strict=True):
        assert not row[torch.tensor(one.loss_mask) == 0].any()


@pytest.mark.parametrize("name", sorted(name for name, one in ESTIMATORS.items() if one.groups))
def test_credit_by_turn_is_refused_where_other_groups_scale_a_groups_outcomes(name):
    group = [seat("a", 1.0), seat("b", 0.0), seat("c", -0.5)]
    others = [seat("d", 3.0, group="other"), seat("e", 0.0, group="other")]
    alone, among = (values(token_advantages(rows, AdvantageConfig(estimator=name))) for rows in (group, group + others))
    by_turn = AdvantageConfig(estimator=name, credit="turn")
    if alone == pytest.approx(among[:3], abs=1e-5):
        check_credit(by_turn, TrainingConfig())
    else:
        with pytest.raises(ConfigError, match="credit=turn does not work"):
            check_credit(by_turn, TrainingConfig())


def test_an_estimator_that_is_not_there_or_needs_more_is_refused():
    for name in (*REFUSED, "gpro"):
        with pytest.raises(ConfigError, match="cannot be used"):
            check_estimator(name)
    # verl has no other: a new version of verl may add one, which then must be listed or refused.
    assert ADV_ESTIMATOR_REGISTRY.keys() == REFUSED | (ESTIMATORS.keys() - {"role_baseline"})


def test_what_is_standardised_over_the_batch_is_so_within_a_side():
    """A side that nearly always wins must not be encouraged for being that side."""
    good = [seat(game, reward) for game, reward in [("a", 1.0), ("b", -1.0)]]
    wolves = [seat(game, reward, side="wolf", number=2) for game, reward in [("a", 5.0), ("b", 7.0)]]
    config = AdvantageConfig(estimator="reinforce_plus_plus")
    together, alone = token_advantages([*good, *wolves], config), token_advantages(good, config)
    assert values(together)[:2] == pytest.approx(values(alone))
    assert values(together)[2:] == pytest.approx([-values(alone)[0], values(alone)[0]])
    same = token_advantages([*good, *(seat(game, 5.0, side="wolf", number=2) for game in "ab")], config)
    assert same.informative == (True, True, False, False) and values(same)[2:] == [0, 0]
    # A discount tells tokens apart even where all rewards are equal.
    discounted = token_advantages([seat("a", 1.0)], AdvantageConfig(estimator="reinforce_plus_plus", gamma=0.5))
    assert discounted.informative == (True,) and discounted.per_token[0][3] > 0 > discounted.per_token[0][1]


def test_gae_by_hand_over_segments():
    gamma, lam = 0.9, 0.8
    # One seat, two segments in the wrong order; the value at given tokens (9) must not matter.
    trajectories = [seat("a", 1.0, segment=1, mask=(0, 1)), seat("a", 1.0, segment=0, mask=(0, 1, 0, 1))]
    given = [[9.0, 0.5], [9.0, 0.1, 9.0, 0.4]]
    config = AdvantageConfig(estimator="gae", gamma=gamma, lam=lam)
    result = token_advantages(trajectories, config, values=given)
    third = 1.0 - 0.5
    second = (gamma * 0.5 - 0.4) + gamma * lam * third
    first = (gamma * 0.4 - 0.1) + gamma * lam * second
    raw = torch.tensor([first, second, third])
    white = ((raw - raw.mean()) / (raw.var() + 1e-8).sqrt()).tolist()
    assert rows_of(result)[0] == pytest.approx([0, white[2]], abs=1e-5)
    assert rows_of(result)[1] == pytest.approx([0, white[0], 0, white[1]], abs=1e-5)
    assert result.returns[0].tolist() == pytest.approx([0, third + 0.5])
    assert result.returns[1].tolist() == pytest.approx([0, first + 0.1, 0, second + 0.4])
    assert token_advantages(trajectories, AdvantageConfig()).returns is None
    lone = token_advantages([seat("a", 1.0, mask=(0, 1))], config, values=[[0.0, 0.5]])
    assert lone.informative == (False,) and rows_of(lone) == [[0, 0]]


def test_a_kl_penalty_is_taken_from_the_reward_at_its_token():
    trajectories = [seat("a", 1.0), seat("b", 0.0)]
    penalties = [[7.0, 0.25, 7.0, 0.5], [7.0, 0.0, 7.0, 0.125]]
    config = AdvantageConfig(estimator="gae", gamma=1.0, lam=1.0)
    result = token_advantages(trajectories, config, kl_penalties=penalties, values=[[0.0] * 4] * 2)
    # Without values, undiscounted, a return is what is still to come.
    assert [row.tolist() for row in result.returns] == [[0, 0.25, 0, 0.5], [0, -0.125, 0, -0.125]]
    outcome = token_advantages(trajectories, AdvantageConfig(normalize_by_std=False), kl_penalties=penalties)
    assert values(outcome) == pytest.approx([0.1875, -0.1875])
    # Equal rewards stay equal: GRPO would make an advantage of one out of any difference in KL.
    equal = token_advantages([seat("a", 1.0), seat("b", 1.0)], AdvantageConfig(), kl_penalties=penalties)
    assert equal.informative == (False, False) and values(equal) == [0, 0]


def test_credit_to_the_turn_where_outcomes_or_turns_are_equal():
    config = AdvantageConfig(credit="turn")
    same_outcome = [seat("a", -0.95, turns=(-0.05, 0.1)), seat("b", -1.0, turns=(0.0, 0.0))]
    result = token_advantages(same_outcome, config)
    assert result.informative == (True, True)
    assert rows_of(result)[0] == pytest.approx([0, -0.0625, 0, 0.0875])
    assert rows_of(result)[1] == pytest.approx([0, -0.0125, 0, -0.0125])
    # As games they earn the same; as turns they do not.
    same_sum = [seat("a", 1.0, turns=(-0.5, 0.5)), seat("b", 1.0, turns=(0.0, 0.0))]
    assert token_advantages(same_sum, AdvantageConfig()).informative == (False, False)
    assert token_advantages(same_sum, config).informative == (True, True)
    same = [seat("a", 0.9, turns=(-0.1, -0.1)), seat("b", 0.9, turns=(-0.1, -0.1))]
    silent = token_advantages(same, config)
    assert silent.informative == (False, False) and not any(row.any() for row in silent.per_token)
    same_turns = token_advantages([same[0], seat("b", -0.9, turns=(-0.1, -0.1))], config)
    assert values(same_turns) == pytest.approx([1 / math.sqrt(2), -1 / math.sqrt(2)], abs=1e-5)


def test_turns_of_several_segments_and_of_none():
    config = AdvantageConfig(credit="turn", normalize_by_std=False)
    # The seat earned 1.0 + 0.4 in turns that are here, and 0.6 in one that is in no trajectory.
    trajectories = [
        seat("a", 2.0, segment=1, mask=(0, 1, 1), turns=(0.4,)), seat("a", 2.0, segment=0, turns=(0.0, 0.0)),
        seat("b", 0.0, turns=()),
    ]  # fmt: skip
    result = token_advantages(trajectories, config)
    mean = 0.4 / 3
    assert rows_of(result)[0] == pytest.approx([0, 0.8 + 0.4 - mean, 0.8 + 0.4 - mean])
    assert rows_of(result)[1] == pytest.approx([0, 0.8 - mean, 0, 0.8 - mean])
    assert rows_of(result)[2] == pytest.approx([0, -0.8, 0, -0.8])


def test_credit_to_the_turn_with_an_estimator_of_returns():
    """A return is what is still to come: a turn's reward counts for it and the turns before."""
    trajectories = [seat("a", 1.3, mask=(0, 1, 1, 0, 1), turns=(0.2, 0.1)), seat("b", -1.0, turns=(0.0, 0.0))]
    config = AdvantageConfig(estimator="gae", credit="turn")
    result = token_advantages(trajectories, config, values=[[0.0] * 5, [0.0] * 4])
    assert result.returns[0].tolist() == pytest.approx([0, 1.3, 1.3, 0, 1.1])
    by_game = token_advantages(
        trajectories, config.model_copy(update={"credit": "game"}), values=[[0.0] * 5, [0.0] * 4]
    )
    assert by_game.returns[0].tolist() == pytest.approx([0, 1.3, 1.3, 0, 1.3])
    white = token_advantages(trajectories, AdvantageConfig(estimator="reinforce_plus_plus", credit="turn"))
    raw = torch.tensor([1.3, 1.3, 1.1, -1.0, -1.0])
    expected = ((raw - raw.mean()) / raw.std()).tolist()
    assert rows_of(white)[0] == pytest.approx([0, *expected[:2], 0, expected[2]], abs=1e-5)


def test_a_role_is_compared_with_what_it_earned_before():
    config = AdvantageConfig(estimator="role_baseline", role_baseline_decay=0.75, normalize_by_std=False)
    baselines = RoleBaselines(config.role_baseline_decay)
    wolf = dict(role="wolf", side="wolf", number=2)
    # Every game has a deal of its own.
    first = [seat("a", 1.0, group="1"), seat("b", -1.0, group="2"), seat("a", 3.0, group="1", **wolf)]
    result = token_advantages(first, config, role_baselines=baselines)
    assert values(result) == pytest.approx([1, -1, 0])  # the first step's own mean
    assert result.informative == (True, True, False)
    second = [seat("c", 1.0), seat("c", 1.0, **wolf)]
    result = token_advantages(second, config, role_baselines=baselines)
    assert values(result) == pytest.approx([1 - 0, 1 - 3])
    assert result.metrics["advantage/baseline/seer"] == 0 and result.metrics["advantage/baseline/wolf"] == 3
    third = token_advantages(second, config, role_baselines=baselines)
    assert values(third) == pytest.approx([1 - 0.25, 1 - 2.5])


def test_a_role_baseline_divides_by_the_running_deviation():
    config = AdvantageConfig(estimator="role_baseline", role_baseline_decay=0.75)
    baselines = RoleBaselines(0.75)
    silent = token_advantages([seat("a", -1.0), seat("b", -1.0)], config, role_baselines=baselines)
    assert silent.informative == (False, False) and not silent.per_token[0].any()
    # The deviation was zero so far; a surprise counts in it at once: sqrt(0.25 * (2^2 + 0^2) / 2).
    surprise = token_advantages([seat("c", 1.0), seat("d", -1.0)], config, role_baselines=baselines)
    assert values(surprise) == pytest.approx([2 / math.sqrt(0.5), 0], abs=1e-4)
    assert surprise.informative == (True, True)


def test_credit_to_the_turn_with_a_role_baseline():
    config = AdvantageConfig(estimator="role_baseline", credit="turn", normalize_by_std=False)
    baselines = RoleBaselines(config.role_baseline_decay)
    token_advantages([seat("a", 1.3, turns=(0.1, 0.2))], config, role_baselines=baselines)
    result = token_advantages([seat("b", -1.0, turns=(0.0, -0.5))], config, role_baselines=baselines)
    assert rows_of(result)[0] == pytest.approx([0, (-0.5 - 1) + (0 - 0.15), 0, (-0.5 - 1) + (-0.5 - 0.15)])
    # With the outcome as expected, only the turns differ.
    same = AdvantageConfig(estimator="role_baseline", credit="turn")
    first = token_advantages([seat("a", 1.5, turns=(0.0, 0.5))], same, role_baselines=RoleBaselines(0.9))
    assert rows_of(first)[0] == pytest.approx([0, -0.25, 0, 0.25])
    # Later steps divide turn rewards by the running deviation of outcomes: sqrt(0.9 * 0 + 0.1 * 2^2).
    baselines = RoleBaselines(0.9)
    token_advantages([seat("a", 1.0, turns=(0.0, 0.0))], same, role_baselines=baselines)
    second = token_advantages([seat("b", -1.3, turns=(-0.3, 0.0))], same, role_baselines=baselines)
    deviation = math.sqrt(0.1 * 4)
    assert rows_of(second)[0] == pytest.approx([0, (-2 - 0.3) / deviation, 0, -2 / deviation], abs=1e-4)


def test_rewards_of_turns_are_not_divided_by_the_deviation_of_outcomes_that_hardly_deviate():
    """A role that always loses, and once wins: its outcomes deviate by 0.15, its votes by almost 0.5."""
    config, baselines = AdvantageConfig(estimator="role_baseline", credit="turn"), RoleBaselines(0.9)
    lost = [
        seat(str(number), -0.3 + number % 2, turns=(0.0, number % 2), asked=("speech", "vote")) for number in range(16)
    ]
    for _ in range(40):
        result = token_advantages(lost, config, role_baselines=baselines)
    assert result.metrics["advantage/deviation/seer"] == pytest.approx(math.sqrt(0.25 / 2))
    # As long as it loses, rewards of turns are not divided: one penalty among many turns deviates by almost nothing.
    assert max(abs(value) for row in rows_of(result) for value in row) == pytest.approx(0.5)
    won = replace(lost[0], task_id="won", reward=lost[0].reward + 0.6)
    result = token_advantages([*lost[1:], won], config, role_baselines=baselines)
    assert max(abs(value) for row in rows_of(result) for value in row) < 4


def test_a_kl_in_the_reward_tells_nothing_where_all_outcomes_are_equal():
    penalties = [[0.0, 1e-5 * number, 0.0, 0.0] for number in range(2)]
    for estimator in ("role_baseline", "reinforce_plus_plus"):
        rows = [seat("a", -1.0), seat("b", -1.0)]
        result = token_advantages(
            rows, AdvantageConfig(estimator=estimator), role_baselines=RoleBaselines(0.9), kl_penalties=penalties
        )
        assert result.informative == (False, False) and not any(map(any, rows_of(result)))


def test_a_role_baseline_compares_answers_to_the_same_question():
    """What votes can earn says nothing about speeches, which cannot: all that differs here is one vote."""
    baselines, config = RoleBaselines(0.5), AdvantageConfig(estimator="role_baseline", credit="turn")
    asked = ("speech", "exile_vote")
    hit, miss = seat("a", 2.0, turns=(0.0, 1.0), asked=asked), seat("b", 1.0, turns=(0.0, 0.0), asked=asked)
    result = token_advantages([hit, miss], config, role_baselines=baselines)
    assert rows_of(result) == [pytest.approx([0, 0, 0, 0.5]), pytest.approx([0, 0, 0, -0.5])]
    later = token_advantages([replace(hit, task_id="c")], config, role_baselines=baselines)
    assert rows_of(later)[0] == pytest.approx([0, 0, 0, 0.5])


def test_turn_rewards_are_divided_by_the_deviation_that_the_estimator_divides_by():
    """With penalties the outcomes are 0.5 and -2: deviation 2.5 / sqrt(2)."""
    trajectories = [seat("a", 1.1, turns=(0.0, 0.1)), seat("b", -1.0, turns=(0.0, 0.0))]
    penalties = [[0.0, 0.25, 0.0, 0.25], [0.0, 0.5, 0.0, 0.5]]
    result = token_advantages(trajectories, AdvantageConfig(credit="turn"), kl_penalties=penalties)
    deviation = 2.5 / math.sqrt(2)
    first, second = (1.25 - 0.025) / deviation, (1.25 + 0.075) / deviation
    assert rows_of(result)[0] == pytest.approx([0, first, 0, second], abs=1e-5)


def test_a_state_continues_exactly():
    baselines = RoleBaselines(decay=0.9)
    baselines.compare({"seer": [1.0, -0.3], "wolf": [0.1]})
    state = json.loads(json.dumps(baselines.state()))
    restored = RoleBaselines.from_state(state, decay=0.9)
    rewards = {"seer": [0.7], "guard": [1.0]}
    assert restored.compare(rewards) == baselines.compare(rewards)
    assert restored.state() == baselines.state() != state
