"""Scaled advantages: units weigh alike, and nothing is scaled where it would not mean that."""

import pytest
import torch
from verl.trainer.ppo.core_algos import POLICY_LOSS_REGISTRY, get_policy_loss_fn
from verl.workers.config import FSDPActorConfig, PolicyLossConfig

from algo.advantages.credit import PROPORTIONAL_LOSSES, check_credit, weigh_advantages
from configs.section import ConfigError
from configs.sections.training import AdvantageConfig, TrainingConfig
from tests.support.algo.trajectories import made_trajectory


def test_turns_weigh_alike_however_long_they_and_their_sequences_are():
    mask = (0, 1, 0, 1, 1, 1, 0)
    speaking, voting = made_trajectory(mask, task_id="a"), made_trajectory((0, 1), task_id="b")
    rows = [torch.tensor(mask) * 2.0, torch.tensor([0.0, 2.0])]
    weighed = weigh_advantages([speaking, voting], rows, "turn")
    in_loss = [
        [row[start:end].sum().item() / sum(trajectory.loss_mask) for start, end in turns]  # a mean over the sequence
        for row, trajectory, turns in zip(weighed, [speaking, voting], [[(0, 2), (2, 6)], [(0, 2)]], strict=True)
    ]
    assert in_loss == [[pytest.approx(4 / 3)] * 2, [pytest.approx(4 / 3)]]
    assert sum(map(sum, in_loss)) == pytest.approx(2 * 2.0)  # as much as with "sequence"


def test_credit_and_weights_are_refused_where_they_would_not_be_what_they_say():
    by_turn, default = AdvantageConfig(weigh="turn"), TrainingConfig()
    check_credit(by_turn, default)
    check_credit(AdvantageConfig(), TrainingConfig(loss_agg_mode="token-mean", policy_loss="gpg"))
    with pytest.raises(ConfigError, match="weigh=turn needs"):
        check_credit(by_turn, TrainingConfig(loss_agg_mode="token-mean"))
    with pytest.raises(ConfigError, match=r"proportional to the advantage; 'kl_cov' is not: use one of .*vanilla"):
        check_credit(by_turn, TrainingConfig(policy_loss="kl_cov"))
    with pytest.raises(ConfigError, match="credit=branch needs a policy loss"):
        check_credit(AdvantageConfig(credit="branch"), TrainingConfig(policy_loss="kl_cov"))


@pytest.mark.parametrize("name", sorted(set(POLICY_LOSS_REGISTRY) - {"geo_mean", "dro", "bypass_mode"}))
def test_which_losses_of_verl_are_proportional_to_the_advantage(name):
    """Of two rows one is scaled by 2.5: the gradient of its tokens must be, and no other may change."""
    torch.manual_seed(0)
    cov = PolicyLossConfig(loss_mode=name, clip_cov_ratio=0.25, kl_cov_ratio=0.25)
    config = FSDPActorConfig(strategy="fsdp2", rollout_n=1, ppo_micro_batch_size_per_gpu=2, policy_loss=cov)
    config.global_batch_info.update(dp_size=1, batch_num_tokens=200, global_batch_size=2, loss_scale_factor=None)
    old, new, advantages = torch.randn(2, 100) - 2, torch.randn(2, 100) - 2, 2 * torch.randn(2, 100)

    def gradient(factors):
        log_prob = new.clone().requires_grad_()
        torch.manual_seed(1)
        loss, _ = get_policy_loss_fn(name)(
            old_log_prob=old, log_prob=log_prob, advantages=advantages * torch.tensor(factors)[:, None],
            response_mask=torch.ones(2, 100), loss_agg_mode="seq-mean-token-mean", config=config,
        )  # fmt: skip
        loss.backward()
        return log_prob.grad

    scaled = torch.allclose(gradient([2.5, 1.0]), gradient([1.0, 1.0]) * torch.tensor([2.5, 1.0])[:, None], atol=1e-6)
    assert scaled == (name in PROPORTIONAL_LOSSES)
