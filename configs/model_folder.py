"""Whether the folders that a configuration names hold models, told without reading them."""

from collections.abc import Sequence
from pathlib import Path

from configs.schema import Config
from configs.section import ConfigError


def check_model_folders(config: Config) -> None:
    """Raise ConfigError, naming the setting, unless every model that training reads lies where it is said to be."""
    check_model_folder(config.model.path)
    for name, path in (("reference.path", config.reference.path), ("critic.path", config.critic.path)):
        if path is not None:
            check_model_folder(path, name)


def check_model_folder(path: Path, setting: str = "model.path") -> None:
    """Raise ConfigError, naming the path and the remedy, if it is no Hugging Face model folder."""
    needed: dict[str, Sequence[str]] = {
        "config.json": ("config.json",),
        "weights (*.safetensors)": ("*.safetensors",),
        "tokenizer (tokenizer.json)": ("tokenizer.json", "tokenizer.model", "vocab.json"),
    }
    missing = [what for what, patterns in needed.items() if not any(any(path.glob(each)) for each in patterns)]
    if missing:
        problem = f"lacks {', '.join(missing)}" if path.is_dir() else "does not exist"
        raise ConfigError(
            f"{setting} {path} {problem}: make a tiny model there with `python -m algo.tiny_model {path}` "
            f"(`make model` makes the default one), or set {setting} to a Hugging Face model folder"
        )
