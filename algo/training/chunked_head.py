"""A language model's head that computes log-probs and entropies in chunks, without all logits in memory.

The logits of 13,312 tokens over 151,936 words are 7.5 GiB in float32, and a loss needs several such tensors; here at
most ``CHUNK_ELEMENTS`` exist at once, forward or backward. Without flash attention verl's loss is a loop over tokens.
"""

from typing import Any

import torch
from torch import nn

CHUNK_ELEMENTS = 2**26
"""Maximum number of logits in memory: 256 MiB in float32."""


class _LogProbsAndEntropies(torch.autograd.Function):
    """Forward saves log-sum-exps and entropies; backward recomputes the logits of each chunk."""

    @staticmethod
    def forward(
        context: Any,
        hidden: torch.Tensor,
        weight: torch.Tensor,
        labels: torch.Tensor,
        temperatures: torch.Tensor,
        with_entropy: bool,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        log_probs = torch.empty(len(labels), dtype=torch.float32, device=hidden.device)
        log_sums, entropies = torch.empty_like(log_probs), torch.zeros_like(log_probs)
        for part in _chunks(len(labels), len(weight)):
            logits = _logits(hidden[part], weight, temperatures[part])
            log_sums[part] = logits.logsumexp(-1)
            log_probs[part] = logits.gather(-1, labels[part, None])[:, 0] - log_sums[part]
            if with_entropy:
                log_p = logits.sub_(log_sums[part, None])
                entropies[part] = -(log_p.exp() * log_p).sum(-1)
        context.with_entropy = with_entropy
        context.save_for_backward(hidden, weight, labels, temperatures, log_sums, entropies)
        return log_probs, entropies

    @staticmethod
    def backward(
        context: Any, for_log_probs: torch.Tensor, for_entropies: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor | None, None, None, None]:
        hidden, weight, labels, temperatures, log_sums, entropies = context.saved_tensors
        for_hidden = torch.empty_like(hidden)
        # Sums over many chunks need float32.
        for_weight = torch.zeros_like(weight, dtype=torch.float32) if context.needs_input_grad[1] else None
        for part in _chunks(len(labels), len(weight)):
            log_p = _logits(hidden[part], weight, temperatures[part]).sub_(log_sums[part, None])
            p = log_p.exp()
            # d log p_label / d logits = onehot - p;  d entropy / d logits = -p (log p + entropy).
            gradient = p * -for_log_probs[part, None]
            gradient.scatter_add_(-1, labels[part, None], for_log_probs[part, None])
            if context.with_entropy:
                gradient -= for_entropies[part, None] * p * (log_p + entropies[part, None])
            gradient = gradient.div_(temperatures[part, None]).to(weight.dtype)
            for_hidden[part] = gradient @ weight
            if for_weight is not None:
                for_weight += gradient.T @ hidden[part]
        return for_hidden, None if for_weight is None else for_weight.to(weight.dtype), None, None, None


def _chunks(tokens: int, words: int) -> list[slice]:
    size = max(1, CHUNK_ELEMENTS // words)
    return [slice(start, start + size) for start in range(0, tokens, size)]


def _logits(hidden: torch.Tensor, weight: torch.Tensor, temperatures: torch.Tensor) -> torch.Tensor:
    # The product in the model's precision, then float32, as in vLLM.
    return (hidden @ weight.T).float().div_(temperatures[:, None])


class ChunkedHead(nn.Linear):
    """Replaces a model's linear head, with the same weight under the same name.

    Its output has two entries in place of logits: the log-prob of the token's label, and the entropy in nats.
    """

    def __init__(self, head: nn.Linear) -> None:
        super().__init__(head.in_features, head.out_features, bias=False, device="meta")
        self.weight = head.weight
        self._expected: tuple[torch.Tensor, torch.Tensor, bool, torch.Tensor | None] | None = None

    def set_labels(
        self,
        labels: torch.Tensor,
        temperatures: torch.Tensor,
        with_entropy: bool,
        wanted: torch.Tensor | None = None,
    ) -> None:
        """Set labels and temperatures at each position for the next forward pass, shape (rows, tokens).

        Without ``with_entropy`` entropies are zero. wanted: bool, of the same shape; where False, both outputs are zero
        and not computed.
        """
        self._expected = labels, temperatures, with_entropy, wanted

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """hidden: shape (rows, tokens, width). Returns float32, shape (rows, tokens, 2)."""
        assert self._expected is not None, "set_labels must be called before each forward pass"
        labels, temperatures, with_entropy, wanted = self._expected
        self._expected, shape = None, (*labels.shape, 2)
        hidden, labels, temperatures = hidden.flatten(0, 1), labels.flatten(), temperatures.flatten()
        if wanted is not None:
            wanted = wanted.flatten()
            hidden, labels, temperatures = hidden[wanted], labels[wanted], temperatures[wanted]
        # verl uses autocast, which casts to the weight's type.
        with torch.autocast(hidden.device.type, enabled=False):
            found = _LogProbsAndEntropies.apply(
                hidden.to(self.weight.dtype), self.weight, labels, temperatures.clamp(min=1e-8), with_entropy
            )
            both = torch.stack(found, dim=-1)
            if wanted is not None:
                both = both.new_zeros(len(wanted), 2).masked_scatter(wanted[:, None], both)
        return both.view(shape)
