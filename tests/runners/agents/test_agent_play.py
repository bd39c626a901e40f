"""Agents behind a real worker and a real hub, before a fake of vLLM: functions, LitAgents, services."""

import asyncio
import contextlib
import logging
import threading

import numpy as np
import pytest
from agentlightning import LitAgent, emit_reward, find_final_reward, rollout
from aiohttp import web
from openai import AsyncOpenAI, OpenAI
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor

from algo.machine.ports import free_port
from algo.rollouts.triplets import read_attempt
from runners.agents.__main__ import open_play, parse_arguments
from runners.agents.agent_play import AgentPlay
from runners.agents.lit import LitPlayer
from runners.agents.service import ServicePlayer
from runners.worker import Worker
from store.agents import AGENTS
from tests.runners.test_network_faults import all_closed, working
from tests.support.agents.fakes_agents import FakeChatVllm, resources_of, task_of
from tests.support.hub.asking import RETRY, enqueue_tasks


@pytest.fixture
async def vllm(tiny_tokenizer):
    async with FakeChatVllm(tiny_tokenizer, lambda prompt: "### 7") as vllm:
        yield vllm


async def played(client, vllm, player, *tasks, at_once=4, policy_timeout=0.0, prompts=None):
    """Play the tasks to their end; of each its rollout, and its spans read back, None where it failed."""
    resources = resources_of(vllm.endpoint).model_copy(update={"prompt_templates": prompts or {}})
    ids = await enqueue_tasks(client, resources, tasks, config=RETRY)
    play = AgentPlay(client, player, policy_timeout_seconds=policy_timeout)
    async with working(Worker(client, play, "w", max_concurrent=at_once)):
        await all_closed(client, ids)
    await play.close()
    results = []
    for found in await client.query_rollouts(rollout_id_in=ids):
        key = found.rollout_id, found.attempt.attempt_id
        spans = await client.query_spans(*key)
        read = read_attempt(AGENTS, *key, spans) if found.status == "succeeded" else None
        results.append((found, read, spans))
    return results


@rollout
async def asynchronous(task, llm):
    async with AsyncOpenAI(base_url=llm.endpoint, api_key=llm.api_key) as client:
        messages = [{"role": "user", "content": task["question"]}]
        for _ in range(2):
            answer = await client.chat.completions.create(model=llm.model, messages=messages)
            messages += [answer.choices[0].message, {"role": "user", "content": "sure?"}]
    return float(answer.choices[0].message.content == "### 7")


@rollout
def synchronous(task, llm):
    with OpenAI(base_url=llm.endpoint, api_key=llm.api_key) as client:
        answer = client.responses.create(model=llm.model, input=task["question"])
    return {"right": float(answer.output_text == "### 7"), "length": len(answer.output_text)}


@rollout
async def blocking(task, llm):
    """Waits for its model by a synchronous client, within its event loop."""
    with OpenAI(base_url=llm.endpoint, api_key=llm.api_key) as client:
        client.chat.completions.create(model=llm.model, messages=[{"role": "user", "content": "?"}])
    return 1.0


class Emitting(LitAgent):
    """Tells its rewards as it goes, and gives none at its end."""

    async def rollout_async(self, task, resources, rollout):
        base_url = resources["main_llm"].get_base_url(rollout.rollout_id, rollout.attempt.attempt_id)
        async with AsyncOpenAI(base_url=base_url, api_key="none") as client:
            await client.chat.completions.create(model="policy", messages=[{"role": "user", "content": "?"}])
        assert rollout.input == task
        emit_reward(0.25)
        await asyncio.sleep(0)  # others emit theirs meanwhile
        emit_reward({"tidy": 0.5, "right": task["n"]}, primary_key="right")


@pytest.mark.parametrize(
    ("agent", "dimensions", "calls"),
    [
        (asynchronous, {"reward": 1.0}, 2),
        (synchronous, {"right": 1.0, "length": 5.0}, 1),
        (blocking, {"reward": 1.0}, 1),
    ],
    ids=["asynchronous", "synchronous", "blocking"],
)
async def test_an_agent_plays_its_task_and_its_calls_are_read_back(client, vllm, agent, dimensions, calls):
    results = await played(client, vllm, LitPlayer(agent), *(task_of(n) for n in range(5)))
    for found, read, spans in results:
        assert found.status == "succeeded"
        assert read.outcome.rewards() == dimensions
        assert list(read.outcome.rewards()) == list(dimensions)
        assert find_final_reward(spans) == next(iter(dimensions.values()))
        assert (len(read.triplets), read.outcome.failure, read.left_out) == (calls, "", {})
    assert len({read.outcome.task for _, read, _ in results}) == 5


async def test_rewards_that_many_agents_emit_at_once_stay_with_their_attempts(client, vllm):
    tasks = [task_of(n, input={"n": float(n)}) for n in range(6)]
    results = await played(client, vllm, LitPlayer(Emitting()), *tasks, at_once=6)
    assert [read.outcome.rewards() for _, read, _ in results] == [{"right": float(n), "tidy": 0.5} for n in range(6)]


async def test_spans_of_the_agents_own_framework_disturb_nothing(hub, client, vllm):
    """An agent that traces itself into the hub with OpenTelemetry, as Agent Framework and AgentOps do."""

    @rollout
    async def traced(task, llm, rollout):
        ids = {"agentlightning.rollout_id": rollout.rollout_id, "agentlightning.attempt_id": rollout.attempt.attempt_id}
        provider = TracerProvider(resource=Resource(ids))
        provider.add_span_processor(SimpleSpanProcessor(OTLPSpanExporter(f"{hub.url}/v1/traces")))
        tracer = provider.get_tracer("agent_framework")
        said = {"gen_ai.operation.name": "chat", "gen_ai.request.model": llm.model, "gen_ai.response.id": "chatcmpl-1"}
        with tracer.start_as_current_span("invoke_agent", attributes={"agent.name": "MathAgent"}):
            # The second by the name that AgentOps gives it.
            with (
                tracer.start_as_current_span("chat policy"),
                tracer.start_as_current_span("openai.chat.completion", attributes=said),
            ):
                reward = await asynchronous.rollout_async(task, {"main_llm": llm}, rollout)
            with tracer.start_as_current_span("execute_tool calculate", attributes={"gen_ai.tool.name": "calculate"}):
                emit_reward(0.5)  # the agent's own result counts for more
        await asyncio.to_thread(provider.shutdown)
        return reward

    tasks = [task_of(n) for n in range(3)]
    for found, read, spans in await played(client, vllm, LitPlayer(traced), *tasks):
        assert (found.status, found.attempt.sequence_id) == ("succeeded", 1)
        assert {"invoke_agent", "chat policy", "execute_tool calculate"} <= {span.name for span in spans}
        assert (read.outcome.rewards(), len(read.triplets), read.left_out) == ({"reward": 1.0}, 2, {})


async def test_a_failure_of_the_agents_own_is_an_outcome_and_not_tried_again(client, vllm, caplog):
    def broken(task):
        raise RuntimeError(f"too many turns for {task['n']}")

    @rollout
    def failing(task, llm):
        broken(task)

    tasks = [task_of(n, input={"n": n}, failure_rewards={"right": -1.0}) for n in range(3)]
    with caplog.at_level(logging.WARNING):
        results = await played(client, vllm, LitPlayer(failing), *tasks)
    for number, (found, read, _) in enumerate(results):
        outcome = read.outcome
        assert (found.status, found.attempt.sequence_id) == ("succeeded", 1)
        assert (outcome.rewards(), outcome.failure) == ({"right": -1.0}, f"RuntimeError: too many turns for {number}")
        assert "in broken" in outcome.traceback and outcome.traceback in outcome.transcript
    told = [record for record in caplog.records if record.exc_info and "raised an exception" in record.getMessage()]
    assert len(told) == 1, "one for each raising line"


@rollout
def exits(task, llm):
    raise SystemExit(2)


@rollout
async def exits_in_its_loop(task, llm):
    raise SystemExit(2)


@rollout
async def cancels_itself(task, llm):
    raise asyncio.CancelledError


@rollout
def complains(task, llm):
    raise ValueError("x" * 10_000)


@pytest.mark.parametrize(
    ("agent", "failure"),
    [
        pytest.param(complains, f"ValueError: {'x' * 3988}", id="complains"),
        (exits, "RuntimeError: SystemExit: 2"),
        (exits_in_its_loop, "RuntimeError: SystemExit: 2"),
        (cancels_itself, "CancelledError: the agent cancelled its own call"),
    ],
)
async def test_an_agent_that_raises_exits_or_cancels_itself_fails_alone(client, vllm, agent, failure):
    results = await played(client, vllm, LitPlayer(agent), task_of(1), task_of(2), at_once=1)
    assert [read.outcome.failure for _, read, _ in results] == [failure] * 2


async def test_an_agent_that_takes_too_long_is_stopped_or_left_behind_with_an_outcome(client, vllm):
    stopped, stopped_at_end, release = [], [], threading.Event()

    @rollout
    async def endless(task, llm):
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0.1)  # its cleanup takes time
            stopped.append(1)

    @rollout
    def hanging(task, llm):
        release.wait()
        return 1.0

    class Watched(LitPlayer):
        async def __call__(self, session):
            try:
                return await super().__call__(session)
            finally:
                stopped_at_end.append(len(stopped))

    for agent in (endless, hanging):
        ((_, read, _),) = await played(client, vllm, Watched(agent), task_of(max_seconds=1.0))
        assert "timeout after 1 s" in read.outcome.failure
    assert stopped_at_end == [1, 1]
    release.set()


async def test_what_the_agent_needs_and_is_away_is_tried_again(client, vllm):
    tries = []

    @rollout
    def unlucky(task, llm):
        tries.append(1)
        if len(tries) == 1:
            raise ConnectionResetError("the MCP server is gone")
        return 1.0

    ((found, read, _),) = await played(client, vllm, LitPlayer(unlucky), task_of())
    assert (found.attempt.sequence_id, read.outcome.rewards(), read.outcome.failure) == (2, {"reward": 1.0}, "")


async def test_a_policys_server_that_is_away_is_tried_again_whatever_the_agent_makes_of_it(client, vllm):
    @rollout
    async def shrugging(task, llm):
        async with AsyncOpenAI(base_url=llm.endpoint, api_key="none", max_retries=0) as asking:
            with contextlib.suppress(Exception):
                await asking.chat.completions.create(model=llm.model, messages=[{"role": "user", "content": "?"}])
        return 0.5

    vllm.fail_next = 1
    ((found, read, _),) = await played(client, vllm, LitPlayer(shrugging), task_of())
    assert (found.attempt.sequence_id, read.outcome.turns) == (2, 1)


@pytest.mark.parametrize("healthy", [False, True])
async def test_an_outage_that_outlasts_the_agents_time_is_not_its_failure(client, vllm, monkeypatch, healthy):
    monkeypatch.setattr("runners.agents.gateway.attempt._CHECK_SECONDS", 0.1)
    failures = iter([0, 9, 0, 0])

    @rollout
    async def unlucky(task, llm):
        for _ in range(2):
            vllm.fail_next = next(failures)
            vllm.healthy = healthy or vllm.fail_next == 0
            await asynchronous.rollout_async(task, {"main_llm": llm}, None)
        return 1.0

    player = LitPlayer(unlucky)
    ((found, read, _),) = await played(client, vllm, player, task_of(max_seconds=3.0), policy_timeout=60)
    assert (found.attempt.sequence_id, read.outcome.turns) == (2, 4)


async def test_a_service_that_is_away_for_all_of_the_agents_time_is_not_its_failure(client, vllm):
    player = ServicePlayer(f"http://127.0.0.1:{free_port()}/chat", judge, retry_seconds=60)
    ((found, _, _),) = await played(client, vllm, player, task_of(max_seconds=0.2))
    assert found.status == "failed" and "refused connections" in found.attempt.metadata["reason"]


async def test_a_service_that_begins_late_and_then_takes_too_long_has_failed_its_task(client, vllm, monkeypatch):
    port, refused, released = free_port(), asyncio.Event(), asyncio.Event()

    async def hang(request):
        await released.wait()
        return web.Response()

    def after_a_refusal(seconds):
        def wait(state):
            refused.set()
            return seconds

        return wait

    async def begin():
        await refused.wait()
        app = web.Application()
        app.router.add_post("/chat", hang)
        runner = web.AppRunner(app)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", port).start()
        return runner

    monkeypatch.setattr("runners.agents.service.wait_fixed", after_a_refusal)
    beginning = asyncio.create_task(begin())
    player = ServicePlayer(f"http://127.0.0.1:{port}/chat", judge, retry_seconds=60)
    ((found, read, _),) = await played(client, vllm, player, task_of(max_seconds=2.0))
    assert (found.attempt.sequence_id, read.outcome.failure) == (1, "timeout after 2 s")
    released.set()
    await (await beginning).cleanup()


@pytest.mark.parametrize("given", [None, {"a": "b"}, float("nan")])
async def test_what_is_no_reward_fails_the_task_by_name(client, vllm, given):
    @rollout
    def odd(task, llm):
        return given

    ((found, _, _),) = await played(client, vllm, LitPlayer(odd), task_of())
    assert found.status == "failed"
    assert "UnusableReward" in found.attempt.metadata["reason"]


async def test_an_address_that_only_this_machine_reaches_is_not_called_whatever_the_hub_names(client, vllm):
    vllm.endpoint = "http://169.254.169.254/v1"
    ((found, _, _),) = await played(client, vllm, LitPlayer(asynchronous), task_of())
    assert found.status == "failed"
    assert "AddressRefused" in found.attempt.metadata["reason"]
    assert "--allow-address http://169.254.169.254" in found.attempt.metadata["reason"]


@pytest.fixture
def service(http_service):
    """An agent behind HTTP."""

    async def answer(request):
        body = await request.json()
        http_service.bodies.append(body)
        async with AsyncOpenAI(base_url=body["base_url"], api_key="none") as client:
            messages = [{"role": "user", "content": body["question"]}]
            reply = await client.chat.completions.create(model=body["model"], messages=messages)
        return web.json_response({"text": reply.choices[0].message.content})

    http_service.answer, http_service.bodies = answer, []
    return http_service


def judge(task, answer):
    return float(answer["text"] == "### 7") * len(task["question"])


async def async_judge(task, answer):
    return {"right": judge(task, answer)}


class Judge:
    async def __call__(self, task, answer):
        return np.float32(judge(task, answer))


@pytest.mark.parametrize("reward", [judge, async_judge, Judge()])
async def test_a_service_plays_tasks_and_a_function_judges_its_answers(client, vllm, service, reward):
    tasks = [task_of(n, input={"question": "?" * n}) for n in range(1, 5)]
    results = await played(client, vllm, ServicePlayer(service.url, reward), *tasks)
    assert [find_final_reward(spans) for _, _, spans in results] == [1.0, 2.0, 3.0, 4.0]
    assert all(read.outcome.turns == 1 for _, read, _ in results)
    (body, *_) = service.bodies
    assert body["trace_id"].count("/") == 1
    assert (body["model"], body["temperature"], body["max_tokens"]) == ("policy", 1.0, 300)


@pytest.mark.parametrize("field", ["model", "temperature", "prompt_template"])
async def test_a_field_of_a_task_that_the_request_to_a_service_would_replace_is_an_error(client, vllm, service, field):
    task = task_of(input={"question": "?", field: "Golf VII"})
    ((found, _, _),) = await played(
        client, vllm, ServicePlayer(service.url, judge), task, prompts={"template": "be brief"}
    )
    assert found.status == "failed" and f"rename {field} of" in found.attempt.metadata["reason"]
    assert not service.bodies


class ReadsItsPrompt(LitAgent):
    def rollout(self, task, resources, rollout):
        return float(resources["prompt_template"].template == "be brief")


async def test_a_published_prompt_reaches_agents_and_services_by_its_name_in_the_hub(client, vllm, service):
    brief = {"template": "be brief"}
    ((_, read, _),) = await played(client, vllm, LitPlayer(ReadsItsPrompt()), task_of(1), prompts=brief)
    assert read.outcome.dimensions == {"reward": 1.0}
    task = task_of(2, input={"question": "?"})
    await played(client, vllm, ServicePlayer(service.url, judge), task, prompts=brief)
    assert service.bodies[-1]["prompt_template"] == "be brief"


async def out_of_time(task, answer):
    raise TimeoutError("the judge does not answer")


async def leaves(task, answer):
    raise SystemExit(2)


@pytest.mark.parametrize(("reward", "reason"), [(out_of_time, "the judge does not answer"), (leaves, "SystemExit: 2")])
async def test_an_error_of_the_reward_function_is_not_the_agents_failure(client, vllm, service, reward, reason):
    task = task_of(max_seconds=60)
    ((found, _, _),) = await played(client, vllm, ServicePlayer(service.url, reward), task)
    assert found.status == "failed" and reason in found.attempt.metadata["reason"]


async def test_a_services_own_error_is_the_agents_failure_and_its_refusal_is_not(client, vllm, service):
    answers = {"hard": (500, b"no"), "unclear": (200, b"{"), "garbled": (200, b"\xff"), "odd": (422, b"no")}

    async def answer(request):
        status, body = answers[(await request.json())["question"]]
        return web.Response(status=status, body=body, content_type="application/json")

    service.answer = answer
    tasks = [task_of(number, input={"question": question}) for number, question in enumerate(answers)]
    *failed, (refused, _, _) = await played(client, vllm, ServicePlayer(service.url, judge), *tasks)
    assert [(found.status, found.attempt.sequence_id) for found, _, _ in failed] == [("succeeded", 1)] * 3
    error, unreadable, garbled = (read.outcome.failure for _, read, _ in failed)
    assert error == "the service answers 500: no" and "is not JSON" in unreadable and "its charset" in garbled
    assert refused.status == "failed"
    assert "rejects the task (422)" in refused.attempt.metadata["reason"]


@pytest.mark.parametrize("reward", ["json:__name__", "json:"])
def test_a_reward_that_is_no_function_is_refused_at_the_start(reward):
    options = parse_arguments(["--service", "http://127.0.0.1:1/chat", "--reward", reward])
    with pytest.raises(ValueError, match=f"--reward {reward} is no function"):
        open_play(options, None)


@pytest.mark.parametrize("url", ["http://127.0.0.1:99999/chat", "http://127.0.0.1:port", "http://10.0.0.1/chat"])
def test_an_address_that_no_service_can_have_is_refused_at_the_start(url):
    with pytest.raises(ValueError):
        ServicePlayer(url)


async def test_a_service_that_breaks_off_is_tried_again_in_another_attempt(client, vllm, service):
    whole = service.answer

    async def breaking(request):
        service.answer = whole
        await whole(request)
        request.transport.abort()
        return web.Response()

    service.answer = breaking
    ((found, read, _),) = await played(client, vllm, ServicePlayer(service.url, judge), task_of())
    assert (found.attempt.sequence_id, read.outcome.turns) == (2, 1)
