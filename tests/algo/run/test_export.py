"""An exported model: read by transformers 4 as by 5, readable by others, with a card that says how it came about."""

import json

import pytest
import yaml
from tokenizers import Tokenizer, models
from transformers import AutoTokenizer, PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

from algo.run.export import make_portable, write_card
from configs.loading import load_config

SIZES = dict(hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=2, head_dim=16)


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
    rope = {"rope_type": "default", "rope_theta": 77.0}
    model = Qwen3ForCausalLM(Qwen3Config(vocab_size=64, num_key_value_heads=1, rope_parameters=rope, **SIZES))
    model.save_pretrained(tmp_path / "model")
    return tmp_path / "model"


def test_transformers_4_finds_the_same_model(folder):
    """It reads ``rope_theta`` beside ``rope_parameters``, its own class of tokenizers, and another key of tokens."""
    make_portable(folder)
    config, told = (json.loads((folder / name).read_text()) for name in ("config.json", "tokenizer_config.json"))
    assert (config["rope_theta"], config["rope_scaling"]) == (77.0, None)
    assert told["tokenizer_class"] == "PreTrainedTokenizerFast" and told["additional_special_tokens"] == ["w5"]
    assert not {"extra_special_tokens", "backend", "is_local", "local_files_only"} & told.keys()
    assert "w5" in AutoTokenizer.from_pretrained(folder).all_special_tokens  # transformers 5 still reads it
    # Weights are as readable as the other files.
    assert len({path.stat().st_mode & 0o777 for path in folder.iterdir()}) == 1


def test_the_card_says_how_the_model_came_about_and_not_where(folder, tmp_path):
    base = tmp_path / "base"
    base.mkdir()
    (base / "README.md").write_text("---\nlicense: apache-2.0\n---\n# Base\n")
    (base / "LICENSE").write_text("the licence")
    (base / "GEMMA_TERMS.html").write_text("the terms")
    (base / "LICENSES").mkdir()
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
