"""Do vLLM and the trainer compute the same policy? Log-probs of what was played, and of a probe after each push.

Both come from the same weights, so a difference beyond the precision means that what was sampled is not
what would be trained: wrong weights, another sampling distribution, tokens out of line.
"""

import math
from collections.abc import Mapping, Sequence

import torch

from algo.sequences.trajectories import Trajectory, synthetic_trajectory
from algo.serving.policies import PolicyServers
from configs.schema import Config
from configs.sections.policies import SOLE_LEARNER

PROBE_TOKENS = 256


class LogProbMismatch(RuntimeError):
    """vLLM's log-probs are not the trainer's: what was sampled would not be what is trained."""


def probe_of(token_ids: Sequence[int]) -> Trajectory:
    """A fixed sequence whose log-probs tell one version of the weights from another: every token counts as sampled."""
    token_ids = tuple(token_ids[:PROBE_TOKENS])
    return synthetic_trajectory("probe", token_ids, (0, *([1] * (len(token_ids) - 1))))


async def score_probe(
    config: Config,
    serving: PolicyServers,
    probe: Sequence[int],
    trainer_logprobs: torch.Tensor,
    learner: str = SOLE_LEARNER,
) -> tuple[list[float], float]:
    """A policy's log-probs of the probe by vLLM, and the largest difference from the trainer's, in nats per token.

    Every server in service computes them; the difference is the worst of all, the log-probs are the first one's.
    probe: its token ids. trainer_logprobs: the trainer's log-probs of them at temperature 1, aligned.
    Raises LogProbMismatch as ``check_agreement`` does, for each server on its own.
    """
    served = await serving.scores(probe, learner)
    compared = [measure_differences(trainer_logprobs[1:] - torch.tensor(scores)) for scores in served]
    for found in compared:
        check_agreement(config, found, "log-probs of a probe sequence")
    return served[0], max(found["max"] for found in compared)


def measure_differences(differences: torch.Tensor) -> dict[str, float]:
    """How far two log-probs of the same tokens are apart, in nats per token.

    differences: the trainer's less vLLM's, shape (tokens,), of tokens that vLLM sampled (or of any fixed sequence).
    ``max`` is the largest of all. The others leave out the hundredth that differs most, since a single token on the
    edge of a rounding may be nats away in bfloat16 and says nothing of the rest: ``mean`` of the absolute differences;
    ``q99``, the largest of them; ``kl``, an estimate of KL(vLLM || trainer) (k3 of http://joschu.net/blog/kl-approx.html).
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
    """Raise LogProbMismatch when ``measure_differences`` differences are beyond what the precision explains.

    With t = ``serving.logprob_tolerance``: a mean beyond t, a 99 % quantile beyond 10 t, or a KL beyond 2 t², four
    times that of differences of t everywhere. The largest difference, as long as it is a number, ends no run.
    """
    tolerance = config.logprob_tolerance
    # The trainer's log-probs are float32, whose own rounding a very small tolerance must not be held against.
    for name, shown, most in (
        ("mean", "their mean", tolerance),
        ("q99", "the 99 % quantile", 10 * tolerance),
        ("kl", "the estimated KL", max(2 * tolerance**2, 1e-7)),
    ):
        if not (found[name] <= most and math.isfinite(found["max"])):
            raise LogProbMismatch(
                f"vLLM's {what} differ from the trainer's: {shown} is {found[name]:.2e} nats per token (at most "
                f"{most:.1e} is allowed with serving.logprob_tolerance={tolerance:.0e}): vLLM does not serve the "
                f"trained weights, samples from another distribution, or computes in another precision than model.dtype"
            )


def logprob_agreement(
    trajectories: Sequence[Trajectory], trainer_logprobs: Sequence[torch.Tensor], policy_version: int
) -> dict[str, float]:
    """``measure_differences`` of the sampled tokens: the trainer's log-probs against those that vLLM returned.

    policy_version: the trainer's. Turns sampled by older weights say nothing about agreement and are not compared; with
    no other turns nothing is returned.
    """
    differences = []
    for trajectory, recomputed in zip(trajectories, trainer_logprobs, strict=True):
        compared = torch.tensor(trajectory.loss_mask, dtype=torch.bool)
        for (start, end), version in zip(trajectory.turn_spans(), trajectory.turn_versions, strict=True):
            compared[start:end] &= version == policy_version
        differences.append((recomputed - torch.tensor(trajectory.logprobs))[compared])
    together = torch.cat(differences)
    return measure_differences(together) if len(together) else {}
