"""agentlightning's own runner and trainer play the same games, and store the same spans, as our worker."""

import pytest
from agentlightning import LightningStoreClient, LitAgentRunner, OtelTracer, find_final_reward

from runners.werewolf.lit_agent import WerewolfLitAgent
from runners.werewolf.werewolf_play import WerewolfPlay
from runners.worker import Worker
from store.protocol import SPAN_SEQUENCE_ID
from store.werewolf import ResultSpan, TurnSpan
from tests.support.hub.asking import RETRY, enqueue_tasks
from tests.support.tasks import game_task


@pytest.fixture
async def agent():
    agent = WerewolfLitAgent()
    yield agent
    await agent.close()


def without_times_and_ids(spans):
    """What two games' spans must have in common: everything but when and in which attempt they were played."""
    return [
        (
            span.name,
            span.sequence_id,
            span.parent_id,
            # OTLP carries the sequence id as an attribute.
            {name: value for name, value in span.attributes.items() if name != SPAN_SEQUENCE_ID},
        )
        for span in spans
    ]


async def test_agentlightnings_runner_stores_the_spans_that_our_worker_stores(client, vllm, policy, agent):
    # The answer follows from the prompt alone, so that two runners get the same game.
    vllm.answer = lambda prompt: f"决定：{len(prompt) % 5 + 1}号"
    task = game_task(seed=2, seating={"wolf": "policy", "good": "scripted"}, context_tokens=2000, reply_tokens=30)
    ours, theirs = await enqueue_tasks(client, policy, [task, task], config=RETRY)
    play, their_client = WerewolfPlay(client), LightningStoreClient(client.server_address_root)
    await Worker(client, play, "ours", max_rollouts=1).run()
    await play.close()
    runner = LitAgentRunner(tracer=OtelTracer(), max_rollouts=1, poll_interval=0.1, heartbeat_launch_mode="asyncio")
    with runner.run_context(agent=agent, store=their_client):
        await runner.iter()
    await their_client.close()
    found = {rollout.rollout_id: rollout for rollout in await client.query_rollouts()}
    assert {found[ours].attempt.worker_id, found[theirs].attempt.worker_id} == {"ours", "Worker-0"}
    assert found[ours].status == found[theirs].status == "succeeded"
    spans = {rollout_id: list(await client.query_spans(rollout_id)) for rollout_id in found}
    assert any(map(TurnSpan.is_in, spans[ours])) and sum(map(ResultSpan.is_in, spans[ours])) == 1
    assert without_times_and_ids(spans[ours]) == without_times_and_ids(spans[theirs])
    assert find_final_reward(spans[theirs]) == find_final_reward(spans[ours])
    assert all(span.attempt_id == found[theirs].attempt.attempt_id for span in spans[theirs])
