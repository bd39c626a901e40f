"""Tensors of a folder of safetensors, by the file headers alone.

vLLM keeps the old values of tensors that a new folder lacks, without a word, and dies of tensors that it does not know:
weights are compared with the model they are meant for before they are pushed.
"""

from pathlib import Path

from configs.model_folder import read_architecture, read_header


def check_same_tensors(model_dir: Path, reference_dir: Path) -> None:
    """Raise ValueError, naming a tensor, unless ``model_dir`` holds exactly the tensors of ``reference_dir``.

    Both are Hugging Face model folders; names and shapes are compared, number formats are not. A reference without
    safetensors is not compared.
    """
    given, expected = tensor_shapes(model_dir), tensor_shapes(reference_dir)
    if not given:
        raise ValueError(f"{model_dir} holds no *.safetensors file, so there are no weights to push")
    if not expected:
        return
    # A model with tied embeddings may be saved with or without a copy of them.
    extra = given.keys() - expected.keys() - {"lm_head.weight"}
    missing = expected.keys() - given.keys() - ({"lm_head.weight"} if _is_tied(reference_dir) else set())
    reshaped = {name for name in given.keys() & expected.keys() if given[name] != expected[name]}
    for problem, names in (("lacks", missing), ("adds", extra), ("has another shape for", reshaped)):
        if names:
            raise ValueError(
                f"the weights in {model_dir} do not fit the model in {reference_dir}: "
                f"it {problem} {len(names)} tensors, e.g. {min(names)}"
            )


def _is_tied(directory: Path) -> bool:
    return (directory / "config.json").is_file() and read_architecture(directory).get("tie_word_embeddings", False)


def tensor_shapes(directory: Path) -> dict[str, list[int]]:
    """Tensor name -> shape, of a folder's safetensors files."""
    files = sorted(directory.glob("*.safetensors"))
    return {name: entry["shape"] for path in files for name, entry in read_header(path).items()}
