"""Files that earlier versions of the hub wrote open as they are, and go on.

``hub_files`` has two of them as text: one of the first version (7b88448), without counts or an order of completion,
and one of the last version (fc763f9) before SQLite and PostgreSQL shared their SQL. In both, five tasks were enqueued:
two have succeeded, two have failed and wait for their second attempt, the last is being played.
"""

import asyncio
import json
import sqlite3
from pathlib import Path

import pytest
from agentlightning import EnqueueRolloutRequest

from store.hub.retention import RetentionRule, archive, export
from store.schema import IDEMPOTENCY_KEY
from store.sql.opening import opened_store

FILES = Path(__file__).parent / "hub_files"
STATES = {0: "succeeded", 1: "requeuing", 2: "requeuing", 3: "succeeded", 4: "running"}


@pytest.fixture(params=["first_version", "before_postgres"])
def old_file(request, tmp_path):
    path = tmp_path / "hub.sqlite3"
    connection = sqlite3.connect(path)
    connection.executescript((FILES / f"{request.param}.sql").read_text())
    connection.close()
    return path


async def states(store):
    return {rollout.input: rollout.status for rollout in await store.query_rollouts()}


async def test_an_old_file_opens_with_all_its_games_and_they_go_on(old_file, tmp_path):
    async with opened_store(old_file) as store:
        assert await states(store) == STATES
        for status in set(STATES.values()):
            page = await store.query_rollouts(status_in=[status], sort_by="end_time", limit=1)
            assert page.total == list(STATES.values()).count(status)  # kept counts, of which the first had none
        counted = await store.statistics()
        assert (counted["total_rollouts"], counted["total_attempts"], counted["total_spans"]) == (5, 5, 8)
        assert (await store.get_latest_resources()).resources["policy"].model == "m"

        known = EnqueueRolloutRequest(input=0, resources_id="rs", metadata={IDEMPOTENCY_KEY: "k0"})
        assert (await store.enqueue_many_rollouts([known]))[0].status == "succeeded"
        _, mark = await store.finished_since(None)

        (running,) = await store.query_rollouts(status_in=["running"])
        await store.close_overdue()  # silence while no hub was there does not count
        await store.update_attempt(running.rollout_id, running.attempt.attempt_id, status="succeeded")
        for expected in (1, 2):
            taken = await store.dequeue_rollout(worker_id="new")
            assert (taken.input, taken.attempt.sequence_id) == (expected, 2)
            assert await store.get_next_span_sequence_id(taken.rollout_id, taken.attempt.attempt_id) == 2
            await store.update_attempt(taken.rollout_id, taken.attempt.attempt_id, status="succeeded")
        assert set((await states(store)).values()) == {"succeeded"}
        finished, _ = await store.finished_since(mark)
        inputs = {rollout.rollout_id: rollout.input for rollout in await store.query_rollouts()}
        assert [inputs[rollout_id] for rollout_id in finished] == [4, 1, 2]

    assert await asyncio.to_thread(export, old_file, tmp_path / "all.jsonl", "old") == 5
    lines = [json.loads(line) for line in (tmp_path / "all.jsonl").read_text().splitlines()]
    assert sorted(len(line["spans"]) for line in lines) == [1, 1, 1, 2, 3]
    rule = RetentionRule(keep_games=1, youngest_seconds=0)
    assert (await asyncio.to_thread(archive, old_file, tmp_path / "archive", rule)).games == 4


async def test_what_has_another_purpose_or_is_newer_is_refused_with_the_remedy(old_file):
    connection = sqlite3.connect(old_file)
    connection.execute("PRAGMA user_version = 99")
    connection.close()
    with pytest.raises(OSError, match=r"hub.sqlite3: a newer version of this program wrote it \(format 99\)"):
        async with opened_store(old_file):
            pass
