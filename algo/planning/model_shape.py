"""A model's sizes, from its config.json alone: no weights are read, none need be there."""

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn
from transformers import AutoConfig, AutoModelForCausalLM

from configs.sections.training import ModelConfig

BYTES = {"float32": 4, "bfloat16": 2}


@dataclass(frozen=True)
class ModelShape:
    """Sizes in numbers of weights, unless they say otherwise.

    parameters: all, tied ones once. head: of the output head. layer: of the largest decoder layer. adapters: of LoRA.
    """

    parameters: int
    head: int
    layer: int
    adapters: int
    layers: int
    hidden: int
    intermediate: int
    heads: int
    kv_heads: int
    head_size: int
    words: int
    tied: bool

    @property
    def kv_per_token(self) -> int:
        """Numbers that the KV cache holds for one token."""
        return 2 * self.layers * self.kv_heads * self.head_size

    def flops(self, tokens: float, length: float, scored: float) -> float:
        """Of one forward pass over tokens in sequences of that length: weights, and causal attention.

        scored: of the tokens, those whose logits are computed. Embeddings are looked up, not multiplied.
        """
        attention = 2 * self.layers * self.heads * self.head_size * tokens * length
        body = self.parameters - self.head * (1 if self.tied else 2)
        return 2.0 * (body * tokens + self.head * scored) + attention


def shape_of(path: Path, model: ModelConfig) -> ModelShape:
    """The shape of the model in a folder. Raises OSError where there is no config.json."""
    settings = AutoConfig.from_pretrained(path)
    with torch.device("meta"):
        skeleton = AutoModelForCausalLM.from_config(settings)
    head = skeleton.get_output_embeddings()
    by_layer = [
        sum(weight.numel() for weight in part.parameters())
        for part in skeleton.modules()
        if type(part).__name__ in (skeleton._no_split_modules or ())
    ]
    named = None if isinstance(model.lora_modules, str) else set(model.lora_modules)
    adapted = [
        part
        for name, part in skeleton.named_modules()
        if isinstance(part, nn.Linear) and part is not head and (named is None or name.rsplit(".")[-1] in named)
    ]
    heads = settings.num_attention_heads
    return ModelShape(
        parameters=sum(weight.numel() for weight in skeleton.parameters()),
        head=head.weight.numel(),
        layer=max(by_layer, default=0),
        adapters=model.lora_rank * sum(part.in_features + part.out_features for part in adapted),
        layers=settings.num_hidden_layers,
        hidden=settings.hidden_size,
        intermediate=settings.intermediate_size,
        heads=heads,
        kv_heads=getattr(settings, "num_key_value_heads", None) or heads,
        head_size=getattr(settings, "head_dim", None) or settings.hidden_size // heads,
        words=settings.vocab_size,
        tied=bool(settings.tie_word_embeddings),
    )
