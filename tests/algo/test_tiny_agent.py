"""The tiny model that imitates conversations with tools."""

import json

import pytest

from algo.tiny_agent import Lesson, build_tiny_agent, pieces, read_lessons

TOOL = {"type": "function", "function": {"name": "look", "parameters": {"type": "object", "properties": {}}}}
CALL = {"id": "1", "type": "function", "function": {"name": "look", "arguments": '{"at": "door"}'}}
TOLD = {
    "messages": [
        {"role": "system", "content": "Be brief."},
        {"role": "assistant", "content": "Hello.", "weight": 0},
        {"role": "user", "content": "Who is it?"},
        {"role": "assistant", "content": None, "tool_calls": [CALL]},
        {"role": "tool", "tool_call_id": "1", "content": "Ann"},
        {"role": "assistant", "content": "It is Ann."},
        {"role": "user", "content": "Bye."},
    ],
    "tools": [TOOL],
}


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tiny")
    (folder / "lessons.jsonl").write_text(json.dumps(TOLD) + "\n")
    losses = []
    lessons = read_lessons(folder / "lessons.jsonl")
    build_tiny_agent(folder / "model", lessons, steps=25, on_step=lambda step, loss: losses.append(loss))
    return folder / "model", lessons, losses


def test_only_what_the_assistant_says_is_imitated_and_it_joins_to_what_a_server_renders(built):
    from transformers import AutoTokenizer

    folder, (lesson,), _ = built
    tokenizer = AutoTokenizer.from_pretrained(folder)
    found = list(pieces(tokenizer, lesson))
    imitated = [tokenizer.decode(ids) for ids, wanted in found if wanted]
    call = '<tool_call>\n{"name": "look", "arguments": {"at": "door"}}\n</tool_call>'
    assert imitated == [f"{call}<|im_end|>", "It is Ann.<|im_end|>"]
    whole = tokenizer.apply_chat_template(list(lesson.messages[:-1]), tools=[TOOL], tokenize=False)
    joined = [token for ids, _ in found for token in ids]
    assert tokenizer.decode(joined) + "\n" == whole
    assert joined == tokenizer.encode(whole, add_special_tokens=False)[: len(joined)]
    assert "Hello." in whole and json.dumps(TOOL["function"]) in whole


def test_it_learns_what_it_imitates(built):
    _, _, losses = built
    assert len(losses) == 25 and losses[-1] < losses[0] / 2


def test_a_model_of_the_same_lessons_is_kept_and_another_is_not_overwritten(built):
    folder, lessons, _ = built
    written = (folder / "model.safetensors").stat().st_mtime_ns
    build_tiny_agent(folder, lessons, steps=25)
    assert (folder / "model.safetensors").stat().st_mtime_ns == written
    for changes in ({"steps": 26}, {"seed": 1, "steps": 25}):
        with pytest.raises(FileExistsError, match="--force"):
            build_tiny_agent(folder, lessons, **changes)
    with pytest.raises(FileExistsError):
        build_tiny_agent(folder, [Lesson(lessons[0].messages)], steps=25)
