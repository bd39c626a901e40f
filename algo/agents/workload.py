"""Agents as a workload of the training loop (``algo.loop.workload``)."""

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from algo.agents.data import read_data
from algo.agents.evaluate import evaluate
from algo.agents.metrics import agent_metrics, check_attempts
from algo.agents.tasks import step_tasks
from algo.league.results import Match
from algo.loop.workload import BranchPoint, EvaluatedPolicy
from algo.rollouts.played import PlayedRollouts, UnusableRollouts
from algo.rollouts.triplets import FinishedRollout
from algo.sequences.targets import TargetRow
from algo.sequences.trajectories import ActorReward
from configs.agents import AgentConfig, AgentRewardConfig
from store.agents import AGENTS, AgentCallSpan, AgentOutcome, AgentTask


class Agents:
    """Any agent as a workload (``algo.loop.workload.Workload``). Raises ConfigError for tasks that cannot be read."""

    kind = AGENTS
    score = "evaluation/reward"
    target_weight = 0.0

    def __init__(self, config: AgentConfig):
        self.config = config
        self._data = read_data(config)

    def tasks(self, step: int) -> Sequence[AgentTask]:
        return step_tasks(self.config, self._data.train, step)

    def published(self) -> Mapping[str, Any]:
        return {}  # agents have their own prompts

    def frozen_names(self) -> Sequence[str]:
        return sorted(self.config.frozen)  # any agent may call any of them

    def rewards_of(self, rollout: FinishedRollout) -> Mapping[str, ActorReward]:
        return agent_rewards(rollout, self.config.reward)

    def targets_of(self, rollout: FinishedRollout) -> Iterable[TargetRow]:
        return ()

    def branch_points(
        self, step: int, games: Sequence[FinishedRollout], spreads: Mapping[str, Sequence[float]]
    ) -> Sequence[BranchPoint]:
        return ()  # an agent's past cannot be repeated

    def metrics(self, played: PlayedRollouts) -> dict[str, float]:
        """Raises AllRolloutsFailed where all failed (``check_attempts``)."""
        check_attempts([rollout.outcome for rollout in played.finished], self.config.agents.trained_actors)
        return agent_metrics(played)

    def matches(self, played: PlayedRollouts) -> Iterable[Match]:
        return ()  # tasks have no opponents

    async def evaluate(self, policy: EvaluatedPolicy, step: int, resumed: bool) -> dict[str, float]:
        """Play held-out tasks."""
        return await evaluate(self.config, self._data.held_out, policy, step, resumed)


def agent_rewards(rollout: FinishedRollout, settings: AgentRewardConfig) -> dict[str, ActorReward]:
    """Actor -> its reward; role and side are the actor's name, so that its baseline is its own.

    Raises UnusableRollouts where a weighted reward is missing.
    """
    outcome: AgentOutcome = rollout.outcome
    turns: dict[str, dict[int, float]] = defaultdict(dict)
    for call in rollout.turns:
        assert isinstance(call, AgentCallSpan)
        if invalid := call.facts.get("invalid", 0.0):
            turns[call.actor][call.turn] = settings.invalid_call * invalid
    rewards = {}
    for actor in outcome.actors:
        earned, of_turns = _weighed(outcome, settings.weights_of(actor.name)), turns[actor.name]
        rewards[actor.name] = ActorReward(
            role=actor.name,
            side=actor.name,
            total=earned + math.fsum(of_turns.values()),
            outcome=earned,
            turns=of_turns,
            dimensions={"invalid_calls": actor.facts.get("invalid", 0.0) / actor.turns} | outcome.dimensions,
        )
    return rewards


def _weighed(outcome: AgentOutcome, weights: Mapping[str, float]) -> float:
    given = outcome.dimensions
    if not weights:
        return next(iter(given.values()))
    for name in weights:
        if name not in given:
            raise UnusableRollouts(
                f"reward.weights or reward.actors has {name!r}, which is no reward of task {outcome.task_id}; its "
                f"rewards are {', '.join(given)}. Once either is fixed, a resumed run (--resume auto) repeats the step"
            )
    return math.fsum(weight * given[name] for name, weight in weights.items())
