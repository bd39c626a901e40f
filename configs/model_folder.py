"""Checks that a configuration's model folders hold complete models, by file headers, without loading weights."""

import json
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from configs.schema import Config
from configs.section import ConfigError

_AGAIN = "copy or download the model's folder again"


def check_model_folders(config: Config) -> None:
    """Raise ConfigError, naming the setting, unless every model folder that training reads is complete."""
    check_model_folder(config.model.path)
    reference = config.reference.path if config.reference.kl != "none" else None
    for name, path in (("reference.path", reference), ("critic.path", config.critic.path)):
        if path is not None:
            check_model_folder(path, name)
            _check_same_tokens(config.model.path, path, name)


def check_model_folder(path: Path, setting: str = "model.path") -> None:
    """Raise ConfigError, naming the path and the remedy, if it is not a Hugging Face model folder."""
    needed: dict[str, Sequence[str]] = {
        "config.json": ("config.json",),
        "weights (*.safetensors)": ("*.safetensors",),
        "tokenizer (tokenizer.json)": ("tokenizer.json", "tokenizer.model", "vocab.json"),
    }
    missing = [what for what, patterns in needed.items() if not any(any(path.glob(each)) for each in patterns)]
    if missing:
        problem = f"lacks {', '.join(missing)}" if path.is_dir() else "does not exist"
        tiny = f"; or make a tiny random model there: `python -m algo.tiny_model {path}`" if "tiny" in path.name else ""
        raise ConfigError(
            f"{setting} {path} {problem}: set {setting} to a Hugging Face model folder, or download one there, e.g. "
            f"`hf download Qwen/Qwen3-8B --local-dir {path}`{tiny}"
        )
    try:
        read_architecture(path)
        for file in sorted({*path.glob("*.safetensors"), *_indexed_files(path)}):
            read_header(file)
    except OSError as error:
        raise ConfigError(f"{setting} {path} cannot be read ({error}): {_AGAIN}") from error
    except ValueError as error:
        raise ConfigError(f"{setting}: {error}") from error


def _indexed_files(folder: Path) -> set[Path]:
    """The files that the index of a model in several files names: the download of one may have been interrupted."""
    index = folder / "model.safetensors.index.json"
    if not index.exists():
        return set()
    try:
        return {folder / name for name in json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()}
    except (ValueError, KeyError, AttributeError, TypeError) as error:
        raise ValueError(f"{index} is not a valid index ({error}): {_AGAIN}") from error


def _check_same_tokens(policy: Path, other: Path, setting: str) -> None:
    """Raise ConfigError unless the other model reads the policy's token ids as the same tokens."""
    from tokenizers import Tokenizer

    files = [folder / "tokenizer.json" for folder in (policy, other)]
    if policy == other or not all(file.exists() for file in files):
        return
    ours, theirs = (Tokenizer.from_file(str(file)).get_vocab() for file in files)
    if differing := [token for token, number in ours.items() if theirs.get(token) != number]:
        raise ConfigError(
            f"{setting} {other} has other token ids than model.path {policy}, e.g. of {differing[0]!r}: "
            "it must be a model with the same tokenizer"
        )


def read_architecture(folder: Path) -> Mapping[str, Any]:
    """The content of a model folder's ``config.json``. Raises ValueError, naming the file and the remedy."""
    file = folder / "config.json"
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{file} is not valid JSON ({error}): {_AGAIN}") from error
    if not isinstance(found, dict):
        raise ValueError(f"{file} must hold a JSON object: {_AGAIN}")
    return found


def read_header(file: Path) -> dict[str, Any]:
    """The header of a safetensors file: tensor name -> shape, type, offsets.

    Raises ValueError, naming the file and the remedy, for a truncated file.
    """
    has = file.stat().st_size
    with file.open("rb") as opened:
        try:
            (size,) = struct.unpack("<Q", opened.read(8))
            if size > has:
                raise ValueError("its header is longer than the file")
            header = json.loads(opened.read(size))
            header.pop("__metadata__", None)
            wanted = 8 + size + max((entry["data_offsets"][1] for entry in header.values()), default=0)
        except (struct.error, AttributeError, LookupError, RecursionError, TypeError, ValueError) as error:
            raise ValueError(f"{file} is not a valid safetensors file ({error}): {_AGAIN}") from error
    if has != wanted:
        raise ValueError(f"{file} is truncated: it has {has} of {wanted} bytes: {_AGAIN}")
    return header
