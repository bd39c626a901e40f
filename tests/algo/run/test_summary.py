"""The numbers of a step: each seat counts once, dimensions by side and by role."""

import json
import math
from collections import Counter
from dataclasses import replace
from types import SimpleNamespace

import pytest

from algo.rollouts.played import PlayedRollouts
from algo.rollouts.triplets import FinishedRollout
from algo.run.checkpoints import RunState
from algo.run.metrics import Stopwatch, time_metrics, trajectory_metrics
from algo.run.summary import RunSummary
from algo.run.watch import watch
from algo.werewolf.metrics import game_metrics
from configs.sections.watch import BoundConfig
from tests.support.algo.trajectories import made_trajectory
from tests.support.fakes import make_result


def trajectory(seat, side, role, reward, dimensions):
    who = dict(actor=f"seat {seat:02d}", role=role, side=side)
    return made_trajectory((0, 1, 1), **who, reward=reward, turn_rewards=(0.0,), dimensions=dimensions)


def test_rewards_and_dimensions_by_side_and_role():
    wolf = trajectory(1, "wolf", "wolf_king", 2.0, {"outcome": 1.0, "cut": 0.5, "judge_score": 0.4})
    seer = trajectory(2, "good", "seer", -1.0, {"outcome": -1.0, "cut": 1.0})
    mate = trajectory(4, "wolf", "wolf_king", 4.0, {"outcome": 1.0, "cut": 0.5, "judge_score": 0.4})
    guard = trajectory(3, "good", "guard", -2.0, {"outcome": -1.0, "cut": 0.0, "judge_score": 0.2})
    # A seat counts once, however many segments it has, and also if its first is missing.
    metrics = trajectory_metrics([wolf, replace(wolf, segment=1), mate, seer, replace(guard, segment=2)])
    assert metrics == {
        "tokens/sequences": 5, "tokens/total": 15, "tokens/sampled": 10,
        "sampling/entropy/wolf": 1, "sampling/entropy/good": 1, "reward/wolf": 3, "reward/good": -1.5,
        "reward/role/wolf_king": 3, "reward/role/seer": -1, "reward/role/guard": -2,
        "reward/dim/outcome/wolf": 1, "reward/dim/outcome/good": -1,
        "reward/dim/outcome/role/wolf_king": 1, "reward/dim/outcome/role/seer": -1, "reward/dim/outcome/role/guard": -1,
        "reward/dim/cut/wolf": 0.5, "reward/dim/cut/good": 0.5,
        "reward/dim/cut/role/wolf_king": 0.5, "reward/dim/cut/role/seer": 1, "reward/dim/cut/role/guard": 0,
        # Only of seats that were judged.
        "reward/dim/judge_score/wolf": 0.4, "reward/dim/judge_score/good": 0.2,
        "reward/dim/judge_score/role/wolf_king": 0.4, "reward/dim/judge_score/role/guard": 0.2,
    }  # fmt: skip


def played(*results):
    games = tuple(FinishedRollout("ro", "at", result, (), (), Counter()) for result in results)
    return PlayedRollouts(finished=games, failures=Counter(), retried=Counter(), turns_stored=9, left_out=Counter())


def test_the_time_that_neither_vllm_nor_verl_had():
    seconds = {"seconds/step": 100.0, "seconds/play": 60.0, "seconds/update": 20.0, "seconds/push": 10.0}
    calls = [(1000.0, 1030.0), (1010.0, 1040.0), (1050.0, 1055.0)]  # 45 s in which at least one was under way
    found = time_metrics(seconds, calls, trainer=18.0)
    assert found["seconds/play_in_vllm"] == 45.0
    assert found["time/overhead_share"] == pytest.approx((15 + 2 + 10) / 100)
    # An evaluation is no part of a step's work; games that were played ahead have calls from before the wait.
    evaluated = time_metrics(seconds | {"seconds/step": 150.0, "seconds/evaluate": 50.0}, calls, trainer=18.0)
    assert evaluated["time/overhead_share"] == pytest.approx(0.27)
    assert time_metrics(seconds, [(0.0, 500.0)], trainer=18.0)["seconds/play_in_vllm"] == 60.0


def test_the_seconds_of_a_step_are_its_own(monkeypatch):
    now = [0.0]
    monkeypatch.setattr("algo.run.metrics.time", SimpleNamespace(monotonic=lambda: now[0]))
    stopwatch = Stopwatch({"play": 100.0})
    for seconds in (3.0, 5.0):
        since = stopwatch.begin_step()
        with stopwatch.stage("play"):
            now[0] += seconds
        now[0] += 1.0
        assert since() == {"seconds/step": seconds + 1.0, "seconds/play": seconds}
    assert stopwatch.seconds == {"play": 108.0}


def game_of(result, *seats):
    (seat,) = make_result().seats
    seated = tuple(seat.model_copy(update={"side": side, "policy": policy}) for side, policy in seats)
    return make_result(result).model_copy(update={"seats": seated})


def test_games_and_wins_of_the_policy_by_side():
    metrics = game_metrics(
        played(
            game_of("good", ("wolf", "scripted"), ("good", "policy"), ("good", "policy")),
            game_of("wolf", ("wolf", "scripted"), ("good", "policy"), ("good", "random")),
            game_of("draw", ("wolf", "scripted"), ("good", "policy")),
            game_of("wolf", ("wolf", "policy"), ("good", "scripted")),
            game_of("wolf", ("wolf", "policy"), ("good", "policy")),  # over itself: no news of it
        )
    )
    found = {name: value for name, value in metrics.items() if name.startswith("policy/")}
    assert found == {
        "policy/good/games": 3, "policy/good/wins": 1, "policy/wolf/games": 1, "policy/wolf/wins": 1,
    }  # fmt: skip
    itself = game_metrics(played(game_of("wolf", ("wolf", "policy"), ("good", "policy"))))
    assert not [name for name in itself if name.startswith("policy/")]


def step_of(**metrics):
    names = ("rollouts/finished", "rollouts/failed", "turns/played", "turns/stored", "turns/in_batch", "tokens/trained")
    others = ("tokens/trained_sequences", "tokens/sampled_and_trained", "turns/valid_share", "turns/of_policy")
    return dict.fromkeys((*names, *others), 1.0) | metrics


def test_a_resumed_runs_summary_counts_the_steps_before(tmp_path):
    first = RunSummary(tmp_path)
    first.stopwatch.seconds["play"] += 3.0
    of_branches = {"branches/finished": 6.0, "turns/played": 31.0}
    first.add_step(step_of(**{"rollouts/finished": 4.0}, **of_branches), Counter({"stale": 2}))
    second = RunSummary(tmp_path, json.loads(json.dumps(first.state())))
    second.add_step(step_of(**{"rollouts/finished": 6.0}), Counter({"stale": 1}))
    second.stopwatch.seconds["play"] += 2.0
    summary = second.as_dict(2)
    assert (summary["steps"], summary["rollouts"]["finished"], summary["turns"]["per_rollout"]) == (2, 10, 2.0)
    assert summary["turns"]["left_out"] == {"stale": 3} and summary["seconds_by_stage"] == {"play": 5.0}


def test_a_number_that_is_not_finite_is_missing_after_a_resume(tmp_path):
    first = RunSummary(tmp_path)
    first.before = {"evaluation/reward": math.nan}
    first.add_step(step_of(**{"actor/grad_norm": math.inf, "tokens/trained": math.nan}), Counter())
    state = RunState(run_id="run-1", summary=first.state()).model_dump_json()
    second = RunSummary(tmp_path, RunState.model_validate_json(state).summary)
    second.add_step(step_of(**{"actor/grad_norm": 9.0}), Counter())
    watch(second.steps, {"actor/grad_norm": BoundConfig(above=5.0, steps=2, stop=True)})
    assert second.as_dict(2)["tokens"]["trained"] == 1 and second.before == {}
