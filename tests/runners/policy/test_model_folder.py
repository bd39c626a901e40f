"""Tokens and chat templates of a model's folder, against transformers': the same ids, the same texts."""

import asyncio
import copy
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jinja2.exceptions import SecurityError

from runners.policy.codecs import LocalCodec, UnusableTemplate
from runners.policy.model_folder import ChatTemplates
from tests.runners.policy.test_chat_tokens import TEMPLATES
from tests.support.agents.tool_model import TEMPLATE, TOOL

pytestmark = pytest.mark.xdist_group("real model")  # which takes long to build: one worker does

CALL = {"type": "function", "id": "c1", "function": {"name": "calculate", "arguments": '{"of": "1+1 <&> 验"}'}}
CONVERSATIONS = (
    [{"role": "user", "content": "你好"}],
    [{"role": "system", "content": " 你是3号 "}, {"role": "user", "content": "投谁？\n"}],
    [
        {"role": "user", "content": "1+1?"},
        {"role": "assistant", "content": "", "tool_calls": [CALL]},
        {"role": "tool", "content": "2"},
    ],
)
ODD = {
    "generation": "{% for m in messages %}{% generation %}{% set own = m.content %}{{ own }}{% endgeneration %}"
    "\n{{ own }}|{% endfor %}",
    "json": "{{ messages | tojson }}{{ messages | tojson(indent=2, sort_keys=True) }}{{ tools | tojson }}",
    "loops": "{% for m in messages %}{% if loop.index > 1 %}{% break %}{% endif %}\n    {{ m.role }}\n{% endfor %}",
    "special": "{{ bos_token }}{{ eos_token }}{{ pad_token }}{{ documents }}{{ strftime_now('%Y') }}",
}


@pytest.fixture(params=["tiny", "real"])
def tokenizer(request):
    return copy.deepcopy(request.getfixturevalue(f"{request.param}_tokenizer"))


def theirs(tokenizer, messages, **more):
    """As transformers, and with it vLLM, renders a conversation."""
    decoded = json.loads(json.dumps(messages))
    for message in decoded:
        for call in message.get("tool_calls", ()):
            call["function"]["arguments"] = json.loads(call["function"]["arguments"])
    return tokenizer.apply_chat_template(
        decoded, tokenize=False, **{"add_generation_prompt": True} | more, enable_thinking=False, thinking=False
    )


@pytest.mark.parametrize("template", [None, TEMPLATE, *TEMPLATES.values(), *ODD.values()])
def test_conversations_are_rendered_as_by_transformers(tokenizer, tmp_path, template):
    tokenizer.chat_template = template or tokenizer.chat_template or TEMPLATE
    tokenizer.save_pretrained(tmp_path)
    codec = LocalCodec.of(tmp_path)
    for messages in CONVERSATIONS:
        for more in ({}, {"tools": [TOOL]}, {"add_generation_prompt": False}):
            expected = theirs(tokenizer, messages, **more)
            ids = asyncio.run(codec.render(messages, **more))
            assert ids == tokenizer.encode(expected, add_special_tokens=False)
            assert asyncio.run(codec.text(ids)) == tokenizer.decode(ids)


@settings(max_examples=100, deadline=None)
@given(
    text=st.text() | st.text(st.sampled_from("我是好人3号\n \t.,'s<|im_end|>think/é\u0301😀ﷺ")),
    ids=st.lists(st.integers(0, 2**16)),
)
@pytest.mark.parametrize("name", ["tiny_codec", pytest.param("real_codec", marks=pytest.mark.real)])
def test_any_text_and_any_ids(request, name, text, ids):
    tokenizer, codec = request.getfixturevalue(name)
    assert asyncio.run(codec.encode(text)) == tokenizer.encode(text, add_special_tokens=False)
    ids = [number % len(tokenizer) for number in ids]
    assert asyncio.run(codec.text(ids)) == tokenizer.decode(ids)
    assert codec.added == tokenizer.get_added_vocab()


def codec_of(tokenizer, folder):
    tokenizer = copy.deepcopy(tokenizer)
    tokenizer.chat_template = TEMPLATE
    tokenizer.save_pretrained(folder)
    return tokenizer, LocalCodec.of(folder)


@pytest.fixture(scope="module")
def tiny_codec(tiny_tokenizer, tmp_path_factory):
    return codec_of(tiny_tokenizer, tmp_path_factory.mktemp("tiny"))


@pytest.fixture(scope="module")
def real_codec(real_tokenizer, tmp_path_factory):
    return codec_of(real_tokenizer, tmp_path_factory.mktemp("real"))


@pytest.mark.parametrize("with_file", [False, True])
@pytest.mark.parametrize("as_list", [False, True])
def test_templates_are_found_where_transformers_finds_them(tiny_tokenizer, tmp_path, with_file, as_list):
    from transformers import AutoTokenizer

    tiny_tokenizer.save_pretrained(tmp_path)
    (tmp_path / "chat_template.jinja").unlink()
    file = tmp_path / "tokenizer_config.json"
    named = [{"name": "default", "template": "listed"}, {"name": "tool_use", "template": "listed tools"}]
    config = json.loads(file.read_text()) | {"chat_template": named if as_list else "configured"}
    config["eos_token"] = {"content": config["eos_token"], "lstrip": False, "__type": "AddedToken"}
    file.write_text(json.dumps(config))
    if with_file:
        (tmp_path / "chat_template.jinja").write_text("filed{{ eos_token }}")
        (tmp_path / "additional_chat_templates").mkdir()
        (tmp_path / "additional_chat_templates" / "tool_use.jinja").write_text("filed tools")
    tokenizer, templates = AutoTokenizer.from_pretrained(tmp_path), ChatTemplates(tmp_path)
    for tools in (None, [TOOL]):
        assert templates.render(CONVERSATIONS[0], tools) == theirs(tokenizer, CONVERSATIONS[0], tools=tools)


@pytest.mark.parametrize(
    "attack",
    ["{{ ''.__class__.__mro__ }}", "{{ messages.append(1) }}", "{{ (0).__class__.__base__.__subclasses__() }}"],
)
def test_a_template_is_in_a_sandbox(tiny_tokenizer, tmp_path, attack):
    tiny_tokenizer.save_pretrained(tmp_path)
    (tmp_path / "chat_template.jinja").write_text(attack)
    with pytest.raises(SecurityError):
        ChatTemplates(tmp_path).render(CONVERSATIONS[0], None)
    with pytest.raises(UnusableTemplate):
        asyncio.run(LocalCodec.of(tmp_path).render(CONVERSATIONS[0]))
