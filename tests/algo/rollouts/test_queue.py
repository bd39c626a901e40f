"""Games through a real hub from the algorithm's side: order, accounting, a hub that forgets, failures."""

import asyncio
import json
from collections import Counter
from types import SimpleNamespace

import aiohttp
import pytest

from algo.rollouts import hub_rollouts as earlier_games
from algo.rollouts.hub_rollouts import HubRollouts, ResumePoint, version_of
from algo.rollouts.played import FAILED_ROLLOUT, SUPERSEDED_ATTEMPT, NoFinishedRollouts, reason_of
from algo.rollouts.queue import RolloutQueue
from algo.werewolf.tasks import step_tasks
from configs.section import ConfigError
from runners.errors import CannotPlay
from store.agents import AGENTS, AgentTask
from store.protocol import EnqueueRolloutRequest, RolloutConfig
from store.schema import IDEMPOTENCY_KEY, VERSION_SEPARATOR, PolicyResources
from store.token_spans import context_digest
from store.werewolf import GAME, GameTask, SeatingRule
from tests.support.algo.playing import alive, ended, playing
from tests.support.fakes import make_result, make_turn, spans_of
from tests.support.hub.asking import RETRY, take
from tests.support.settings import werewolf_config
from tests.support.waiting import until

RESOURCES = PolicyResources(run_name="run", version=0, endpoints=("http://127.0.0.1:1/v1",), model="policy")
CONFIG = werewolf_config(groups_per_step=2, rollouts_per_group=2, max_attempts=2)


class TwoTurnPlay:
    """A ``Play`` of two turns. ``failures``: how often each game fails after its first turn."""

    client = None

    def __init__(self, **failures):
        self.failures = failures
        self.gate = asyncio.Event()
        self.gate.set()
        self.playing = asyncio.Event()

    async def __call__(self, rollout, on_turn):
        task = GameTask.decode(rollout.input)
        first = make_turn(
            game_id=task.game_id, seat=1, turn=0, context_tokens=0, context_digest=context_digest([]), prompt_ids=(1,)
        )
        on_turn(first, 1.7e9, 1.7e9)
        self.playing.set()
        await self.gate.wait()
        name = task.game_id[-len("deal00-game00") :].replace("-", "_")
        if self.failures.get(name, 0) > 0:
            # Let the first turn reach the hub.
            await until(lambda: self.client.query_spans(rollout.rollout_id, rollout.attempt.attempt_id))
            self.failures[name] -= 1
            raise CannotPlay(f"told to fail {name}")
        context = [*first.prompt_ids, *first.response_ids]
        second = first.model_copy(
            update={"turn": 1, "context_tokens": len(context), "context_digest": context_digest(context)}
        )
        on_turn(second, 1.7e9, 1.7e9)
        return make_result().model_copy(update={"game_id": task.game_id, "turns": 2})


async def play_step(client, play, check_alive=alive, progress=None, resumed=False):
    play.client = client
    games = RolloutQueue(client, GAME, CONFIG.rollout)
    async with playing(client, play):
        try:
            tasks = step_tasks(CONFIG, 1)
            await games.enqueue(tasks, RESOURCES, resumed)
            return await ended(games, tasks, check_alive, progress or (lambda now: None))
        finally:
            await games.cancel_open()


@pytest.mark.parametrize(
    ("trained", "opponent", "turns"),
    [
        (("wolf",), "scripted", [{"wolf"}] * 6),
        (("wolf", "good"), "scripted", [{"wolf"}, {"good"}] * 3),  # deal by deal
        (("wolf", "good"), "policy", [{"wolf", "good"}] * 6),
    ],
)
def test_sides_that_do_not_learn_are_played_by_the_opponent(trained, opponent, turns):
    config = werewolf_config(train_sides=trained, opponent=opponent, groups_per_step=3, rollouts_per_group=2)
    tasks = [*step_tasks(config, 1), *step_tasks(config, 2)]
    assert [task.trainable for task in tasks[::2]] == [task.trainable for task in tasks[1::2]] == turns
    assert [task.seed for task in tasks[::2]] == [task.seed for task in tasks[1::2]]  # of a group one deal
    assert len({task.seed for task in tasks}) == 6 and len({task.sampling_seed for task in tasks}) == 12
    assert tasks == [*step_tasks(config, 1), *step_tasks(config, 2)]
    for task in tasks:
        expected = {side: {"policy" if side in task.trainable else opponent} for side in ("wolf", "good")}
        assert {rule.side: set(rule.players) for rule in task.seating} == expected


def test_seating_rules_come_before_the_sides():
    seating = [{"role": "seer", "players": {"strong": 1}}, {"side": "wolf", "players": {"policy": 4, "strong": 1}}]
    task = step_tasks(
        werewolf_config(
            train_sides=("wolf",), opponent="random", seating=seating, players={"strong": {"model": "big"}}
        ),
        1,
    )[0]
    assert task.seating == (
        SeatingRule(role="seer", players={"strong": 1}),
        SeatingRule(side="wolf", players={"policy": 4, "strong": 1}),
        SeatingRule(side="wolf", players={"policy": 1}),
        SeatingRule(side="good", players={"random": 1}),
    )


async def test_games_come_back_in_the_order_of_their_tasks(client):
    seen, play = [], TwoTurnPlay()
    play.gate.clear()

    def on_progress(now):
        seen.append(now)
        if now.playing:
            play.gate.set()

    played = await play_step(client, play, progress=on_progress)
    assert [game.outcome.game_id[-13:] for game in played.finished] == [
        f"deal{deal:02d}-game{game:02d}" for deal in range(2) for game in range(2)
    ]
    assert (played.turns_stored, played.left_out.total(), played.failures.total()) == (8, 0, 0)
    assert played.failure_metrics() == {"rollouts/failed": 0, "rollouts/retried": 0}
    assert seen[-1].finished == 4
    assert {one.finished + one.failed + one.playing + one.waiting for one in seen} == {4}


async def test_turns_of_failed_attempts_and_games_are_counted_with_their_reason(client):
    played = await play_step(client, TwoTurnPlay(deal00_game01=1, deal01_game00=2))
    assert len(played.finished) == 3
    assert played.failures == {"CannotPlay: told to fail deal01_game00": 1}
    assert played.retried == {
        "CannotPlay: told to fail deal00_game01": 1,
        "CannotPlay: told to fail deal01_game00": 1,
    }
    assert played.failure_metrics() == {
        "rollouts/failed": 1,
        "rollouts/failed/CannotPlay": 1,
        "rollouts/retried": 2,
        "rollouts/retried/CannotPlay": 2,
    }
    assert played.left_out == {SUPERSEDED_ATTEMPT: 1, FAILED_ROLLOUT: 2}
    assert played.turns_stored == 6 + played.left_out.total()


async def test_a_hub_that_restarts_empty_gets_its_games_again(hub, client, caplog):
    play = TwoTurnPlay()
    play.gate.clear()
    playing = asyncio.create_task(play_step(client, play))
    await play.playing.wait()
    await hub.stop()
    await hub.start()
    play.gate.set()
    played = await playing
    assert len(played.finished) == 4 and "has lost" in caplog.text
    assert (await client.query_resources(resources_id=RESOURCES.resources_id)).total == 1


async def test_a_hub_that_restarts_empty_before_the_games_are_enqueued_gets_the_policy_again(hub, client, monkeypatch):
    enqueue, restarts = client.enqueue_many_rollouts, iter([True])

    async def after_a_restart(requests):
        if next(restarts, False):
            await hub.stop()
            await hub.start()
        return await enqueue(requests)

    monkeypatch.setattr(client, "enqueue_many_rollouts", after_a_restart)
    played = await play_step(client, TwoTurnPlay())
    assert len(played.finished) == 4 and not played.failures
    assert (await client.query_resources(resources_id=RESOURCES.resources_id)).total == 1


async def test_a_step_without_a_usable_game_says_why(client):
    failures = {f"deal{deal:02d}_game{game:02d}": 2 for deal in range(2) for game in range(2)}
    with pytest.raises(NoFinishedRollouts, match=r"none of 4 rollouts.*told to fail"):
        await play_step(client, TwoTurnPlay(**failures))


def agent_task(number, text):
    limits = {"context_tokens": 4000, "reply_tokens": 40}
    return AgentTask(task_id=f"task-{number}", group_id="g", input=text, sampling_seed=1, limits=limits)


@pytest.mark.parametrize("text", ["12.5,3.7," * 4600, "狼" * 30_000, "x" * 600_000], ids=["csv", "chinese", "long"])
async def test_many_tasks_are_enqueued_in_parts_that_a_hub_accepts(client, monkeypatch, text):
    requests, send = [], client.request

    async def noted(method, path, json=None, params=None):
        if path.endswith("/enqueue"):
            requests.append(json)
        return await send(method, path, json, params)

    monkeypatch.setattr(client, "request", noted)
    tasks = [agent_task(number, text if number < 20 else "") for number in range(300)]
    assert await RolloutQueue(client, AGENTS, CONFIG.rollout).enqueue(tasks, RESOURCES, resumed=False) == 0
    together = [request for request in requests if len(request["rollouts"]) > 1]
    assert together and max(len(json.dumps(request)) for request in together) < 500_000 and len(requests) < 30
    rollouts = await client.query_rollouts()
    assert sorted(one.metadata["task_id"] for one in rollouts) == sorted(task.task_id for task in tasks)
    config = RolloutConfig(
        timeout_seconds=600,
        unresponsive_seconds=120,
        max_attempts=2,
        retry_condition=["failed", "timeout", "unresponsive"],
    )
    assert all(one.config == config for one in rollouts)


async def test_tasks_that_are_too_large_together_are_enqueued_in_parts_and_one_that_is_alone_is_named(
    client, monkeypatch
):
    send = client.enqueue_many_rollouts

    async def limited(requests):
        if len(json.dumps([request.input for request in requests])) > 1500:
            raise aiohttp.ClientResponseError(None, (), status=413, message="a request may have 1500 bytes")
        return await send(requests)

    monkeypatch.setattr(client, "enqueue_many_rollouts", limited)
    tasks = [agent_task(number, "x" * 100) for number in range(20)]
    queue = RolloutQueue(client, AGENTS, CONFIG.rollout)
    await queue.enqueue(tasks, RESOURCES, resumed=False)
    assert [one.metadata["task_id"] for one in await client.query_rollouts()] == [task.task_id for task in tasks]
    with pytest.raises(ConfigError, match=r"task task-21 is too large: .*1500 bytes.*--max-request-mb"):
        await queue.enqueue([agent_task(20, ""), agent_task(21, "x" * 1500)], RESOURCES, resumed=False)
    await queue.cancel_open()  # also the part before it
    assert Counter(one.status for one in await client.query_rollouts()) == {"cancelled": 21}


async def test_a_result_that_names_another_task_is_no_result(client):
    """A runner's names never reach paths or other games."""

    class Elsewhere(TwoTurnPlay):
        async def __call__(self, rollout, on_turn):
            other = {"game_id": "../../../requirements"}

            def renamed(turn, *times):
                on_turn(turn.model_copy(update=other), *times)

            return (await super().__call__(rollout, renamed)).model_copy(update=other)

    with pytest.raises(NoFinishedRollouts, match="4x IncompleteRollout"):
        await play_step(client, Elsewhere())


async def test_a_dead_server_ends_the_wait_and_open_games_are_taken_back(client):
    class Dead(RuntimeError):
        pass

    async def dead():
        raise Dead

    play = TwoTurnPlay()
    play.gate.clear()  # no game ends before the server is found dead
    with pytest.raises(Dead):
        await play_step(client, play, check_alive=dead)
    assert {rollout.status for rollout in await client.query_rollouts()} == {"cancelled"}


# --- an algorithm that is started again -------------------------------------------------------------------------------


async def enqueue_like_an_earlier_process(client, tasks, run_name="run", resources=RESOURCES, **metadata):
    await client.update_resources(resources.resources_id, resources.encode())
    requests = [
        EnqueueRolloutRequest(
            input=task.encode(),
            resources_id=resources.resources_id,
            config=RETRY,
            metadata={IDEMPOTENCY_KEY: f"{run_name}/{task.game_id}", "run": run_name, "task_id": task.game_id}
            | metadata,
        )
        for task in tasks
    ]
    return [rollout.rollout_id for rollout in await client.enqueue_many_rollouts(requests)]


async def test_a_resumed_step_goes_on_with_the_games_that_are_there(client, monkeypatch):
    monkeypatch.setattr(earlier_games, "_ROLLOUTS_PER_PAGE", 2)
    tasks = step_tasks(CONFIG, 1)
    queued, failed, taken_back = await enqueue_like_an_earlier_process(client, tasks[:3])
    await client.update_rollout(taken_back, status="cancelled")
    await client.update_rollout(failed, status="failed")
    others = await enqueue_like_an_earlier_process(client, tasks, "another run")
    for rollout_id in others:
        await client.update_rollout(rollout_id, status="cancelled")
    step = await play_step(client, TwoTurnPlay(), resumed=True)
    assert [game.outcome.game_id for game in step.finished] == [task.game_id for task in tasks]
    assert step.finished[0].rollout_id == queued and not step.failures
    assert (await client.query_rollouts()).total == 3 + 4 + 3
    again = await play_step(client, TwoTurnPlay(), resumed=True)
    assert [game.rollout_id for game in again.finished] == [game.rollout_id for game in step.finished]
    assert (await client.query_rollouts()).total == 10


async def test_games_of_later_policies_of_an_earlier_process_are_taken_back(client, monkeypatch):
    monkeypatch.setattr(earlier_games, "_ROLLOUTS_PER_PAGE", 2)
    tasks = step_tasks(CONFIG, 1)
    cancelled = await enqueue_like_an_earlier_process(client, tasks[:3], resources=UNDONE)
    await client.update_rollout(cancelled[2], status="succeeded")
    await enqueue_like_an_earlier_process(client, tasks, "another run", resources=UNDONE)
    await enqueue_like_an_earlier_process(client, tasks[3:])
    await RolloutQueue(client, GAME, CONFIG.rollout).cancel_later({"run": RESOURCES.version, "no run": 0})
    rollouts = await client.query_rollouts()
    assert {one.rollout_id for one in rollouts if one.status == "cancelled"} == set(cancelled[:2])


async def test_open_games_get_the_new_endpoints_of_the_policy(client):
    games = RolloutQueue(client, GAME, CONFIG.rollout)
    later = RESOURCES.model_copy(update={"version": 1})
    for step, resources in ((1, RESOURCES), (2, later)):
        await games.enqueue(step_tasks(CONFIG, step), resources)
    await games.update_endpoints(("http://127.0.0.1:2/v1", "http://127.0.0.1:3/v1"))
    for resources in (RESOURCES, later):
        (published,) = await client.query_resources(resources_id=resources.resources_id)
        now = PolicyResources.decode(published)
        assert now.endpoints == ("http://127.0.0.1:2/v1", "http://127.0.0.1:3/v1") and now.version == resources.version


async def test_of_a_game_that_was_enqueued_twice_one_is_played(client, monkeypatch):
    monkeypatch.setattr(earlier_games, "_ROLLOUTS_PER_PAGE", 4)
    tasks = step_tasks(CONFIG, 1)
    first = await enqueue_like_an_earlier_process(client, tasks)
    taken = await take(client, "w")
    second = await enqueue_like_an_earlier_process(client, tasks)
    step = HubRollouts(client, GAME, CONFIG.rollout)
    adopted, missing, known = await step.adopt(tasks, RESOURCES)
    assert (len(adopted), missing, known) == (4, [], 4)
    statuses = {rollout.rollout_id: rollout.status for rollout in await client.query_rollouts()}
    assert statuses[first[0]] == "preparing" and statuses[second[0]] == "cancelled"
    assert all(
        {statuses[a], statuses[b]} == {"queuing", "cancelled"} for a, b in zip(first[1:], second[1:], strict=True)
    )
    await client.update_attempt(taken.rollout_id, taken.attempt.attempt_id, status="succeeded")
    await step.cancel(adopted)  # but not what has finished meanwhile
    statuses = Counter(rollout.status for rollout in await client.query_rollouts())
    assert statuses == {"succeeded": 1, "cancelled": 7}


UNDONE = RESOURCES.model_copy(update={"version": 4})


async def test_games_of_undone_weights_are_replayed(client):
    """The checkpoint has version 3; the process before it was killed had made version 4 and enqueued games for it."""
    at_checkpoint = RESOURCES.model_copy(update={"version": 3})
    tasks = step_tasks(CONFIG, 1)
    kept = await enqueue_like_an_earlier_process(client, tasks[:2], resources=at_checkpoint)
    undone = await enqueue_like_an_earlier_process(client, tasks[2:], resources=UNDONE)
    games = RolloutQueue(client, GAME, CONFIG.rollout, ResumePoint(policy_version=3, number=1))
    moved = at_checkpoint.model_copy(update={"endpoints": ("http://127.0.0.1:9/v1",)})
    assert await games.enqueue(tasks, moved, resumed=True) == 4
    rollouts = {rollout.rollout_id: rollout for rollout in await client.query_rollouts()}
    assert {rollouts[rollout_id].status for rollout_id in kept} == {"queuing"}
    assert {rollouts[rollout_id].status for rollout_id in undone} == {"cancelled"}
    anew = [rollout for rollout_id, rollout in rollouts.items() if rollout_id not in (*kept, *undone)]
    assert sorted(rollout.metadata["task_id"] for rollout in anew) == [task.game_id for task in tasks[2:]]
    assert all(rollout.metadata[IDEMPOTENCY_KEY].endswith("/1") for rollout in anew)
    (published,) = await client.query_resources(resources_id=at_checkpoint.resources_id)
    assert PolicyResources.decode(published).endpoints == moved.endpoints


async def test_which_versions_are_undone_depends_on_the_process_that_enqueued(client):
    tasks, resources = step_tasks(CONFIG, 1), RESOURCES.model_copy(update={"version": 3})
    first = await enqueue_like_an_earlier_process(client, tasks[:2], resources=resources)
    third = await enqueue_like_an_earlier_process(client, tasks[2:], resources=resources, **{earlier_games._PROCESS: 2})
    # The first one's version 3 was undone when the run went back to version 1; the third has made another.
    resumption = ResumePoint(policy_version=3, number=3, before=(4, 1))
    adopted, missing, _ = await HubRollouts(client, GAME, CONFIG.rollout, resumption).adopt(tasks, resources)
    assert set(adopted) == set(third) and missing == tasks[:2]
    assert [rollout.status for rollout in await client.query_rollouts(rollout_id_in=first)] == ["cancelled"] * 2


async def test_rollouts_that_no_run_can_have_enqueued_are_not_adopted(client):
    tasks, known = step_tasks(CONFIG, 1), {"run": RESOURCES.run_name}
    forged = [
        ({**known, "task_id": ["a list"]}, RESOURCES.resources_id),
        ({**known, "task_id": tasks[0].game_id}, "of-nobody"),
        ({**known, "task_id": tasks[1].game_id, earlier_games._PROCESS: "first"}, RESOURCES.resources_id),
    ]
    for metadata, resources_id in forged:
        await client.update_resources(resources_id, RESOURCES.encode())
        given = EnqueueRolloutRequest(input=tasks[0].encode(), resources_id=resources_id, metadata=metadata)
        await client.enqueue_many_rollouts([given])
    found = await HubRollouts(client, GAME, CONFIG.rollout, ResumePoint(0, 1)).adopt(tasks, RESOURCES)
    assert found[:2] == ({}, tasks)


async def test_with_games_in_flight_only_those_count_that_no_undone_weights_touched(client):
    """With ``max_policy_lag`` weights change in mid-game: a game from before the checkpoint may have later turns."""
    config = werewolf_config(groups_per_step=2, rollouts_per_group=2, max_attempts=2, max_policy_lag=1)
    tasks = step_tasks(config, 1)
    untouched, touched, playing, halfway = await enqueue_like_an_earlier_process(client, tasks)
    of_old, of_new, of_both = (0, None), (1, None), (0, 1)
    for rollout_id, versions in (
        (untouched, (of_old, of_old)), (touched, (of_old, of_new)), (playing, (of_old,)), (halfway, (of_old, of_both)),
    ):  # fmt: skip
        taken = await take(client, "w")
        assert taken.rollout_id == rollout_id
        key = dict(rollout_id=rollout_id, attempt_id=taken.attempt.attempt_id)
        turns = [
            make_turn(turn=number, policy_version=version, version_until=until)
            for number, (version, until) in enumerate(versions)
        ]
        await client.upload_spans(spans_of(turns, **key))
        if len(versions) == 2:
            await client.update_attempt(*key.values(), status="succeeded")
    games = HubRollouts(client, GAME, config.rollout, ResumePoint(policy_version=0, number=2))
    adopted, missing, known = await games.adopt(tasks, RESOURCES)
    assert ([*adopted], missing, known) == ([untouched], tasks[1:], 4)
    statuses = {rollout.rollout_id: rollout.status for rollout in await client.query_rollouts()}
    assert statuses[playing] == "cancelled"


@pytest.mark.parametrize("reason", [["x"], {"x": 1}, 3, ""])
def test_what_any_client_wrote_as_a_reason_or_a_version_ends_nothing(reason):
    assert reason_of(SimpleNamespace(metadata={"reason": reason}, status="failed")) == "attempt failed"
    assert version_of(SimpleNamespace(resources_id=f"run{VERSION_SEPARATOR}{'9' * 5000}")) == -1
