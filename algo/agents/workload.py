"""Agents as a workload: what they give to the training loop (``algo.loop.workload``)."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from algo.agents.data import read_data
from algo.agents.evaluate import evaluate
from algo.agents.metrics import agent_metrics, check_attempts
from algo.agents.rewards import agent_rewards
from algo.agents.tasks import step_tasks
from algo.league.results import Match
from algo.loop.workload import EvaluatedPolicy, EvaluationResult
from algo.rollouts.played import PlayedRollouts
from algo.rollouts.triplets import FinishedRollout
from algo.sequences.targets import TargetRow
from algo.sequences.trajectories import ActorReward
from configs.agents import AgentConfig
from store.agents import AGENTS, AgentTask


class Agents:
    """Any agent as a workload (``algo.loop.workload.Workload``). Raises ConfigError for tasks that cannot be read."""

    kind = AGENTS
    target_weight = 0.0

    def __init__(self, config: AgentConfig):
        self.config = config
        self._data = read_data(config)

    def tasks(self, step: int) -> Sequence[AgentTask]:
        """The tasks of one step."""
        return step_tasks(self.config, self._data.train, step)

    def published(self) -> Mapping[str, Any]:
        """Nothing: agents have their prompts themselves."""
        return {}

    def frozen_names(self) -> Sequence[str]:
        """All frozen policies: which of them an agent calls, it alone knows."""
        return sorted(self.config.frozen)

    def evaluated_names(self) -> Sequence[str]:
        """Likewise."""
        return self.frozen_names()

    def rewards_of(self, rollout: FinishedRollout) -> Mapping[str, ActorReward]:
        """What each actor earns."""
        return agent_rewards(rollout, self.config.reward)

    def targets_of(self, rollout: FinishedRollout) -> Iterable[TargetRow]:
        """Nothing besides what agents were rewarded for."""
        return ()

    def metrics(self, played: PlayedRollouts) -> dict[str, float]:
        """Numbers about the tasks. Raises NothingUsable where all failed (``check_attempts``)."""
        check_attempts(played)
        return agent_metrics(played)

    def matches(self, played: PlayedRollouts) -> Iterable[Match]:
        """None: tasks have no opponents."""
        return ()

    async def evaluate(self, policy: EvaluatedPolicy, step: int, resumed: bool) -> EvaluationResult:
        """Do held-out tasks; the score is the mean reward."""
        return await evaluate(self.config, self._data.held_out, policy, step, resumed)
