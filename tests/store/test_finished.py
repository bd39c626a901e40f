"""What has finished since one last looked: on our hub by the order of completion, on the stock one by asking."""

import asyncio

import pytest
from agentlightning import EnqueueRolloutRequest

from store.finished import FinishedRollouts
from store.hub.database.opening import opened_store
from tests.support.hub.hub_process import HubProcess, StockHub

pytest_plugins = ("tests.support.hub.hub_backends",)


@pytest.fixture(params=[HubProcess, StockHub], ids=["ours", "stock"])
async def hub(request, tmp_path):
    hub = await request.param(tmp_path).start()
    yield hub
    hub.kill()


async def enqueue(store, number):
    rollouts = await store.enqueue_many_rollouts([EnqueueRolloutRequest(input=n) for n in range(number)])
    return [rollout.rollout_id for rollout in rollouts]


async def found(finished, ids):
    return sorted(ids.index(rollout.rollout_id) for rollout in await finished.poll(ids))


async def test_finished_games_are_found_whenever_they_were_finished_and_asked_for(hub, client, monkeypatch):
    asked, query = [], client.query_rollouts

    async def watched(**what):
        asked.append(len(what["rollout_id_in"]))
        return await query(**what)

    monkeypatch.setattr(client, "query_rollouts", watched)
    ids = await enqueue(client, 6)
    await client.update_rollout(ids[0], status="succeeded")  # before anybody looks
    finished = FinishedRollouts(client)
    assert await found(finished, ids[:4]) == await found(finished, ids[:4]) == [0]
    await client.update_rollout(ids[3], status="failed")
    await client.update_rollout(ids[5], status="cancelled")  # nobody waits for it yet
    assert await found(finished, ids[:4]) == [0, 3]
    assert await found(finished, ids[1:]) == [2, 4]
    assert await found(finished, ids[1:3]) == []
    assert await finished.poll([]) == []
    # Our hub is not asked again for games that are open.
    assert asked == ([4, 4, 4, 5, 2] if isinstance(hub, StockHub) else [4, 1, 2, 3])


async def test_a_query_that_failed_is_made_again(hub, client, monkeypatch):
    ids = await enqueue(client, 2)
    await client.update_rollout(ids[0], status="succeeded")
    finished, query = FinishedRollouts(client), client.query_rollouts

    async def away(**what):
        raise TimeoutError

    monkeypatch.setattr(client, "query_rollouts", away)
    with pytest.raises(TimeoutError):
        await finished.poll(ids)
    monkeypatch.setattr(client, "query_rollouts", query)
    assert await found(finished, ids) == [0]
    finished._mark = finished._mark and f"{'0' * 8}/{finished._mark.partition('/')[2]}"  # of another database
    monkeypatch.setattr(client, "query_rollouts", away)
    with pytest.raises(TimeoutError):
        await finished.poll(ids)
    monkeypatch.setattr(client, "query_rollouts", query)
    assert await found(finished, ids) == [0]


async def test_a_game_that_has_just_ended_is_not_taken_back_from_our_hub(hub, client):
    ids = await enqueue(client, 2)
    await client.update_rollout(ids[0], status="succeeded")
    taken_back = [await client.cancel_rollout(rollout_id) for rollout_id in ids]
    statuses = [rollout.status for rollout in await client.query_rollouts(rollout_id_in=ids)]
    on_stock, on_ours = ([True, True], ["cancelled"] * 2), ([False, True], ["succeeded", "cancelled"])
    assert (taken_back, statuses) == (on_stock if isinstance(hub, StockHub) else on_ours)


async def test_a_mark_of_another_database_is_refused(store, tmp_path):
    async with opened_store(tmp_path / "other.sqlite3") as other:
        (mine, mark), (_, foreign) = await store.finished_since(None), await other.finished_since(None)
    assert mine == [] and await store.finished_since(mark) == ([], mark)
    for wrong in (foreign, "", "x", f"{mark}1", f"{mark.partition('/')[0]}/x"):
        with pytest.raises(ValueError, match="not a mark of this hub"):
            await store.finished_since(wrong)


async def test_the_order_is_that_of_completion_and_outlives_the_hub(address):
    async with opened_store(address) as store:
        ids = await enqueue(store, 4)
        _, mark = await store.finished_since(None)
        for number in (2, 0):
            await store.update_rollout(ids[number], status="cancelled")
    async with opened_store(address) as store:
        closed, mark = await store.finished_since(mark)
        assert closed == [ids[2], ids[0]]
        taken = await store.dequeue_rollout()
        await store.update_attempt(taken.rollout_id, taken.attempt.attempt_id, status="succeeded")
        assert (await store.finished_since(mark))[0] == [ids[1]]


async def test_a_game_that_was_closed_first_but_came_to_light_last_is_not_missed(two_hubs):
    """Its transaction ends after that of a game which was closed later, and of which was heard already."""
    one_hub, another_hub = two_hubs
    slow, quick = await enqueue(one_hub, 2)
    _, mark = await one_hub.finished_since(None)
    is_closed, may_end = asyncio.Event(), asyncio.Event()

    async def close_slowly():
        async with one_hub.collections.atomic():
            await one_hub.update_rollout(slow, status="cancelled")
            is_closed.set()
            await may_end.wait()

    closing = asyncio.create_task(close_slowly())
    await is_closed.wait()
    await another_hub.update_rollout(quick, status="cancelled")
    told, mark = await another_hub.finished_since(mark)
    assert told == [quick]
    waiting = asyncio.create_task(another_hub.wait_for_rollouts(rollout_ids=[slow], timeout=60))
    may_end.set()
    await closing
    assert (await another_hub.finished_since(mark))[0] == [slow]
    assert [rollout.rollout_id for rollout in await waiting] == [slow]
