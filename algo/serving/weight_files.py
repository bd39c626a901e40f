"""What a folder of safetensors holds, read from the file headers alone.

vLLM keeps the old values of tensors that a new folder lacks, without a word, and dies of tensors that it
does not know: weights are compared with the model they are meant for before they are pushed.
"""

import json
import struct
from pathlib import Path


def check_same_tensors(model_dir: Path, reference_dir: Path) -> None:
    """Raise ValueError, naming a tensor, unless ``model_dir`` holds exactly the tensors of ``reference_dir``.

    Both are Hugging Face model folders; names and shapes are compared, number formats are not. Nothing
    is compared when the reference holds no safetensors.
    """
    given = tensor_shapes(model_dir)
    if not given:
        raise ValueError(f"{model_dir} holds no *.safetensors file, so there are no weights to push")
    expected = tensor_shapes(reference_dir)
    if not expected:  # in another format; whoever loads the weights has to judge
        return
    # A model with tied embeddings may be saved with or without a copy of them.
    extra = sorted(given.keys() - expected.keys() - {"lm_head.weight"})
    missing = sorted(expected.keys() - given.keys() - ({"lm_head.weight"} if _is_tied(reference_dir) else set()))
    reshaped = sorted(name for name in given.keys() & expected.keys() if given[name] != expected[name])
    for problem, names in (("lacks", missing), ("adds", extra), ("has another shape for", reshaped)):
        if names:
            raise ValueError(
                f"the weights in {model_dir} do not fit the model in {reference_dir}: "
                f"it {problem} {len(names)} tensors, e.g. {names[0]}"
            )


def _is_tied(directory: Path) -> bool:
    """Whether the model's head is its embedding, so that a file need not hold it."""
    config = directory / "config.json"
    return config.is_file() and json.loads(config.read_text(encoding="utf-8")).get("tie_word_embeddings", False)


def tensor_shapes(directory: Path) -> dict[str, list[int]]:
    """Tensor name -> shape, from the headers of a folder's safetensors files; no weights are read."""
    shapes: dict[str, list[int]] = {}
    for path in sorted(directory.glob("*.safetensors")):
        with path.open("rb") as file:
            try:
                (size,) = struct.unpack("<Q", file.read(8))
                header = json.loads(file.read(size))
            except (struct.error, ValueError) as error:
                raise ValueError(f"{path} is not a whole safetensors file") from error
        header.pop("__metadata__", None)
        end = max((entry["data_offsets"][1] for entry in header.values()), default=0)
        if path.stat().st_size != 8 + size + end:
            raise ValueError(f"{path} is not a whole safetensors file: {path.stat().st_size} bytes of {8 + size + end}")
        shapes |= {name: entry["shape"] for name, entry in header.items()}
    return shapes
