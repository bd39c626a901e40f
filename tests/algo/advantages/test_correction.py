"""Importance weights and rejections against numbers worked out by hand, at the tokens that they belong to."""

import math
from collections import Counter

import pytest
import torch

from algo.advantages.correction import REJECTED, apply_rollout_correction, check_correction
from configs.section import ConfigError
from configs.sections.training import RolloutCorrectionConfig
from tests.support.algo.trajectories import made_trajectory

MASK = (0, 1, 0, 1, 1)


def sequence(game, logprobs=(0.0, -1.0, 0.0, -2.0, -3.0), mask=MASK, ends=(2, 5), versions=(3, 4)):
    rewards = tuple(0.5 + number for number in range(len(ends)))
    return made_trajectory(mask, task_id=game, logprobs=logprobs, turn_versions=versions, turn_rewards=rewards)


def log_probs(trajectory, *ratios):
    """Present log-probs of which the sampled tokens are ``ratios`` times as likely; nonsense at given tokens."""
    row = torch.full((len(trajectory.token_ids),), 77.0)
    sampled = torch.tensor(trajectory.loss_mask, dtype=torch.bool)
    row[sampled] = torch.tensor(trajectory.logprobs)[sampled] + torch.tensor(ratios).log()
    return row


LONG, SHORT = sequence("a"), sequence("b", (0.0, 0.0, -0.5), (0, 0, 1), (3,), (5,))


def test_without_a_correction_everything_stays_and_the_lag_is_told():
    found = apply_rollout_correction(
        [LONG, SHORT], [log_probs(LONG, 4.0, 1.0, 1.0), log_probs(SHORT, 1.0)], 5, RolloutCorrectionConfig()
    )
    assert found.rows == (0, 1) and found.trajectories == (LONG, SHORT) and found.importance_weights is None
    assert found.left_out == Counter()
    # One token two updates old, two one update old, and one of today.
    assert found.metrics["policy_lag/mean"] == (2 + 1 + 1 + 0) / 4 and found.metrics["policy_lag/max"] == 2
    # E[log p_rollout - log p_now] over the four sampled tokens.
    assert found.metrics["rollout_corr/kl"] == pytest.approx(-math.log(4) / 4)
    with pytest.raises(ValueError, match="shorter"):
        apply_rollout_correction([LONG, SHORT], [log_probs(LONG, 1.0, 1.0, 1.0)], 0, RolloutCorrectionConfig())


def test_token_weights_are_ratios_cut_at_the_threshold():
    config = RolloutCorrectionConfig(rollout_is="token", rollout_is_threshold=2.0)
    found = apply_rollout_correction([LONG, SHORT], [log_probs(LONG, 4.0, 0.5, 1.5), log_probs(SHORT, 0.25)], 5, config)
    assert [row.tolist() for row in found.importance_weights] == [
        pytest.approx([0, 2.0, 0, 0.5, 1.5]), pytest.approx([0, 0, 0.25])
    ]  # fmt: skip
    assert found.trajectories == (LONG, SHORT)
    assert found.metrics["rollout_corr/rollout_is_mean"] == pytest.approx((2 + 0.5 + 1.5 + 0.25) / 4)


def test_a_rejected_token_counts_as_given():
    config = RolloutCorrectionConfig(rollout_is="token", rollout_rs="token_k1", rollout_rs_threshold="0.5_2.0")
    found = apply_rollout_correction([LONG], [log_probs(LONG, 1.0, 1.5, 4.0)], 4, config)
    (left,) = found.trajectories
    assert left.loss_mask == (0, 1, 0, 1, 0) and left.logprobs == (0, -1, 0, -2, 0) and left.token_ids == LONG.token_ids
    assert left.turn_ends == (2, 4) and left.turn_versions == (3, 4) and left.turn_rewards == (0.5, 1.5)
    assert found.importance_weights[0].tolist() == pytest.approx([0, 1.0, 0, 1.5, 0])
    assert found.left_out == Counter()
    assert found.metrics["rollout_corr/rollout_rs_masked_fraction"] == pytest.approx(1 / 3)


def test_turns_and_sequences_of_which_nothing_is_left_are_counted():
    config = RolloutCorrectionConfig(rollout_rs="token_k1", rollout_rs_threshold="0.5_2.0")
    others = [sequence("c"), sequence("d")]
    found = apply_rollout_correction(
        [LONG, SHORT, *others],
        [
            log_probs(LONG, 3.0, 1.0, 1.0), log_probs(SHORT, 0.1), log_probs(others[0], 5.0, 5.0, 5.0),
            log_probs(others[1], 1.0, 1.0, 1.0),
        ],
        4,
        config,
    )  # fmt: skip
    assert found.rows == (0, 3)
    assert found.trajectories[0].loss_mask == (0, 0, 0, 1, 1)
    assert found.trajectories[0].turn_ends == (5,) and found.trajectories[0].turn_versions == (4,)
    assert found.trajectories[0].turn_rewards == (1.5,)
    assert found.trajectories[1] == others[1]
    assert found.left_out == Counter({REJECTED: 1 + 1 + 2})


def test_what_verl_does_not_know_is_refused():
    check_correction(
        RolloutCorrectionConfig(rollout_is="token", rollout_rs="token_k1,seq_mean_k3", rollout_rs_threshold="0.5_2,0.1")
    )
    for name, threshold in (("token_k4", 2.0), ("seq_mean_k3", "0.5_2.0"), ("token_k1", "2.0_0.5")):
        with pytest.raises(ConfigError, match=r"training\.rollout_correction: "):
            check_correction(RolloutCorrectionConfig(rollout_rs=name, rollout_rs_threshold=threshold))
