"""Which finished games stay in the database, and copies of them in files."""

import asyncio
import gzip
import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import sqlalchemy as sa
from agentlightning import LLM, EnqueueRolloutRequest, Span

from store.__main__ import main
from store.hub.database import schema
from store.hub.database.opening import opened_store
from store.hub.database.statements import Statement
from store.hub.retention import RetentionRule, delete_old_rollouts, export
from store.schema import IDEMPOTENCY_KEY
from tests.support.fakes import make_result, make_turn, spans_of
from tests.support.hub.hub_process import HubProcess
from tests.support.waiting import until

pytest_plugins = ("tests.support.hub.hub_backends",)

DAY = 86_400.0


async def play(store, first, last, status="succeeded"):
    """Games number ``first`` to ``last``, played to the given status."""
    for number in range(first, last + 1):
        metadata = {IDEMPOTENCY_KEY: f"game-{number}"}
        await store.enqueue_many_rollouts([EnqueueRolloutRequest(input=number, metadata=metadata)])
        taken = await store.dequeue_rollout(worker_id="w")
        ids = {"rollout_id": taken.rollout_id, "attempt_id": taken.attempt.attempt_id}
        spans = spans_of([make_turn(turn=1), make_turn(turn=2), make_result()], **ids)
        await store.add_many_spans([Span.from_attributes(**dict(span)) for span in spans])
        if status is not None:
            await store.update_attempt(*ids.values(), status=status)


async def kept(store):
    return [rollout.input for rollout in await store.query_rollouts()]


async def forget(store, days=0.5, **rule):
    return await delete_old_rollouts(store.collections, RetentionRule(**rule), now=time.time() + days * DAY)


async def test_either_limit_deletes_what_is_older_than_an_hour(store):
    await play(store, 1, 5)
    await play(store, 6, 6, status=None)
    assert await forget(store, days=3500 / DAY, keep_rollouts=0) == 0
    assert await forget(store, keep_rollouts=4) == 1 and await kept(store) == [2, 3, 4, 5, 6]
    assert await forget(store, keep_rollouts=4) == 0
    assert await forget(store, days=1.9, keep_days=2, keep_rollouts=3) == 1
    assert await forget(store, days=2.1, keep_days=2, keep_rollouts=3) == 3 and await kept(store) == [6]


async def test_a_deleted_game_leaves_nothing_behind(store):
    await store.add_resources({"policy": LLM(endpoint="http://localhost:1/v1", model="old")})
    await play(store, 1, 60)
    await store.add_resources({"policy": LLM(endpoint="http://localhost:1/v1", model="new")})
    await store.update_worker("gone")
    await forget(store, days=8, keep_rollouts=0)
    collections = store.collections
    for table in schema.metadata.sorted_tables:
        if table.name not in ("resources", "marks", "counts"):
            rows = Statement(sa.select(sa.func.count()).select_from(table))
            assert await collections.database.value(rows) == 0, table.name
    assert await collections.workers.size() == await collections.spans.size() == 0
    (resources,) = await store.query_resources()
    assert resources.resources["policy"].model == "new"
    assert (await store.query_rollouts(status_in=["succeeded"], limit=1)).total == 0
    await play(store, 1, 1)  # its key is free
    assert await kept(store) == [1]


async def test_marks_go_on_after_games_were_deleted(store):
    _, mark = await store.finished_since(None)
    await play(store, 1, 2)
    closed, mark = await store.finished_since(mark)
    assert len(closed) == 2
    await forget(store, keep_rollouts=0)
    await play(store, 3, 3)
    closed, _ = await store.finished_since(mark)
    assert [(await store.get_rollout_by_id(one)).input for one in closed] == [3]


async def test_a_running_hub_deletes(tmp_path):
    async with opened_store(tmp_path / "hub.sqlite3") as store:
        await play(store, 1, 3)
        old = [one.model_copy(update={"end_time": 1.0}) for one in await store.collections.rollouts.query()][:2]
        await store.collections.rollouts.replace(old)
    hub = await HubProcess(tmp_path, "--keep-days", "2").start()
    await until(lambda: "2 old rollouts deleted" in hub.log.read_text())
    hub.stop()
    async with opened_store(tmp_path / "hub.sqlite3") as store:
        assert await kept(store) == [3]


# Exports


async def test_an_export_has_each_finished_game_whole(store, address, tmp_path):
    await store.add_resources({"policy": LLM(endpoint="http://localhost:1/v1", model="m")})
    await play(store, 1, 3)
    await play(store, 4, 4, status=None)
    plain, packed = tmp_path / "all.jsonl", tmp_path / "all.jsonl.gz"
    assert await export(address, plain) == 3
    place = str(address) if isinstance(address, Path) else address.render_as_string(hide_password=False)
    assert await asyncio.to_thread(main, ["export", "--db", place, str(packed)]) == 0
    lines = [json.loads(line) for line in plain.read_text().splitlines()]
    assert [line["rollout"]["input"] for line in lines] == [1, 2, 3]
    assert [json.loads(line) for line in gzip.decompress(packed.read_bytes()).splitlines()] == lines
    for line in lines:
        (attempt,) = await store.query_attempts(line["rollout"]["rollout_id"])
        spans = await store.query_spans(line["rollout"]["rollout_id"])
        assert line["attempts"] == [attempt.model_dump()] and line["spans"] == [span.model_dump() for span in spans]
        assert line["resources"]["resources"]["policy"]["model"] == "m"
    assert {file.stat().st_mode & 0o777 for file in (plain, packed)} == {0o600}


async def test_an_export_follows_no_link_that_waits_for_it(file_store, tmp_path):
    await play(file_store, 1, 1)
    victim = tmp_path / "victim"
    victim.write_text("precious")
    for name in ("out.jsonl.part", "out.jsonl"):
        (tmp_path / name).symlink_to(victim)
    await export(tmp_path / "hub.sqlite3", tmp_path / "out.jsonl")
    assert victim.read_text() == "precious" and not (tmp_path / "out.jsonl").is_symlink()
    with pytest.raises(FileExistsError, match="is a folder"):
        await export(tmp_path / "hub.sqlite3", tmp_path)


EXPORT = """
import time
from store.hub import retention
from store.__main__ import main
from store.program import run_program

async def lines(collections):
    yield b"the first"
    print("begun", flush=True)
    time.sleep(600)

retention._lines = lines
run_program(main)
"""


@pytest.mark.timeout(60)
async def test_an_export_that_is_stopped_leaves_no_incomplete_file(tmp_path):
    async with opened_store(tmp_path / "hub.sqlite3"):
        pass
    output = tmp_path / "out" / "games.jsonl.gz"
    output.parent.mkdir()
    export = subprocess.Popen(
        [sys.executable, "-c", EXPORT, "export", "--db", str(tmp_path / "hub.sqlite3"), str(output)],
        stdout=subprocess.PIPE,
    )
    assert export.stdout.readline() == b"begun\n"
    export.terminate()
    assert export.wait() == 128 + signal.SIGTERM and not any(output.parent.iterdir())
