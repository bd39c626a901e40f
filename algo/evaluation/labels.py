"""What evaluations are called; their games and files are named after it."""

import re
from pathlib import Path

from configs.section import ConfigError

_LABEL = re.compile(r"\w[\w .+-]*")


def check_label(label: str) -> None:
    """Raise ConfigError for a label that cannot name games and files."""
    if not _LABEL.fullmatch(label):
        raise ConfigError(f"{label!r} cannot label an evaluation: use letters, digits, spaces and _ . + -")


def default_label(model: Path) -> str:
    """What to call a model: its folder's name, or that of the checkpoint that it lies in."""
    model = model.resolve()
    name = model.parent.name if model.name == "huggingface" else model.name
    return re.sub(r"[^\w .+-]", "-", name).lstrip(" .+-") or "model"
