"""Trajectories -> verl's batch (jagged, without padding), and its split into mini-batches.

A trajectory is one sequence of alternating given and sampled tokens. verl expects a prompt and a response: here
``prompts`` are the tokens before the first sampled one, ``responses`` all others, and ``response_mask`` marks the
sampled ones.

verl 0.9.1 normalises the loss (``verl.trainer.ppo.core_algos.agg_loss``) so:

- seq-mean-*: the sum over sequences is divided by the argument ``global_batch_size``, here the number of real rows of
  the mini-batch.
- token-mean: divided by the number of ones in ``loss_mask`` over all ranks, which the engine counts.

So a padding row with a zero mask changes neither sum nor divisor: loss and gradient are those of the real rows, for any
number of ranks and any micro-batch size.
"""

import math
import random
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from tensordict import TensorDict
from verl.utils import tensordict_utils
from verl.utils.dataset.dataset_utils import DatasetPadMode
from verl.utils.seqlen_balancing import get_seqlen_balanced_partitions

from algo.sequences.targets import TargetRow
from algo.sequences.trajectories import Trajectory

PerToken = Sequence[Sequence[float] | torch.Tensor]
"""One row per trajectory, each aligned with that trajectory's ``token_ids``."""

_Columns = dict[str, Any]
"""Name -> tensors by row; or a value for all rows."""

_WHOLE_SEQUENCE = ("input_ids", "position_ids", "loss_mask", "targets")
"""Columns over prompt and response."""

_SHARES_SORTED_TOGETHER = 16
"""Mini-batches: enough for similar lengths in each, few enough to keep a random order."""


@dataclass(frozen=True)
class MiniBatch:
    """The rows of one optimizer step (or one forward pass), arranged for the ranks.

    data: rows in verl's order: an equal, contiguous share for each rank, with an equal number of micro-batches of equal
        size. Includes padding rows.
    rows: for each row of ``data`` its row in the batch; None for a padding row.
    micro_batch_size: rows of each forward pass on each rank.
    target_rows: number of target rows (``algo.sequences.targets``).
    """

    data: TensorDict
    rows: tuple[int | None, ...]
    micro_batch_size: int
    target_rows: int = 0

    @property
    def real_rows(self) -> int:
        """Rows that are neither padding nor targets: the divisor of a sequence-mean loss."""
        return sum(row is not None for row in self.rows) - self.target_rows


def build_batch(
    trajectories: "Sequence[Trajectory]",
    advantages: PerToken | None = None,
    *,
    temperature: float,
    old_log_probs: PerToken | None = None,
    reference_log_probs: PerToken | None = None,
    importance_weights: PerToken | None = None,
    values: PerToken | None = None,
    returns: PerToken | None = None,
    imitation_weights: PerToken | None = None,
    targets: "Sequence[TargetRow]" = (),
) -> TensorDict:
    """Build a verl batch with one row per trajectory, in order, followed by target rows.

    Arguments per token have one row per trajectory, aligned with its ``token_ids``; entries at tokens that were not
    sampled are ignored. Without advantages the batch is for log-probs and values only. Without old_log_probs the
    ratio's denominator is vLLM's log-prob.
    temperature: the sampling temperature; logits are divided by it before the softmax.
    reference_log_probs: of the reference policy, for a KL in the loss.
    importance_weights: factors of the policy's loss, from rollout correction.
    values, returns: the critic's values before the update, and its targets, for ``update_critic``.
    imitation_weights: weights of tokens for ``imitate``, also of given ones, and 0 at the first; by default 1 at
        sampled tokens only. verl's ``sft_loss`` uses ``loss_mask`` as weights, and divides by their sum.
    targets: rows for ``algo.training.targets_loss`` only, without values for the arguments per token.

    Jagged tensors of the result, by row: ``input_ids``, ``position_ids`` and ``loss_mask`` over the
    whole sequence; ``prompts``; over the response ``responses``, ``response_mask``,
    ``old_log_probs`` and, if given, ``advantages``, ``ref_log_prob``, ``rollout_is_weights``, ``values``
    and ``returns``; with targets also their weights, ``targets``, over the whole sequence.

    Raises ValueError, naming the rollout and actor, when a row's length does not match.
    """
    by_token = {
        "advantages": advantages,
        "old_log_probs": old_log_probs,
        "ref_log_prob": reference_log_probs,
        "rollout_is_weights": importance_weights,
        "values": values,
        "returns": returns,
    }
    given = {name: rows for name, rows in by_token.items() if rows is not None}
    assert all(len(rows) == len(trajectories) for rows in given.values()), "a row of each trajectory"
    columns: dict[str, list[torch.Tensor]] = defaultdict(list)
    for number, trajectory in enumerate(trajectories):
        start = trajectory.loss_mask.index(1)
        token_ids = torch.tensor(trajectory.token_ids, dtype=torch.long)
        mask = torch.tensor(trajectory.loss_mask, dtype=torch.float32)
        logprobs = torch.tensor(trajectory.logprobs, dtype=torch.float32)
        weights = (
            mask if imitation_weights is None else row_of(trajectory, "imitation_weights", imitation_weights[number])
        )
        row = {
            "input_ids": token_ids,
            "position_ids": torch.arange(len(token_ids)),
            "loss_mask": weights,
            "prompts": token_ids[:start],
            "responses": token_ids[start:],
            "response_mask": mask[start:],
            "old_log_probs": logprobs[start:],
        }
        for name, rows in given.items():
            # Entries at given tokens are cleared, so that nothing leaks past a mask.
            row[name] = torch.where(mask > 0, row_of(trajectory, name, rows[number]), 0.0)[start:]
        if targets:
            row["targets"] = torch.zeros(len(token_ids))
        for name, column in row.items():
            columns[name].append(column)
    by_response = [name for name in columns if name not in (*_WHOLE_SEQUENCE, "prompts", "responses")]
    for target in targets:
        for name, column in target.columns(by_response).items():
            columns[name].append(column)
    return tensordict_utils.get_tensordict(
        {name: _nested(rows) for name, rows in columns.items()},
        non_tensor_dict={"temperature": float(temperature), "pad_mode": DatasetPadMode.NO_PADDING},
    )


def row_of(trajectory: Trajectory, name: str, given: Sequence[float] | torch.Tensor) -> torch.Tensor:
    """A row of a ``PerToken`` as a tensor. Raises ValueError, naming rollout and actor, for another length."""
    row = torch.as_tensor(given, dtype=torch.float32)
    if row.shape != (len(trajectory.token_ids),):
        where = f"{trajectory.task_id}, {trajectory.actor}, segment {trajectory.segment}"
        raise ValueError(f"{where}: {name} of shape {tuple(row.shape)} for {len(trajectory.token_ids)} tokens")
    return row


def mini_batches(
    batch: TensorDict,
    *,
    mini_batch_size: int,
    micro_batch_size: int,
    ranks: int,
    seed: int | None,
    max_tokens: int | None = None,
    packed: bool = False,
    similar_lengths: bool = False,
) -> list[MiniBatch]:
    """Split a batch into mini-batches and arrange each for the ranks. The same arguments give the same result.

    mini_batch_size: maximum rows of one optimizer step over all ranks; sizes differ by one row at most. Target rows are
        distributed evenly in addition.
    micro_batch_size: maximum rows of one forward pass on one rank; ignored with max_tokens.
    ranks: data-parallel ranks; those that share a sequence (Ulysses) count as one.
    seed: order of the rows over the mini-batches; None keeps the batch's order.
    max_tokens: maximum tokens of one forward pass on one rank, without padding rows; a longer row is alone.
    packed: whether the rows of a forward pass are packed, so that passes are balanced by tokens. If not, rows are
        padded to the longest of their micro-batch, and every pass has the same number of rows.
    similar_lengths: whether rows of similar length also share a mini-batch, which saves padding but makes mini-batches
        differ. Within one, rows of similar length share a micro-batch, and so do the ranks' n-th micro-batches, since
        the longest row determines the cost.

    Padding rows fill up uneven numbers: two tokens, mask and advantage zero, at most one in a micro-batch without
    max_tokens, and alone in one only when a mini-batch has fewer rows than ranks.
    """
    order, targets = _rows_and_targets(batch)
    if seed is not None:
        random.Random(seed).shuffle(order)
        random.Random(f"{seed}/targets").shuffle(targets)
    lengths = batch["input_ids"].offsets().diff().tolist()
    count = math.ceil(len(order) / mini_batch_size)
    shares = [_share(order, count, number) for number in range(count)]
    if similar_lengths:
        shares = _of_similar_lengths(shares, lengths, seed)
    columns = _columns(batch)
    arranged = []
    for number, share in enumerate(shares):
        own_targets = _share(targets, count, number)
        rows = sorted([*share, *own_targets], key=lambda row: (-lengths[row], row))
        if max_tokens is None:
            filled = _fill_by_rows(rows, micro_batch_size, ranks)
        elif packed:
            filled = _fill_by_tokens(rows, lengths, max_tokens, ranks)
        else:
            filled = _fill_by_rows(rows, max(1, max_tokens // lengths[rows[0]]), ranks)
        arranged.append(_arrange(columns, filled, ranks, len(own_targets)))
    return arranged


def _rows_and_targets(batch: TensorDict) -> tuple[list[int], list[int]]:
    """(rows of trajectories, target rows), in order."""
    if "targets" not in batch:
        return list(range(len(batch))), []
    has_targets = [bool(row.any()) for row in batch["targets"].unbind()]
    return [row for row, has in enumerate(has_targets) if not has], [row for row, has in enumerate(has_targets) if has]


def _of_similar_lengths(shares: list[list[int]], lengths: list[int], seed: int | None) -> list[list[int]]:
    """Exchange rows between neighbouring shares, so that each has rows of similar length; sizes change by one at most.

    Only neighbours, and in a random order by ``seed``: else the longest sequences would all come first.
    """
    found: list[list[int]] = []
    for start in range(0, len(shares), _SHARES_SORTED_TOGETHER):
        together = shares[start : start + _SHARES_SORTED_TOGETHER]
        rows = sorted((row for share in together for row in share), key=lambda row: (-lengths[row], row))
        found += [_share(rows, len(together), number) for number in range(len(together))]
    if seed is not None:
        random.Random(f"{seed}/similar lengths").shuffle(found)
    return found


def _fill_by_rows(longest_first: list[int], micro_batch_size: int, ranks: int) -> list[list[int]]:
    """Micro-batches of rows of similar length, a multiple of ``ranks``, that differ by one row at most."""
    slots = ranks * math.ceil(len(longest_first) / (ranks * micro_batch_size))
    return [_share(longest_first, slots, slot) for slot in range(slots)]


def _fill_by_tokens(longest_first: list[int], lengths: list[int], max_tokens: int, ranks: int) -> list[list[int]]:
    """The fewest micro-batches of at most ``max_tokens``, a multiple of ``ranks``, balanced by verl (Karmarkar-Karp).

    A row longer than ``max_tokens`` is alone.
    """
    own = [lengths[row] for row in longest_first]
    count = ranks * math.ceil(min(sum(own) / max_tokens, len(own)) / ranks)
    while count < len(own):
        filled: list[list[int]] = get_seqlen_balanced_partitions(own, count, equal_size=False)  # pyright: ignore[reportAssignmentType] its annotation is unfinished
        if all(len(rows) == 1 or sum(own[row] for row in rows) <= max_tokens for rows in filled):
            filled.sort(key=lambda rows: (-sum(own[row] for row in rows), rows))
            return [[longest_first[row] for row in rows] for rows in filled]
        count += ranks
    return [[row] for row in longest_first] + [[]] * (ranks * math.ceil(len(own) / ranks) - len(own))


def _arrange(columns: _Columns, filled: list[list[int]], ranks: int, target_rows: int) -> MiniBatch:
    size = max(len(rows) for rows in filled)
    slots: list[list[int | None]] = [[*rows, *[None] * (size - len(rows))] for rows in filled]
    # Slots are ordered by micro-batch, then rank; verl needs contiguous shares of ranks.
    arranged = tuple(row for rank in range(ranks) for slot in slots[rank::ranks] for row in slot)
    return MiniBatch(_select(columns, arranged), arranged, micro_batch_size=size, target_rows=target_rows)


def _share(items: list[int], shares: int, number: int) -> list[int]:
    """The number-th of consecutive shares; their sizes differ by one at most."""
    return items[len(items) * number // shares : len(items) * (number + 1) // shares]


def _columns(batch: TensorDict) -> _Columns:
    # Once for all mini-batches, since unbind is linear in the rows of the whole batch.
    values = {name: batch[name] for name, _ in batch.items()}  # unwraps non-tensor data, which items() does not
    return {name: value.unbind() if isinstance(value, torch.Tensor) else value for name, value in values.items()}


def _select(columns: _Columns, rows: Sequence[int | None]) -> TensorDict:
    tensors: dict[str, torch.Tensor | list[Any]] = {}
    common = {name: value for name, value in columns.items() if not isinstance(value, tuple)}
    for name in columns.keys() - common.keys():
        # One token each for prompt and response: the shortest row that verl accepts.
        length = 2 if name in _WHOLE_SEQUENCE else 1
        parts = columns[name]
        padding = torch.arange(2) if name == "position_ids" else torch.zeros(length, dtype=parts[0].dtype)
        tensors[name] = _nested([padding if row is None else parts[row] for row in rows])
    return tensordict_utils.get_tensordict(tensors, non_tensor_dict=common)


def _nested(rows: list[torch.Tensor]) -> torch.Tensor:
    return torch.nested.as_nested_tensor(rows, layout=torch.jagged)
