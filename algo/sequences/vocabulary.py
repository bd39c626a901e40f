"""The token ids that a model has."""

from functools import cache
from pathlib import Path

from transformers import AutoConfig


@cache
def vocabulary_of(model: Path) -> int:
    """Number of token ids of the model in a folder."""
    return AutoConfig.from_pretrained(model).get_text_config().vocab_size
