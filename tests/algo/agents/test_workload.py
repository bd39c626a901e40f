"""Agents as a workload: a step's tasks and an evaluation, through a real hub and worker, before a fake of vLLM."""

import json
from dataclasses import replace

import pytest
from agentlightning import rollout
from openai import AsyncOpenAI

from algo.advantages.baseline import RoleBaselines
from algo.advantages.estimators import token_advantages
from algo.agents.evaluate import AttemptRow, figures_of, gain, primary_rewards
from algo.agents.workload import Agents
from algo.evaluation.record import Record
from algo.evaluation.statistics import Estimate
from algo.loop.workload import Workload
from algo.rollouts.played import NoFinishedRollouts
from algo.rollouts.queue import RolloutQueue
from algo.sequences.trajectories import NOT_TRAINABLE, build_trajectories
from configs.agents import AgentConfig
from runners.agents.agent_play import AgentPlay
from runners.agents.lit import LitPlayer
from store.agents import AGENTS
from store.schema import PolicyResources
from tests.support.agents.fakes_agents import FakeChatVllm
from tests.support.algo.made_games import made_evaluation
from tests.support.algo.playing import playing


@rollout
async def plan_and_work(task, llm):
    """A planner is asked once, a worker twice; the plan is good where its answer says so."""
    async with AsyncOpenAI(base_url=llm.endpoint, api_key="none") as client:

        async def ask(actor, *words):
            messages = [{"role": "user", "content": words[0]}]
            for word in (*words[1:], None):
                answer = await client.chat.completions.create(model=f"policy/{actor}", messages=messages)
                messages += [answer.choices[0].message, {"role": "user", "content": word}]
            return answer.choices[0].message.content

        if task["n"] < 0:
            return 1.0
        plan = await ask("planner", f"plan {task['n']}")
        await ask("worker", "work", "go on")
    if task["n"] == 13:
        raise RuntimeError("an unlucky number")
    if task["n"] >= 100:
        raise KeyError("quetsion")
    return {"right": float("good" in plan), "cost": 0.5}


class Policy:
    """The run as an evaluation needs it."""

    def __init__(self, queue, endpoint):
        self.queue = queue
        self.version = 0
        self._endpoint = endpoint

    def resources(self):
        return PolicyResources(run_name="run", version=self.version, endpoints=(self._endpoint,), model="policy")

    async def refresh_endpoints(self):
        pass


@pytest.fixture
async def world(client, tiny_tokenizer, tmp_path):
    """(workload, policy, fake vLLM), with a worker that plays."""
    tasks = tmp_path / "tasks.jsonl"
    tasks.write_text("".join(json.dumps({"n": number}) + "\n" for number in range(12)))
    (tmp_path / "val.jsonl").write_text('{"n": 12}\n{"n": 13}\n{"n": 14}\n{"n": 15}\n')
    config = AgentConfig.model_validate(
        {
            "run": {"name": "run", "dir": tmp_path},
            "agents": {"train": tasks, "val": tmp_path / "val.jsonl", "trained_actors": ["planner"]},
            "reward": {"weights": {"right": 1.0, "cost": -0.1}},
            "rollout": {"groups_per_step": 2, "rollouts_per_group": 3, "context_tokens": 2000},
            "evaluation": {"tasks": 4, "attempts": 2},
        }
    )
    chance = iter(range(10_000))
    vllm = FakeChatVllm(tiny_tokenizer, lambda prompt: "good" if next(chance) % 2 else "bad")
    play = AgentPlay(client, LitPlayer(plan_and_work), policy_timeout_seconds=0)
    async with vllm, playing(client, play, max_concurrent=4):
        yield Agents(config), Policy(RolloutQueue(client, AGENTS, config.rollout), vllm.endpoint), vllm


async def test_actors_are_trained_by_name_and_have_their_own_baseline(world):
    workload, policy, _ = world
    checked: Workload = workload
    played = await policy.queue.play(checked.tasks(1), policy.resources(), policy.refresh_endpoints, lambda now: None)
    found = build_trajectories(played.finished, workload.rewards_of, 4000)
    assert {trajectory.actor for trajectory in found.trajectories} == {"planner"}
    assert len(found.trajectories) == 6 and found.left_out == {NOT_TRAINABLE: 12}
    everyone = Agents(workload.config.model_copy(update={"agents": workload.config.agents.model_copy(
        update={"trained_actors": None})}))  # fmt: skip
    metrics = everyone.metrics(played)
    assert (metrics["rollouts/finished"], metrics["turns/played"], metrics["agents/failed_share"]) == (6, 18, 0)
    assert metrics["agents/reward/cost"] == 0.5 and metrics["turns/valid_share"] == 1.0

    right, *others = played.finished
    for earned in (0.0, -1.0):
        broken = {"dimensions": {"reward": earned}, "failure": "it broke"}
        failed = [replace(each, outcome=each.outcome.model_copy(update=broken)) for each in others]
        found = everyone.metrics(replace(played, finished=[right, *failed]))
        assert found["agents/reward/right"] == (right.outcome.dimensions["right"] + 5 * earned) / 6
        assert found["agents/reward/cost"] == right.outcome.dimensions["cost"] / 6
        assert "agents/reward/reward" not in found

    played = await policy.queue.play(everyone.tasks(2), policy.resources(), policy.refresh_endpoints, lambda now: None)
    found = build_trajectories(played.finished, everyone.rewards_of, 4000)
    assert len(found.trajectories) == 12 and found.left_out == {}
    advantages = token_advantages(
        found.trajectories,
        workload.config.advantage,
        role_baselines=RoleBaselines(0.9),
        kl_penalties=None,
        values=None,
    )
    for trajectory, tokens in zip(found.trajectories, advantages.per_token, strict=True):
        group = [
            one for one in found.trajectories if (one.group_id, one.actor) == (trajectory.group_id, trajectory.actor)
        ]
        mean = sum(one.reward for one in group) / len(group)
        assert len(group) == 3 and (tokens.sum().item() > 0) == (trajectory.reward > mean + 1e-6)


async def test_an_evaluation_is_written_down_and_compared_and_one_that_was_begun_is_gone_on_with(world, tmp_path):
    workload, policy, vllm = world
    first = await workload.evaluate(policy, 0, resumed=False)
    assert first["evaluation/attempts/finished"] == 8
    assert first["evaluation/failed"] == 0.25  # number 13, twice
    asked = len(vllm.exchanges)
    again = await workload.evaluate(policy, 0, resumed=True)
    assert again == first and len(vllm.exchanges) == asked
    policy.version = 3
    vllm.answer = lambda prompt: "good"
    last = await workload.evaluate(policy, 3, resumed=False)
    assert last[workload.score] == 0.75 and len(vllm.exchanges) == 2 * asked
    run = tmp_path / "run"
    before, after = Record(run, AttemptRow).read()
    assert [found.header.step for found in (before, after)] == [0, 3]
    assert (after.header.policy_version, after.not_finished, after.ended) == (3, 0, True)
    assert [row.cluster for row in after.rows] == [0, 0, 1, 1, 2, 2, 3, 3]
    assert [row.rewards for row in after.rows][2:5:2] == [
        {"right": 0.0, "cost": 0.0},
        {"right": 1.0, "cost": 0.5},
    ]
    assert after.rows[2].failure == "RuntimeError: an unlucky number" and after.rows[0].calls == 3
    assert (
        gain(before, after).value == last[workload.score] - first[workload.score]
        and figures_of(after)["reward"].value == 0.75
    )
    other = before.model_copy(update={"header": before.header.model_copy(update={"digest": "other"})})
    assert gain(other, after) is None
    assert "step 3" in (run / "evaluations.html").read_text()
    told = sorted((run / "transcripts" / "evaluation-0003").iterdir())
    assert len(told) == 2 and "user: plan 12" in told[0].read_text()


@pytest.mark.parametrize(
    ("n", "message"), [(100, r"failed 6 of 6: KeyError: 'quetsion'"), (-1, r"6 of 6 ended without an answered call")]
)
async def test_a_run_without_a_usable_attempt_ends_with_the_reason(world, tmp_path, n, message):
    """It would train on nothing for ever, and look healthy."""
    workload, policy, _ = world
    (tmp_path / "tasks.jsonl").write_text(f'{{"n": {n}}}\n')
    (tmp_path / "val.jsonl").write_text(f'{{"n": {2 * n}}}\n')
    changes = {"evaluation": workload.config.evaluation.model_copy(update={"tasks": 1, "attempts": 6})}
    workload = Agents(workload.config.model_copy(update=changes))
    played = await policy.queue.play(workload.tasks(1), policy.resources(), policy.refresh_endpoints, lambda now: None)
    with pytest.raises(NoFinishedRollouts, match=message):
        workload.metrics(played)
    with pytest.raises(NoFinishedRollouts, match=message):
        await workload.evaluate(policy, 0, resumed=False)
    assert Record(tmp_path / "run", AttemptRow).read() == [], "a resumed run evaluates again"


async def test_a_run_none_of_whose_actors_learns_ends_with_their_names(world):
    workload, policy, _ = world
    agents = workload.config.agents.model_copy(update={"trained_actors": ("planer",)})
    workload = Agents(workload.config.model_copy(update={"agents": agents}))
    played = await policy.queue.play(workload.tasks(1), policy.resources(), policy.refresh_endpoints, lambda now: None)
    with pytest.raises(NoFinishedRollouts, match=r"names planer, but the policy was called as .*planner"):
        workload.metrics(played)


async def test_a_step_in_which_one_attempt_can_be_learned_from_goes_on(world, tmp_path):
    workload, policy, _ = world
    (tmp_path / "tasks.jsonl").write_text('{"n": 100}\n{"n": 1}\n')
    workload = Agents(workload.config)
    played = await policy.queue.play(workload.tasks(1), policy.resources(), policy.refresh_endpoints, lambda now: None)
    metrics = workload.metrics(played)
    assert metrics["agents/failed_share"] == 0.5 and played.own_failures == {"KeyError: 'quetsion'": 3}
    assert "agents/failed_share" in workload.config.watch


@pytest.mark.parametrize(
    ("failed", "found", "primary", "named"),
    [
        ({"short": 0.0, "correct": -1.0}, {"correct": 1.0, "short": 0.5}, [-1.0, 1.0], {"correct": 0.0, "short": 0.25}),
        ({"reward": 0.0}, {"correct": 1.0, "short": 0.5}, [0.0, 1.0], {"correct": 0.5, "short": 0.25}),
        ({"correct": -1.0}, {"reward": 1.0}, [-1.0, 1.0], {"reward": 0.0}),  # as ``agent_rewards``
        ({"short": 0.0, "correct": -1.0}, None, [0.0], {"short": 0.0, "correct": -1.0}),
    ],
)
def test_a_failure_is_scored_by_the_reward_that_agents_name_first(failed, found, primary, named):
    fields = dict(number=0, task_id="t", cluster=0, calls=1, invalid=0)
    rows = [AttemptRow(rewards=failed, failure="timeout", **fields)]
    rows += [AttemptRow(rewards=found, **fields)] if found else []
    evaluation = made_evaluation(rows, planned={"held-out tasks": 1})
    assert primary_rewards(evaluation) == primary
    figures = figures_of(evaluation)
    assert {name: figures[f"reward/{name}"].value for name in named} == named
    assert {name for name in figures if name.startswith("reward/")} == {f"reward/{name}" for name in named}


def test_calls_that_are_equal_in_all_attempts_have_no_interval_of_a_share():
    rows = [AttemptRow(number=n, task_id=f"t{n}", cluster=n, rewards={"a": 1.0}, calls=1, invalid=0) for n in range(20)]
    figures = figures_of(made_evaluation(rows, planned={"held-out tasks": 20}))
    assert figures["calls"] == Estimate(value=1.0, low=1.0, high=1.0) and figures["reward"].low < 1.0
