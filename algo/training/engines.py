"""Subclasses of verl's engines of language and value models.

Language models compute log-probs and entropies by a chunked head (``chunked_head``). Value models use the configured
attention: verl 0.9.1 always loads them with flash attention, and falls back on trl.
"""

import logging
from typing import Any

import torch
from tensordict import TensorDict
from torch import nn
from transformers import PretrainedConfig
from verl.utils import tensordict_utils
from verl.utils.device import get_device_name, get_vendor
from verl.workers.config.optimizer import build_optimizer
from verl.workers.engine import EngineRegistry
from verl.workers.engine.fsdp.transformer_impl import FSDPEngineWithLMHead, FSDPEngineWithValueHead

from algo.training.chunked_head import ChunkedHead
from algo.training.muon import MuonAndAdamW, parameter_groups

logger = logging.getLogger(__name__)

_LOGITS_CHANGED = (
    *("final_logit_softcapping", "logits_soft_cap", "output_logit_soft_cap"),
    *("logit_scale", "logits_scaling", "lm_head_multiplier"),
)
"""Settings of models that transform the logits after the head."""


def logit_settings(config: PretrainedConfig) -> list[str]:
    """The settings of a model by which it transforms the logits after the head."""
    both = (config, config.get_text_config())  # models with several kinds of input keep them in the latter
    return [name for name in _LOGITS_CHANGED if any(getattr(one, name, None) not in (None, 1, 1.0) for one in both)]


class ChunkedLanguageModelEngine(FSDPEngineWithLMHead):
    """verl's FSDP engine of a causal language model, with a chunked head where the model allows one."""

    _head: ChunkedHead | None = None

    def _build_module(self) -> nn.Module:
        module = super()._build_module()
        head = module.get_output_embeddings()
        changes = logit_settings(module.config)
        if type(head) is nn.Linear and head.bias is None and not changes:
            self._head = ChunkedHead(head)
            module.set_output_embeddings(self._head)
        else:
            logger.warning("%s needs all logits in memory: %s", type(module).__name__, changes or type(head).__name__)
        return module

    def _build_lora_module(self, module: nn.Module) -> nn.Module:
        module = super()._build_lora_module(module)
        # verl casts adapters to the type of their base; in bfloat16 small updates would be rounded away.
        for parameter in module.parameters():
            if parameter.requires_grad:
                parameter.data = parameter.data.float()
        return module

    def _build_optimizer(self, module: nn.Module) -> torch.optim.Optimizer:
        if self.optimizer_config.optimizer != MuonAndAdamW.__name__:
            return super()._build_optimizer(module)
        return build_optimizer(parameter_groups(module), self.optimizer_config)

    def prepare_model_inputs(self, micro_batch: TensorDict) -> tuple[dict[str, Any], dict[str, Any]]:
        """As the base class; also passes labels and temperatures to the head."""
        inputs, arguments = super().prepare_model_inputs(micro_batch)
        if self._head is not None:
            labels = arguments["input_ids_rmpad_rolled"]
            learns = self._learns(micro_batch)
            if _option(micro_batch, "use_remove_padding", True):
                labels, temperatures = labels[None], arguments["temperature_rmpad"][None]
                learns = None if learns is None else learns[None]
            else:
                rows, longest = inputs["input_ids"].shape
                is_token = _is_token(micro_batch, longest)
                labels = torch.zeros_like(is_token, dtype=torch.long).masked_scatter_(is_token, labels)
                temperatures = arguments["temperature"][:, None].expand(rows, longest)
                learns = None if learns is None else torch.zeros_like(is_token).masked_scatter_(is_token, learns)
            self._head.set_labels(labels, temperatures, _option(micro_batch, "calculate_entropy"), learns)
        return inputs, arguments

    def _learns(self, micro_batch: TensorDict) -> torch.Tensor | None:
        """For all tokens of the micro-batch: whether the next one counts in the loss; None for all."""
        # With sequence parallelism a rank only has slices.
        if not torch.is_grad_enabled() or self.use_ulysses_sp or self.pad_to_length or "loss_mask" not in micro_batch:
            return None
        counts = micro_batch["loss_mask"].values() != 0
        if "targets" in micro_batch:
            counts |= micro_batch["targets"].values() > 0
        return torch.roll(counts, -1)

    def prepare_model_outputs(
        self, output: Any, output_args: dict[str, Any], micro_batch: TensorDict, logits_processor_func: Any
    ) -> dict[str, torch.Tensor]:
        """Jagged ``log_probs``, and ``entropy`` if the batch requires it; entry i of a row is about token i + 1."""
        if self._head is None:
            return super().prepare_model_outputs(output, output_args, micro_batch, logits_processor_func)
        found = output.logits
        if _option(micro_batch, "use_remove_padding", True):
            by_token = self._gather_and_unpad_packed(found[0], output_args["pad_size"])
        else:
            by_token = found[_is_token(micro_batch, found.shape[1])]
        names = ("log_probs", "entropy") if _option(micro_batch, "calculate_entropy") else ("log_probs",)
        offsets = micro_batch["input_ids"].offsets()
        return {
            name: torch.nested.nested_tensor_from_jagged(by_token[:, number].contiguous(), offsets)
            for number, name in enumerate(names)
        }


class ConfiguredValueEngine(FSDPEngineWithValueHead):
    """verl's FSDP engine of a value model: ``AutoModelForTokenClassification`` with one label, without dropout."""

    def _build_module(self) -> nn.Module:
        settings = self.model_config.hf_config
        settings.num_labels = 1
        settings.classifier_dropout = 0.0
        settings.architectures = [
            name.replace("ForCausalLM", "ForTokenClassification") for name in self.model_config.architectures
        ]
        # The base class uses the type only to choose a loader; that of language models follows the architecture.
        self.model_config.model_type = "language_model"
        try:
            return super()._build_module()
        finally:
            self.model_config.model_type = "value_model"


def register_engines() -> None:
    """Register these engines for the vendor of this machine, which takes precedence over verl's for all vendors."""
    for kind, engine in (("language_model", ChunkedLanguageModelEngine), ("value_model", ConfiguredValueEngine)):
        where = {"backend": "fsdp2", "device": get_device_name(), "vendor": get_vendor()}
        EngineRegistry.register(model_type=kind, **where)(engine)


def _option(micro_batch: TensorDict, name: str, default: bool = False) -> bool:
    return bool(tensordict_utils.get_non_tensor_data(data=micro_batch, key=name, default=default))


def _is_token(micro_batch: TensorDict, longest: int) -> torch.Tensor:
    """Mask of tokens in padded rows, shape (rows, longest)."""
    lengths = micro_batch["input_ids"].offsets().diff()
    return torch.arange(longest, device=lengths.device) < lengths.unsqueeze(1)
