"""verl's policy loss plus the cross entropy of target rows (``algo.sequences.targets``).

One optimizer step for both: in a separate step, Adam would normalise the targets' weight away.
"""

from typing import Any

import torch
from tensordict import TensorDict
from verl.utils import tensordict_utils
from verl.utils.metric import AggregationType, Metric
from verl.workers.config import FSDPActorConfig
from verl.workers.utils.losses import ppo_loss

TARGET_WEIGHT, TARGET_ROWS = "target_weight", "target_rows"
"""Keys of a mini-batch: the weight of the target rows' loss, and their number over all ranks."""


def policy_and_targets_loss(
    config: FSDPActorConfig, model_output: dict[str, torch.Tensor], data: TensorDict, dp_group: Any = None
) -> tuple[torch.Tensor, dict[str, Any]]:
    """``ppo_loss`` plus the weight times the cross entropy of the target tokens, in nats, a mean over target rows.

    A row's loss is the weighted sum over its tokens. A mini-batch without target rows has the plain loss.
    Metrics of the policy's loss (``ppo_kl``, shares of clipped tokens) are means over the sampled tokens. verl's are
    means over micro-batches, of which some have target rows or padding alone.
    """
    sampled, of_all = data["loss_mask"].values().sum().item(), max(1, data["batch_num_tokens"])
    loss, metrics = ppo_loss(config, model_output, data, dp_group)
    for name, metric in metrics.items():
        if isinstance(metric, Metric) and metric.aggregation is AggregationType.MEAN:
            # verl sums over micro-batches and takes the mean over ranks.
            value = metric.aggregate() * sampled / of_all * data["dp_size"]
            metrics[name] = Metric(value=value, aggregation=AggregationType.SUM)
    if "targets" not in data:
        return loss, metrics
    log_probs = model_output["log_probs"].values()
    # Entry i of the log-probs is about token i + 1; the first token of a row never counts.
    weights = torch.roll(data["targets"].values(), shifts=-1, dims=0)
    found = torch.where(weights > 0, weights * log_probs, 0.0).sum()
    rows = max(1, tensordict_utils.get_non_tensor_data(data=data, key=TARGET_ROWS, default=0))
    # The ranks' gradients are averaged, as in verl's own losses.
    cross_entropy = -found / rows * data["dp_size"]
    metrics["actor/target_loss"] = Metric(value=cross_entropy, aggregation=AggregationType.SUM)
    weight = tensordict_utils.get_non_tensor_data(data=data, key=TARGET_WEIGHT, default=0.0)
    return loss + weight * cross_entropy, metrics
