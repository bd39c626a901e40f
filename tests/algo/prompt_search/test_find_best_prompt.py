"""The command, as a process, with a real hub and a real worker whose agent is better with some prompts than others."""

import asyncio
import contextlib
import json
import os
import signal
import sys
from collections import Counter

import pytest
from agentlightning import rollout
from aiohttp import web

from algo import find_best_prompt
from algo.prompt_search.results import PAGE_NAME
from runners.agents.lit import LitPlayer, load_agent
from runners.agents.play import AgentPlay
from runners.worker import Worker
from tests.support.hub.hub_process import fork, preload, say_to
from tests.support.waiting import until

preload("algo.prompt_search.run")
RATES = {"bad": 0.1, "fair": 0.4, "good": 0.95}
PROMPTS = "bad {question}\nfair {question}\ngood {question}\n"


@rollout
async def scripted_agent(task, prompt_template):
    """Answers by lot: how often it is right depends on the prompt's first word."""
    word, number = prompt_template.format(question=task["question"]).split()
    return float(int(number) % 100 < 100 * RATES[word])


def _command(log, arguments):
    say_to(log)
    sys.argv = ["find_best_prompt", *arguments]
    raise SystemExit(find_best_prompt.main())


class SearchProcess:
    def __init__(self, folder, hub, *options, prompts=PROMPTS, tasks=60):
        (folder / "prompts.txt").write_text(prompts)
        lines = [json.dumps({"question": str(37 * number % 100)}) for number in range(tasks)]
        (folder / "tasks.jsonl").write_text("\n".join(lines))
        self.run_dir = folder / "best_prompt"
        self.log = folder / "log"
        self._arguments = [
            *("--prompts", str(folder / "prompts.txt"), "--tasks", str(folder / "tasks.jsonl")),
            *("--set", f"store.url={hub.url}", "--set", f"run.dir={folder}", "--set", "store.patience_seconds=5"),
            *options,
        ]

    def start(self, *more):
        self.process = fork(_command, self.log, [*self._arguments, *more])

    async def ended(self):
        async with asyncio.timeout(120):
            await until(lambda: self.process.exitcode is not None)
        return self.process.exitcode

    @property
    def result(self):
        return json.loads((self.run_dir / "result.json").read_text())

    @property
    def journal(self):
        path = self.run_dir / "journal.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


@contextlib.asynccontextmanager
async def working(client, agent=scripted_agent):
    play = AgentPlay(client, LitPlayer(agent if not isinstance(agent, str) else load_agent(agent)))
    worker = Worker(client, play, "w", games_at_once=8)
    running = asyncio.create_task(worker.run())
    try:
        yield
    finally:
        worker.drain()
        await running
        await play.close()


async def test_the_best_prompt_is_found_through_the_hub_and_written_for_use(hub, client, tmp_path):
    search = SearchProcess(tmp_path, hub, "--budget", "200", "--apart")
    async with working(client):
        search.start()
        status = await search.ended()
    log = search.log.read_text()
    assert status == 0, log
    result = search.result
    assert result["winner"] == 2 and result["confirmed"]
    verdict = result["verdict"]
    assert verdict["challenger"]["low"] > verdict["incumbent"]["high"]
    assert result["spent"] <= 200
    assert (search.run_dir / "winner/template.txt").read_text() == "good {question}\n"
    assert f"--prompts {search.run_dir / 'winner'}" in log
    page = (search.run_dir / PAGE_NAME).read_text()
    assert "is better than #0" in page and "+good {question}" in page
    for told in ("published as best_prompt-", "rollouts queued with prompt #2", "spans of prompt #2 read, mean reward"):
        assert told in log
    held_out = [one["key"] for one in search.journal if one["key"].startswith("held-out")]
    assert len(held_out) == 2 * verdict["tasks"]


async def test_a_search_that_is_killed_goes_on_without_playing_anything_twice(hub, client, tmp_path):
    search = SearchProcess(tmp_path, hub, "--budget", "200")
    async with working(client):
        search.start()
        async with asyncio.timeout(120):
            await until(lambda: len(search.journal) >= 20)
        os.kill(search.process.pid, signal.SIGKILL)
        await search.ended()
        before = search.journal
        search.start("--resume", "auto")
        assert await search.ended() == 0, search.log.read_text()
    assert search.journal[: len(before)] == before
    assert search.result["winner"] == 2 and search.result["confirmed"]
    assert max(Counter(one["key"] for one in search.journal).values()) == 1
    played = [one["key"] for one in search.journal if "-task" in one["key"]]
    assert search.result["spent"] == len(played)
    in_hub = Counter(one.metadata["task_id"] for one in await client.query_rollouts(limit=1000))
    assert in_hub == Counter(played)


@rollout
async def broken_agent(task, prompt_template):
    return float(task["quetsion"])


async def test_a_search_of_an_agent_that_always_fails_ends_and_goes_on_with_a_mended_one(hub, client, tmp_path):
    search = SearchProcess(tmp_path, hub, "--budget", "200")
    async with working(client, broken_agent):
        search.start()
        assert await search.ended() == 1
    assert "no rollout shows anything: failed 48 of 48: KeyError: 'quetsion'" in search.log.read_text()
    assert len(await client.query_rollouts(limit=1000)) == 48  # the first round of the first race
    async with working(client):
        search.start("--resume", "auto")
        assert await search.ended() == 0, search.log.read_text()
    assert search.result["confirmed"] and search.result["failed"] == 0


async def test_a_search_is_resumed_with_its_own_plan_only(hub, client, tmp_path):
    search = SearchProcess(tmp_path, hub, "--budget", "80")
    async with working(client):
        search.start()
        assert await search.ended() == 0, search.log.read_text()
        search.start("--resume", "auto", "--budget", "90")
        assert await search.ended() == 1
    assert "a search with other budget" in search.log.read_text()


@pytest.mark.parametrize(
    ("prompts", "problem"),
    [
        ("{question}\n{qestion}", "prompt 2: it uses unknown {qestion} and it lacks {question}; valid: {question}"),
        ("{question}\n{question", "prompt 2: its braces do not match"),
        ("{question}\n{question.__class__}", "with more than a plain name in it"),
        ("only {question}", "there is one prompt and no proposer"),
    ],
)
def test_prompts_that_cannot_be_used_are_named_before_a_run_begins(tmp_path, prompts, problem, monkeypatch, capsys):
    (tmp_path / "prompts.txt").write_text(prompts)
    (tmp_path / "tasks.jsonl").write_text("\n".join(map(str, range(20))))
    files = ("--prompts", f"{tmp_path}/prompts.txt", "--tasks", f"{tmp_path}/tasks.jsonl")
    monkeypatch.setattr("sys.argv", ["search", *files, "--set", f"run.dir={tmp_path}/runs"])
    assert find_best_prompt.main() == 2
    assert problem in capsys.readouterr().err and not (tmp_path / "runs").exists()


class FakeProposer:
    """A fake of an OpenAI-compatible server that gives the answers it is told to, in turn."""

    def __init__(self, *answers):
        self._answers = list(answers)
        self.asked = []

    @contextlib.asynccontextmanager
    async def serving(self):
        app = web.Application()
        app.router.add_get("/v1/models", self._models)
        app.router.add_post("/v1/chat/completions", self._complete)
        runner = web.AppRunner(app, shutdown_timeout=0.1)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        port = site._server.sockets[0].getsockname()[1]
        try:
            yield ("--proposer-url", f"http://127.0.0.1:{port}/v1", "--proposer-model", "fake")
        finally:
            await runner.cleanup()

    async def _models(self, request):
        return web.json_response({"object": "list", "data": []})

    async def _complete(self, request):
        self.asked.append(await request.json())
        answer = self._answers[min(len(self.asked), len(self._answers)) - 1]
        if answer is None:
            return web.json_response({"error": {"message": "out of order"}}, status=400)
        message = {"role": "assistant", "content": answer}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        usage = {"prompt_tokens": 10, "completion_tokens": 10, "total_tokens": 20}
        return web.json_response(
            {"id": "1", "object": "chat.completion", "created": 0, "model": "fake", "choices": [choice], "usage": usage}
        )


def edit(text, reason="the answers were too long"):
    return f"<reason>{reason}</reason>\n<prompt>\n{text}\n</prompt>"


async def test_a_proposer_edits_the_prompt_and_what_cannot_be_used_is_refused(hub, client, tmp_path):
    proposer = FakeProposer(
        "", edit("bad {question}"), edit("good {task}"), "I like it", edit("fair {question}"), edit("good {question}")
    )
    options = ("--budget", "200", "--generations", "1", "--edits", "3", "--proposer-calls", "6")
    async with working(client), proposer.serving() as address:
        search = SearchProcess(tmp_path, hub, *options, *address, prompts="bad {question}")
        search.start()
        assert await search.ended() == 0, search.log.read_text()
    result = search.result
    assert len(proposer.asked) == 6
    for number, problem in enumerate(
        ("the answer is empty", "it is the same prompt as #0", "it uses unknown {task}", "the answer has no <prompt>"),
        1,
    ):
        assert f"answer {number} of the proposer" in result["refused"][number - 1]
        assert problem in result["refused"][number - 1]
    assert [(one["parent"], one["reason"]) for one in result["candidates"][1:]] == [
        (0, "the answers were too long")
    ] * 2
    assert result["candidates"][result["winner"]]["templates"] == {"template": "good {question}"}
    tree = (search.run_dir / "tree.txt").read_text()
    assert "    #2  the answers were too long" in tree and "+good {question}" in tree
    assert "Your last answer could not be used: the answer is empty." in str(proposer.asked[1])


async def test_a_proposer_that_is_away_costs_no_rollout_and_one_that_fails_later_loses_none(hub, client, tmp_path):
    options = ("--budget", "200", "--generations", "1", "--edits", "1", "--proposer-calls", "2")
    away = ("--proposer-url", "http://127.0.0.1:9/v1", "--proposer-model", "fake")
    search = SearchProcess(tmp_path, hub, *options, *away, prompts="bad {question}")
    search.start()
    assert await search.ended() == 1
    assert "the proposer 'fake' at http://127.0.0.1:9/v1 gives no answer" in search.log.read_text()
    assert list(await client.query_rollouts()) == []
    async with working(client):
        async with FakeProposer(None).serving() as address:
            search = SearchProcess(tmp_path, hub, *options, *address, prompts="bad {question}")
            search.start("--resume", "auto")
            assert await search.ended() == 1
        assert "out of order" in search.log.read_text()
        before = search.journal
        async with FakeProposer(edit("good {question}")).serving() as address:
            search = SearchProcess(tmp_path, hub, *options, *address, prompts="bad {question}")
            search.start("--resume", "auto")
            assert await search.ended() == 0, search.log.read_text()
    assert search.journal[: len(before)] == before
    assert search.result["winner"] == 1
