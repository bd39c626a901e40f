"""Sequences of which some tokens are to become likelier, beside what the policy's loss does to sampled ones."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class TargetRow:
    """One sequence. weights: what the log-prob of each token counts, aligned with ``token_ids``; 0.0 for most.

    learner: which of several policies that learn side by side it is for; None where one learns.
    Some token counts, and never the first, before which nothing stands.
    """

    token_ids: tuple[int, ...]
    weights: tuple[float, ...]
    learner: str | None = None

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
