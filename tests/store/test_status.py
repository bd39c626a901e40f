"""The status command: what it makes of a hub's answers, and a real hub asked."""

import asyncio
import io
import json
import os
import socket
import sys
from dataclasses import asdict

import pytest
from agentlightning import LLM, EnqueueRolloutRequest, RolloutConfig
from rich.console import Console

from algo.machine.ports import free_port
from runners.command_line import unique_worker_name
from store.__main__ import main
from store.client import connect
from store.status import STATES, Machine, Running, render, summarise
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


def summary(played=(), closed=(), retried=(), workers=()):
    return summarise("http://hub", dict.fromkeys(STATES, 0), played, closed, retried, workers, NOW)


def test_runners_are_counted_by_machine():
    status = summary(
        played=[rollout(1, start_time=NOW - 5), rollout(2, worker_id="big-machine-78", start_time=NOW - 5)],
        closed=[
            rollout(3, "succeeded", ended=60),
            rollout(4, "succeeded", ended=61),
            rollout(5, "succeeded", "x", 599),
        ],
        workers=[
            worker("big-machine-77", NOW - 10, finished=3, failed=1),
            worker("big-machine-78", NOW - 70, finished=4),
            worker("laptop", None),
        ],
    )
    assert status.machines == [
        Machine("big-machine", 1, 2, 7, 1, 0.2, 10.0),
        Machine("laptop", 0, 0, 0, 0, 0.0, None),
    ]
    assert status.games_per_minute == pytest.approx(0.3)


@pytest.mark.parametrize("process", ["", "-2"], ids=["alone", "one of several"])
@pytest.mark.parametrize("host", ["big-machine", "node-3"])
def test_runners_that_chose_their_names_are_counted_by_machine(host, process, monkeypatch):
    monkeypatch.setattr(socket, "gethostname", lambda: host)
    names = [unique_worker_name() + process for _ in range(2)]
    status = summary(
        played=[rollout(1, worker_id=names[0], start_time=NOW - 5)],
        closed=[rollout(2, "succeeded", names[1], ended=60)],
        workers=[worker(name, NOW - 10, finished=1) for name in names],
    )
    assert status.machines == [Machine(host, 2, 1, 2, 0, 0.1, 10.0)]


def test_the_speed_is_that_of_the_last_ten_minutes():
    assert summary(closed=[rollout(1, "succeeded", ended=601)]).games_per_minute == 0
    assert summary(closed=[rollout(1, "failed", ended=1), rollout(2, "cancelled", ended=1)]).games_per_minute == 0
    # Very fast hubs are asked for the latest games only, which cover less than ten minutes.
    fast = [rollout(n, "succeeded", ended=n / 10) for n in range(500)]
    assert summary(closed=fast).games_per_minute == pytest.approx(600, rel=0.01)


def test_the_oldest_attempt_and_the_policies_in_play():
    status = summary(
        played=[
            rollout(1, start_time=NOW - 5),
            rollout(2, start_time=NOW - 500, resources_id="run.policy-0"),
            rollout(3, start_time=NOW - 50),
        ]
    )
    assert status.oldest == Running("ro-2", "at-2", "big-machine-77", 500.0)
    assert status.policies == {"run.policy-1": 2, "run.policy-0": 1}
    assert summary().oldest is None and summary().policies == {}


def test_errors_are_counted_by_kind():
    status = summary(
        closed=[
            rollout(1, "failed", ended=1, metadata={"reason": "PolicyError: server gone: 503"}),
            rollout(2, "failed", ended=1, metadata={"reason": "PolicyError: no reply\nsecond line"}),
            rollout(3, "succeeded", ended=1, metadata={"reason": "none of this"}),
        ],
        retried=[rollout(4, "timeout"), rollout(5, "unresponsive"), rollout(6, "x", metadata={"reason": "y" * 500})],
    )
    assert status.errors == {"PolicyError": 2, "timeout": 1, "unresponsive": 1, "y" * 60: 1}


def test_the_screen_shows_everything_and_no_markup_of_others():
    status = summary(
        played=[rollout(1, start_time=NOW - 7200, resources_id="[red]policy[/nonsense]")],
        closed=[rollout(2, "failed", ended=1, metadata={"reason": "[bold]Odd[/x]: y"})],
        workers=[worker("[red]host[/x]-1", NOW - 200, finished=3)],
    )
    console = Console(width=120, record=True, file=io.StringIO())
    console.print(render(status))
    text = console.export_text()
    shown = ("0.0 games/min", "[red]host[/x]", "3 min ago", "[red]policy[/nonsense]", "2 h", "ro-1", "[bold]Odd[/x]")
    for part in (*shown, *STATES):
        assert part in text, part


ESCAPES = "\x1b]0;owned\x07\x9b2J\r\u202e"


def test_what_others_call_things_cannot_command_the_terminal():
    status = summary(
        played=[rollout(1, start_time=NOW, resources_id=f"policy{ESCAPES}", worker_id=f"w{ESCAPES}")],
        closed=[rollout(2, "failed", ended=1, metadata={"reason": f"Odd{ESCAPES}: y"})],
        workers=[worker(f"host{ESCAPES}-1", NOW, finished=3)],
    )
    console = Console(width=300, file=io.StringIO(), force_terminal=True)
    console.print(render(status))
    for text in (console.file.getvalue(), json.dumps(asdict(status), ensure_ascii=False)):
        for name in ("policy", "w", "host", "Odd"):
            assert f"{name}\ufffd]0;owned\ufffd\ufffd2J" in text
        assert not set(ESCAPES) & {"\x07", "\x9b", "\r", "\u202e"} & set(text) and "\x1b]" not in text


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
    (machine,) = said["machines"]
    assert (machine["name"], machine["runners"], machine["playing"], machine["failed"]) == ("host", 1, 1, 1)
    assert said["games_per_minute"] == machine["games_per_minute"] == pytest.approx(0.1)
    assert said["policies"] == {"run.policy-3": 1} and said["errors"] == {"HubError": 1}
    assert said["oldest"]["rollout_id"] == playing.rollout_id and 0 <= said["oldest"]["seconds"] < 60

    assert await asyncio.to_thread(main, ["status", "--url", hub.url + "/"]) == 0
    assert "run.policy-3" in capsys.readouterr().out
    monkeypatch.setenv("AGL_TOKEN", "another")
    assert await asyncio.to_thread(main, ["status", "--url", hub.url]) == 1
    said = capsys.readouterr().err
    assert said.count("\n") == 1 and "wants another token: set AGL_TOKEN" in said and "another token" in said
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


def test_an_address_without_scheme_is_refused(capsys):
    with pytest.raises(SystemExit, match="2"):
        main(["status", "--url", "localhost:4747"])
    assert "must start with http://" in capsys.readouterr().err
