"""The training loop with groups in flight, over a real hub and a real worker; vLLM, verl and the game are fakes."""

import asyncio
import threading
from collections import Counter
from contextlib import AsyncExitStack
from types import SimpleNamespace

import pytest
import torch

from algo.league.league import League
from algo.league.pool import LeagueState
from algo.league.results import past_name
from algo.loop import policy_update
from algo.loop import train as loop
from algo.loop.policy_update import Update, values_and_kl
from algo.loop.run_context import RunContext
from algo.rollouts.queue import RolloutQueue
from algo.run.checkpoints import RunState
from algo.run.folder import OpenedRun
from algo.run.watch import Collapsed
from algo.training.thread import TrainerThread
from algo.werewolf.workload import Werewolf
from store.schema import PolicyResources
from store.werewolf import GAME, GameTask
from tests.support.algo.playing import OneTurnPlay, playing
from tests.support.settings import werewolf_config
from tests.support.waiting import until

STEPS = 5


class Killed(Exception):
    """Stands for kill -9: nothing is taken back or written any more."""


class Machine:
    """What a run would start, with what it does noted; ``state`` is that of the last checkpoint.

    served: what was asked of vLLM after each step. evaluated: step of each evaluation, and whether it adopts games.
    scores: step -> score in its checkpoint; the fake evaluation's is the step.
    """

    def __init__(self, client, config, play):
        self.client, self.config, self.play = client, config, play
        self.state = RunState(run_id="run-1").model_dump_json()
        self.processes = 0
        self.resumed_at = []
        self.kill_in: set[tuple[int, str]] = set()
        self.served: list[str] = []
        self.evaluated: list[tuple[int, bool]] = []
        self.scores: dict[int, float | None] = {}

    async def process(self):
        """A process of the run, from its newest checkpoint to its end; returns its summary."""
        state = RunState.model_validate_json(self.state)
        state.resumes, self.processes = self.processes, self.processes + 1
        self.resumed_at += [state.policy_version] if state.resumes else []
        state.resumed_at = list(self.resumed_at)
        opened = OpenedRun(self.config, state, None, is_resumed=self.processes > 1, lock=None)
        self.play.version = state.policy_version
        return await loop.train(opened, Werewolf(self.config, self.evaluate))

    async def to_the_end(self):
        """The summary of the run; a process is killed at each of ``kill_in``, and another resumes."""
        async with playing(self.client, self.play):
            for _ in range(len(self.kill_in)):
                with pytest.raises(Killed):
                    await self.process()
            return await self.process()

    async def evaluate(self, config, policy, step, resumed):
        self.evaluated.append((step, resumed))
        return {Werewolf.score: float(step)}

    def at(self, state, stage):
        if (state.step + 1, stage) in self.kill_in:  # of "save" the step is that after it
            self.kill_in.remove((state.step + 1, stage))
            raise Killed

    async def start(self, opened, workload, summary, stack: AsyncExitStack):
        state = opened.state

        async def sleep():
            self.at(state, "rest")

        async def wake():
            self.served.append("wake")

        async def push():
            self.served.append(f"push {state.policy_version}")
            self.play.version = state.policy_version
            self.at(state, "push")
            run._served_before = []
            return {}

        async def score(probe):
            return [-float(2**state.policy_version)]

        async def metrics():
            return {}

        async def refresh():
            if any("-branch-" in opened.task.task_id for opened in run.queue._open.values()):
                self.at(state, "branches")

        run = RunContext(
            config=opened.config,
            workload=workload,
            state=state,
            is_resumed=opened.is_resumed,
            serving=SimpleNamespace(metrics=metrics, wake=wake, sleep=sleep, score=score),
            frozen=None,
            engine=self,
            trainer=TrainerThread(),
            queue=RolloutQueue(self.client, GAME, opened.config.rollout, opened.resumption),
            tracking=SimpleNamespace(log=lambda metrics, step: None),
            published={},
            league=self.league_of(opened),
        )
        run.resources = lambda: PolicyResources(
            run_name="run-1", version=state.policy_version, endpoints=("http://127.0.0.1:1/v1",), model="policy"
        )
        run.refresh_endpoints, run.push = refresh, push
        return run

    def league_of(self, opened):
        """The run's pool, of which nothing is served; None without one."""
        if opened.config.pool is None:
            return None
        opened.state.league = opened.state.league or LeagueState()

        async def write(version, folder):
            folder.mkdir(parents=True)

        async def serve_past_selves(folders, held):
            self.play.met = dict.fromkeys(opened.state.league.published.shares)

        serving = SimpleNamespace(serve_past_selves=serve_past_selves)
        kept = RunState.model_validate_json(self.state).league
        return League(opened.config, opened.state.league, serving, write, lambda: kept.needed if kept else set())

    def save(self, config, engine, state, exported):
        self.at(state, "save")
        if state.resumes == self.processes - 1:  # a thread of a process that was killed writes nothing any more
            self.state = state.model_dump_json()
            self.scores[state.step] = state.score


def updated(config, engine, share, *_):
    """A fake of the update: everything is trained on, and nothing happens."""
    log_probs = [torch.zeros(1)] * len(share.trajectories)
    return Update(share.trajectories, share.advantages.per_token, log_probs, Counter(), {})


@pytest.fixture
def machine(client, tmp_path, monkeypatch, tiny_model):
    def make(lag, every_steps=1, **settings):
        config = werewolf_config(
            **{"evaluation": {"deals": 0}} | settings,
            groups_per_step=2,
            rollouts_per_group=2,
            max_policy_lag=lag,
            checkpoint={"every_steps": every_steps},
            log={"transcripts_per_step": 0},
            model={"path": tiny_model},
        )
        run = config.run.model_copy(update={"dir": tmp_path, "steps": STEPS})
        (tmp_path / run.name).mkdir()
        machine = Machine(client, config.model_copy(update={"run": run}), OneTurnPlay())
        monkeypatch.setattr(loop, "start", machine.start)
        monkeypatch.setattr(policy_update, "update_policy", updated)
        monkeypatch.setattr(loop, "save_checkpoint", machine.save)
        return machine

    return make


GROUPS = [f"run-step{step:04d}-deal{deal:02d}" for step in range(1, STEPS + 1) for deal in range(2)]


async def test_a_checkpoint_that_fails_ends_the_run_before_its_trainer_is_asked_again(machine, client, monkeypatch):
    machine = machine(lag=0)
    machine.kill_in = {(2, "save")}
    assessed = []
    monkeypatch.setattr(policy_update, "values_and_kl", lambda *asked: assessed.append(1) or values_and_kl(*asked))
    async with playing(client, machine.play):
        with pytest.raises(Killed):
            await machine.process()
    assert len(assessed) == 1


@pytest.mark.parametrize(
    ("then", "events", "logged"),
    [
        ("it is written", ["written", "stopped"], ""),
        ("it fails", ["stopped"], "could not be written"),
        ("it takes too long", ["stopped", "written"], "is lost"),
        ("Ctrl-C again", ["stopped", "written"], ""),
    ],
)
async def test_an_early_end_waits_for_a_checkpoint_that_is_being_written(
    machine, client, monkeypatch, caplog, then, events, logged
):
    machine, released, found = machine(lag=0), threading.Event(), []
    monkeypatch.setattr(loop, "_SAVE_SECONDS", 0.1 if then == "it takes too long" else 60.0)

    def interrupt():
        running.cancel()
        if then != "it takes too long":
            event_loop.call_later(0.1, running.cancel if then == "Ctrl-C again" else released.set)

    def save(*_):
        event_loop.call_soon_threadsafe(interrupt)
        assert released.wait(60) and then != "it fails"
        found.append("written")

    async def start(opened, workload, summary, stack):
        stack.callback(released.set)
        stack.callback(found.append, "stopped")
        return await machine.start(opened, workload, summary, stack)

    monkeypatch.setattr(loop, "save_checkpoint", save)
    monkeypatch.setattr(loop, "start", start)
    event_loop = asyncio.get_running_loop()
    async with playing(client, machine.play):
        running = asyncio.create_task(machine.process())
        with pytest.raises(asyncio.CancelledError):
            await running
    await until(lambda: len(found) == len(events))
    errors = [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]
    assert found == events and len(errors) == bool(logged) and all(logged in error for error in errors)


@pytest.mark.parametrize(("lag", "correction", "warnings"), [(0, None, 0), (1, None, 1), (1, "token", 0)])
async def test_a_lag_without_a_correction_is_warned_of(machine, monkeypatch, caplog, lag, correction, warnings):
    machine = machine(lag, training={"rollout_correction": {"rollout_is": correction}})

    async def start(*_):
        raise Killed

    monkeypatch.setattr(loop, "start", start)
    with pytest.raises(Killed):
        await machine.process()
    assert caplog.text.count("set training.rollout_correction.rollout_is to token") == warnings


@pytest.mark.parametrize("lag", [0, 2])
async def test_killed_anywhere_it_trains_on_every_group_once(machine, lag):
    machine = machine(lag, every_steps=2)
    machine.kill_in = {(1, "rest"), (2, "push"), (3, "rest"), (4, "rest"), (5, "push")}
    summary = await machine.to_the_end()
    assert not machine.kill_in
    assert [len(groups) for groups in summary["groups_by_step"]] == [2] * STEPS
    assert sorted(group for groups in summary["groups_by_step"] for group in groups) == GROUPS
    assert summary["rollouts"] == {"finished": 4 * STEPS, "failed": 0} and summary["turns"]["left_out"] == {}
    if lag == 0:
        assert summary["groups_by_step"] == [GROUPS[2 * step : 2 * step + 2] for step in range(STEPS)]


@pytest.mark.parametrize(("most", "in_flight"), [(None, [4, 4, 4, 2, 0]), (3, [1, 1, 1, 1, 0])])
async def test_no_more_groups_are_in_flight_than_the_configuration_allows(machine, most, in_flight):
    machine = machine(lag=2, max_groups_in_flight=most)
    summary = await machine.to_the_end()
    assert [step["groups/in_flight"] for step in summary["step_metrics"]] == in_flight


BRANCHING = {"credit": "branch", "branching": {"continuations": 2, "decisions": ["speech"]}}


async def test_killed_anywhere_it_plays_and_trains_on_every_branch_once(machine, client):
    machine = machine(lag=0, advantage=BRANCHING)
    machine.kill_in = {(2, "branches"), (3, "rest"), (4, "push")}
    summary = await machine.to_the_end()
    # One of a step's two groups is branches: two games, two branches of one of their decisions.
    assert summary["groups_by_step"] == [GROUPS[2 * step : 2 * step + 1] for step in range(STEPS)]
    assert summary["rollouts"] == {"finished": 2 * STEPS, "failed": 0}
    for metrics in summary["step_metrics"]:
        assert (metrics["branches/finished"], metrics["turns/stored"], metrics["turns/in_batch"]) == (2, 4, 4)
        assert metrics["advantage/branched/decisions"] == 1
    enqueued = [rollout.metadata["task_id"] for rollout in await client.query_rollouts(limit=200)]
    # What a killed process enqueued is taken over, and nothing is played twice.
    assert len(set(enqueued)) == len(enqueued) == 4 * STEPS
    assert len([name for name in enqueued if "-branch-" in name]) == 2 * STEPS


class PlayAgainstThePast(OneTurnPlay):
    """The policy is the wolf, and whoever is in the pool the good side. met: who that is, as the pool has it served."""

    async def __call__(self, rollout, on_turn):
        result = await super().__call__(rollout, on_turn)
        (wolf,), (name,) = result.seats, self.met
        good = wolf.model_copy(update={"seat": 2, "side": "good", "role": "seer", "policy": name, "trainable": False})
        return result.model_copy(update={"seats": (wolf, good)})


async def test_killed_anywhere_a_league_counts_every_game_once(machine, tmp_path):
    league = {"every_steps": 1, "choice": "newest", "size": 3}
    machine = machine(0, every_steps=2, opponent="past", league=league)
    machine.play = PlayAgainstThePast()
    machine.kill_in = {(2, "push"), (3, "rest"), (5, "push")}
    summary = await machine.to_the_end()
    state = RunState.model_validate_json(machine.state).league
    # Every step makes a version; the newest of the pool is the policy itself. Two of four games are won.
    for step, row in enumerate(state.rows):
        (opponent, by_side), (tally,) = *row.games.items(), row.games[past_name(step)].values()
        assert (row.first, row.last, opponent, list(by_side)) == (step, step, past_name(step), ["wolf"])
        assert (tally.games, tally.wins, tally.draws) == (4, 2, 0)
    assert len(state.rows) == STEPS and [member.version for member in state.members][-1] == STEPS - 1
    assert state.members[0].log_probs == [-1.0]  # though the first step had yet to make the probe
    assert [step["league/share/past"] for step in summary["step_metrics"]] == [1.0] * STEPS
    assert (machine.config.run_dir / "payoff.json").is_file()


EVERY_OTHER_STEP = {"deals": 1, "every_steps": 2, "at_end": False}


async def test_a_checkpoint_has_the_score_of_its_own_step_only(machine):
    machine = machine(lag=0, evaluation=EVERY_OTHER_STEP)
    await machine.to_the_end()
    assert machine.scores == {1: None, 2: 2.0, 3: None, 4: 4.0, 5: None}


async def test_only_the_evaluation_before_the_first_step_adopts_games_of_a_killed_process(machine):
    machine = machine(lag=0, evaluation=EVERY_OTHER_STEP)
    machine.kill_in = {(1, "rest"), (4, "push")}
    await machine.to_the_end()
    assert machine.evaluated == [(0, False), (0, True), (2, False), (4, False)]


class PlayWithWonGroups(OneTurnPlay):
    """Every game of some groups is won."""

    def __init__(self, won):
        self.won = won

    async def __call__(self, rollout, on_turn):
        result = await super().__call__(rollout, on_turn)
        if result.group_id not in self.won:
            return result
        return result.model_copy(update={"seats": (result.seats[0].model_copy(update={"outcome": 1.0}),)})


@pytest.mark.parametrize("kill_in", [set(), {(2, "push"), (4, "rest")}])
async def test_a_killed_run_keeps_its_role_baselines(machine, kill_in):
    machine = machine(lag=0, advantage={"estimator": "role_baseline", "role_baseline_decay": 0.5})
    machine.play, machine.kill_in = PlayWithWonGroups(GROUPS[:1]), set(kill_in)
    summary = await machine.to_the_end()
    # Three of the first step's four games are won, then two of four.
    baselines = [step["advantage/baseline/wolf"] for step in summary["step_metrics"]]
    assert baselines == [0.5, 0.5, 0.25, 0.125, 0.0625]


async def test_a_collapse_stops_the_process_that_sees_all_of_it(machine, client):
    machine = machine(lag=0, watch={"policy_version": {"above": 1.5, "steps": 2, "stop": True}})
    async with playing(client, machine.play):
        for newest in (2, 3):  # the second process does not count the steps of the first
            with pytest.raises(Collapsed, match="policy_version"):
                await machine.process()
            assert RunState.model_validate_json(machine.state).step == newest


async def test_vllm_wakes_after_a_step_in_which_nothing_was_learned(machine):
    machine = machine(lag=0)
    machine.play = PlayWithWonGroups(GROUPS)
    summary = await machine.to_the_end()
    assert machine.served == ["wake"] * STEPS and summary["policy_version"] == 0


class PlayAfterARestart(OneTurnPlay):
    """Before the second step vLLM restarts with the weights that it had at first."""

    async def __call__(self, rollout, on_turn):
        if GameTask.decode(rollout.input).group_id in GROUPS[2:4]:
            self.version = 0
        return await super().__call__(rollout, on_turn)


async def test_stale_turns_are_not_trained_on_and_vllm_gets_the_weights_again(machine):
    machine = machine(lag=0)
    machine.play = PlayAfterARestart()
    summary = await machine.to_the_end()
    assert machine.served == ["push 1", "push 1", "push 2", "push 3", "push 4"]
    assert summary["turns"]["left_out"] == {"stale": 4}
