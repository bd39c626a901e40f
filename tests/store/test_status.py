"""The status command: a summary of a hub's answers, and real hubs."""

import asyncio
import io
import json
import os
import sys

import pytest
from agentlightning import LLM, EnqueueRolloutRequest, RolloutConfig
from aiohttp import web
from rich.console import Console

from algo.machine.ports import free_port
from store.__main__ import main
from store.client import connect
from store.status import STATES, summary, table
from tests.support.hub.hub_process import HubProcess

NOW = 1_000_000.0
TOKEN = "a-token"
PYTHON = [sys.executable, "-m", "store"]
ENVIRONMENT = {**os.environ, "AGL_TOKEN": TOKEN}


def rollout(number, status="running", worker_id="big-machine-77", ended=None, resources_id="run.policy-1", **attempt):
    return {
        "rollout_id": f"ro-{number}",
        "status": status,
        "resources_id": resources_id,
        "end_time": None if ended is None else NOW - ended,
        "attempt": {
            "attempt_id": f"at-{number}",
            "worker_id": worker_id,
            "status": status,
            "metadata": None,
            **attempt,
        },
    }


def worker(worker_id, heard, **stats):
    return {"worker_id": worker_id, "last_heartbeat_time": heard, "heartbeat_stats": stats or None}


def summed_up(played=(), closed=(), retried=(), workers=()):
    return summary("http://hub", dict.fromkeys(STATES, 0), played, closed, retried, workers, NOW)


def test_runners_are_counted_by_machine():
    workers = [worker("big-2-77", NOW - 10), worker("big-2-78-0123abcd-3", NOW - 50), worker("big-2-79", NOW - 70)]
    status = summed_up(played=[rollout(1, worker_id="big-2-77"), rollout(2, worker_id=None)], workers=workers)
    assert status["runners"] == {"big-2": 2} and status["playing"] == {"big-2": 1, "(unnamed)": 1}


def test_the_speed_is_that_of_the_last_ten_minutes():
    assert summed_up(closed=[rollout(1, "succeeded", ended=601)])["games_per_minute"] == 0
    assert (
        summed_up(closed=[rollout(1, "succeeded", ended=1), rollout(2, "failed", ended=1)])["games_per_minute"] == 0.1
    )
    # Of a fast hub only the latest games are read, which cover less than ten minutes.
    fast = [rollout(n, "succeeded", ended=n / 10) for n in range(500)]
    assert summed_up(closed=fast)["games_per_minute"] == pytest.approx(600, rel=0.01)


def test_the_oldest_attempt_the_policies_and_the_errors():
    status = summed_up(
        played=[rollout(1, start_time=NOW - 5), rollout(2, start_time=NOW - 500, resources_id="run.policy-0")],
        closed=[rollout(3, "failed", ended=1, metadata={"reason": "PolicyError: server gone\nsecond line"})],
        retried=[rollout(4, "timeout"), rollout(5, "x", metadata={"reason": "y" * 500})],
    )
    assert status["oldest"] == {"rollout_id": "ro-2", "seconds": 500.0}
    assert status["policies"] == {"run.policy-1": 1, "run.policy-0": 1}
    assert status["errors"] == {"PolicyError": 1, "timeout": 1, "y" * 60: 1}
    assert summed_up()["oldest"] is None


ESCAPES = "\x1b]0;owned\x07\x9b2J\r\u202e"


def test_names_of_others_cannot_command_the_terminal():
    status = summed_up(
        played=[rollout(1, resources_id=f"policy{ESCAPES}[red]", worker_id=f"w{ESCAPES}")],
        closed=[rollout(2, "failed", ended=1, metadata={"reason": f"Odd{ESCAPES}: y"})],
        workers=[worker(f"host{ESCAPES}-1", NOW)],
    )
    console = Console(width=300, file=io.StringIO(), force_terminal=True)
    console.print(table(status))
    assert "[red]" in console.file.getvalue()
    for text in (console.file.getvalue(), json.dumps(status, ensure_ascii=False)):
        for name in ("policy", "w", "host", "Odd"):
            assert f"{name}\ufffd]0;owned\ufffd\ufffd2J" in text
        assert not {"\x07", "\x9b", "\r", "\u202e"} & set(text) and "\x1b]" not in text


async def used_hub(folder):
    hub = HubProcess(folder, AGL_TOKEN=TOKEN)
    await hub.start()
    client = connect(hub.url, 20, TOKEN)
    await client.update_resources("run.policy-3", {"policy": LLM(endpoint="http://localhost:1/v1", model="m")})
    config = RolloutConfig(max_attempts=2, retry_condition=["failed"])
    await client.enqueue_many_rollouts([EnqueueRolloutRequest(input=n, config=config) for n in range(5)])
    for status, reason in (("succeeded", None), ("failed", "HubError: why"), (None, None)):
        taken = await client.dequeue_rollout(worker_id="host-12")
        if status is not None:
            key = (taken.rollout_id, taken.attempt.attempt_id)
            await client.update_attempt(*key, status=status, metadata={"reason": reason})
    await client.update_worker("host-12", {"playing": 1, "finished": 1, "failed": 1})
    await client.close()
    return hub, taken


async def test_a_real_hub(tmp_path, capsys, monkeypatch):
    hub, playing = await used_hub(tmp_path)
    monkeypatch.setenv("AGL_TOKEN", TOKEN)
    assert await asyncio.to_thread(main, ["status", "--url", hub.url, "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["games"] == dict.fromkeys(STATES, 0) | {"queuing": 2, "requeuing": 1, "preparing": 1, "succeeded": 1}
    assert said["runners"] == said["playing"] == {"host": 1} and said["games_per_minute"] == pytest.approx(0.1)
    assert said["policies"] == {"run.policy-3": 1} and said["errors"] == {"HubError": 1}
    assert said["oldest"]["rollout_id"] == playing.rollout_id and 0 <= said["oldest"]["seconds"] < 60

    assert await asyncio.to_thread(main, ["status", "--url", hub.url + "/"]) == 0
    assert "run.policy-3" in capsys.readouterr().out
    monkeypatch.setenv("AGL_TOKEN", "another")
    assert await asyncio.to_thread(main, ["status", "--url", hub.url]) == 1
    said = capsys.readouterr().err
    assert said.count("\n") == 1 and "does not accept the token: set AGL_TOKEN" in said
    hub.kill()


async def test_watching_goes_on_until_it_is_ended(tmp_path):
    hub, _ = await used_hub(tmp_path)
    command = [*PYTHON, "status", "--url", hub.url, "--json", "--watch", "--every", "0.05"]
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE, env=ENVIRONMENT)
    for _ in range(3):
        line = await asyncio.wait_for(process.stdout.readline(), 60)
        assert json.loads(line)["games"]["queuing"] == 2
    process.send_signal(2)
    assert await asyncio.wait_for(process.wait(), 60) == 130
    hub.kill()


@pytest.mark.parametrize("url", ["http://127.0.0.1:{port}", "http://no.such.host.example:1"])
def test_a_hub_that_is_not_there_is_one_line(capsys, url):
    url = url.format(port=free_port())
    assert main(["status", "--url", url]) == 1
    said = capsys.readouterr().err
    assert said.startswith(f"python -m store: no hub answers at {url}: ") and said.count("\n") == 1


@pytest.mark.parametrize("answer", ["", "{}", "[]", "null", '{"total": 1, "items": [1]}', "<html>"])
async def test_another_program_at_the_address_is_one_line(capsys, answer):
    async def say(_request):
        return web.Response(text=answer, content_type="application/json")

    app = web.Application()
    app.router.add_post("/{path:.*}", say)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port := free_port()).start()
    assert await asyncio.to_thread(main, ["status", "--url", f"http://127.0.0.1:{port}"]) == 1
    said = capsys.readouterr().err
    assert said.startswith("python -m store: no hub answers at ") and said.count("\n") == 1
    await runner.cleanup()


def test_an_address_without_scheme_is_refused(capsys):
    with pytest.raises(SystemExit, match="2"):
        main(["status", "--url", "localhost:4747"])
    assert "must start with http://" in capsys.readouterr().err
