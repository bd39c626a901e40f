"""What has finished since one last looked: on our hub by the order of completion, on the stock one by asking."""

import pytest
from agentlightning import EnqueueRolloutRequest
from hub_process import HubProcess, StockHub

from store.client import connect
from store.finished import FinishedGames
from store.sqlite.database import Database
from store.sqlite.lightning_store import SqliteLightningStore

pytest_plugins = ("hub_backends",)


@pytest.fixture(params=[HubProcess, StockHub], ids=["ours", "stock"])
async def client(request, tmp_path):
    hub = await request.param(tmp_path).start()
    client = connect(hub.url, 20)
    yield client
    await client.close()
    hub.kill()


async def enqueue(client, number):
    rollouts = await client.enqueue_many_rollouts([EnqueueRolloutRequest(input=n) for n in range(number)])
    return [rollout.rollout_id for rollout in rollouts]


async def found(finished, ids):
    return sorted(ids.index(rollout.rollout_id) for rollout in await finished.look(ids))


async def test_finished_games_are_found_whenever_they_were_finished_and_asked_for(client, monkeypatch):
    ids = await enqueue(client, 6)
    await client.update_rollout(ids[0], status="succeeded")  # before anybody looks
    finished = FinishedGames(client)
    assert await found(finished, ids[:4]) == [0]
    await client.update_rollout(ids[3], status="failed")
    await client.update_rollout(ids[5], status="cancelled")  # nobody waits for it yet
    assert await found(finished, ids[:4]) == [0, 3]
    assert await found(finished, ids[1:]) == [2, 4]
    assert await found(finished, ids[1:3]) == []
    assert await finished.look([]) == []


async def test_our_hub_is_not_asked_for_open_games_again(tmp_path, monkeypatch):
    hub = await HubProcess(tmp_path).start()
    client = connect(hub.url, 20)
    ids = await enqueue(client, 6)
    finished, asked = FinishedGames(client), []
    query = client.query_rollouts

    async def watched(**what):
        asked.append(len(what["rollout_id_in"]))
        return await query(**what)

    monkeypatch.setattr(client, "query_rollouts", watched)
    for _ in range(3):
        assert await found(finished, ids) == []
    await client.update_rollout(ids[2], status="succeeded")
    assert await found(finished, ids) == [2] and asked == [6, 1]
    await client.close()
    hub.kill()


async def test_a_mark_of_another_database_is_refused(tmp_path, database):
    store, other = SqliteLightningStore(database), SqliteLightningStore(Database(tmp_path / "other.sqlite3"))
    (mine, mark), (_, foreign) = await store.finished_since(None), await other.finished_since(None)
    assert mine == [] and await store.finished_since(mark) == ([], mark)
    for wrong in (foreign, "", "x", f"{mark}1", f"{mark.partition('/')[0]}/x"):
        with pytest.raises(ValueError, match="no mark of this hub"):
            await store.finished_since(wrong)
    other.close()


async def test_the_order_is_that_of_completion_and_outlives_the_hub(tmp_path):
    store = SqliteLightningStore(Database(tmp_path / "hub.sqlite3"))
    rollouts = await store.enqueue_many_rollouts([EnqueueRolloutRequest(input=n) for n in range(4)])
    ids = [rollout.rollout_id for rollout in rollouts]
    _, mark = await store.finished_since(None)
    for number in (2, 0):
        await store.update_rollout(ids[number], status="cancelled")
    store.close()
    store = SqliteLightningStore(Database(tmp_path / "hub.sqlite3"))
    closed, mark = await store.finished_since(mark)
    assert closed == [ids[2], ids[0]]
    taken = await store.dequeue_rollout()
    await store.update_attempt(taken.rollout_id, taken.attempt.attempt_id, status="succeeded")
    assert (await store.finished_since(mark))[0] == [ids[1]]
    store.close()


async def test_a_game_that_has_just_ended_is_not_taken_back_from_our_hub(client):
    ids = await enqueue(client, 2)
    await client.update_rollout(ids[0], status="succeeded")
    taken_back = [await client.take_back(rollout_id) for rollout_id in ids]
    statuses = [rollout.status for rollout in await client.query_rollouts(rollout_id_in=ids)]
    assert (taken_back, statuses) in (([False, True], ["succeeded", "cancelled"]), ([True, True], ["cancelled"] * 2))
