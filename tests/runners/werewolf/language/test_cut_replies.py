"""That a reply was cut at the token limit reaches the reader, from a policy's server and from a chat endpoint."""

import json

import pytest
from agentscope.model import ChatResponse

from runners.policy.model import SampledTurn
from runners.werewolf.api.models import ApiModels
from runners.werewolf.api.player import ApiPlayer
from runners.werewolf.game import Action
from runners.werewolf.players import PolicyPlayer
from tests.support.werewolf.fakes_api import text
from tests.support.werewolf.reply_tables import QUESTIONS, seen

SEEN = seen(QUESTIONS["vote"])


async def test_what_a_policy_had_not_finished_is_no_choice():
    finish_reasons = iter(["length", "stop"])

    asked = []

    async def model(messages):
        asked.append(messages[-1]["content"])
        sampled = SampledTurn(0, 0, "", (1,), (2,), (-1.0,), next(finish_reasons), 0.0, 0.0)
        return ChatResponse(content=[{"type": "text", "text": "决定：1"}], metadata={"sampled": sampled})

    decided = await PolicyPlayer(2, model, "你是2号。", lambda known: "你是村民。").decide(SEEN)
    assert decided.action == Action(1) and [turn.error for turn in decided.turns] == ["cut", None]
    assert [text.endswith("”。你是村民。") for text in asked] == [True, True]


@pytest.mark.parametrize(("used", "chosen"), [(64, 12), (63, 1)])
async def test_a_chat_reply_that_used_up_its_tokens_is_a_cut_one(chat_api, used, chosen):
    """AgentScope hands on how many tokens a reply used, and no finish reason."""
    choice = {"index": 0, "finish_reason": "length", "message": {"role": "assistant", "content": "决定：1"}}
    usage = {"prompt_tokens": 9, "completion_tokens": used, "total_tokens": 9 + used}
    body = {"id": "f", "object": "chat.completion", "created": 0, "model": "m", "choices": [choice], "usage": usage}
    chat_api.answer, models = lambda messages: "决定：12号", ApiModels()
    chat_api.faults = [text(json.dumps(body))]
    player = ApiPlayer(2, models.get(chat_api.endpoint(max_tokens=64)), "你是2号。")
    assert (await player.decide(SEEN)).action == Action(chosen)
    await models.close()
