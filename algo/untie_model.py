"""``python -m algo.untie_model MODEL DIR``: copy a model folder, with a separate output head.

Small models (Qwen3-0.6B to 4B) use their embeddings as output head. vLLM on CPU keeps a packed copy of such a head,
which a push does not update, so that training on CPU rejects them. The copy is the same model, but its head is trained
separately.
"""

import argparse
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from algo.machine.built_folder import build_folder, folder_parser
from algo.serving.weight_files import is_tied
from configs.command_line import exit_on
from configs.model_folder import check_model_folder
from configs.section import ConfigError
from store.program import run_program

if TYPE_CHECKING:
    from transformers import PreTrainedModel

MARKER_FILE = "untied_model.json"
_WRITTEN = ("*.safetensors", "*.safetensors.index.json", "config.json", "generation_config.json")


def untie_model(source: Path, directory: Path, *, force: bool = False) -> Path:
    """Write the copy, or keep an existing one; returns its path.

    Raises ConfigError if ``source`` is not a model folder or not tied, FileExistsError as ``build_folder``.
    """
    check_model_folder(source, "the model")
    if not is_tied(source):
        raise ConfigError(f"the model {source} has no tied embeddings: use it as it is")
    recipe = {"built_by": "algo.untie_model", "format": 1, "source": str(source.resolve())}
    return build_folder(directory, MARKER_FILE, recipe, lambda folder: _write(source, folder), force=force)


def untie(model: "PreTrainedModel") -> None:
    """Give a model with tied embeddings a separate output head, initially equal to them."""
    import torch

    model.config.tie_word_embeddings = False
    model.lm_head.weight = torch.nn.Parameter(model.get_input_embeddings().weight.detach().clone())


def _write(source: Path, directory: Path) -> None:
    from transformers import AutoModelForCausalLM

    from algo.run.export import make_portable

    model = AutoModelForCausalLM.from_pretrained(source, dtype="auto", local_files_only=True)
    untie(model)
    shutil.copytree(source, directory, ignore=shutil.ignore_patterns(*_WRITTEN, ".*"))
    model.save_pretrained(directory)
    make_portable(directory)


def main(arguments: list[str] | None = None) -> int:
    """Entry point; the exit status is 0 with a model."""
    # The positional argument MODEL comes first.
    source = argparse.ArgumentParser(add_help=False)
    source.add_argument("source", type=Path, metavar="MODEL", help="model folder, e.g. models/Qwen3-0.6B")
    parser = folder_parser(
        "algo.untie_model",
        "Copy a model folder with tied embeddings to one with a separate output head, for training on CPU.",
        "models/Qwen3-0.6B-untied",
        parents=[source],
    )
    options = parser.parse_args(arguments)
    with exit_on(ConfigError, OSError, ValueError):  # also transformers' error for an unknown model
        directory = untie_model(options.source, options.directory, force=options.force)
    print(f"model ready in {directory}")
    return 0


if __name__ == "__main__":
    run_program(main)
