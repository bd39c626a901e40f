"""When games are overdue, whatever is heard of them; the look at them costs little however many are under way."""

import asyncio
import math
import time
from types import SimpleNamespace

import pytest
from agentlightning import EnqueueRolloutRequest, RolloutConfig

from store.hub import server
from store.hub.database import watchdog
from store.hub.database.opening import opened_store
from tests.store.test_growth import steps
from tests.store.test_store_contract import key, span

PATIENCE = 1000.0
RETRY = ["timeout", "unresponsive"]


class Clock:
    """The time of day, moved by hand."""

    def __init__(self):
        self.now, self.set_forward = 1e9, 0.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(time, "time", clock)
    monkeypatch.setattr(watchdog, "_clock_offset", lambda: clock.set_forward)
    return clock


@pytest.fixture
async def store(tmp_path, clock):
    async with opened_store(tmp_path / "hub.sqlite3", scan_debounce_seconds=math.inf) as store:
        yield store


async def taken(store, number=1, **patience):
    config = RolloutConfig(max_attempts=3, retry_condition=RETRY, **patience)
    await store.enqueue_many_rollouts([EnqueueRolloutRequest(input=n, config=config) for n in range(number)])
    return await store.dequeue_many_rollouts(limit=number, worker_id="w")


async def statuses(store, attempted):
    await store.close_overdue()
    (attempt, *_) = await store.query_attempts(attempted.rollout_id)
    return attempt.status, (await store.get_rollout_by_id(attempted.rollout_id)).status


OPEN = ("preparing", "preparing")
SILENT, LATE = ("unresponsive", "requeuing"), ("timeout", "requeuing")


async def test_one_with_less_patience_is_not_hidden_by_one_with_more(store, clock):
    (patient,) = await taken(store, unresponsive_seconds=PATIENCE)
    await store.close_overdue()
    (hasty,) = await taken(store, unresponsive_seconds=3.0)
    clock.now += 4
    assert await statuses(store, hasty) == SILENT and await statuses(store, patient) == OPEN


async def test_a_runner_that_says_so_keeps_its_games_alive_at_once(store, clock):
    games = await taken(store, 3, unresponsive_seconds=PATIENCE, timeout_seconds=10 * PATIENCE)
    await store.update_attempt(*key(games[2]), status="succeeded")
    for _ in range(8):
        clock.now += PATIENCE - 1
        await store.keep_alive([key(game) for game in games])
        assert await statuses(store, games[0]) == await statuses(store, games[1]) == OPEN
    assert (await store.get_latest_attempt(games[2].rollout_id)).last_heartbeat_time is None
    clock.now += PATIENCE + 1
    assert await statuses(store, games[0]) == SILENT
    await store.keep_alive([key(games[0]), ("no", "such"), (games[0].rollout_id, "at-other")])
    assert await statuses(store, games[0]) == ("running", "running")  # before another runner has taken it
    assert [one.rollout_id for one in await store.dequeue_many_rollouts(limit=3, worker_id="x")] == [
        games[1].rollout_id
    ]
    await store.keep_alive([key(games[1])])  # too late
    assert [one.status for one in await store.query_attempts(games[1].rollout_id)] == ["unresponsive", "preparing"]
    clock.now += PATIENCE + 1
    assert await statuses(store, games[1]) == SILENT


async def test_one_that_comes_back_may_be_overdue_at_once(store, clock):
    (game,) = await taken(store, unresponsive_seconds=3.0, timeout_seconds=8.0)
    clock.now += 4
    assert await statuses(store, game) == SILENT
    await store.add_span(span(game))
    assert await statuses(store, game) == ("running", "running")
    clock.now += 2
    await store.add_span(span(game, 2))
    clock.now += 2.5
    assert await statuses(store, game) == LATE


async def test_a_rollout_whose_status_a_client_sets_closes_no_attempt_again_and_hides_no_other(store, clock):
    ended, other = await taken(store, 2, unresponsive_seconds=3.0)
    await store.update_attempt(*key(ended), status="timeout")
    await store.update_rollout(ended.rollout_id, status="running")
    clock.now += 4
    assert await statuses(store, other) == SILENT
    assert (await statuses(store, ended))[0] == "timeout"


@pytest.mark.parametrize(("patience", "end"), [("unresponsive_seconds", SILENT), ("timeout_seconds", LATE)])
async def test_a_clock_that_is_set_back_postpones_no_timeout(store, clock, patience, end):
    for step in (2 * PATIENCE, -2 * PATIENCE):  # a wrong time, and its correction
        clock.set_forward += step
        clock.now += step
        await store.close_overdue()
    (game,) = await taken(store, **{patience: 3.0})
    clock.now += 4
    assert await statuses(store, game) == end


async def test_a_hub_that_was_stopped_counts_no_heartbeat_that_it_could_not_read(store, clock, monkeypatch):
    """As after Ctrl-Z and fg: both clocks go on."""
    uptime, rounds, begun = [0.0], [], clock.now

    async def sleep(seconds):
        rounds.append((await store.query_attempts(game.rollout_id))[0].status)
        if len(rounds) == 1:
            uptime[0] += PATIENCE + 1
            clock.now += PATIENCE + 1
        else:  # undisturbed
            uptime[0] += 5
            clock.now += 5
        if clock.now > begun + 2 * PATIENCE + 20:
            raise asyncio.CancelledError

    (game,) = await taken(store, unresponsive_seconds=PATIENCE)
    monkeypatch.setattr(server, "time", SimpleNamespace(monotonic=lambda: uptime[0]))
    monkeypatch.setattr(server, "asyncio", SimpleNamespace(sleep=sleep))
    with pytest.raises(asyncio.CancelledError):
        await server.watch(store)
    assert rounds[1] == "preparing" and rounds[-1] == "unresponsive"


async def test_a_changed_patience_counts(store, clock):
    (game,) = await taken(store, unresponsive_seconds=PATIENCE)
    clock.now += 5
    assert await statuses(store, game) == OPEN
    await store.update_rollout(game.rollout_id, config=RolloutConfig(unresponsive_seconds=3.0, max_attempts=3))
    assert (await statuses(store, game))[0] == "unresponsive"


async def test_what_is_under_way_is_not_looked_at_every_second(store, clock):
    await taken(store, 200, unresponsive_seconds=PATIENCE)
    await store.close_overdue()
    looks = []
    for _ in range(30):
        looks.append(await steps(store, lambda store: store.close_overdue()))
        clock.now += 1
    assert [second for second, look in enumerate(looks) if look] == [10, 20]


@pytest.mark.parametrize(("patience", "end"), [("unresponsive_seconds", SILENT), ("timeout_seconds", LATE)])
async def test_a_clock_that_is_set_forward_closes_no_attempt(store, clock, patience, end):
    (game,) = await taken(store, **{patience: PATIENCE})
    for step in (2 * PATIENCE, -PATIENCE, PATIENCE):
        clock.now += step
        clock.set_forward += step
        assert await statuses(store, game) == OPEN
    clock.now += PATIENCE - 1
    assert await statuses(store, game) == OPEN
    clock.now += 2
    assert await statuses(store, game) == end


async def test_a_restart_prolongs_no_timeout(store, clock):
    (game,) = await taken(store, timeout_seconds=PATIENCE)
    clock.now += PATIENCE - 1
    restarted = type(store)(store.collections.database)
    restarted.reset_heartbeat_timers()  # as by an outage
    assert await statuses(restarted, game) == OPEN
    clock.now += 2
    assert await statuses(restarted, game) == LATE


async def test_a_clock_that_is_set_back_delays_no_scan(store, clock):
    await store.close_overdue()
    clock.now -= 10 * PATIENCE
    assert await steps(store, lambda store: store.close_overdue())
    clock.now += 1
    assert not await steps(store, lambda store: store.close_overdue())
