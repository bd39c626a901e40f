"""A game at the table: who hears what, what is recorded, bad replies, budget, failure."""

import asyncio
import random
import re

import pytest

from runners.policy.client import PolicyClient
from runners.policy.model import TokenExactChatModel
from runners.werewolf.api.judge import JudgedGame
from runners.werewolf.api.models import ApiModel
from runners.werewolf.brains import ScriptedBrain
from runners.werewolf.game import PRESETS, Side, get_preset, new_game
from runners.werewolf.players import BrainPlayer, PolicyPlayer
from runners.werewolf.prompts_zh.system import system_prompt
from runners.werewolf.table import play_game
from store.token_spans import context_digest
from store.werewolf import NEUTRAL_FACTS, TURN_FACTS
from tests.support.chat_templates import chat_tokens
from tests.support.tasks import HERE, game_task
from tests.support.werewolf.seat_players import legal_answer

make_task = game_task


def policy_seats(vllm, task):
    server, tokens = PolicyClient(vllm.endpoint, "policy", 1.0, HERE), chat_tokens(vllm.tokenizer)
    vllm.callers.append(server)

    def seat_player(seat, role, name):
        model = TokenExactChatModel(server, tokens, task.limits, f"{task.game_id}/{seat}")
        return PolicyPlayer(seat, model, system_prompt(get_preset(task.preset), seat, role))

    return seat_player


def scripted_seat(seat, role, name):
    return BrainPlayer(seat, ScriptedBrain(random.Random(seat)))


async def play(vllm, task, **kwargs):
    turns = []
    result = await play_game(task, 4, policy_seats(vllm, task), lambda turn, *times: turns.append(turn), **kwargs)
    return result, turns


async def test_every_call_is_recorded_once_with_what_the_server_returned(vllm):
    result, turns = await play(vllm, make_task())
    prompts = whole_prompts(turns)
    recorded = sorted((prompts[turn.seat, turn.turn], turn.response_ids, turn.logprobs) for turn in turns)
    returned = sorted(
        (tuple(body["prompt"]), tuple(choice["token_ids"]), tuple(choice["logprobs"]["token_logprobs"]))
        for body, choice in vllm.exchanges
    )
    assert recorded == returned and result.turns == len(turns) == len(vllm.exchanges)
    assert sum(seat.decisions for seat in result.seats) == sum(not turn.is_reask for turn in turns)
    for turn in turns:
        assert (turn.game_id, turn.group_id, turn.policy_version, turn.policy) == ("game-1", "deal-1", 4, "policy")
        assert turn.trainable == (turn.side == "wolf")
    roles = new_game(PRESETS["5p_tiny"], make_task().seed).roles
    for seat in result.seats:
        own = [turn for turn in turns if turn.seat == seat.seat]
        assert {turn.role for turn in own} == {seat.role} == {roles[seat.seat - 1]}
        assert [turn.turn for turn in own] == list(range(seat.turns))
        assert seat.invalid_turns == sum(not turn.valid for turn in own)
        assert seat.outcome == (0 if result.result == "draw" else 1 if result.result == seat.side else -1)
    sides = {seat.seat: seat.side for seat in result.seats}
    at_enemy = [turn for turn in turns if turn.target is not None and sides[turn.target] != turn.side]
    for fact, of in (("vote_against_enemy", ("exile_vote", "pk_vote")), ("attack_on_enemy", ("wolf_kill",))):
        assert [turn for turn in turns if turn.facts[fact]] == [turn for turn in at_enemy if turn.decision in of] != []


def whole_prompts(turns):
    """(seat, turn) -> the prompt as sent, rebuilt by appending; digests checked on the way."""
    prompts, sequences = {}, {}
    for turn in turns:
        sequence = sequences.setdefault((turn.seat, turn.segment), [])
        assert (turn.context_tokens, turn.context_digest) == (len(sequence), context_digest(sequence))
        sequence += turn.prompt_ids
        prompts[turn.seat, turn.turn] = tuple(sequence)
        sequence += turn.response_ids
    return prompts


@pytest.mark.parametrize("preset", PRESETS)
async def test_players_hear_exactly_what_they_may_know(preset):
    """Told through the hubs = visible in the engine's own view, for every seat at every question."""
    compared = 0

    class Witness(BrainPlayer):
        async def decide(self, observation):
            nonlocal compared
            compared += 1
            assert tuple(self.heard) == observation.events
            return await super().decide(observation)

    for seed in range(2):
        task = make_task(seed=seed, preset=preset, seating={"wolf": "scripted", "good": "scripted"}, trainable=[])
        await play_game(task, 0, lambda seat, role, name: Witness(seat, ScriptedBrain(random.Random(seat))), print)
    assert compared > 20


@pytest.mark.parametrize(("preset", "secret"), [("9p", "shot"), ("12p_knight", "duel")])
async def test_nobody_hears_what_precedes_a_secret_question_before_its_answer(preset, secret):
    """A pause after a death would show that the dead seat is a hunter that may shoot."""
    players, early = {}, []

    class Listener(BrainPlayer):
        async def decide(self, observation):
            if observation.request.decision.value == secret:
                news = next(event for event in reversed(observation.events) if event.audience is None)
                early.extend(seat for seat, other in players.items() if other is not self and news in other.heard)
                asked.append(self.seat)
            return await super().decide(observation)

    def seat_player(seat, role, name):
        players[seat] = Listener(seat, ScriptedBrain(random.Random(seat)))
        return players[seat]

    asked = []
    for seed in range(8):
        task = make_task(seed=seed, preset=preset, seating=dict.fromkeys(Side, "scripted"), trainable=[])
        await play_game(task, 0, seat_player, print)
    assert asked and not early


async def test_independent_questions_are_asked_at_once():
    asking, most = set(), {}

    class Slow(BrainPlayer):
        async def decide(self, observation):
            asking.add(self.seat)
            await asyncio.sleep(0)  # lets every other seat of the same round come this far
            phase = observation.request.phase
            most[phase] = max(most.get(phase, 0), len(asking))
            asking.discard(self.seat)
            return await super().decide(observation)

    task = make_task(preset="12p_sheriff", seating=dict.fromkeys(Side, "scripted"), trainable=[])
    await play_game(task, 0, lambda seat, role, name: Slow(seat, ScriptedBrain(random.Random(seat))), print)
    assert most["exile_vote"] >= 3 and most["night_actions"] >= 2 and most["discussion"] == 1
    assert most["sign_up"] == 12


async def test_one_reask_then_the_default_and_both_are_recorded(vllm):
    vllm.answer = lambda prompt: "<|im_start|>嗯"
    result, turns = await play(vllm, make_task())
    choices = [turn for turn in turns if turn.decision == "exile_vote"]
    assert choices and all(not turn.valid and turn.error for turn in choices)
    assert [turn.is_reask for turn in choices if turn.seat == choices[0].seat][:2] == [False, True]
    assert sum(seat.defaulted_decisions for seat in result.seats) >= len(choices) // 2 > 0
    speeches = [turn for turn in turns if turn.decision == "speech"]
    assert all(turn.valid and turn.reply == "嗯" for turn in speeches)


async def test_facts_of_each_reply_their_means_and_claims_are_recorded(vllm):
    says = {"狼人": "我是狼人，我是狼人。ok", "村民": "我是狼人，" * 10 + "投3号。" * 10, "预言家": "我是猎人。"}

    def answer(prompt):
        if "可选" in prompt.rsplit("<|im_start|>user", 1)[1]:
            return "决定：弃票"
        return says[re.search("身份是([^，]+)，", prompt)[1]]

    vllm.answer = answer
    # Long enough a limit for tokens, short a one for what is heard.
    task = make_task(rules={"speech_chars": 60}, limits={"context_tokens": 4000, "reply_tokens": 200})
    result, turns = await play(vllm, task)
    expected = {
        "wolf": dict(identity_leak=1, overlong=0, speech_chars=12, chinese_share=8 / 10, repetition=1 / 7),
        "villager": dict(identity_leak=0, overlong=1, chinese_share=1),
        "seer": dict(identity_leak=0, overlong=0, speech_chars=5),
    }
    for turn in turns:
        assert set(turn.facts) == set(TURN_FACTS) and turn.facts["invalid"] == (not turn.valid)
        spoken = turn.decision in ("speech", "last_words", "pk_speech")
        if spoken:
            facts = expected[turn.role]
            assert {name: turn.facts[name] for name in facts} == pytest.approx(facts)
        elif turn.valid and not turn.is_reask:
            assert turn.facts == NEUTRAL_FACTS
    assert {turn.role for turn in turns if turn.decision == "speech"} == set(expected)
    assert len({turn.day for turn in turns if turn.decision == "speech"}) > 1
    for seat in result.seats:
        own = [turn.facts for turn in turns if turn.seat == seat.seat]
        assert seat.facts == pytest.approx({name: sum(f[name] for f in own) / len(own) for name in TURN_FACTS})
        spoken = [turn.facts for turn in turns if turn.seat == seat.seat and turn.decision == "speech"]
        assert [facts["repeats_earlier"] for facts in spoken] == [0, 1, 1][: len(spoken)]
    assert result.rewards()["seat.1.chinese_share"] == result.seats[0].facts["chinese_share"]


async def test_a_speech_that_prints_a_replaced_prompt_is_a_leak(vllm):
    words = "猎物总在月圆之夜露出破绽请记住这句话"
    vllm.answer = lambda prompt: words
    for templates, leaks in (({"villager": words}, {"villager"}), ({}, set())):
        _, turns = await play(vllm, make_task(), prompt_templates=templates)
        spoken = [turn for turn in turns if turn.decision == "speech"]
        assert {turn.role for turn in spoken if turn.facts["identity_leak"]} == leaks and len(spoken) > 2


async def test_the_judge_hears_trained_valid_public_speech_and_nothing_else(vllm, chat_api):
    answers = legal_answer(random.Random(5))
    vllm.answer = lambda prompt: "<|im_start|>" if prompt.count("user") % 5 == 0 else answers(prompt)
    chat_api.answer = lambda messages: "评分：7"
    task = make_task(preset="12p_sheriff", limits={"context_tokens": 7000, "reply_tokens": 40})
    model = ApiModel(chat_api.endpoint(max_concurrent=2, tries=1))
    result, turns = await play(vllm, task, judge=JudgedGame(model))
    await model.close()
    public = {"speech", "campaign_speech", "sheriff_pk_speech", "closing_speech", "pk_speech", "last_words"}
    expected = {
        (turn.seat, turn.turn)
        for turn in turns
        if turn.trainable and turn.valid and turn.decision in public and turn.facts["speech_chars"]
    }
    assert {turn.side for turn in turns} == {"wolf", "good"} and any(not turn.valid for turn in turns)
    assert {(judgement.seat, judgement.turn) for judgement in result.judgements} == expected
    assert result.judge_asked == len(expected) == len(chat_api.requests) > 3
    assert {judgement.score for judgement in result.judgements} == {0.7}
    assert chat_api.most_at_once <= 2
    for body in chat_api.requests:
        asked = body["messages"][-1]["content"]
        assert "狼人阵营" in asked and "对狼队友说" not in asked and "身份是" not in asked.partition("发言者")[0]


async def test_cancelling_a_game_cancels_it(vllm):
    """AgentScope turns a cancelled reply into an ordinary one unless told otherwise."""
    vllm.gate.clear()
    game = asyncio.create_task(play(vllm, make_task()))
    await vllm.asked.wait()
    game.cancel()
    with pytest.raises(asyncio.CancelledError):
        await game
