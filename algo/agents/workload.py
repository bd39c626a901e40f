"""Agents as a workload: what they give to the training loop (``algo.loop.workload``)."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from algo.agents.data import read_data
from algo.agents.evaluate import evaluate
from algo.agents.metrics import agent_metrics, check_attempts
from algo.agents.rewards import agent_rewards
from algo.agents.tasks import step_tasks
from algo.league.results import Match
from algo.loop.workload import EvaluatedPolicy
from algo.rollouts.played import PlayedRollouts
from algo.rollouts.triplets import FinishedRollout
from algo.sequences.targets import TargetRow
from algo.sequences.trajectories import ActorReward
from configs.agents import AgentConfig
from store.agents import AGENTS, AgentTask


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
        return {}  # agents have their prompts themselves

    def frozen_names(self) -> Sequence[str]:
        return sorted(self.config.frozen)  # which of them an agent calls, it alone knows

    def rewards_of(self, rollout: FinishedRollout) -> Mapping[str, ActorReward]:
        return agent_rewards(rollout, self.config.reward)

    def targets_of(self, rollout: FinishedRollout) -> Iterable[TargetRow]:
        return ()

    def metrics(self, played: PlayedRollouts) -> dict[str, float]:
        """Numbers about the tasks. Raises NothingUsable where all failed (``check_attempts``)."""
        check_attempts([rollout.outcome for rollout in played.finished])
        return agent_metrics(played)

    def matches(self, played: PlayedRollouts) -> Iterable[Match]:
        return ()  # tasks have no opponents

    async def evaluate(self, policy: EvaluatedPolicy, step: int, resumed: bool) -> dict[str, float]:
        """Do held-out tasks."""
        return await evaluate(self.config, self._data.held_out, policy, step, resumed)
