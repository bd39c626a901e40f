import json

import pytest
import torch
from transformers import AutoModelForCausalLM

from algo.tiny_model import MARKER_FILE, build_tiny_model

# Not in the tokenizer's corpus.
ORDINARY_TEXT = (
    "你是一名经验丰富的狼人杀玩家，本局共7人。昨晚4号倒牌，没有遗言。请你结合警上发言和票型，判断11号与12号谁更像狼人，"
    "并说明理由。女巫昨晚开药了吗？如果预言家对跳，守卫应当先守警长。我建议先放逐5号，今晚再看验人信息，投错了算我的。决定：5号"
)


def contents(directory):
    return {file.name: file.read_bytes() for file in directory.iterdir()}


def test_the_same_seed_gives_the_same_files_and_another_seed_other_weights_only(tiny_model, tmp_path):
    again = contents(build_tiny_model(tmp_path / "again", seed=0))
    other = contents(build_tiny_model(tmp_path / "other", seed=1))
    assert again == contents(tiny_model)
    assert {name for name in other if other[name] != again[name]} == {"model.safetensors", MARKER_FILE}


def test_a_deeper_one_begins_by_looking_at_what_is_like_the_token_itself(tiny_model, tmp_path):
    folder = build_tiny_model(tmp_path / "deeper", layers=3)
    model = AutoModelForCausalLM.from_pretrained(folder)
    alike = [torch.equal(layer.self_attn.q_proj.weight, layer.self_attn.k_proj.weight) for layer in model.model.layers]
    assert alike == [True, True, False]
    assert build_tiny_model(folder, layers=3) == folder
    with pytest.raises(FileExistsError, match="--force"):
        build_tiny_model(folder)
    assert contents(build_tiny_model(folder, force=True)) == contents(tiny_model)
    assert [path.name for path in tmp_path.iterdir()] == ["deeper"]  # no scratch folder is left


def test_the_folder_sets_no_sampling_defaults(tiny_model):
    settings = json.loads((tiny_model / "generation_config.json").read_text())
    settings.pop("transformers_version")
    assert settings == {"eos_token_id": 2, "pad_token_id": 0}


def test_ordinary_prompts_cost_less_than_a_token_per_character(tiny_tokenizer):
    assert len(tiny_tokenizer(ORDINARY_TEXT)["input_ids"]) < 1.0 * len(ORDINARY_TEXT)
    for word in "狼预女猎守警徽投票弃空刀遗平安逐验查":
        assert len(tiny_tokenizer(word)["input_ids"]) == 1, word


def test_thinking_tags_are_single_tokens_that_stay_in_the_text(tiny_tokenizer):
    ids = tiny_tokenizer("<think>好</think>决定<|im_end|>")["input_ids"]
    assert len(ids) == 5
    assert ids[-1] == tiny_tokenizer.eos_token_id
    assert tiny_tokenizer.decode(ids, skip_special_tokens=True) == "<think>好</think>决定"
    assert tiny_tokenizer.pad_token == "<|endoftext|>"


@pytest.mark.parametrize("force", [False, True])
def test_a_folder_of_something_else_is_never_touched(tmp_path, force):
    (tmp_path / "thesis.txt").write_text("years of work")
    with pytest.raises(FileExistsError, match=r"was not written by algo\.tiny_model"):
        build_tiny_model(tmp_path, force=force)
    assert contents(tmp_path) == {"thesis.txt": b"years of work"}
