"""The interface of workloads: the game (``algo.werewolf.workload``) or agents (``algo.agents.workload``)."""

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from algo.advantages.branching import Decision
from algo.league.results import Match
from algo.rollouts.played import PlayedRollouts
from algo.rollouts.queue import RolloutQueue
from algo.rollouts.triplets import FinishedRollout
from algo.sequences.trajectories import ActorReward, RewardsOf
from configs.schema import Config
from store.schema import PolicyResources, Task
from store.token_spans import TaskKind

if TYPE_CHECKING:
    from algo.sequences.targets import TargetRow


class EvaluatedPolicy(Protocol):
    """The part of ``algo.loop.run_context.RunContext`` that evaluations use."""

    queue: RolloutQueue

    def resources(self) -> PolicyResources:
        """The resources of the current policy, for runners."""

    async def refresh_endpoints(self) -> None:
        """Called regularly during a wait: publishes changed endpoints."""


class BranchPoint(Protocol):
    """A recorded decision, and the tasks that go on from before it."""

    tasks: Sequence[Task]

    def decision(self, branches: Mapping[str, FinishedRollout], rewards_of: RewardsOf) -> Decision:
        """The decision with the finished ones of its branches. branches: by task."""


class Workload(Protocol):
    """Tasks, rewards and evaluation of one kind of rollout; the loop does the rest."""

    config: Config
    kind: TaskKind
    score: str
    """Name of the evaluation metric to maximise."""
    target_weight: float
    """Weight of the loss of ``targets_of`` relative to the policy's loss."""

    def tasks(self, step: int) -> Sequence[Task]:
        """The tasks of one step (from 1); deterministic, also across processes."""

    def published(self) -> Mapping[str, Any]:
        """Additional fields of ``PolicyResources``: prompts, a judge. Raises ConfigError."""

    def frozen_names(self) -> Sequence[str]:
        """Frozen policies for the run's rollouts and evaluations (``algo.serving.policies``)."""

    def rewards_of(self, rollout: FinishedRollout) -> Mapping[str, ActorReward]:
        """The reward of each actor of a finished rollout, by its name."""

    def targets_of(self, rollout: FinishedRollout) -> "Iterable[TargetRow]":
        """Additional target rows of a finished rollout; mostly none."""

    def branch_points(
        self, step: int, games: Sequence[FinishedRollout], spreads: Mapping[str, Sequence[float]]
    ) -> Sequence[BranchPoint]:
        """Decisions of a step's rollouts to branch at, a function of the arguments; mostly none.

        spreads: question -> ``BranchCredit.spreads`` of recent steps.
        """

    def metrics(self, played: PlayedRollouts) -> dict[str, float]:
        """Metrics of a step's rollouts, including those that ``RunSummary`` sums up."""

    def matches(self, played: PlayedRollouts) -> Iterable[Match]:
        """The step's games of the learning policy against one other player; only called with a pool."""

    async def evaluate(self, policy: EvaluatedPolicy, step: int, resumed: bool) -> dict[str, float]:
        """Evaluate the policy after ``step`` on held-out tasks, and write the results into the run's folder.

        Returns metrics named ``evaluation/…``, none if nothing finished.

        resumed: an earlier process of the run may have started this evaluation.
        """
