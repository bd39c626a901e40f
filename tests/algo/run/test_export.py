"""An exported model: read by transformers 4 as by 5, readable by others, with a card that says how it came about."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import yaml
from tokenizers import Tokenizer, models
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

from algo.run.export import make_portable, write_card
from configs.loading import load_config

SENTENCE = "w3 w1 w4 w5"
SIZES = dict(hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=2, head_dim=16)
TRANSFORMERS_4 = """
import json, sys, torch
from transformers import AutoModelForCausalLM, AutoTokenizer, __version__
assert __version__.startswith("4.57"), __version__
tokenizer = AutoTokenizer.from_pretrained(sys.argv[1])
ids = tokenizer("w3 w1 w4 w5", return_tensors="pt").input_ids
with torch.no_grad():
    logits = AutoModelForCausalLM.from_pretrained(sys.argv[1], dtype=torch.float32)(ids).logits
print(json.dumps([ids.tolist(), tokenizer.all_special_tokens, logits.tolist()]))
"""


@pytest.fixture
def folder(tmp_path):
    """A model as transformers 5 writes it: with a rope_theta that is no default, and more special tokens."""
    words = {f"w{number}": number for number in range(64)}
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer(models.WordLevel(words, unk_token="w0")),
        eos_token="w1",
        extra_special_tokens=["w5"],
    )
    tokenizer.save_pretrained(tmp_path / "model")
    torch.manual_seed(0)
    rope = {"rope_type": "default", "rope_theta": 77.0}
    model = Qwen3ForCausalLM(Qwen3Config(vocab_size=64, num_key_value_heads=1, rope_parameters=rope, **SIZES))
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    model.save_pretrained(tmp_path / "model")
    return tmp_path / "model"


@pytest.mark.slow  # it installs another transformers
def test_transformers_4_computes_what_5_does(folder, tmp_path):
    make_portable(folder)
    packages = ("transformers==4.57.6", "tokenizers<0.23", "huggingface_hub<1")
    install = [
        Path(sys.executable).with_name("uv"),
        "pip",
        "install",
        "--no-config",
        "--no-deps",
        "--target",
        tmp_path / "four",
        *packages,
    ]
    subprocess.run(install, check=True, capture_output=True)
    command = [sys.executable, "-c", TRANSFORMERS_4, folder]
    environment = os.environ | {"PYTHONPATH": str(tmp_path / "four")}
    found = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert found.returncode == 0, found.stderr
    ids, special, logits = json.loads(found.stdout)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    assert (ids, special) == ([tokenizer(SENTENCE).input_ids], tokenizer.all_special_tokens)
    assert "w5" in special
    with torch.no_grad():
        expected = AutoModelForCausalLM.from_pretrained(folder)(torch.tensor(ids)).logits
    assert torch.allclose(torch.tensor(logits), expected, atol=1e-5)


def test_weights_are_as_readable_as_the_other_files(folder):
    make_portable(folder)
    assert len({path.stat().st_mode & 0o777 for path in folder.iterdir()}) == 1


def test_the_card_says_how_the_model_came_about_and_not_where(folder, tmp_path):
    base = tmp_path / "base"
    base.mkdir()
    (base / "README.md").write_text("---\nlicense: apache-2.0\n---\n# Base\n")
    (base / "LICENSE").write_text("the licence")
    (base / "GEMMA_TERMS.html").write_text("the terms")
    config = load_config(None, [f"model.path={base}", "serving.mode=attach", "serving.urls=[http://my-machine:8000]"])
    said = {"title": "run, step 3", "data": "40 games", "compared": "before -> after"}
    write_card(folder, config, **said, results=[("win rate", "10 % -> 30 %")], played=[3, 1, 4])
    _, front_matter, text = (folder / "README.md").read_text().split("---\n", 2)
    assert yaml.safe_load(front_matter)["license"] == "apache-2.0"
    assert (folder / "LICENSE").read_text() == "the licence"
    assert (folder / "GEMMA_TERMS.html").read_text() == "the terms"
    for part in ("40 games", "| win rate | 10 % -> 30 % |", "w3 w1 w4", "preset: 5p_tiny"):
        assert part in text
    assert "my-machine" not in text
