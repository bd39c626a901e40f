"""The trained policy in tokens: segments, budget, seeds."""

import pytest

from runners.policy.client import PolicyClient
from runners.policy.model import ContextFull, TokenExactChatModel
from store.schema import TokenLimits
from tests.support.chat_templates import chat_tokens
from tests.support.tasks import HERE

SYSTEM = {"role": "system", "content": "你是3号。"}
REPLY = {"role": "assistant", "content": "好的"}


def user(text):
    return {"role": "user", "content": text}


def make_model(vllm, context_tokens=1000, reply_tokens=20, key="game-1/3"):
    server, tokens = PolicyClient(vllm.endpoint, "policy", temperature=0.7, addresses=HERE), chat_tokens(vllm.tokenizer)
    vllm.callers.append(server)
    server.stop_token_ids = (tokens.end_of_turn,)
    limits = TokenLimits(context_tokens=context_tokens, reply_tokens=reply_tokens)
    return TokenExactChatModel(server, tokens, limits, key)


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


async def test_the_tokens_of_a_call_are_counted_without_a_call(vllm):
    model = make_model(vllm, context_tokens=200, reply_tokens=20)
    text = "长"
    for conversation in ([SYSTEM, user("一")], [SYSTEM, user("一"), REPLY, user("二")]):
        excess = await model.excess(conversation)
        fitting = [*conversation[:-1], user(conversation[-1]["content"] + text * -excess)]
        sent = len(vllm.exchanges)
        assert await model.excess(fitting) == 0
        with pytest.raises(ContextFull, match=r"by 1$"):
            await model([*fitting[:-1], user(fitting[-1]["content"] + text)])
        assert await model.excess(conversation) == excess and len(vllm.exchanges) == sent
        await model(conversation)
