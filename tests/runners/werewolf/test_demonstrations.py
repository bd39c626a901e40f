"""Demonstrations: a turn holds what the policy would have been sent, token by token, and what its demonstrator did."""

import re
from collections import Counter

import pytest

from runners.errors import UnusableTokenizer
from runners.policy.client import Completion
from runners.policy.model import TokenExactChatModel
from runners.werewolf.demonstrations import DEFAULTED
from runners.werewolf.game import PRESETS, get_preset
from runners.werewolf.players import PolicyPlayer
from runners.werewolf.prompts_zh.names import REFEREE, ROLE_NAMES
from runners.werewolf.prompts_zh.system import system_prompt
from runners.werewolf.table import play_game
from store.schema import PolicyResources
from tests.support.chat_templates import chat_tokens
from tests.support.tasks import game_task
from tests.support.tasks import play_task as play
from tests.support.werewolf.seat_players import offered


def make_task(preset="5p_tiny", context_tokens=20_000, reply_tokens=400, **changes):
    own = dict(seed=6, trainable=["wolf", "good"], demonstrators=["scripted"]) | changes
    own = dict(seating={"wolf": "scripted", "good": "scripted"}) | own
    return game_task(context_tokens=context_tokens, reply_tokens=reply_tokens, preset=preset, **own)


@pytest.fixture(scope="module")
def unserved(tiny_model):
    return PolicyResources(run_name="run", version=0, endpoints=(), model=str(tiny_model))


class RepeatingServer:
    """A fake of ``PolicyClient`` that answers with the given token ids, one after another."""

    model = "fake"

    def __init__(self, replies):
        self.replies, self.prompts = list(replies), []

    async def complete(self, prompt_ids, max_tokens, seed):
        self.prompts.append(list(prompt_ids))
        token_ids = self.replies.pop(0)
        return Completion(token_ids, (0.0,) * len(token_ids), "stop")


SEEN = (
    *("seat", "turn", "segment", "decision", "is_reask", "context_tokens", "context_digest"),
    *("prompt_ids", "response_ids", "finish_reason", "reply", "facts"),
)


def what_was_seen(turn):
    return [getattr(turn, name) for name in SEEN]


@pytest.mark.parametrize(("preset", "context_tokens"), [*((name, 20_000) for name in PRESETS), ("12p_sheriff", 3_500)])
async def test_every_decision_is_a_turn_that_a_policy_with_these_replies_would_have_had(
    unserved, tiny_tokenizer, preset, context_tokens
):
    task = make_task(preset, context_tokens)
    result, turns = await play(task, unserved)
    plain, silent = await play(make_task(preset, demonstrators=[], trainable=[]), unserved)
    assert silent == [] and result.transcript == plain.transcript  # the game is the demonstrators' own
    assert len(turns) == sum(seat.decisions for seat in result.seats) == result.turns
    assert all(turn.valid and turn.trainable and turn.policy == "scripted" and not turn.facts["cut"] for turn in turns)
    assert all(set(turn.logprobs) == {0.0} and turn.policy_version == 0 for turn in turns)
    assert (context_tokens == 3_500) == any(turn.segment for turn in turns)

    tokens = chat_tokens(tiny_tokenizer)
    asked = []

    def policy_seat(seat, role, name):
        server = RepeatingServer(turn.response_ids for turn in turns if turn.seat == seat)
        prompt = system_prompt(get_preset(preset), seat, role)
        return PolicyPlayer(seat, TokenExactChatModel(server, tokens, task.limits, "key"), prompt)

    again = await play_game(task, 0, policy_seat, lambda turn, *times: asked.append(turn))
    assert again.transcript == result.transcript
    assert sorted(map(what_was_seen, asked), key=str) == sorted(map(what_was_seen, turns), key=str)


@pytest.mark.parametrize("context_tokens", [20_000, 3_500], ids=["whole", "recaps"])
async def test_every_question_ends_with_the_reminder(unserved, tiny_tokenizer, context_tokens):
    task = make_task("12p_sheriff", context_tokens)
    reminding = unserved.model_copy(update={"prompt_templates": {"reminder": "记住，你是{role}。{private}"}})
    result, turns = await play(task, reminding)
    roles = {seat.seat: ROLE_NAMES[seat.role] for seat in result.seats}
    checks: list[str] = []
    for turn in turns:
        asked, reminded, private = tiny_tokenizer.decode(turn.prompt_ids).rpartition(
            f"。记住，你是{roles[turn.seat]}。"
        )
        assert reminded and private.count("<|im_end|>") == 1 and "\n" not in private.partition("<|im_end|>")[0]
        if turn.role == "seer":
            checks += [one for one in re.findall(r"【法官】(查验结果：\d+号是..。)", asked) if one not in checks]
            assert private.startswith("".join(checks) + "<|im_end|>")
        else:
            assert "查验" not in private and private.startswith("狼人是") == (turn.side == "wolf")
    assert len(checks) > 1
    assert (context_tokens == 3_500) == any(turn.segment for turn in turns)


async def test_only_demonstrators_leave_turns_and_only_trainable_sides_are_trained_on(unserved):
    task = make_task(seating={"wolf": "scripted", "good": "random"}, trainable=["wolf"])
    result, turns = await play(task, unserved)
    assert {turn.side for turn in turns} == {"wolf"} and all(turn.trainable for turn in turns)
    assert {seat.side: seat.trainable for seat in result.seats} == {"wolf": True, "good": False}
    _, turns = await play(make_task(trainable=["good"]), unserved)
    assert {(turn.side, turn.trainable) for turn in turns} == {("wolf", False), ("good", True)}


async def test_a_speech_beyond_the_reply_limit_is_heard_as_far_as_it_is_recorded_and_recorded_as_cut(unserved):
    result, turns = await play(make_task(reply_tokens=8), unserved)
    cut = [turn for turn in turns if turn.facts["cut"]]
    assert cut and all(turn.finish_reason == "length" and len(turn.response_ids) == 8 for turn in cut)
    spoken = [turn for turn in cut if turn.decision == "speech" and turn.valid]
    assert spoken and all(turn.reply in result.transcript for turn in spoken)


async def test_a_model_behind_an_api_demonstrates_without_its_thoughts_and_never_what_could_not_be_used(
    unserved, chat_api
):
    asked = Counter()

    def answer(messages):
        options = offered(messages[-1]["content"])
        asked["choices" if options else "speeches"] += 1
        if options and asked["choices"] <= 2:  # once, and once again: the first choice is taken by default
            return "我再想想"
        return f"<think>不能说出来的</think>{'决定：' + options[-1] if options else '我是好人，请听我说。'}"

    chat_api.answer = answer
    players = {"strong": chat_api.endpoint(max_concurrent=1)}
    task = make_task(seating={"wolf": "scripted", "good": "strong"}, trainable=["good"], demonstrators=["strong"])
    result, turns = await play(task, unserved.model_copy(update={"players": players}))
    assert {turn.policy for turn in turns} == {"strong"} and all(turn.trainable for turn in turns)
    assert Counter(turn.error for turn in turns) == {DEFAULTED: 1, None: len(turns) - 1} and len(turns) > 3
    assert asked.total() == len(turns) + 1
    # It hears what the seat hears.
    assert all(f"{REFEREE}: " in body["messages"][-1]["content"] for body in chat_api.requests)
    assert all("不能说出来的" not in turn.reply + turn.thought for turn in turns)
    assert sum(seat.defaulted_decisions for seat in result.seats) == 1


async def test_words_that_look_like_control_tokens_stay_words(tiny_tokenizer):
    tokens = chat_tokens(tiny_tokenizer)
    ids = await tokens.encode_reply("我是<|im_end|>好人")
    assert ids.count(tokens.end_of_turn) == 1 and ids[-1] == tokens.end_of_turn
    assert "好人" in await tokens.decode_reply(ids)


async def test_a_thought_that_the_prompt_opened_is_closed_before_the_words(tiny_tokenizer):
    from copy import deepcopy

    from runners.werewolf.language.replies import split_thought

    opening = deepcopy(tiny_tokenizer)
    opening.chat_template = opening.chat_template.replace("<think>\\n\\n</think>\\n\\n", "<think>\\n")
    tokens = chat_tokens(opening)
    assert split_thought(await tokens.decode_reply(await tokens.encode_reply("决定：3号"))) == ("", "决定：3号")


async def test_a_tokenizer_that_is_elsewhere_is_named_with_the_remedy(unserved, tmp_path, tiny_model):
    elsewhere = unserved.model_copy(update={"model": str(tmp_path / "missing")})
    with pytest.raises(UnusableTokenizer, match=r"missing.*--tokenizer"):
        await play(make_task(), elsewhere)
    result, turns = await play(make_task(), elsewhere, tokenizer=tiny_model)
    assert len(turns) == result.turns > 0
