"""Conversations under the templates of other families: their ids only grow."""

import pytest

from tests.support.chat_templates import FOREIGN, chat_tokens, with_template

pytestmark = pytest.mark.xdist_group("real model")  # which takes long to build: one worker does

SYSTEM = {"role": "system", "content": "你在玩狼人杀。你是3号，身份是预言家，属好人阵营。"}
QUESTIONS = [
    "【法官】第1夜，天黑请闭眼。\n【法官】请查验一人，可选：1号、2号、不查验。",
    "【法官】2号是狼人。请发言。",
    "请投票。",
]
REPLIES = ["决定：2号", "I checked seat 2:  狼人！ 请大家投2号。 ", "<think>2号可疑</think>决定：2号"]


def user(text):
    return {"role": "user", "content": text}


async def conversation(tokens, tokenizer, replies):
    """Ids of a conversation as a seat holds them, each reply sampled with its end."""
    ids = await tokens.first_prompt([SYSTEM, user(QUESTIONS[0])])
    for reply, question in zip(replies, [*QUESTIONS[1:], "天亮了。"], strict=True):
        sampled = [*tokenizer.encode(reply, add_special_tokens=False), tokens.end_of_turn]
        assert await tokens.decode_reply(sampled) == reply
        ids += [*sampled, *await tokens.next_prompt(sampled, [user(question)])]
    return ids


def rendered(tokenizer):
    """The same conversation's ids, rendered as a whole."""
    told = [SYSTEM, user(QUESTIONS[0])]
    for reply, question in zip(REPLIES, [*QUESTIONS[1:], "天亮了。"], strict=True):
        told += [{"role": "assistant", "content": reply.strip()}, user(question)]
    return tokenizer.apply_chat_template(told, add_generation_prompt=True, return_dict=False)


@pytest.mark.parametrize("family", ["as shipped", "system merged"])
async def test_the_ids_of_a_growing_conversation_are_the_templates_own(real_tokenizer, family):
    tokenizer = with_template(real_tokenizer, FOREIGN.get(family))
    ids = await conversation(chat_tokens(tokenizer), tokenizer, [reply.strip() for reply in REPLIES])
    assert ids == rendered(tokenizer)


@pytest.mark.parametrize("thinking", [False, True])
async def test_thoughts_that_a_template_would_forget_stay(tiny_tokenizer, thinking):
    tokenizer = with_template(tiny_tokenizer, FOREIGN["thinking"])
    ids = await conversation(chat_tokens(tokenizer, thinking), tokenizer, REPLIES)
    head = "" if thinking else "<think>\n\n</think>\n\n"
    expected = f"<|im_start|>system\n{SYSTEM['content']}"
    for before, question in zip(["", *REPLIES], [*QUESTIONS, "天亮了。"], strict=True):
        expected += f"{before}<|im_end|>\n<|im_start|>user\n{question}<|im_end|>\n<|im_start|>assistant\n{head}"
    assert tokenizer.decode(ids) == expected
