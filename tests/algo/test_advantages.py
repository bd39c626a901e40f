"""Advantages against numbers worked out by hand; which estimators can be used; groups that say nothing."""

import math

import pytest
import torch
from verl.trainer.ppo.core_algos import ADV_ESTIMATOR_REGISTRY

from algo.advantages import check_estimator, seat_advantages
from algo.trajectories import SeatTrajectory
from configs.section import ConfigError
from configs.training import AdvantageConfig

NEEDS_MORE = {"gae", "remax", "optimal_token_baseline", "tir_optimal_token_baseline"}


def seat(game, reward, *, number=1, side="good", group="deal", segment=0, mask=(0, 1, 0, 1)):
    streams = dict(
        token_ids=tuple(range(len(mask))), loss_mask=mask, logprobs=(0.0,) * len(mask), turn_ends=(), turn_versions=()
    )
    identity = dict(game_id=game, group_id=group, seat=number, role="seer", side=side, segment=segment)
    return SeatTrajectory(**identity, **streams, reward=reward)


def values(result):
    """The advantage of each trajectory, which must be the same at all its sampled tokens and 0 elsewhere."""
    return [row.max().item() if row.max() > 0 else row.min().item() for row in result.per_token]


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
    result = seat_advantages(trajectories, AdvantageConfig())
    deviation = 2 / math.sqrt(3)
    wolves = [-4 / 3 / deviation, 2 / 3 / deviation, 2 / 3 / deviation]
    expected = [1, 0, -1, *wolves, 1 / math.sqrt(2), -1 / math.sqrt(2)]
    assert values(result) == pytest.approx(expected, abs=1e-5)
    for row, advantage in zip(result.per_token, expected, strict=True):
        assert row.tolist() == pytest.approx([0, advantage, 0, advantage], abs=1e-5)
    assert result.informative == (True,) * 8
    assert result.metrics["advantage/groups"] == 3
    assert result.metrics["advantage/groups_of_one_game"] == 0


def test_without_the_standard_deviation():
    result = seat_advantages([seat("a", 1.0), seat("b", 0.5), seat("c", 0.0)], AdvantageConfig(normalize_by_std=False))
    assert values(result) == pytest.approx([0.5, 0, -0.5])


def test_segments_share_an_advantage_and_count_once():
    whole = [seat("a", 1.0), seat("b", 0.0), seat("c", 0.0)]
    cut = [
        seat("a", 1.0, segment=1, mask=(0, 1)), whole[1], seat("a", 1.0, segment=2, mask=(0, 1, 1)),
        seat("a", 1.0, segment=0), whole[2],
    ]  # fmt: skip
    expected = values(seat_advantages(whole, AdvantageConfig()))
    found = seat_advantages(cut, AdvantageConfig())
    assert values(found) == pytest.approx([expected[0], expected[1], expected[0], expected[0], expected[2]])
    assert [row.tolist() for row in found.per_token][2] == pytest.approx([0, expected[0], expected[0]])
    assert found.metrics["advantage/seats"] == 3


def test_advantages_that_change_from_token_to_token_follow_the_segments_in_order(monkeypatch):
    def rising(token_level_rewards, response_mask):
        assert token_level_rewards.tolist() == [[0, 0, 0, 2.0, 0], [0, 0, 0, 0, 3.0]]
        return torch.arange(10.0).reshape(2, 5) * response_mask, None

    monkeypatch.setitem(ADV_ESTIMATOR_REGISTRY, "rising", rising)
    trajectories = [
        seat("a", 2.0, segment=1, mask=(0, 1, 0, 1)), seat("b", 3.0, mask=(0, 1, 1, 1, 1, 1)),
        seat("a", 2.0, segment=0, mask=(0, 0, 1, 1)),
    ]  # fmt: skip
    result = seat_advantages(trajectories, AdvantageConfig(estimator="rising"))
    assert [row.tolist() for row in result.per_token] == [[0, 2, 0, 3], [0, 5, 6, 7, 8, 9], [0, 0, 0, 1]]


def test_groups_that_say_nothing_get_zero_and_are_counted():
    trajectories = [
        # One game only, though its two seats differ.
        seat("a", 1.0, group="lone"), seat("a", 0.9, group="lone", number=2),
        # Equal rewards, whose mean in float32 is not exactly their value.
        *(seat(game, -0.95, group="equal") for game in "bcd"),
        seat("e", 1.0), seat("f", -1.0),
    ]  # fmt: skip
    result = seat_advantages(trajectories, AdvantageConfig())
    assert values(result) == pytest.approx([0] * 5 + [1 / math.sqrt(2), -1 / math.sqrt(2)], abs=1e-5)
    assert all(not row.any() for row in result.per_token[:5])
    assert result.informative == (False,) * 5 + (True,) * 2
    assert result.metrics == {
        "advantage/groups": 3, "advantage/groups_of_one_game": 1, "advantage/groups_of_equal_rewards": 1,
        "advantage/seats": 7, "advantage/seats_without_information": 5,
        "advantage/reward_mean": pytest.approx((1.9 - 2.85) / 7),
        "advantage/reward_std": pytest.approx(torch.tensor([1, 0.9, -0.95, -0.95, -0.95, 1, -1]).std(correction=0)),
    }  # fmt: skip


def test_rewards_that_differ_by_rounding_are_equal():
    """Shaped rewards are sums of fractions; a last digit must not be blown up to an advantage of one."""
    almost = [seat(game, reward) for game, reward in [("a", 0.1 + 0.2), ("b", 0.3), ("c", 0.3 + 5e-7)]]
    result = seat_advantages(almost, AdvantageConfig())
    assert result.informative == (False,) * 3 and not any(row.any() for row in result.per_token)
    told = seat_advantages([*almost[:2], seat("c", 0.31)], AdvantageConfig())
    assert told.informative == (True,) * 3 and told.per_token[2].max() > 1


def test_nothing_but_silent_groups_and_nothing_at_all():
    result = seat_advantages([seat("a", 1.0)], AdvantageConfig())
    assert not result.per_token[0].any() and result.informative == (False,)
    assert seat_advantages([], AdvantageConfig()).per_token == []


@pytest.mark.parametrize("name", sorted(set(ADV_ESTIMATOR_REGISTRY) - NEEDS_MORE))
def test_every_other_estimator_of_verl_rewards_the_better_game(name):
    trajectories = [seat(game, reward, mask=(0, 1) + (1,) * int(reward * 2 + 2)) for game, reward in
                    [("a", 1.0), ("b", 0.5), ("c", -1.0)]]  # fmt: skip
    result = seat_advantages(trajectories, AdvantageConfig(estimator=name))
    assert result.per_token[0].max() > 0 and result.per_token[0].max() > result.per_token[2].max()
    for row, one in zip(result.per_token, trajectories, strict=True):
        assert not row[torch.tensor(one.loss_mask) == 0].any()


def test_an_estimator_that_is_not_there_or_needs_more_is_refused():
    with pytest.raises(ConfigError, match=r"'gpro' is not registered in verl; registered: .*grpo"):
        check_estimator("gpro")
    with pytest.raises(ConfigError, match=r"'gae' cannot be used: it needs a critic"):
        seat_advantages([seat("a", 1.0)], AdvantageConfig(estimator="gae"))
    for name in NEEDS_MORE:
        with pytest.raises(ConfigError, match="cannot be used"):
            check_estimator(name)


def test_segments_that_disagree_are_refused():
    with pytest.raises(ValueError, match="game a, seat 1: its segments differ"):
        seat_advantages([seat("a", 1.0), seat("a", 0.5, segment=1)], AdvantageConfig())
    with pytest.raises(ValueError, match="game a, seat 1: a segment occurs twice"):
        seat_advantages([seat("a", 1.0), seat("a", 1.0)], AdvantageConfig())
