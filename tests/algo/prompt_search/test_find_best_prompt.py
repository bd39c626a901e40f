"""The command, as a process, with a real hub and a real worker whose agent is better with some prompts than others."""

import json
import os
import signal
import sys
from collections import Counter

from agentlightning import rollout

from algo import find_best_prompt
from runners.agents.agent_play import AgentPlay
from runners.agents.lit import LitPlayer
from tests.support.algo.playing import playing
from tests.support.hub.hub_process import fork, preload, say_to
from tests.support.waiting import until
from tests.support.werewolf.fakes_api import FakeChatApi, error

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
    def __init__(self, folder, hub, prompts=PROMPTS):
        (folder / "prompts.txt").write_text(prompts)
        lines = [json.dumps({"question": str(37 * number % 100)}) for number in range(60)]
        (folder / "tasks.jsonl").write_text("\n".join(lines))
        self.run_dir = folder / "best_prompt"
        self._log = folder / "log"
        self._arguments = [
            *("--prompts", str(folder / "prompts.txt"), "--tasks", str(folder / "tasks.jsonl"), "--budget", "200"),
            *("--set", f"store.url={hub.url}", "--set", f"run.dir={folder}", "--set", "store.retry_seconds=5"),
        ]

    def start(self, *more):
        self.process = fork(_command, self._log, [*self._arguments, *more])

    async def ended(self):
        await until(lambda: self.process.exitcode is not None, seconds=120)
        return self.process.exitcode

    async def run(self, *more, status=0):
        """Run to the end; the log."""
        self.start(*more)
        assert await self.ended() == status, self.log
        return self.log

    async def kill(self):
        os.kill(self.process.pid, signal.SIGKILL)
        await self.ended()

    @property
    def log(self):
        return self._log.read_text()

    @property
    def result(self):
        return json.loads((self.run_dir / "result.json").read_text())

    @property
    def journal(self):
        path = self.run_dir / "journal.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def working(client):
    return playing(client, AgentPlay(client, LitPlayer(scripted_agent)), max_concurrent=8)


async def test_the_best_prompt_is_found_through_the_hub_and_written_for_use(hub, client, tmp_path):
    search = SearchProcess(tmp_path, hub)
    async with working(client):
        log = await search.run("--disjoint-intervals")
    result, verdict = search.result, search.result["verdict"]
    assert result["winner"] == 2 and result["confirmed"] and result["spent"] <= 200
    assert verdict["challenger"]["low"] > verdict["incumbent"]["high"]
    assert (search.run_dir / "winner/template.txt").read_text() == "good {question}\n"
    assert f"--prompts {search.run_dir / 'winner'}" in log
    page = (search.run_dir / "prompts.html").read_text()
    assert "is better than the baseline, #0" in page and "+good {question}" in page
    for told in ("published as best_prompt-", "rollouts queued with prompt #2", "tasks of prompt #2 read, mean reward"):
        assert told in log
    held_out = [one["key"] for one in search.journal if one["key"].startswith("held-out")]
    assert len(held_out) == 2 * verdict["tasks"] >= 40
    others = ("--budget", "190", "--endpoint", "http://127.0.0.1:1/v1", "--model", "m", "--reward-range", "-1", "1")
    log = await search.run("--disjoint-intervals", "--resume", "auto", *others, status=2)
    assert "a search with other budget, model, reward_range:" in log


async def test_a_search_that_is_killed_three_times_goes_on_without_playing_anything_twice(hub, client, tmp_path):
    search, found = SearchProcess(tmp_path, hub), "rollouts queued with prompt #2, 16 of them in the hub before"

    async def all_queued():
        return len(await client.query_rollouts(limit=1000)) == 48  # the first round of the first race

    search.start()
    await until(all_queued)
    await search.kill()
    search.start("--resume", "auto")
    await until(lambda: found in search.log)
    await search.kill()
    async with working(client):
        search.start("--resume", "auto")
        await until(lambda: len(search.journal) >= 20, seconds=120)
        await search.kill()
        before = search.journal
        await search.run("--resume", "auto", "--reward-range", "0", "2")  # the upper bound may change
    assert search.journal[: len(before)] == before
    assert search.result["winner"] == 2 and search.result["confirmed"]
    played = [one["key"] for one in search.journal if "-task" in one["key"]]
    assert search.result["spent"] == len(played) == len(set(played))
    in_hub = Counter(one.metadata["task_id"] for one in await client.query_rollouts(limit=1000))
    assert in_hub == Counter(played)


def edit(text):
    return f"<reason>the answers were too long</reason>\n<prompt>\n{text}\n</prompt>"


async def test_a_proposer_edits_the_prompt_and_what_cannot_be_used_is_refused(hub, client, tmp_path):
    answers = ["", edit("bad {question}"), edit("good {task}"), edit("fair {question}"), edit("good {question}")]
    api = FakeChatApi(lambda messages: answers[len(api.requests) - 2])
    api.faults = [error(400, "out of order")]
    address = ("--proposer-url", f"{await api.start()}/v1", "--proposer-model", "fake", "--proposer-calls", "5")
    search = SearchProcess(tmp_path, hub, prompts="bad {question}")
    try:
        async with working(client):
            assert "out of order" in await search.run(*address, "--generations", "1", status=1)
            before = search.journal
            await search.run(*address, "--generations", "1", "--resume", "auto")
    finally:
        await api.stop()
    result = search.result
    assert len(before) > 1 and search.journal[: len(before)] == before
    assert len(api.requests) == 1 + len(answers)
    problems = ("it is empty", "it is the same prompt as #0", "it uses unknown {task}")
    for number, (refused, problem) in enumerate(zip(result["rejected"], problems, strict=True), 1):
        assert f"answer {number} of the proposer" in refused and problem in refused
    assert [(one["parent"], one["reason"]) for one in result["candidates"][1:]] == [
        (0, "the answers were too long")
    ] * 2
    assert result["candidates"][result["winner"]]["templates"] == {"template": "good {question}"}
    tree = (search.run_dir / "tree.txt").read_text()
    assert "#2, from #0: the answers were too long" in tree and "+good {question}" in tree
    assert "Your last answer could not be used: it is empty." in str(api.requests[2])
