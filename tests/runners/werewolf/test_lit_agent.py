"""agentlightning's own runner and trainer play the same games, and store the same spans, as our worker."""

import pytest
from agentlightning import (
    Attempt,
    AttemptedRollout,
    DummyTracer,
    EnqueueRolloutRequest,
    LightningStoreClient,
    LitAgentRunner,
    OtelTracer,
    RolloutConfig,
    find_final_reward,
)

from runners.addresses import Addresses
from runners.errors import AddressRefused
from runners.werewolf.lit_agent import WerewolfLitAgent, lightning_resources
from runners.werewolf.werewolf_play import WerewolfPlay
from runners.worker import Worker
from store.players import ChatEndpoint
from store.protocol import SPAN_SEQUENCE_ID
from store.schema import PolicyResources
from store.werewolf import ResultSpan, TurnSpan, is_result, is_turn
from tests.support.fakes import FakeVllm
from tests.support.tasks import game_task

CONFIG = RolloutConfig(
    timeout_seconds=60, unresponsive_seconds=60, max_attempts=1, retry_condition=["failed", "timeout", "unresponsive"]
)


def make_task(**changes):
    own = dict(game_id="g", seed=2, seating={"wolf": "policy", "good": "scripted"}) | changes
    return game_task(context_tokens=2000, reply_tokens=30, **own).encode()


@pytest.fixture
async def policy(tiny_tokenizer, tiny_model):
    # The answer follows from the prompt alone, so that two runners get the same game.
    fake = FakeVllm(tiny_tokenizer, lambda prompt: f"决定：{len(prompt) % 5 + 1}号", str(tiny_model))
    yield PolicyResources(run_name="run", version=3, endpoints=(await fake.start(),), model="policy")
    await fake.stop()


@pytest.fixture(scope="module")
def tracer():
    """One for all tests: OpenTelemetry takes only one provider per process."""
    return OtelTracer()


@pytest.fixture
async def agent():
    agent = WerewolfLitAgent()
    yield agent
    await agent.close()


async def play_with_worker(client, count, **options):
    play = WerewolfPlay(client)
    await Worker(client, play, "ours", max_rollouts=count, **options).run()
    await play.close()


async def play_with_lit_agent_runner(url, agent, tracer, count):
    client = LightningStoreClient(url)
    runner = LitAgentRunner(tracer=tracer, max_rollouts=count, poll_interval=0.1, heartbeat_launch_mode="asyncio")
    with runner.run_context(agent=agent, store=client):
        await runner.iter()
    await client.close()


async def enqueue(client, policy, *tasks):
    await client.update_resources(policy.resources_id, policy.encode())
    requests = [
        EnqueueRolloutRequest(input=task, mode="train", resources_id=policy.resources_id, config=CONFIG)
        for task in tasks
    ]
    return [rollout.rollout_id for rollout in await client.enqueue_many_rollouts(requests)]


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


async def test_agentlightnings_runner_stores_the_spans_that_our_worker_stores(client, policy, tracer):
    ours, theirs = await enqueue(client, policy, make_task(), make_task())
    await play_with_worker(client, 1)
    agent = WerewolfLitAgent()
    await play_with_lit_agent_runner(client.server_address_root, agent, tracer, 1)
    await agent.close()
    found = {rollout.rollout_id: rollout for rollout in await client.query_rollouts()}
    assert {found[ours].attempt.worker_id, found[theirs].attempt.worker_id} == {"ours", "Worker-0"}
    assert found[ours].status == found[theirs].status == "succeeded"
    spans = {rollout_id: list(await client.query_spans(rollout_id)) for rollout_id in found}
    assert any(map(is_turn, spans[ours])) and sum(map(is_result, spans[ours])) == 1
    assert without_times_and_ids(spans[ours]) == without_times_and_ids(spans[theirs])
    for records, of_this_kind in ((TurnSpan, is_turn), (ResultSpan, is_result)):
        first, second = ([records.decode(span) for span in spans[r] if of_this_kind(span)] for r in (ours, theirs))
        assert first == second
    assert find_final_reward(spans[theirs]) == find_final_reward(spans[ours])
    assert all(span.attempt_id == found[theirs].attempt.attempt_id for span in spans[theirs])


@pytest.mark.parametrize("field", ["endpoints", "players"])
async def test_a_model_is_not_called_at_an_address_that_the_runner_may_not_call(client, policy, agent, field):
    """Whoever can write to the hub names addresses: a public one, and the runner's own machine where the hub is not."""
    public = "http://8.8.8.8/v1"
    names = {"endpoints": (public,), "players": {"api": ChatEndpoint(endpoint=public, model="m")}}
    named = policy.model_copy(update={field: names[field]})
    rollout = AttemptedRollout(
        rollout_id="r", input=make_task(), start_time=0.0, resources_id=named.resources_id,
        attempt=Attempt(rollout_id="r", attempt_id="a", sequence_id=1, start_time=0.0),
    )  # fmt: skip
    runner, store = LitAgentRunner(tracer=DummyTracer()), LightningStoreClient(client.server_address_root)
    with runner.run_context(agent=agent, store=store), pytest.raises(AddressRefused):
        await agent.rollout_async(rollout.input, lightning_resources(named), rollout)
    elsewhere = WerewolfLitAgent(addresses=Addresses("http://10.0.0.5:4747"))
    with pytest.raises(AddressRefused):
        await elsewhere.rollout_async(rollout.input, lightning_resources(policy), rollout)
