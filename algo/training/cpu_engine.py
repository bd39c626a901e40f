"""verl's engine of a language model, with log-probs of all tokens computed at once.

Without flash attention's cross entropy verl 0.9.1 sums up the logits of padded rows token by token in Python, forward
and backward, which takes two thirds of an update of a small model.
"""

from typing import Any

import torch
from tensordict import TensorDict
from torch.nn.functional import cross_entropy
from verl.utils import tensordict_utils
from verl.utils.torch_functional import entropy_from_logits
from verl.workers.engine.fsdp.transformer_impl import FSDPEngineWithLMHead


class CpuLanguageModelEngine(FSDPEngineWithLMHead):
    """verl's FSDP engine of a causal language model, for rows that are padded, as they are without flash attention."""

    def prepare_model_outputs(
        self, output: Any, output_args: dict[str, Any], micro_batch: TensorDict, logits_processor_func: Any
    ) -> dict[str, torch.Tensor]:
        """Jagged ``log_probs``, and ``entropy`` where the batch asks for it; entry i of a row speaks of token i + 1.

        Temperatures and masks as in the base class, which does all that is asked for seldom (packed rows, fused
        heads, distillation, sums of squared probabilities).
        """

        def asked(name: str, default: bool = False) -> bool:
            return bool(tensordict_utils.get_non_tensor_data(data=micro_batch, key=name, default=default))

        others = ("use_fused_kernels", "distillation_use_topk", "distillation_only", "calculate_sum_pi_squared")
        if asked("use_remove_padding", True) or any(map(asked, others)):
            return super().prepare_model_outputs(output, output_args, micro_batch, logits_processor_func)
        offsets = micro_batch["input_ids"].offsets()
        logits, temperatures = output.logits.float(), output_args["temperature"]
        if not output_args.get("temperature_is_one", False):
            logits = logits / temperatures.clamp(min=1e-8).view(-1, 1, 1)
        is_token = torch.arange(logits.shape[1], device=logits.device) < offsets.diff().unsqueeze(1)
        labels = torch.zeros_like(is_token, dtype=torch.long)
        labels[is_token] = output_args["input_ids_rmpad_rolled"]
        # Padding is taken out of the results: to take it out of the logits costs more than it saves.
        log_probs = -cross_entropy(logits.flatten(0, 1), labels.flatten(), reduction="none").view_as(labels)
        found = {"log_probs": log_probs[is_token]}
        if asked("calculate_entropy"):
            found["entropy"] = entropy_from_logits(logits)[is_token]
        return {name: torch.nested.nested_tensor_from_jagged(values, offsets) for name, values in found.items()}
