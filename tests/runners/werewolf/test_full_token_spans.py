"""A game with whole turns, from the worker through a real hub: both adapters read the same triplets."""

import random
import re
import struct

import pytest
from agentlightning import EnqueueRolloutRequest, RolloutConfig, TracerTraceToTriplet, find_final_reward

from algo.rollouts.triplets import read_attempt
from runners.werewolf.agent import WerewolfPlay
from runners.worker import Worker
from store.full_spans import ACTOR_SPAN, CALL_SPAN
from store.schema import PolicyResources
from store.werewolf import GAME, GameTask, is_result, is_turn
from tests.support.fakes import FakeVllm

RETRY = RolloutConfig(timeout_seconds=60, unresponsive_seconds=60, max_attempts=1, retry_condition=["failed"])


def answer(prompt):
    """A reply in form, one that is not, or one cut at its limit; from the prompt alone."""
    rng = random.Random(prompt)
    offered = re.search(r"可选：([^。）]*)[。）][^可]*$", prompt)
    legal = f"决定：{rng.choice(offered[1].split('、'))}" if offered else "我是好人。"
    return rng.choice([legal, legal, f"<think>想</think>{legal}", "？", "我觉得他很可疑" * 9])


@pytest.fixture
async def game(client, tiny_tokenizer, tiny_model):
    """The spans of a game that a worker has played with whole turns, and the requests in which they were uploaded."""
    vllm = FakeVllm(tiny_tokenizer, answer, str(tiny_model))
    policy = PolicyResources(run_name="run", version=3, endpoints=(await vllm.start(),), model="policy")
    await client.update_resources(policy.resources_id, policy.encode())
    task = GameTask(
        game_id="g",
        group_id="d",
        seed=2,
        sampling_seed=8,
        preset="5p_tiny",
        seating={"wolf": "policy", "good": "policy"},
        trainable=["wolf"],
        limits={"context_tokens": 800, "reply_tokens": 30},
    )
    request = EnqueueRolloutRequest(input=task.encode(), config=RETRY, resources_id=policy.resources_id)
    (rollout,) = await client.enqueue_many_rollouts([request])
    requests, upload = [], client.upload_spans

    async def counted(spans):
        requests.append(len(spans))
        return await upload(spans)

    client.upload_spans = counted
    play = WerewolfPlay(client)
    try:
        stats = await Worker(client, play, "w", max_games=1, full_token_spans=True).run()
    finally:
        await play.close()
        await vllm.stop()
    assert (stats.finished, stats.failed) == (1, 0)
    (rollout,) = await client.query_rollouts(rollout_id_in=[rollout.rollout_id])
    return rollout, list(await client.query_spans(rollout.rollout_id)), [count for count in requests if count]


def float32(values):
    return list(struct.unpack(f"{len(values)}f", struct.pack(f"{len(values)}f", *values)))


async def test_agentlightnings_adapter_and_ours_read_the_same(game):
    rollout, spans, _ = game
    ours = read_attempt(GAME, rollout.rollout_id, rollout.attempt.attempt_id, spans)
    theirs = TracerTraceToTriplet().adapt(spans)
    assert len(ours.triplets) == len(theirs) == ours.outcome.turns and not ours.left_out
    assert max(triplet.metadata["segment"] for triplet in ours.triplets) > 0  # prompts that do not continue the last
    for own, other in zip(ours.triplets, theirs, strict=True):
        assert other.prompt["token_ids"] == own.prompt["token_ids"]
        assert other.response["token_ids"] == own.response["token_ids"]
        assert float32([token["logprob"] for token in other.response["logprobs"]]) == own.response["logprobs"]
        assert f"/seat-{own.metadata['seat']}/" in other.metadata["agent_name"]
    trained = TracerTraceToTriplet(agent_match="trainable").adapt(spans)
    assert len(trained) == sum(triplet.metadata["trainable"] for triplet in ours.triplets) > 0
    reward = {"good": 1.0, "wolf": -1.0, "draw": 0.0}[ours.outcome.result]
    assert (
        [triplet.reward for triplet in theirs if triplet.reward is not None] == [reward] == [find_final_reward(spans)]
    )


async def test_nothing_else_changes(game):
    rollout, spans, requests = game
    kinds = [(span.name, is_turn(span), is_result(span)) for span in spans]
    turns = sum(map(is_turn, spans))
    assert kinds == [
        *[("werewolf.turn", True, False), (CALL_SPAN, False, False)] * turns,
        ("agentlightning.annotation", False, True),
        *[(ACTOR_SPAN, False, False)] * 5,
    ]
    assert rollout.status == "succeeded"
    assert sum(requests) == len(spans) > 5 * len(requests)  # in bulk
