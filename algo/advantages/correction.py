"""Rollout correction by verl: importance weights and rejection for tokens of older weights or another precision.

For rollouts during changes of the weights (``rollout.max_policy_lag``), and for serving in lower precision than
training: truncated importance sampling (Yao et al., 2025, "Your Efficient RL Framework Secretly Brings You Off-Policy
RL Training"). A token's importance ratio is its probability under the current weights over that of its sampling. verl
computes weights and rejections from it; this module converts the rows.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import torch
from verl.trainer.ppo.rollout_corr_helper import compute_rollout_correction_and_rejection_mask

from algo.sequences.batch import row_of
from algo.sequences.trajectories import Trajectory
from configs.section import ConfigError
from configs.sections.training import RolloutCorrectionConfig

REJECTED = "rejected_by_correction"
_Value = TypeVar("_Value")


@dataclass(frozen=True)
class Correction:
    """The result of rollout correction.

    rows: indices of ``trajectories`` in the input, ascending.
    trajectories: those with a token left. A rejected token counts as given: its mask and its log-prob are zero.
    importance_weights: a factor of the loss at each token, rows like ``trajectories``, aligned with their ``token_ids``
        and 0.0 where the loss mask is 0; None without configured weights.
    left_out: model turns without a token left, counted by reason.
    metrics: verl's (``rollout_corr/…``), and the lag of the sampled tokens in updates (``policy_lag/…``).
    """

    rows: tuple[int, ...]
    trajectories: tuple[Trajectory, ...]
    importance_weights: list[torch.Tensor] | None
    left_out: Counter[str]
    metrics: dict[str, float]


def check_correction(config: RolloutCorrectionConfig) -> None:
    """Raise ConfigError for names and thresholds that verl rejects."""
    one = torch.zeros(1, 1)
    try:
        compute_rollout_correction_and_rejection_mask(one, one, torch.ones(1, 1), **config.model_dump())
    except ValueError as error:
        raise ConfigError(f"training.rollout_correction: {error}") from error


def apply_rollout_correction(
    trajectories: Sequence[Trajectory],
    log_probs: Sequence[torch.Tensor],
    policy_version: int,
    config: RolloutCorrectionConfig,
) -> Correction:
    """Weight and reject sampled tokens by their importance ratios.

    log_probs: under the weights of ``policy_version``, rows like ``trajectories``, aligned with their ``token_ids``.

    Without a configured correction nothing changes, but the metrics are computed. Raises ValueError for rows of the
    wrong length.
    """
    log_probs = [row_of(each, "log_probs", row) for each, row in zip(trajectories, log_probs, strict=True)]
    masks = [torch.tensor(trajectory.loss_mask, dtype=torch.bool) for trajectory in trajectories]
    sampled_by = [torch.tensor(trajectory.logprobs) for trajectory in trajectories]
    weights, kept_mask, metrics = compute_rollout_correction_and_rejection_mask(
        old_log_prob=_padded(log_probs, masks),
        rollout_log_prob=_padded(sampled_by, masks),
        response_mask=_padded([mask.float() for mask in masks], masks),
        **config.model_dump(),
    )
    kept = [_spread(row, mask) > 0 for row, mask in zip(kept_mask, masks, strict=True)]
    rows = tuple(number for number, mask in enumerate(kept) if mask.any())
    corrected = tuple(_without(trajectories[row], kept[row]) for row in rows)
    turns_before = sum(len(trajectory.turn_ends) for trajectory in trajectories)
    rejected_turns = turns_before - sum(len(trajectory.turn_ends) for trajectory in corrected)
    factors = None
    if weights is not None:
        by_row = weights.batch["rollout_is_weights"]
        factors = [_spread(by_row[row], masks[row]) * kept[row] for row in rows]
    return Correction(
        rows=rows,
        trajectories=corrected,
        importance_weights=factors,
        left_out=+Counter({REJECTED: rejected_turns}),
        metrics=metrics | _policy_lag(trajectories, policy_version),
    )


def _padded(rows: Sequence[torch.Tensor], masks: Sequence[torch.Tensor]) -> torch.Tensor:
    """The entries at sampled tokens, padded with zeros: shape (rows, maximum of sampled tokens)."""
    sampled = [row.float()[mask] for row, mask in zip(rows, masks, strict=True)]
    return torch.nn.utils.rnn.pad_sequence(sampled, batch_first=True)


def _spread(row: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """A row over sampled tokens (padded) -> over all tokens, 0.0 at given ones."""
    spread = torch.zeros(len(mask))
    spread[mask] = row[: int(mask.sum())]
    return spread


def _without(trajectory: Trajectory, kept: torch.Tensor) -> Trajectory:
    """The trajectory with rejected tokens as given ones, and without turns that have no other tokens."""
    if int(kept.sum()) == sum(trajectory.loss_mask):
        return trajectory
    ends: list[int] = []
    turns: list[int] = []
    for number, (start, end) in enumerate(trajectory.turn_spans()):
        found = kept[start:end].nonzero()
        if len(found):
            ends.append(start + int(found[-1]) + 1)
            turns.append(number)
    return replace(
        trajectory,
        loss_mask=tuple(kept.int().tolist()),
        logprobs=tuple(value if keep else 0.0 for value, keep in zip(trajectory.logprobs, kept.tolist(), strict=True)),
        turn_ends=tuple(ends),
        turn_versions=tuple(trajectory.turn_versions[number] for number in turns),
        turn_questions=_of(trajectory.turn_questions, turns),
        turn_rewards=_of(trajectory.turn_rewards, turns),
        turn_numbers=_of(trajectory.turn_numbers, turns),
    )


def _of(per_turn: tuple[_Value, ...], turns: Sequence[int]) -> tuple[_Value, ...]:
    """The entries of ``turns``; empty if ``per_turn`` is."""
    return tuple(per_turn[number] for number in turns) if per_turn else ()


def _policy_lag(trajectories: Sequence[Trajectory], policy_version: int) -> dict[str, float]:
    lags: Counter[int] = Counter()
    for trajectory in trajectories:
        for (start, end), version in zip(trajectory.turn_spans(), trajectory.turn_versions, strict=True):
            lags[policy_version - version] += sum(trajectory.loss_mask[start:end])
    return {
        "policy_lag/mean": sum(lag * tokens for lag, tokens in lags.items()) / lags.total(),
        "policy_lag/max": float(max(lags)),
    }
