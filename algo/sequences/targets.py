"""Sequences of which some tokens are to become likelier, beside what the policy's loss does to sampled ones."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class TargetRow:
    """One sequence. weights: what the log-prob of each token counts, aligned with ``token_ids``; 0.0 for most.

    learner: which of several policies that learn side by side it is for; None where one learns.
    The first token cannot count, since nothing stands before it. Raises ValueError for a row without a target.
    """

    token_ids: tuple[int, ...]
    weights: tuple[float, ...]
    learner: str | None = None

    def __post_init__(self) -> None:
        if len(self.weights) != len(self.token_ids):
            raise ValueError(f"{len(self.weights)} weights for {len(self.token_ids)} tokens")
        if not any(self.weights) or self.weights[0] or min(self.weights) < 0:
            raise ValueError("of a row some token behind the first must count, and none against itself")

    def columns(self, by_response: Sequence[str]) -> dict[str, torch.Tensor]:
        """Its row of a batch (``algo.sequences.batch``), in which nothing was sampled and no advantage stands.

        by_response: further columns that are aligned with the response, all zero here.
        """
        length = len(self.token_ids)
        start = next(place for place, weight in enumerate(self.weights) if weight)
        token_ids = torch.tensor(self.token_ids, dtype=torch.long)
        return {
            "input_ids": token_ids,
            "position_ids": torch.arange(length),
            "loss_mask": torch.zeros(length),
            "prompts": token_ids[:start],
            "responses": token_ids[start:],
            "targets": torch.tensor(self.weights),
            **{name: torch.zeros(length - start) for name in by_response},
        }
