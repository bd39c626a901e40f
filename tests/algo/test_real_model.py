"""The pretrained model out of packages: its folder, its tokenizer, and equal log-probs of vLLM and plain PyTorch.

Where the extra real is not installed, these tests are skipped, and vLLM serves a random model of the same architecture.
"""

import json
import math
import random
from itertools import pairwise

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoTokenizer, Gemma3ForCausalLM, Gemma3TextConfig

from algo.real_model import LICENCE, VOCABULARY_SIZE, choose_tokens, main, read_gguf
from algo.recipes.tiny_corpus import COMMON_CHARACTERS, CORPUS
from algo.serving.server_group import ServerGroup
from runners.policy.client import PolicyClient
from tests.support.algo.fake_vllm import serving_config
from tests.support.chat_templates import FOREIGN, chat_tokens, with_template
from tests.support.small_models import load_model
from tests.support.tasks import HERE

pytestmark = pytest.mark.xdist_group("real model")  # which takes long to build: one worker does

WINDOW = 512
"""Tokens that a layer with a sliding window looks back on."""


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


@pytest.fixture
def served_model(request, tiny_model, tmp_path):
    """The pretrained model where it is installed; else a random one of its architecture, with few layers."""
    try:
        return request.getfixturevalue("real_model")
    except pytest.skip.Exception:
        tokenizer = AutoTokenizer.from_pretrained(tiny_model)
        heads = dict(num_attention_heads=4, num_key_value_heads=1, head_dim=256, num_hidden_layers=6)
        torch.manual_seed(0)
        settings = Gemma3TextConfig(
            vocab_size=len(tokenizer), hidden_size=640, intermediate_size=2048, sliding_window=WINDOW, **heads
        )
        settings.update({"eos_token_id": tokenizer.eos_token_id, "tie_word_embeddings": False, "dtype": torch.float32})
        Gemma3ForCausalLM(settings).save_pretrained(tmp_path)
        tokenizer.save_pretrained(tmp_path)
        return tmp_path


@pytest.mark.vllm
@pytest.mark.timeout(900)
async def test_vllms_log_probs_are_those_of_a_plain_forward_pass_under_every_template(served_model, tmp_path):
    """Three turns under each template, sampled by vLLM at its temperature, from ids that grow beyond the window."""
    temperature, question = 0.7, {"role": "user", "content": "【法官】3号，请投票放逐一人，可选：1号、2号、弃票。"}
    system = {"role": "system", "content": "你在玩狼人杀。你是3号。" * (WINDOW // 4)}
    tokenizer, model = AutoTokenizer.from_pretrained(served_model), load_model(served_model)
    config = serving_config(tmp_path, served_model, kv_cache_gb=0.25, start_timeout_seconds=900)
    async with await ServerGroup.open(config) as serving:
        server = PolicyClient(serving.endpoints[0], serving.model, temperature, HERE)
        for family in (None, *FOREIGN):
            for thinking in [False, True] if family == "thinking" else [False]:
                tokens = chat_tokens(with_template(tokenizer, FOREIGN.get(family)), thinking)
                server.stop_token_ids = (tokens.end_of_turn,)
                ids, expected, returned = await tokens.first_prompt([system, question]), [], []
                for turn in range(3):
                    reply = await server.complete(ids, 24, seed=turn)
                    where = range(len(ids), len(ids) + len(reply.token_ids))
                    ids = [*ids, *reply.token_ids]
                    with torch.no_grad():
                        found = torch.log_softmax(model(torch.tensor([ids])).logits[0] / temperature, -1)
                    expected += [found[at - 1, ids[at]].item() for at in where]
                    returned += reply.logprobs
                    ids += await tokens.next_prompt(reply.token_ids, [question])
                assert len(ids) > WINDOW and len(expected) >= 3 and max(map(abs, expected)) > 0.01
                assert returned == pytest.approx(expected, abs=1e-4), (family, thinking)
        await server.close()
