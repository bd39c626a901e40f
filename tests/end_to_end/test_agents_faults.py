"""Any process of an agents' run may die: runner, the agent's service, hub, vLLM and algorithm are killed with SIGKILL
while tasks are under way, and every task is finished and read exactly once.

Hub, runners, service and the algorithm's queue are real; vLLM is a fake in a process of its own, and so is the
algorithm's update, since neither is what is tested. A kill comes after so many calls, so it hits what is under way.
"""

import asyncio
import functools
import itertools
import random
from pathlib import Path

import pytest
from aiohttp import ClientSession, web

from algo.agents.tasks import step_tasks
from algo.machine.ports import free_port
from configs.agents import AgentConfig
from store.agents import AGENTS
from tests.support.agents.fakes_agents import FakeChatVllm
from tests.support.hub import hub_process
from tests.support.hub.fleet import RUN, Kept, algorithm, finished_once, runner
from tests.support.hub.hub_process import HubProcess

pytestmark = pytest.mark.timeout(600)

hub_process.preload(
    "runners.agents.lit",
    "runners.agents.agent_play",
    "runners.agents.service",
    "tests.support.agents.fakes_agents",
    "aiohttp",
)

BATCHES, GROUPS, EACH = 4, 3, 4
TASKS = BATCHES * GROUPS * EACH
CALLS_A_TASK = 3
CALL_SECONDS = 0.15
KILLS = {"runner": 2, "service": 2, "vllm": 2, "hub": 2, "algorithm": 2}
CALLS_BETWEEN_KILLS = (6, 14)
STALLED_SECONDS = 120.0
INPUTS = [{"question": f"What is {number} + 1?"} for number in range(7)]
CONFIG = AgentConfig.model_validate(
    {
        "run": {"name": RUN},
        "rollout": {
            "groups_per_step": GROUPS,
            "rollouts_per_group": EACH,
            "context_tokens": 4000,
            "reply_tokens": 50,
            "timeout_seconds": 60,
            "unresponsive_seconds": 4,
            "max_attempts": 30,
        },
    }
)


def tasks_of(config, batch):
    return step_tasks(config, INPUTS, batch + 1)


# --- processes of their own -------------------------------------------------------------------------------------------


def serve(log: Path, start) -> None:
    """Run what serves until killed."""
    hub_process.say_to(log)

    async def forever():
        await start()
        await asyncio.Event().wait()

    asyncio.run(forever())


def vllm(log: Path, port: int, model: Path, calls) -> None:
    """A fake of vLLM that takes its time, and counts its calls as they come."""
    from transformers import AutoTokenizer

    class Slow(FakeChatVllm):
        async def _completions(self, request):
            calls.release()
            await asyncio.sleep(CALL_SECONDS)  # long enough to be killed in it
            return await super()._completions(request)

    tokenizer = AutoTokenizer.from_pretrained(model, local_files_only=True)
    serve(log, functools.partial(Slow(tokenizer, lambda prompt: "fine").start, port))


def service(log: Path, port: int) -> None:
    """An agent that talks to its model three times, and has earned 1 where all was well."""

    async def chat(request):
        task = await request.json()
        messages = [{"role": "user", "content": task["question"]}]
        async with ClientSession() as http:
            for _ in range(CALLS_A_TASK):
                body = {"model": task["model"], "messages": messages}
                async with http.post(f"{task['base_url']}/chat/completions", json=body) as answer:
                    answer.raise_for_status()
                    messages.append((await answer.json())["choices"][0]["message"])
                messages.append({"role": "user", "content": "And?"})
        return web.json_response({"reward": 1.0})

    async def start():
        app = web.Application()
        app.router.add_post("/chat", chat)
        served = web.AppRunner(app, shutdown_timeout=0.1)
        await served.setup()
        await web.TCPSite(served, "127.0.0.1", port).start()

    serve(log, start)


class Fleet:
    """Everything of an agents' run, kept alive."""

    def __init__(self, folder, model):
        self.hub = HubProcess(folder)
        self.journal = folder / "journal.jsonl"
        self.folder = folder
        self.calls = hub_process.semaphore()
        ports, starts = (free_port(), free_port()), itertools.count()
        forked = hub_process.fork
        self.kept = {
            "vllm": Kept("vllm", lambda: forked(vllm, folder / "vllm.log", ports[0], model, self.calls)),
            "service": Kept("service", lambda: forked(service, folder / "service.log", ports[1])),
            "runner": Kept(
                "runner",
                lambda: runner(
                    folder / "runner.log",
                    *("--store", self.hub.url, "--n", "6", "--service", f"http://127.0.0.1:{ports[1]}/chat"),
                    module="runners.agents",
                ),
            ),
            "algorithm": Kept(
                "algorithm",
                lambda: algorithm(
                    *(folder / "algorithm.log", self.journal, self.hub.url, f"http://127.0.0.1:{ports[0]}/v1"),
                    *(CONFIG, BATCHES, 0.0, next(starts), AGENTS, tasks_of),
                ),
                has_an_end=True,
            ),
        }

    async def play(self, victims, chance):
        """All tasks, while one after the other of the victims is killed."""
        await self.hub.start()
        tasks = {name: asyncio.create_task(kept.keep()) for name, kept in self.kept.items()}
        try:
            for victim in victims:
                for _ in range(chance.randint(*CALLS_BETWEEN_KILLS)):
                    called = await asyncio.to_thread(self.calls.acquire, True, STALLED_SECONDS)
                    assert called, f"nothing happened for {STALLED_SECONDS:.0f} s; see the logs in {self.folder}"
                assert not tasks["algorithm"].done(), f"the tasks were over before {victim} was killed"
                if victim == "hub":
                    self.hub.kill()
                    await self.hub.start()
                else:
                    await self.kept[victim].die()
            done, _ = await asyncio.wait(tasks.values(), timeout=300, return_when=asyncio.FIRST_COMPLETED)
            assert done == {tasks["algorithm"]}, f"see the logs in {self.folder}"
            tasks["algorithm"].result()
        finally:
            for task in tasks.values():
                task.cancel()
            for kept in self.kept.values():
                kept.kill()


async def test_any_process_of_an_agents_run_may_die(tmp_path, tiny_model):
    chance = random.Random(3)
    victims = [name for name, times in KILLS.items() for _ in range(times)]
    chance.shuffle(victims)
    fleet = Fleet(tmp_path, tiny_model)
    try:
        await fleet.play(victims, chance)
        await check(fleet)
    finally:
        fleet.hub.kill()
    deaths = {name: kept.deaths for name, kept in fleet.kept.items()}
    assert all(deaths[name] >= times for name, times in KILLS.items() if name != "hub"), deaths


async def check(fleet):
    tasks = {task.task_id for batch in range(BATCHES) for task in tasks_of(CONFIG, batch)}
    assert len(tasks) == TASKS
    finished, cancelled = await finished_once(fleet.hub.url, fleet.journal, AGENTS, tasks, BATCHES)
    assert not cancelled
    for _, spans in finished:
        (outcome,) = [AGENTS.outcome.decode(span) for span in spans if AGENTS.outcome.is_in(span)]
        assert (outcome.dimensions, outcome.failure, outcome.turns) == ({"reward": 1.0}, "", CALLS_A_TASK)
        assert sum(map(AGENTS.call.is_in, spans)) == CALLS_A_TASK
    attempts = sum(rollout.attempt.sequence_id for rollout, _ in finished)
    print(f"{TASKS} tasks in {attempts} attempts")
    assert attempts > TASKS, "kills hit nothing that was under way"
