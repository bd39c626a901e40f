"""The status command: a summary of a hub's answers, and real hubs."""

import asyncio
import io
import json

import pytest
from rich.console import Console

from store.__main__ import main
from store.client import connect
from store.protocol import EnqueueRolloutRequest, RolloutConfig
from store.status import STATES, summary, table
from tests.support.hub.asking import take
from tests.support.hub.hub_process import HubProcess

NOW = 1_000_000.0
TOKEN = "a-token"
ESCAPES = "\x1b]0;owned\x07\x9b2J\r\u202e"


def test_names_of_others_cannot_command_the_terminal():
    attempt = {"status": "failed", "metadata": {"reason": f"Odd{ESCAPES}: y"}}
    closed = closed_rollout(attempt=attempt)
    worker = {"worker_id": f"host{ESCAPES}[red]-1", "last_heartbeat_time": NOW}
    status = summary([closed], [], [worker], NOW)
    console = Console(width=300, file=io.StringIO(), force_terminal=True)
    console.print(table({"url": "http://[fd00::1]:4747", "rollouts": {}, **status}))
    assert "[red]" in console.file.getvalue() and "http://[fd00::1]:4747" in console.file.getvalue()
    for text in (console.file.getvalue(), json.dumps(status, ensure_ascii=False)):
        for name in ("host", "Odd"):
            assert f"{name}\ufffd]0;owned\ufffd\ufffd2J" in text
        assert not {"\x07", "\x9b", "\r", "\u202e"} & set(text) and "\x1b]" not in text


def closed_rollout(**changes):
    return {"status": "failed", "start_time": NOW - 30, "end_time": NOW, **changes}


def test_a_reason_without_a_kind_counts_by_its_status():
    attempt = {"status": "failed", "metadata": {"reason": ": why"}}
    assert summary([closed_rollout(attempt=attempt)], [], [], NOW)["errors"] == {"failed": 1}


@pytest.mark.parametrize(("began", "per_minute"), [(NOW - 30, 6.0), (NOW - 5000, 0.3)])
def test_the_rate_counts_no_time_before_the_first_rollout(began, per_minute):
    closed = [closed_rollout(status="succeeded", start_time=began)] * 3
    assert summary(closed, [], [], NOW)["rollouts_per_minute"] == pytest.approx(per_minute)


async def test_a_real_hub(tmp_path, capsys, monkeypatch):
    hub = await HubProcess(tmp_path, AGL_TOKEN=TOKEN).start()
    client = connect(hub.url, 20, TOKEN)
    config = RolloutConfig(max_attempts=2, retry_condition=["failed"])
    await client.enqueue_many_rollouts([EnqueueRolloutRequest(input=n, config=config) for n in range(5)])
    for status, reason in (("succeeded", None), ("failed", "HubError: why"), (None, None)):
        taken = await take(client, "host-12")
        if status is not None:
            key = (taken.rollout_id, taken.attempt.attempt_id)
            await client.update_attempt(*key, status=status, metadata={"reason": reason})
    await client.close()

    monkeypatch.setenv("AGL_TOKEN", TOKEN)
    assert await asyncio.to_thread(main, ["status", "--url", hub.url + "/"]) == 0
    assert "HubError" in capsys.readouterr().out
    assert await asyncio.to_thread(main, ["status", "--url", hub.url, "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    counted = {"queuing": 2, "requeuing": 1, "preparing": 1, "succeeded": 1}
    assert said["rollouts"] == dict.fromkeys(STATES, 0) | counted
    assert said["runners"] == {"host": 1} and said["rollouts_per_minute"] > 0.1
    assert said["errors"] == {"HubError": 1}

    monkeypatch.setenv("AGL_TOKEN", "another")
    for problem in ("rejects the token", "requires a token"):
        assert await asyncio.to_thread(main, ["status", "--url", hub.url]) == 1
        said = capsys.readouterr().err
        assert said.count("\n") == 1 and f"{problem}: set AGL_TOKEN" in said
        monkeypatch.delenv("AGL_TOKEN", raising=False)
    hub.kill()
