"""The trained policy in tokens: segments, budget, seeds, and a server that misbehaves."""

import asyncio

import pytest

from runners.errors import PolicyUnavailable
from runners.policy.model import ContextFull, TokenExactChatModel
from runners.policy.server import PolicyServer
from runners.policy.transport import NoAnswer, Transport
from store.schema import TokenLimits
from store.token_spans import context_digest
from tests.support.chat_templates import chat_tokens
from tests.support.fakes import FakeVllm
from tests.support.tasks import HERE
from tests.support.waiting import until

SYSTEM = {"role": "system", "content": "你是3号。"}
REPLY = {"role": "assistant", "content": "好的"}


def user(text):
    return {"role": "user", "content": text}


@pytest.fixture
async def vllm(tiny_tokenizer):
    fake = FakeVllm(tiny_tokenizer, lambda prompt: "好的")
    fake.endpoint = await fake.start()
    yield fake
    await fake.stop()


def make_model(vllm, context_tokens=1000, reply_tokens=20, key="game-1/3"):
    server, tokens = PolicyServer(vllm.endpoint, "policy", temperature=0.7, addresses=HERE), chat_tokens(vllm.tokenizer)
    server.stop_token_ids = (tokens.end_of_turn,)
    limits = TokenLimits(context_tokens=context_tokens, reply_tokens=reply_tokens)
    return TokenExactChatModel(server, tokens, limits, key)


async def test_each_prompt_is_the_last_prompt_the_sampled_ids_and_the_new_message(vllm):
    model = make_model(vllm)
    first = (await model([SYSTEM, user("一")])).metadata["sampled"]
    second = (await model([SYSTEM, user("一"), REPLY, user("二")])).metadata["sampled"]
    sent = [body["prompt"] for body, _ in vllm.exchanges]
    assert sent[0] == list(first.prompt_ids)
    assert sent[1] == [*first.prompt_ids, *first.response_ids, *second.prompt_ids]
    assert (first.context_tokens, second.context_tokens) == (0, len(first.prompt_ids) + len(first.response_ids))
    assert second.context_digest == context_digest([*first.prompt_ids, *first.response_ids])
    assert first.segment == second.segment == 0
    returned = [choice for _, choice in vllm.exchanges]
    assert [list(turn.response_ids) for turn in (first, second)] == [choice["token_ids"] for choice in returned]
    assert list(first.logprobs) == returned[0]["logprobs"]["token_logprobs"]


async def test_sampling_is_seeded_by_game_seat_and_call(vllm):
    for key in ("game-1/3", "game-1/3", "game-1/4"):
        model = make_model(vllm, key=key)
        await model([SYSTEM, user("一")])
        await model([SYSTEM, user("一"), REPLY, user("二")])
    seeds = [body["seed"] for body, _ in vllm.exchanges]
    assert seeds[0:2] == seeds[2:4] and len(set(seeds)) == 4
    for body, _ in vllm.exchanges:  # nothing of the server's own sampling defaults may apply
        sampling = [body[name] for name in ("temperature", "top_p", "top_k", "min_p", "repetition_penalty")]
        assert sampling == [0.7, 1.0, -1, 0.0, 1.0]
        assert body["stop_token_ids"] == [vllm.tokenizer.eos_token_id]


async def test_another_conversation_starts_a_new_segment(vllm):
    model = make_model(vllm)
    await model([SYSTEM, user("一")])
    turn = (await model([SYSTEM, user("前情提要")])).metadata["sampled"]
    assert (turn.segment, turn.context_tokens) == (1, 0)
    assert vllm.exchanges[1][0]["prompt"] == list(turn.prompt_ids)


async def test_a_turn_that_does_not_fit_is_refused_before_anything_is_sent(vllm):
    model = make_model(vllm, context_tokens=60, reply_tokens=20)
    with pytest.raises(ContextFull, match="pass the budget of 60"):
        await model([SYSTEM, user("很长的话。" * 30)])
    assert vllm.exchanges == []
    await model([SYSTEM, user("短")])


async def test_what_a_call_would_take_is_told_without_a_call(vllm):
    model = make_model(vllm, context_tokens=200, reply_tokens=20)
    text = "长"
    for conversation in ([SYSTEM, user("一")], [SYSTEM, user("一"), REPLY, user("二")]):
        excess = await model.excess(conversation)
        fitting = [*conversation[:-1], user(conversation[-1]["content"] + text * -excess)]
        assert await model.excess(fitting) == 0
        with pytest.raises(ContextFull, match=r"by 1$"):
            await model([*fitting[:-1], user(fitting[-1]["content"] + text)])
        sent = len(vllm.exchanges)
        assert await model.excess(conversation) == excess and len(vllm.exchanges) == sent
        await model(conversation)


async def test_a_server_that_recovers_is_retried_and_one_that_does_not_is_named(vllm, monkeypatch):
    model = make_model(vllm)
    vllm.fail_next = 1
    await model([SYSTEM, user("一")])
    assert len(vllm.exchanges) == 1
    await vllm.stop()
    monkeypatch.setattr(model._server._transport, "patience_seconds", 0)
    with pytest.raises(PolicyUnavailable, match=r"no answer.*127\.0\.0\.1.*Is vLLM running"):
        await model([SYSTEM, user("一"), REPLY, user("二")])


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda choice: choice.pop("token_ids"), "no token ids"),
        (lambda choice: choice["prompt_token_ids"].append(1), "changed the prompt"),
        (lambda choice: choice["token_ids"].append(1), "log-probs"),
        (lambda choice: choice.update(finish_reason="abort"), "broke off a reply"),
    ],
)
async def test_an_answer_that_is_not_token_exact_is_refused(vllm, spoil, message):
    server = PolicyServer(vllm.endpoint, "policy", temperature=1.0, addresses=HERE)
    await server.complete([5, 6], 4, seed=1)
    choice = vllm.exchanges[0][1]
    spoil(choice)
    with pytest.raises(PolicyUnavailable, match=message):
        server._read(choice, [5, 6])
    await server.close()


async def test_the_models_folder_is_what_the_server_names(vllm):
    vllm.model_folder = "/models/x"
    assert await PolicyServer(vllm.endpoint, "policy", 1.0, HERE).model_folder() == "/models/x"
    assert await PolicyServer(vllm.endpoint, "policy", 1.0, HERE).context_tokens() == vllm.context_tokens
    with pytest.raises(PolicyUnavailable, match="serves policy, not 'other'"):
        await PolicyServer(vllm.endpoint, "other", 1.0, HERE).model_folder()


async def test_an_adapters_folder_and_limit_are_those_of_its_model(vllm):
    vllm.model_folder, vllm.adapters = "/models/x", {"learned": "/runs/learned/policy/version-000003"}
    server = PolicyServer(vllm.endpoint, "learned", 1.0, HERE)
    assert (await server.model_folder(), await server.context_tokens()) == ("/models/x", vllm.context_tokens)
    await server.close()


async def test_a_slow_answer_is_waited_for_as_long_as_the_server_lives(vllm):
    transport = Transport(patience_seconds=0, silence_seconds=0.05)
    url, body = f"{vllm.endpoint}/completions", {"prompt": [5], "max_tokens": 4, "model": "policy"}
    vllm.gate.clear()
    answering = asyncio.create_task(transport.send("POST", url, body))
    async with asyncio.timeout(60):
        await until(lambda: vllm.signs_of_life >= 3)  # silent for longer than three times the silence
    assert not answering.done()
    vllm.gate.set()
    assert (await answering)[0]["choices"] and len(vllm.exchanges) == 1  # and was asked once

    vllm.gate.clear()
    vllm.healthy = False
    with pytest.raises(NoAnswer, match="503"):
        await transport.send("POST", url, body)
    await transport.close()
