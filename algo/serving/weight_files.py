"""Checks the tensors of safetensors files before a push, from the file headers.

vLLM silently keeps the old values of missing tensors, and crashes on unknown ones.
"""

from pathlib import Path

from configs.model_folder import read_architecture, read_header


def check_same_tensors(model_dir: Path, reference_dir: Path) -> None:
    """Raise ValueError, naming a tensor, unless ``model_dir`` has exactly the tensors of ``reference_dir``.

    Both are Hugging Face model folders. Compares names and shapes, not types; skips a reference without safetensors.
    """
    given, expected = tensor_shapes(model_dir), tensor_shapes(reference_dir)
    if not given:
        raise ValueError(f"{model_dir} has no *.safetensors file to push")
    if not expected:
        return
    # A model with tied embeddings may be saved with or without a copy of them.
    extra = given.keys() - expected.keys() - {"lm_head.weight"}
    tied = (reference_dir / "config.json").is_file() and is_tied(reference_dir)
    missing = expected.keys() - given.keys() - ({"lm_head.weight"} if tied else set())
    reshaped = {name for name in given.keys() & expected.keys() if given[name] != expected[name]}
    for problem, names in (("lacks", missing), ("adds", extra), ("has another shape for", reshaped)):
        if names:
            raise ValueError(
                f"the weights in {model_dir} do not fit the model in {reference_dir}: "
                f"it {problem} {len(names)} tensors, e.g. {min(names)}"
            )


def is_tied(directory: Path) -> bool:
    """Whether a model's output head is its input embeddings: as its config.json says, else by its class's default.

    Raises ValueError as ``read_architecture``, FileNotFoundError without the file.
    """
    told = read_architecture(directory).get("tie_word_embeddings")
    if told is not None:
        return bool(told)
    from transformers import AutoConfig

    try:
        config = AutoConfig.from_pretrained(directory, local_files_only=True, trust_remote_code=False)
    except Exception:  # transformers cannot read it, and has no default for it
        return False
    return bool(getattr(config, "tie_word_embeddings", False))


def tensor_shapes(directory: Path) -> dict[str, list[int]]:
    """Tensor name -> shape, of a folder's safetensors files."""
    files = sorted(directory.glob("*.safetensors"))
    return {name: entry["shape"] for path in files for name, entry in read_header(path).items()}
