"""Data sets, the tasks of a step, and what their actors earn."""

import json
from collections import Counter

import pytest

from algo.agents.data import read_data, write_tasks
from algo.agents.tasks import held_out_tasks, step_tasks
from algo.agents.workload import agent_rewards
from algo.rollouts.played import UnusableRollouts
from algo.rollouts.triplets import FinishedRollout
from configs.agents import AgentConfig
from configs.section import ConfigError
from store.agents import ActorResult, AgentCallSpan, AgentOutcome
from store.token_spans import context_digest


def config_of(**sections):
    return AgentConfig.model_validate(sections)


def written(path, tasks):
    path.write_text("".join(json.dumps(task) + "\n" for task in tasks))
    return path


# --- data sets --------------------------------------------------------------------------------------------------------


def test_a_part_is_held_out_where_no_file_says_what_and_equal_tasks_stay_together(tmp_path):
    tasks = [{"question": str(number % 20)} for number in range(60)]
    path = written(tmp_path / "train.jsonl", tasks)
    config = config_of(agents={"train": path, "held_out": 0.25})
    data = read_data(config)
    assert (len(data.train), len(data.held_out)) == (45, 15)
    assert not {json.dumps(task) for task in data.train} & {json.dumps(task) for task in data.held_out}
    assert read_data(config) == data
    assert read_data(config_of(agents={"train": path, "held_out": 0.25}, run={"seed": 2})).held_out != data.held_out


def test_what_is_wrong_with_a_data_set_is_named(tmp_path):
    good = written(tmp_path / "good.jsonl", [1, 2, 3])
    other = written(tmp_path / "other.jsonl", [3, 4])
    (tmp_path / "broken.jsonl").write_text('{"a": 1}\nnot json\n')
    (tmp_path / "digits.jsonl").write_text("1" * 5000)
    (tmp_path / "nan.jsonl").write_text('{"a": NaN}')
    (tmp_path / "huge.jsonl").write_text('{"a": 1e999}')
    (tmp_path / "half.jsonl").write_text('"\\ud83d"')
    (tmp_path / "deep.jsonl").write_text("[" * 220 + "]" * 220)
    for agents, evaluation, told in (
        ({"train": tmp_path / "broken.jsonl"}, {}, "line 2 of"),
        ({"train": tmp_path / "digits.jsonl"}, {}, "line 1 of"),
        ({"train": tmp_path / "nan.jsonl"}, {}, "line 1 of"),
        ({"train": tmp_path / "huge.jsonl"}, {}, "line 1 of"),
        ({"train": tmp_path / "half.jsonl"}, {}, "line 1 of"),
        ({"train": tmp_path / "deep.jsonl"}, {}, "line 1 of"),
        ({"train": good, "val": other}, {}, "1 of 2 tasks are in agents.train, too (the first: number 1"),
        ({"train": good, "val": written(tmp_path / "new.jsonl", [9])}, {"tasks": 2}, "evaluation.tasks is 2, but"),
    ):
        with pytest.raises(ConfigError) as error:
            read_data(config_of(agents=agents, evaluation=evaluation))
        assert told in str(error.value)


def test_tasks_from_python_become_a_file_named_after_them(tmp_path):
    first = write_tasks([{"a": 1}, "text"], tmp_path, "train")
    assert [json.loads(line) for line in first.read_text().splitlines()] == [{"a": 1}, "text"]
    assert write_tasks([{"a": 1}, "text"], tmp_path, "train") == first
    assert write_tasks([{"a": 2}], tmp_path, "train") != first
    with pytest.raises(ConfigError, match=r"train: task 1 is not JSON-serialisable"):
        write_tasks([1, object()], tmp_path, "train")
    with pytest.raises(ConfigError, match=r"train: task 0 is not JSON-serialisable"):
        write_tasks(["\ud83d"], tmp_path, "train")


# --- tasks ------------------------------------------------------------------------------------------------------------


def test_a_step_has_groups_of_one_input_and_every_input_comes_once_before_any_comes_again():
    config = config_of(rollout={"groups_per_step": 3, "rollouts_per_group": 4}, agents={"max_calls": 5})
    inputs = [{"n": number} for number in range(6)]
    steps = [step_tasks(config, inputs, step) for step in (1, 2, 3)]
    assert steps == [step_tasks(config, inputs, step) for step in (1, 2, 3)]
    for tasks in steps:
        groups = Counter(task.group_id for task in tasks)
        assert list(groups.values()) == [4, 4, 4]
        assert len({(task.group_id, task.input["n"]) for task in tasks}) == 3
    first_epoch = [task.input["n"] for tasks in steps[:2] for task in tasks[::4]]
    assert sorted(first_epoch) == list(range(6))
    everything = [task for tasks in steps for task in tasks]
    assert len({task.task_id for task in everything}) == len({task.sampling_seed for task in everything}) == 36
    assert everything[0].max_calls == 5 and everything[0].may_train("anyone")

    def drawn(**run):
        return [(task.input, task.sampling_seed) for task in step_tasks(config_of(run=run), inputs, 1)]

    assert drawn(name="one") == drawn(name="other") != drawn(name="one", seed=2)


def test_held_out_tasks_are_never_trained_on_and_only_named_actors_are():
    config = config_of(evaluation={"tasks": 2, "attempts": 3}, agents={"trained_actors": ["planner"]})
    tasks = held_out_tasks(config, ["a", "b", "c"], "run-evaluation")
    assert [task.input for task in tasks] == ["a"] * 3 + ["b"] * 3
    assert not any(task.may_train("planner") for task in tasks)
    trained = step_tasks(config, ["a"], 1)[0]
    assert trained.may_train("planner") and not trained.may_train("worker")


# --- rewards ----------------------------------------------------------------------------------------------------------


def call_of(name, turn, **facts):
    return AgentCallSpan(
        **dict(task_id="t", group_id="g", name=name, turn=turn, segment=0, policy="policy", policy_version=0),
        **dict(trainable=True, valid=not facts, context_tokens=0, context_digest=context_digest(())),
        **dict(prompt_ids=(1,), response_ids=(2,), logprobs=(-1.0,), finish_reason="stop", reply=""),
        facts=facts,
    )


def rollout_of(dimensions, calls):
    actors = tuple(
        ActorResult(
            name=name,
            policy="policy",
            trainable=True,
            turns=sum(call.name == name for call in calls),
            segments=1,
            facts={"invalid": sum(call.facts.get("invalid", 0.0) for call in calls if call.name == name)},
        )
        for name in sorted({call.name for call in calls})
    )
    outcome = AgentOutcome(
        **dict(task_id="t", group_id="g", policy_version=0, turns=len(calls), transcript="", seconds=1.0),
        dimensions=dimensions,
        actors=actors,
    )
    return FinishedRollout("ro", "at", outcome, tuple(calls), (), Counter())


def test_without_weights_the_first_reward_counts_and_an_actor_is_compared_with_itself():
    rewards = agent_rewards(rollout_of({"b": 0.5, "a": 9.0}, [call_of("planner", 0)]), config_of().reward)
    (planner,) = rewards.values()
    assert (planner.total, planner.role, planner.side, planner.turns) == (0.5, "planner", "planner", {})
    assert planner.dimensions == {"b": 0.5, "a": 9.0, "invalid_calls": 0.0}
    reward = config_of(reward={"failure": {"correct": -1}}).reward
    (failed,) = agent_rewards(rollout_of(reward.failure_rewards(), [call_of("planner", 0)]), reward).values()
    assert failed.total == -1.0


def test_weights_by_name_and_by_actor_and_what_a_broken_call_costs():
    reward = config_of(
        reward={"weights": {"right": 1, "short": 0.5}, "actors": {"worker": {"short": 2}}, "invalid_call": -0.25}
    ).reward
    calls = [call_of("planner", 0), call_of("worker", 0), call_of("worker", 1, invalid=1.0)]
    rewards = agent_rewards(rollout_of({"right": 1.0, "short": 0.4}, calls), reward)
    assert rewards["planner"].total == pytest.approx(1.2) and rewards["planner"].turns == {}
    worker = rewards["worker"]
    assert (worker.outcome, worker.turns, worker.total) == (0.8, {1: -0.25}, pytest.approx(0.55))
    assert worker.dimensions["invalid_calls"] == 0.5
    assert reward.failure_rewards() == {"right": 0.0, "short": 0.0}
    with pytest.raises(ValueError, match=r"failure has several rewards \(a, b\)"):
        config_of(reward={"failure": {"a": -1, "b": 0}})
    with pytest.raises(ValueError, match="earn the agent's first reward"):
        config_of(reward={"failure": {"a": -1}, "actors": {"planner": {"a": 1}}})
    for name in ("agent", "main_llm"):
        with pytest.raises(ValueError, match=f"frozen.{name}: agents use this name"):
            config_of(frozen={name: {"path": "model"}})
    with pytest.raises(UnusableRollouts, match="'right', which is no reward of task t; its rewards are reward"):
        agent_rewards(rollout_of({"reward": 1.0}, calls), reward)
