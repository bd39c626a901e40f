"""A model with tied embeddings as one that can be trained on CPU."""

import json

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, Gemma3TextConfig

from algo.serving.preconditions import ServingError, require_servable_model
from algo.serving.weight_files import is_tied
from algo.untie_model import main, untie_model
from configs.section import ConfigError
from tests.support.processes import exit_status
from tests.support.small_models import make_model


def test_an_untied_copy_is_the_same_model_and_can_be_trained_on_cpu(tmp_path, capsys):
    tied = make_model(tmp_path / "tied", tied=True)
    (tied / "LICENSE").write_text("free")
    with pytest.raises(ServingError, match=rf"python -m algo\.untie_model {tied} {tied}-untied"):
        require_servable_model(tied, "model.path", "cpu", takes_weights=True)
    assert main([str(tied), f"{tied}-untied"]) == 0
    copy = tmp_path / "tied-untied"
    require_servable_model(copy, "model.path", "cpu", takes_weights=True)
    assert (copy / "LICENSE").read_text() == "free" and len(AutoTokenizer.from_pretrained(copy)) == 64
    models = [AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32) for folder in (tied, copy)]
    ids = torch.tensor([[3, 5, 8]])
    with torch.no_grad():
        assert torch.equal(*(model(ids).logits for model in models))
    assert models[1].lm_head.weight is not models[1].get_input_embeddings().weight
    assert main([str(tied), str(copy)]) == 0, "one that is there is kept"


def test_what_is_untied_or_somebody_elses_is_left_alone(tmp_path, capsys):
    untied = make_model(tmp_path / "untied", tied=False)
    with pytest.raises(ConfigError, match="no tied embeddings"):
        untie_model(untied, tmp_path / "copy")
    before = json.loads((untied / "config.json").read_text())
    tied = make_model(tmp_path / "tied", tied=True)
    assert exit_status(main, [str(tied), str(untied)]) == 2 and "was not written by" in capsys.readouterr().err
    assert json.loads((untied / "config.json").read_text()) == before


def test_a_model_is_tied_by_default_where_its_class_is(tmp_path):
    """Published Gemma 3 models do not say it."""
    shape = dict(vocab_size=64, hidden_size=32, intermediate_size=64, num_hidden_layers=1, num_attention_heads=2)
    Gemma3TextConfig(**shape, num_key_value_heads=1, head_dim=16).save_pretrained(tmp_path)
    told = json.loads((tmp_path / "config.json").read_text())
    told.pop("tie_word_embeddings", None)
    (tmp_path / "config.json").write_text(json.dumps(told))
    assert is_tied(tmp_path)
    with pytest.raises(ServingError, match="tied embeddings"):
        require_servable_model(tmp_path, "model.path", "cpu", takes_weights=True)
