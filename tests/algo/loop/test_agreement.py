"""vLLM against the trainer: what counts as the same policy."""

from dataclasses import replace

import pytest
import torch

from algo.loop.agreement import (
    PROBE_TOKENS,
    WeightsNotServed,
    check_agreement,
    logprob_agreement,
    probe_of,
    score_probe,
)
from algo.sequences.trajectories import Trajectory
from configs.loading import load_config
from configs.werewolf import WerewolfConfig


def trajectory(token_ids, loss_mask, logprobs):
    return Trajectory(
        task_id="g",
        group_id="d",
        actor="seat 01",
        role="wolf",
        side="wolf",
        segment=0,
        token_ids=token_ids,
        loss_mask=loss_mask,
        logprobs=logprobs,
        turn_ends=(len(token_ids),),
        turn_versions=(0,),
        reward=0.0,
    )


PLAYED = trajectory((5, 6, 7, 8), (0, 0, 1, 1), (0.0, 0.0, -1.0, -3.0))


def test_only_sampled_tokens_are_compared():
    recomputed = torch.tensor([9.0, 9.0, -1.0, -3.5])
    found = logprob_agreement([PLAYED], [recomputed], 0)
    assert found["logprobs/rollout_difference_max"] == pytest.approx(0.5)
    assert found["logprobs/rollout_difference_mean"] == pytest.approx(0.25)


def test_what_older_weights_sampled_is_not_compared():
    both = replace(PLAYED, turn_ends=(3, 4), turn_versions=(1, 2))
    recomputed = torch.tensor([0.0, 0.0, -1.25, -3.5])
    assert logprob_agreement([both], [recomputed], 2)["logprobs/rollout_difference_max"] == pytest.approx(0.5)
    assert logprob_agreement([both], [recomputed], 1)["logprobs/rollout_difference_max"] == pytest.approx(0.25)
    assert logprob_agreement([both], [recomputed], 3) == {}


def test_log_probs_out_of_line_by_one_token_end_the_run():
    shifted = torch.tensor([0.0, -1.0, -3.0, 0.0])
    difference = logprob_agreement([PLAYED], [shifted], 0)["logprobs/rollout_difference_max"]
    with pytest.raises(WeightsNotServed, match=r"serving\.logprob_tolerance"):
        check_agreement(WerewolfConfig(), difference, "log-probs")


@pytest.mark.parametrize(
    ("override", "difference", "agrees"),
    [
        ("model.dtype=float32", 1e-4, True),
        ("model.dtype=float32", 1e-2, False),
        ("model.dtype=bfloat16", 1e-2, True),
        ("serving.logprob_tolerance=0.00001", 1e-4, False),
        ("model.dtype=float32", float("nan"), False),
    ],
)
def test_what_is_allowed_follows_the_precision(override, difference, agrees):
    config = load_config(None, [override])
    if agrees:
        check_agreement(config, difference, "log-probs")
    else:
        with pytest.raises(WeightsNotServed):
            check_agreement(config, difference, "log-probs")


def test_a_probe_is_bounded_and_counts_every_token_but_the_first():
    probe = probe_of(range(1000))
    assert len(probe.token_ids) == PROBE_TOKENS and sum(probe.loss_mask) == PROBE_TOKENS - 1


async def test_one_server_with_other_weights_is_noticed():
    class FakeServing:
        async def scores(self, token_ids):
            return [[-1.0, -2.0, -3.0], [-1.0, -2.0, -3.0 + off]]

    probe, off = PLAYED.token_ids, 0.0005
    served, difference = await score_probe(
        WerewolfConfig(), FakeServing(), probe, torch.tensor([0.0, -1.0, -2.0, -3.0])
    )
    assert served == [-1.0, -2.0, -3.0] and difference == pytest.approx(off, abs=1e-6)
    off = 0.1
    with pytest.raises(WeightsNotServed, match="probe"):
        await score_probe(WerewolfConfig(), FakeServing(), probe, torch.tensor([0.0, -1.0, -2.0, -3.0]))
