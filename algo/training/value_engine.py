"""The critic's model: verl's value engine, with the attention that the configuration names.

verl 0.9.1 loads a value model with flash attention, whatever is configured, and falls back on trl; this one is
loaded as any other model is: the base model under a new head of one number for each token.
"""

import torch.nn as nn
from verl.utils.device import get_device_name, get_vendor
from verl.workers.engine import EngineRegistry
from verl.workers.engine.fsdp.transformer_impl import FSDPEngineWithValueHead


class ConfiguredValueEngine(FSDPEngineWithValueHead):
    """verl's FSDP engine of a value model: ``AutoModelForTokenClassification`` with one label, without dropout."""

    def _build_module(self) -> nn.Module:
        settings = self.model_config.hf_config
        settings.num_labels = 1
        settings.classifier_dropout = 0.0
        settings.architectures = [
            name.replace("ForCausalLM", "ForTokenClassification") for name in self.model_config.architectures
        ]
        # The base class reads the type here only, to choose a loader; that of language models goes by the architecture.
        self.model_config.model_type = "language_model"
        try:
            return super()._build_module()
        finally:
            self.model_config.model_type = "value_model"


def register_value_engine() -> None:
    """Let this process load value models with our engine, and not with verl's where it has one for the device."""
    # An engine for one vendor goes before one for every vendor.
    EngineRegistry.register(model_type="value_model", backend="fsdp2", device=get_device_name(), vendor=get_vendor())(
        ConfiguredValueEngine
    )
