"""``python -m algo.tiny_model DIR``: build a tiny random Qwen3 with a Chinese tokenizer.

With it the whole system runs without a download. It writes a Hugging Face model folder of about 0.95 million
parameters, or 1.2 million with ``--layers 3``. The tokenizer's merges come from ``tiny_corpus``, the random weights
from the seed.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from algo.machine.built_folder import build_folder, folder_parser
from algo.recipes.tiny_corpus import COMMON_CHARACTERS, CORPUS, TABLE_TALK
from store.program import run_program

# torch and transformers take ten seconds to import; only a build needs them.
if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerFast, Qwen3ForCausalLM

MARKER_FILE = "tiny_model.json"
"""See ``build_folder``."""

VOCABULARY_SIZE = 2048
LAYERS = 2
"""Few, since vLLM's attention on CPU takes most of a game's time, and its cost grows with them."""
CONTEXT_TOKENS = 32768
END_OF_TURN = "<|im_end|>"
PADDING = "<|endoftext|>"

# Control tokens (ids 0..2) vanish with skip_special_tokens; the thinking tags (the last ids) stay in
# the text, as in Qwen3, because the reply parser has to see them.
_CONTROL_TOKENS = (PADDING, "<|im_start|>", END_OF_TURN)
_THINKING_TAGS = ("<think>", "</think>")

# Qwen's splitting rule (single digits), except that a seat's name is one piece, and so one token: random weights then
# name a seat sometimes, and the games of an untrained model differ.
_SPLIT = (
    r"\p{N}{1,2}号|"
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)

# Half of 1 / sqrt(hidden_size), at which logits of the untrained model would be of order one.
_EMBEDDING_DEVIATION = 0.06

# Number of repetitions of every character and seat, so that each becomes one token before frequent words of the corpus
# fill the vocabulary.
_WHOLE_TOKEN_WEIGHT = 60
_CORPUS_WEIGHT = 4

# Prefix-stable, unlike Qwen3's own: an assistant message is rendered as sampled, with its thoughts, so the next prompt
# extends the previous prompt and reply token by token.
_CHAT_TEMPLATE = (
    "{%- for message in messages -%}"
    "{{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>' + '\\n' -}}"
    "{%- endfor -%}"
    "{%- if add_generation_prompt -%}"
    "{{- '<|im_start|>assistant\\n' -}}"
    "{%- if enable_thinking is defined and enable_thinking is false -%}"
    "{{- '<think>\\n\\n</think>\\n\\n' -}}"
    "{%- endif -%}"
    "{%- endif -%}"
)


def build_tiny_model(directory: Path | str, seed: int = 0, *, layers: int = LAYERS, force: bool = False) -> Path:
    """Build the model folder at ``directory``; see ``build_folder``.

    seed: of the weights (float32). layers: of the transformer. With three, comparing two statements is learned from
    fewer games.
    """
    deeper = {} if layers == LAYERS else {"layers": layers}
    recipe = {"built_by": "algo.tiny_model", "format": 6, "seed": seed} | deeper

    def write(folder: Path) -> None:
        tokenizer = train_tokenizer(_training_text(), VOCABULARY_SIZE, _THINKING_TAGS, _CHAT_TEMPLATE)
        save_model(folder, new_model(tokenizer, seed, layers), tokenizer)

    return build_folder(Path(directory), MARKER_FILE, recipe, write, force=force)


def new_model(tokenizer: "PreTrainedTokenizerFast", seed: int, layers: int = LAYERS) -> "Qwen3ForCausalLM":
    """A tiny Qwen3 for a tokenizer, with random weights (float32) from the seed."""
    import torch
    from transformers import Qwen3Config, Qwen3ForCausalLM

    config = Qwen3Config(
        vocab_size=len(tokenizer),
        hidden_size=128,
        intermediate_size=384,
        num_hidden_layers=layers,
        # Few, for the same reason as the layers.
        num_attention_heads=4,
        num_key_value_heads=4,
        head_dim=32,
        max_position_embeddings=CONTEXT_TOKENS,
        # vLLM 0.28 on CPU keeps the old output head of a tied model when its weights are reloaded.
        tie_word_embeddings=False,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        dtype="float32",
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = Qwen3ForCausalLM(config)
        _start_by_copying(model)
    return model


def save_model(
    directory: Path,
    model: "PreTrainedModel",
    tokenizer: "PreTrainedTokenizerFast",
    card: str = "---\nlicense: mit\n---\n\nA tiny model with random weights.\n",
) -> None:
    """Write a model folder with a generation config of token ids only."""
    from transformers import GenerationConfig

    from algo.run.export import CARD, make_portable

    # Token ids only: a temperature or top_p in this file would change the sampling.
    model.generation_config = GenerationConfig(eos_token_id=tokenizer.eos_token_id, pad_token_id=tokenizer.pad_token_id)
    model.save_pretrained(directory)
    tokenizer.save_pretrained(directory)
    make_portable(directory)
    (directory / CARD).write_text(card, encoding="utf-8")


def _start_by_copying(model: "Qwen3ForCausalLM") -> None:
    """Initialise the model so that attended tokens become more likely outputs.

    Output head and embedding start equal (as two tensors), and in each layer the output projection inverts the value
    projection. A player mostly has to learn to repeat a seat's name; with the usual initialisation that takes several
    times as many games. After A. Trockman and J. Z. Kolter, Mimetic Initialization of Self-Attention Layers, ICML 2023.
    """
    import torch

    with torch.no_grad():
        model.model.embed_tokens.weight.normal_(0.0, _EMBEDDING_DEVIATION)
        model.lm_head.weight.copy_(model.model.embed_tokens.weight)
        for layer in model.model.layers:
            # The concatenated values are as wide as the residual stream, so that o_proj is an exact inverse.
            rotation = torch.linalg.qr(torch.randn_like(layer.self_attn.v_proj.weight)).Q
            layer.self_attn.v_proj.weight.copy_(rotation)
            layer.self_attn.o_proj.weight.copy_(rotation.T)
        # With more layers, the earlier ones attend to tokens similar to their own: other occurrences of a seat's name.
        # With two this gains little, and that model must not change.
        if len(model.model.layers) > LAYERS:
            for layer in model.model.layers[:-1]:
                layer.self_attn.k_proj.weight.copy_(layer.self_attn.q_proj.weight)


def train_tokenizer(
    text: Iterable[str], vocabulary_size: int, tags: Sequence[str], chat_template: str
) -> "PreTrainedTokenizerFast":
    """A byte-level BPE tokenizer trained on ``text``; ``tags`` are its last tokens, and stay in decoded texts."""
    from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(_SPLIT), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator(
        text,
        trainers.BpeTrainer(
            vocab_size=vocabulary_size - len(tags),
            special_tokens=[AddedToken(token, special=True, normalized=False) for token in _CONTROL_TOKENS],
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        ),
    )
    tokenizer.add_tokens([AddedToken(tag, special=False, normalized=False) for tag in tags])
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token=END_OF_TURN,
        pad_token=PADDING,
        model_max_length=CONTEXT_TOKENS,
        clean_up_tokenization_spaces=False,
    )
    fast.chat_template = chat_template
    return fast


def _training_text() -> list[str]:
    characters = sorted({character for character in CORPUS + COMMON_CHARACTERS if not character.isspace()})
    seats = [f"{seat}号" for seat in range(1, 13)]
    whole = [*characters, *seats, "system", "user", "assistant"]
    return CORPUS.splitlines() * _CORPUS_WEIGHT + (whole + TABLE_TALK.splitlines()) * _WHOLE_TOKEN_WEIGHT


def main(arguments: list[str] | None = None) -> None:
    """The command line: ``python -m algo.tiny_model DIR [--seed N] [--force]``."""
    parser = folder_parser(
        "algo.tiny_model",
        "Write a tiny random Qwen3 (0.95 million parameters) with a Chinese tokenizer: a model folder to try the whole "
        "system on a CPU, without any download.",
        "runs/tiny_model",
    )
    parser.add_argument("--seed", type=int, default=0, help="seed of the random weights (default: %(default)s)")
    parser.add_argument("--layers", type=int, default=LAYERS, help="number of layers (default: %(default)s)")
    options = parser.parse_args(arguments)
    if options.layers < 1:
        parser.error(f"--layers {options.layers}: must be at least 1")
    try:
        directory = build_tiny_model(options.directory, options.seed, layers=options.layers, force=options.force)
    except OSError as error:
        parser.error(str(error))
    print(f"tiny model ready in {directory}")


if __name__ == "__main__":
    run_program(main)
