"""Compares vLLM's log-probs with the trainer's, for sampled tokens and for a probe after each push.

A difference beyond the precision means that the sampled policy is not the trained one: wrong weights, another sampling
distribution, misaligned tokens.
"""

import math
from collections.abc import Mapping, Sequence

import torch

from algo.rollouts.played import UnusableRollouts
from algo.sequences.trajectories import Trajectory, synthetic_trajectory
from algo.serving.policies import PolicyServers
from configs.schema import Config
from configs.sections.policies import SOLE_LEARNER

PROBE_TOKENS = 256


class LogProbMismatch(UnusableRollouts):
    """vLLM's log-probs differ from the trainer's: the sampled policy is not the trained one."""


def probe_of(token_ids: Sequence[int]) -> Trajectory:
    """A fixed sequence, all of it as sampled tokens: its log-probs identify a version of the weights."""
    token_ids = tuple(token_ids[:PROBE_TOKENS])
    return synthetic_trajectory("probe", token_ids, (0, *([1] * (len(token_ids) - 1))))


async def score_probe(
    config: Config,
    serving: PolicyServers,
    probe: Sequence[int],
    trainer_logprobs: torch.Tensor,
    learner: str = SOLE_LEARNER,
) -> tuple[list[float], float]:
    """vLLM's log-probs of the probe, and their largest difference from the trainer's, in nats per token.

    The difference is the maximum over all servers in service, the log-probs are the first one's. probe: its token ids.
    trainer_logprobs: the trainer's log-probs of them at temperature 1, aligned.
    Raises LogProbMismatch as ``check_agreement`` does, for each server.
    """
    served = await serving.scores(probe, learner)
    compared = [measure_differences(trainer_logprobs[1:] - torch.tensor(scores)) for scores in served]
    for found in compared:
        check_agreement(config, found, "log-probs of a probe sequence")
    return served[0], max(found["max"] for found in compared)


def measure_differences(differences: torch.Tensor) -> dict[str, float]:
    """Statistics of differences between log-probs of the same tokens, in nats per token.

    differences: the trainer's less vLLM's, shape (tokens,), of tokens that vLLM sampled (or of any fixed sequence).
    ``max`` is over all tokens. The others drop the largest hundredth, since a single token may differ by nats after
    rounding in bfloat16: ``mean`` of the absolute differences; ``q99``, their maximum; ``kl``, an estimate of
    KL(vLLM || trainer) (k3 of http://joschu.net/blog/kl-approx.html).
    """
    largest_last = differences[differences.abs().argsort()]
    kept = largest_last[: len(differences) - len(differences) // 100]
    return {
        "max": largest_last[-1].abs().item(),
        "mean": kept.abs().mean().item(),
        "q99": kept[-1].abs().item(),
        "kl": (kept.exp() - 1 - kept).mean().item(),
    }


def check_agreement(config: Config, found: Mapping[str, float], what: str) -> None:
    """Raise LogProbMismatch for statistics of ``measure_differences`` beyond the precision.

    With t = ``serving.logprob_tolerance``: a mean beyond t, a 99 % quantile beyond 10 t, or a KL beyond 2 t², four
    times that of differences of t everywhere. The maximum only has to be finite.
    """
    tolerance = config.logprob_tolerance
    # The KL's bound allows for the rounding of float32.
    for name, shown, most in (
        ("mean", "the mean difference", tolerance),
        ("q99", "the 99 % quantile of differences", 10 * tolerance),
        ("kl", "the estimated KL", max(2 * tolerance**2, 1e-7)),
    ):
        if not (found[name] <= most and math.isfinite(found["max"])):
            raise LogProbMismatch(
                f"vLLM's {what} differ from the trainer's: {shown} is {found[name]:.2e} nats per token, above "
                f"{most:.1e} for serving.logprob_tolerance={tolerance:.0e}: vLLM serves other weights, samples from "
                f"another distribution, or computes in another precision than model.dtype"
            )


def logprob_agreement(
    trajectories: Sequence[Trajectory], trainer_logprobs: Sequence[torch.Tensor], policy_version: int
) -> dict[str, float]:
    """``measure_differences`` of the sampled tokens, between the trainer's log-probs and vLLM's.

    policy_version: the trainer's. Turns of older weights are skipped; empty without other turns.
    """
    differences = []
    for trajectory, recomputed in zip(trajectories, trainer_logprobs, strict=True):
        compared = torch.tensor(trajectory.loss_mask, dtype=torch.bool)
        for (start, end), version in zip(trajectory.turn_spans(), trajectory.turn_versions, strict=True):
            compared[start:end] &= version == policy_version
        differences.append((recomputed - torch.tensor(trajectory.logprobs))[compared])
    together = torch.cat(differences)
    return measure_differences(together) if len(together) else {}
