"""A game goes on from a recorded decision: its past is the recorded one, token by token, and its rest is new."""

import random

import pytest

from algo.rollouts.triplets import triplets_of
from runners.errors import UnusableTask
from store.token_spans import context_digest
from store.werewolf import GameTask, Past, RecordedReply, TurnSpan
from tests.support.tasks import game_task, play_task
from tests.support.werewolf.seat_players import legal_answer

SAMPLING_SEED, BRANCHED = 8, 9


async def play(policy, task):
    result, turns = await play_task(GameTask.decode(task.encode()), policy)
    return result, [turn for turn in turns if isinstance(turn, TurnSpan)]


def prompts_of(turns):
    found = triplets_of(sorted(turns, key=lambda turn: (turn.seat, turn.turn)))
    return {(one.metadata["seat"], one.metadata["turn"]): tuple(one.prompt["token_ids"]) for one in found}


def past_of(turns, decision):
    prompts, replies = prompts_of(turns), {}
    for turn in turns:
        if turn.moment < decision.moment or (turn.moment == decision.moment and turn.seat != decision.seat):
            prompt = context_digest(prompts[turn.seat, turn.turn])
            reply = RecordedReply(prompt=prompt, token_ids=turn.response_ids, finish_reason=turn.finish_reason)
            replies.setdefault(turn.seat, []).append(reply)
    prompt = context_digest(prompts[decision.seat, decision.turn])
    own = dict(moment=decision.moment, seat=decision.seat, prompt=prompt, replies=replies)
    return Past(game_id="game-1", sampling_seed=SAMPLING_SEED, **own)


PLAYERS = [
    ("5p_tiny", "policy", "policy"),
    ("7p", "policy", "scripted"),
    ("7p", "expert", "policy"),
    ("12p_sheriff", "policy", "random"),
]


@pytest.mark.parametrize(("preset", "wolf", "good"), PLAYERS)
async def test_the_past_is_repeated_without_a_call_and_the_rest_is_played_anew(vllm, policy, preset, wolf, good):
    # Some replies are unusable, so that questions are asked again.
    usable, chance = vllm.answer, random.Random(2)
    vllm.answer = lambda prompt: usable(prompt) if chance.random() < 0.8 else "我再想想"
    task = game_task(
        preset=preset, seed=5, sampling_seed=SAMPLING_SEED, seating={"wolf": wolf, "good": good}, context_tokens=20_000,
        trainable=[side for side, name in (("wolf", wolf), ("good", good)) if name == "policy"],
    )  # fmt: skip
    recorded, turns = await play(policy, task)
    moments = [turn for turn in turns if not turn.is_reask]
    decision = moments[len(moments) // 2]
    vllm.exchanges.clear()
    branches = []
    for seed in range(2):
        past = past_of(turns, decision)
        branch = task.model_copy(update={"game_id": f"b{seed}", "sampling_seed": BRANCHED + seed, "past": past})
        result, again = await play(policy, branch)
        branches.append(result.transcript)
        assert result.turns == len(again)

        def is_past(turn):
            return turn.moment < decision.moment or (turn.moment == decision.moment and turn.seat != decision.seat)

        seen = ("seat", "turn", "segment", "moment", "decision", "prompt_ids", "response_ids", "reply")
        before, repeated = (
            sorted([getattr(turn, name) for name in seen] for turn in of if is_past(turn)) for of in (turns, again)
        )
        assert repeated == before and before
        assert not any(turn.trainable for turn in again if is_past(turn))
        assert all(turn.trainable == (turn.policy == "policy") for turn in again if not is_past(turn))
        # The decision gets the recorded prompt, and everything new was sampled by a call.
        key = decision.seat, decision.turn
        assert prompts_of(again)[key] == prompts_of(turns)[key]
        asked = sorted(tuple(body["prompt"]) for body, _ in vllm.exchanges)
        assert asked == sorted(prompts_of(again)[turn.seat, turn.turn] for turn in again if not is_past(turn))
        vllm.exchanges.clear()
    assert len({recorded.transcript, *branches}) > 1


async def test_players_without_a_model_choose_anew_after_the_decision_and_as_recorded_before_it(vllm, policy):
    """The policy answers the same every time, so that all that differs is theirs."""
    vllm.answer = lambda prompt: legal_answer(random.Random(len(prompt)))(prompt)
    task = game_task(preset="7p", seed=5, sampling_seed=SAMPLING_SEED, seating={"wolf": "policy", "good": "random"})
    recorded, turns = await play(policy, task)
    decision = turns[len(turns) // 2]
    past, events = past_of(turns, decision), []
    for seed in (1, 2, 3):
        result, again = await play(policy, task.model_copy(update={"past": past, "sampling_seed": seed}))
        events.append(result.as_data(again)["events"])
        assert events[-1][: decision.events_before] == recorded.as_data(turns)["events"][: decision.events_before]
    assert decision.events_before > 10 and not events[0] == events[1] == events[2]


async def test_a_past_that_this_runner_does_not_repeat_is_refused(policy):
    task = game_task(sampling_seed=SAMPLING_SEED, seating={"wolf": "policy", "good": "scripted"})
    _, turns = await play(policy, task)
    past = past_of(turns, turns[-1])
    for wrong in (past.model_copy(update={"prompt": "0"}), past.model_copy(update={"moment": past.moment - 1})):
        with pytest.raises(UnusableTask, match="recorded"):
            await play(policy, task.model_copy(update={"past": wrong}))


async def test_seats_stay_with_the_servers_of_the_recorded_game(vllms, policy):
    policy = policy.model_copy(update={"endpoints": tuple(vllm.endpoint for vllm in vllms)})
    task = game_task(sampling_seed=SAMPLING_SEED)
    _, turns = await play(policy, task)
    first = {turn.seat: turn for turn in turns if turn.turn == 0}

    def served():
        """(server, seat) of all calls, by the prompts with which the recorded seats began."""
        return {
            (server.endpoint, seat)
            for server in vllms
            for body, _ in server.exchanges
            for seat, turn in first.items()
            if tuple(body["prompt"][: len(turn.prompt_ids)]) == turn.prompt_ids
        }

    known = served()
    for number in range(5):
        past = past_of(turns, first[1])
        branch = task.model_copy(update={"game_id": f"b{number}", "sampling_seed": number, "past": past})
        await play(policy, branch)
    assert served() == known and len({server for server, _ in known}) == 2
