"""vLLM against the trainer: what counts as the same policy."""

from dataclasses import replace

import pytest
import torch

from algo.loop.agreement import LogProbMismatch, check_agreement, logprob_agreement, measure_differences, score_probe
from configs.loading import load_config
from configs.werewolf import WerewolfConfig
from tests.support.algo.trajectories import made_trajectory

PLAYED = made_trajectory((0, 0, 1, 1), token_ids=(5, 6, 7, 8), logprobs=(0.0, 0.0, -1.0, -3.0))


def test_only_sampled_tokens_are_compared_and_none_that_older_weights_sampled():
    found = logprob_agreement([PLAYED], [torch.tensor([9.0, 9.0, -1.0, -3.5])], 0)
    assert (found["max"], found["mean"]) == pytest.approx((0.5, 0.25))
    both = replace(PLAYED, turn_ends=(3, 4), turn_versions=(1, 2))
    recomputed = torch.tensor([0.0, 0.0, -1.25, -3.5])
    assert logprob_agreement([both], [recomputed], 2)["max"] == pytest.approx(0.5)
    assert logprob_agreement([both], [recomputed], 1)["max"] == pytest.approx(0.25)
    assert logprob_agreement([both], [recomputed], 3) == {}
    assert measure_differences(some(0.001, -16.0))["max"] == 16.0


def constant(difference):
    return torch.full((1000,), difference)


def some(share, difference):
    return torch.cat([torch.full((round(1000 * share),), difference), torch.zeros(round(1000 * (1 - share)))])


@pytest.mark.parametrize(
    ("override", "differences", "beyond"),
    [
        ("model.dtype=float32", constant(1e-5), None),
        ("model.dtype=float32", some(0.001, 16.0), None),
        ("model.dtype=bfloat16", some(0.001, -16.0), None),
        ("model.dtype=float32", constant(1e-2), "mean"),
        ("model.dtype=bfloat16", constant(1e-2), None),
        ("model.dtype=bfloat16", -constant(0.06), "the mean difference"),
        ("model.dtype=bfloat16", some(0.02, 0.7), "99 % quantile"),
        ("model.dtype=bfloat16", some(0.08, 0.45), "KL"),
        ("model.dtype=bfloat16", some(0.001, float("nan")), "nats per token"),
        ("serving.logprob_tolerance=0.00001", constant(1e-4), "the mean difference"),
        ("model.dtype=float32", constant(float("nan")), "nats per token"),
    ],
)
def test_what_is_allowed_follows_the_precision(override, differences, beyond):
    config = load_config(None, [override])
    if beyond is None:
        check_agreement(config, measure_differences(differences), "log-probs")
    else:
        with pytest.raises(LogProbMismatch, match=beyond):
            check_agreement(config, measure_differences(differences), "log-probs")


async def test_one_server_with_other_weights_is_noticed():
    class FakeServing:
        async def scores(self, token_ids, member):
            return [[-1.0, -2.0, -3.0], [-1.0, -2.0, -3.0 + off]]

    probe, off = PLAYED.token_ids, 0.0002
    served, difference = await score_probe(
        WerewolfConfig(), FakeServing(), probe, torch.tensor([0.0, -1.0, -2.0, -3.0])
    )
    assert served == [-1.0, -2.0, -3.0] and difference == pytest.approx(off, abs=1e-6)
    off = 0.1
    with pytest.raises(LogProbMismatch, match="probe"):
        await score_probe(WerewolfConfig(), FakeServing(), probe, torch.tensor([0.0, -1.0, -2.0, -3.0]))
