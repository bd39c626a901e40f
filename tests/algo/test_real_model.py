"""The pretrained model out of packages: its folder and its tokenizer. Skipped where the extra real is not installed.

vLLM serves it in tests/end_to_end/test_templates.py.
"""

import json
import math
import random
from itertools import pairwise

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoTokenizer

from algo.real_model import LICENCE, VOCABULARY_SIZE, choose_tokens, main, read_gguf
from algo.recipes.tiny_corpus import COMMON_CHARACTERS, CORPUS
from tests.support.small_models import load_model

pytestmark = pytest.mark.xdist_group("real model")  # which takes long to build: one worker does


def test_the_folder_has_two_tensors_the_licence_and_no_sampling_settings(real_model, capsys):
    assert main([str(real_model)]) == 0  # it is there already
    shown = capsys.readouterr().out
    assert LICENCE in shown and "SHA-256 a5fd3b62" in shown and "untied" in shown
    weights = load_file(real_model / "model.safetensors")
    assert weights["lm_head.weight"].shape == (VOCABULARY_SIZE, 640)
    assert torch.equal(weights["lm_head.weight"], weights["model.embed_tokens.weight"])
    assert {weight.dtype for weight in weights.values()} == {torch.float32}
    settings = json.loads((real_model / "generation_config.json").read_text())
    assert settings.keys() == {"eos_token_id", "pad_token_id", "transformers_version"}
    assert "Gemma" in (real_model / "GEMMA_TERMS.html").read_text()
    assert "license: gemma" in (real_model / "README.md").read_text()


def test_it_knows_chinese(real_model):
    """At most 6.5 bits a character; a model that draws one of its tokens blindly takes 11."""
    text = "昨天夜里三号玩家被狼人杀害了，大家请依次发言。我是村民，没有什么信息，只能听大家的发言来判断谁是狼人。"
    ids = torch.tensor([AutoTokenizer.from_pretrained(real_model).encode(f"<bos>{text}")])
    with torch.no_grad():
        loss = load_model(real_model)(ids, labels=ids).loss.item()
    assert loss * (ids.shape[1] - 1) / len(text) / math.log(2) < 6.5


@pytest.fixture(scope="module")
def vocabulary(real_tokenizer, tmp_path_factory):
    """Of the tokens that are kept: the score by token, and the id by token."""
    from gguf import GGUFReader

    fields = GGUFReader(read_gguf(tmp_path_factory.mktemp("gguf"))).fields
    tokens, scores = (fields[f"tokenizer.ggml.{name}"].contents() for name in ("tokens", "scores"))
    kept = choose_tokens(tokens)
    return {tokens[number]: scores[number] for number in kept}, {tokens[number]: at for at, number in enumerate(kept)}


def test_its_ids_are_those_of_the_files_own_merges(real_tokenizer, vocabulary):
    """SentencePiece's rule, plainly: join the neighbours whose token has the highest score, the leftmost first."""
    scores, ids = vocabulary
    scores = scores | {"\n\n": 0.5}  # user-defined tokens are taken before any merge

    def encode(text):
        pieces = list(text.replace(" ", "▁"))
        while pairs := [(-scores[a + b], at) for at, (a, b) in enumerate(pairwise(pieces)) if a + b in scores]:
            at = min(pairs)[1]
            pieces[at : at + 2] = [pieces[at] + pieces[at + 1]]
        return [
            number
            for piece in pieces
            for number in ([ids[piece]] if piece in ids else [ids[f"<0x{byte:02X}>"] for byte in piece.encode()])
        ]

    rng, lines, known = random.Random(0), CORPUS.splitlines(), [token for token in ids if not token.startswith("<")]
    samples = (
        lambda: rng.choice(lines),
        lambda: "".join(rng.choices(COMMON_CHARACTERS, k=40)),
        lambda: "".join(rng.choices(known, k=20)),
        lambda: "".join(rng.choices(" \n,.!？。aA0é😀Ж", k=30)),
        lambda: "".join(rng.choices("哈啊.-= \n0a", k=30)),
        lambda: "".join(chr(rng.randrange(32, 0x3000)) for _ in range(15)),
    )
    for number in range(10_000):
        text = samples[number % len(samples)]().replace("▁", "")
        found = real_tokenizer.encode(text, add_special_tokens=False)
        assert found == encode(text), text
        assert real_tokenizer.decode(found) == text
