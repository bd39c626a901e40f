"""Do vLLM and the trainer compute the same policy? Log-probs of what was played, and of a probe after each push.

Both come from the same weights, so a difference beyond the precision means that what was sampled is not
what would be trained: wrong weights, another sampling distribution, tokens out of line.
"""

from collections.abc import Sequence

import torch

from algo.sequences.trajectories import Trajectory
from algo.serving.policy import Serving
from configs.schema import Config

PROBE_TOKENS = 256


class WeightsNotServed(RuntimeError):
    """vLLM's log-probs are not the trainer's: what was sampled would not be what is trained."""


def probe_of(token_ids: Sequence[int]) -> Trajectory:
    """A fixed sequence whose log-probs tell one version of the weights from another: every token counts as sampled."""
    token_ids = tuple(token_ids[:PROBE_TOKENS])
    return Trajectory(
        task_id="probe",
        group_id="probe",
        actor="probe",
        role="none",
        side="none",
        segment=0,
        token_ids=token_ids,
        loss_mask=(0, *([1] * (len(token_ids) - 1))),
        logprobs=(0.0,) * len(token_ids),
        turn_ends=(len(token_ids),),
        turn_versions=(0,),
        reward=0.0,
    )


async def score_probe(
    config: Config, serving: Serving, probe: Sequence[int], trainer_logprobs: torch.Tensor
) -> tuple[list[float], float]:
    """vLLM's log-probs of the probe, and how far they are from the trainer's: the largest difference in nats per token.

    Every server in service is asked; the difference is the worst of them, the log-probs are the first one's.
    probe: its token ids. trainer_logprobs: the trainer's log-probs of them at temperature 1, aligned.
    Raises WeightsNotServed beyond ``serving.logprob_tolerance``.
    """
    served = await serving.scores(probe)
    difference = (torch.tensor(served) - trainer_logprobs[1:]).abs().max().item()
    check_agreement(config, difference, "log-probs of a probe sequence")
    return served[0], difference


def check_agreement(config: Config, difference: float, what: str) -> None:
    """Raise WeightsNotServed when a difference, in nats per token, is beyond what the precision explains."""
    if not difference <= config.logprob_tolerance:
        raise WeightsNotServed(
            f"vLLM's {what} differ from the trainer's by {difference:.2e} nats per token (at most "
            f"{config.logprob_tolerance:.0e} is allowed, serving.logprob_tolerance): vLLM does not serve the trained "
            f"weights, samples from another distribution, or computes in another precision than model.dtype"
        )


def logprob_agreement(
    trajectories: Sequence[Trajectory], trainer_logprobs: Sequence[torch.Tensor], policy_version: int
) -> dict[str, float]:
    """How far the trainer's log-probs of the sampled tokens are from those that vLLM returned, in nats.

    policy_version: the trainer's. Turns sampled by older weights say nothing about agreement and are not compared; with
    no other turns nothing is returned.
    """
    differences = torch.cat(
        [
            (torch.tensor(trajectory.logprobs) - recomputed)[_sampled_by(trajectory, policy_version)].abs()
            for trajectory, recomputed in zip(trajectories, trainer_logprobs, strict=True)
        ]
    )
    if not len(differences):
        return {}
    return {
        "logprobs/rollout_difference_max": differences.max().item(),
        "logprobs/rollout_difference_mean": differences.mean().item(),
    }


def _sampled_by(trajectory: Trajectory, version: int) -> torch.Tensor:
    """Which tokens were sampled by these weights: bool, aligned with ``token_ids``."""
    chosen = torch.tensor(trajectory.loss_mask, dtype=torch.bool)
    for (start, end), played_by in zip(trajectory.turn_spans(), trajectory.turn_versions, strict=True):
        if played_by != version:
            chosen[start:end] = False
    return chosen
