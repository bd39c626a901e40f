"""Target rows: sequences for an auxiliary cross-entropy loss, in addition to the policy's."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class TargetRow:
    """One sequence. weights: of each token's log-prob, aligned with ``token_ids``; 0.0 for most, and for the first.

    learner: the learning policy, if the run has several; else None.
    """

    token_ids: tuple[int, ...]
    weights: tuple[float, ...]
    learner: str | None = None

    def columns(self, by_response: Sequence[str]) -> dict[str, torch.Tensor]:
        """Its row of a batch (``algo.sequences.batch``), without sampled tokens and advantages.

        by_response: additional columns aligned with the response, zero here.
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
