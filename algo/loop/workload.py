"""What the loop asks of a workload: the game (``algo.werewolf.workload``) or any agent (``algo.agents.workload``)."""

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from algo.league.results import Match
from algo.rollouts.played import PlayedRollouts
from algo.rollouts.queue import RolloutQueue
from algo.rollouts.triplets import FinishedRollout
from algo.sequences.trajectories import ActorReward
from configs.schema import Config
from store.schema import PolicyResources, Task
from store.token_spans import TaskKind

if TYPE_CHECKING:
    from algo.sequences.targets import TargetRow


class EvaluatedPolicy(Protocol):
    """The run as an evaluation needs it (``algo.loop.run_context.RunContext``)."""

    queue: RolloutQueue

    def resources(self) -> PolicyResources:
        """What runners are told about the policy as it stands."""

    async def refresh_endpoints(self) -> None:
        """To be called while one waits: restarts servers that have died."""


class Workload(Protocol):
    """What is played, what it earns and how it is evaluated; everything else about a step stands in the loop."""

    config: Config
    kind: TaskKind
    score: str
    """Which number of an evaluation is the higher the better."""
    target_weight: float
    """What the rows of ``targets_of`` weigh beside the policy's loss."""

    def tasks(self, step: int) -> Sequence[Task]:
        """What is played for one step (from 1); the same at every call, also of another process."""

    def published(self) -> Mapping[str, Any]:
        """Fields of ``PolicyResources`` beyond those of any workload: prompts, a judge. Raises ConfigError."""

    def frozen_names(self) -> Sequence[str]:
        """Policies with frozen weights that the run's rollouts and evaluations need (``algo.serving.policies``)."""

    def rewards_of(self, rollout: FinishedRollout) -> Mapping[str, ActorReward]:
        """What each actor of a finished rollout earns, by its name."""

    def targets_of(self, rollout: FinishedRollout) -> "Iterable[TargetRow]":
        """What else of a finished rollout is to become likelier, beside what the rewards say; mostly nothing."""

    def metrics(self, played: PlayedRollouts) -> dict[str, float]:
        """Numbers about a step's rollouts, for the log; those that ``RunSummary`` adds up among them."""

    def matches(self, played: PlayedRollouts) -> Iterable[Match]:
        """The step's games of the learning policy against one other player; asked only where a pool is configured."""

    async def evaluate(self, policy: EvaluatedPolicy, step: int, resumed: bool) -> dict[str, float]:
        """Play what is held out with the policy after ``step``, and write what it shows into the run's folder.

        Returns numbers for the log, named ``evaluation/…``, none where nothing finished.

        resumed: an earlier process of the run may have begun this evaluation.
        """
