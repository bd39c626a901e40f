"""Folders that hold no usable model are refused by name, before anything is started, and without a traceback."""

import json
import struct

import pytest
from tokenizers import Tokenizer, models

from configs.model_folder import check_model_folder, check_model_folders
from configs.schema import Config
from configs.section import ConfigError


def safetensors(data=b"\0" * 8):
    header = json.dumps({"w": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}, "__metadata__": {}}).encode()
    return struct.pack("<Q", len(header)) + header + data


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "tokenizer.json").write_text("{}")
    (tmp_path / "model.safetensors").write_bytes(safetensors())
    return tmp_path


DAMAGE = {
    "no JSON": ("config.json", b"<html>", r"config\.json is not valid JSON"),
    "binary": ("config.json", b"\xff\xfe\0", r"config\.json is not valid JSON"),
    "deep": ("config.json", b"[" * 200_000, r"config\.json is not valid JSON"),
    "another JSON": ("config.json", b"[]", r"config\.json must hold a JSON object"),
    "cut data": ("model.safetensors", safetensors(b"\0" * 3), r"it has \d+ of \d+ bytes"),
    "cut header": ("model.safetensors", safetensors()[:20], "its header is longer than the file"),
    "empty": ("model.safetensors", b"", "is not a valid safetensors file"),
    "a pointer to a large file": ("model.safetensors", b"version https://git-lfs.github.com/spec/v1", "not a valid"),
    "other entries": ("model.safetensors", struct.pack("<Q", 8) + b'{"w": 1}', "not a valid safetensors file"),
}


@pytest.mark.parametrize(("name", "content", "told"), DAMAGE.values(), ids=DAMAGE)
def test_what_is_damaged_is_named_with_the_remedy(folder, name, content, told):
    check_model_folder(folder)
    (folder / name).write_bytes(content)
    with pytest.raises(ConfigError, match=rf"^model\.path: .*{folder}.*{told}.*again"):
        check_model_folder(folder)


def test_a_file_that_the_index_names_and_that_is_missing_is_named_with_the_remedy(folder):
    index, files = folder / "model.safetensors.index.json", {"a": "model.safetensors", "b": "model-2.safetensors"}
    index.write_text(json.dumps({"weight_map": files}))
    with pytest.raises(ConfigError, match=rf"^model\.path {folder} .*model-2\.safetensors.*download .* again"):
        check_model_folder(folder)
    (folder / "model-2.safetensors").write_bytes(safetensors())
    check_model_folder(folder)
    index.write_text("{}")
    with pytest.raises(ConfigError, match=r"is not a valid index.*again"):
        check_model_folder(folder)


@pytest.mark.parametrize("section", ["reference", "critic"])
def test_a_reference_and_a_critic_have_the_policys_tokens(tmp_path, section):
    folders = [tmp_path / name for name in ("policy", "other")]
    for folder in folders:
        folder.mkdir()
        (folder / "config.json").write_text("{}")
        (folder / "model.safetensors").write_bytes(safetensors())
    kl = {"kl": "loss"} if section == "reference" else {}
    config = Config.model_validate({"model": {"path": folders[0]}, section: {"path": folders[1], **kl}})

    def check(*vocabularies):
        for folder, tokens in zip(folders, vocabularies, strict=True):
            Tokenizer(models.WordLevel(tokens, "a")).save(str(folder / "tokenizer.json"))
        check_model_folders(config)

    check({"a": 0, "b": 1}, {"a": 0, "b": 1, "more": 2})
    for other in ({"a": 0}, {"a": 1, "b": 0}):
        with pytest.raises(ConfigError, match=rf"^{section}\.path .*other has other token ids .* same tokenizer"):
            check({"a": 0, "b": 1}, other)
