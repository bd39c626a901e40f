"""Tasks that compare prompts: an agent's tasks, or deals of the game. Equal for all prompts of a stage."""

import random
from collections.abc import Sequence
from dataclasses import dataclass

from algo.prompt_search.plan import sides_of
from algo.prompt_search.prompts import Candidate
from algo.rollouts.triplets import FinishedRollout
from algo.werewolf.matches import OTHER_SIDE
from algo.werewolf.tasks import derived_seed, game_task, held_out_deal, training_deal
from configs.werewolf import WerewolfConfig
from store.agents import AgentTask
from store.schema import PolicyResources, Task, TokenLimits
from store.werewolf import GameTask, SeatingRule


@dataclass(frozen=True)
class Stage:
    """A part of a search with tasks of its own. slots: the prompts in which its candidates may differ.

    held_out: whether its tasks are those of the confirmation.
    """

    name: str
    slots: tuple[str, ...]
    held_out: bool = False


@dataclass(frozen=True)
class AgentTasks:
    """Tasks are drawn from a half of the file, with replacement and with a sampling seed of their own.

    Hence a result holds for the mean over that half, however few tasks it has. searched, held_out: the two halves.
    base: resources; prompts and version are replaced. limits: of one call. bounds: of a reward.
    max_seconds: timeout of the agent, which then earns the lower bound; max_calls: see ``AgentTask``.
    """

    searched: Sequence[object]
    held_out: Sequence[object]
    base: PolicyResources
    limits: TokenLimits
    seed: int
    bounds: tuple[float, float]
    max_seconds: float | None = None
    max_calls: int = 64

    def tasks(self, stage: Stage, number: int, candidate: Candidate) -> Sequence[Task]:
        chance = random.Random(f"{self.seed}/{stage.name}/{number}")
        drawn = chance.choice(self.held_out if stage.held_out else self.searched)
        group_id = f"{stage.name}-task{number:05d}"
        return [
            AgentTask(
                task_id=f"{group_id}-prompt{candidate.digest:08x}",
                group_id=group_id,
                input=drawn,
                sampling_seed=chance.getrandbits(31),
                limits=self.limits,
                failure_rewards={"reward": self.bounds[0]},
                max_seconds=self.max_seconds,
                max_calls=self.max_calls,
            )
        ]

    def reward(self, task: Task, finished: FinishedRollout) -> float:
        """The primary dimension."""
        return next(iter(finished.outcome.rewards().values()))


@dataclass(frozen=True)
class GameTasks:
    """Games of a player with the searched prompts against an opponent. The reward is the share of games won.

    A role's guidance plays that role's side; the frame, and several prompts combined, both sides of each deal.
    player, opponent: names as in ``store.werewolf.SeatingRule``. base: see ``AgentTasks``.
    """

    config: WerewolfConfig
    player: str
    opponent: str
    base: PolicyResources
    bounds: tuple[float, float] = (0.0, 1.0)

    def tasks(self, stage: Stage, number: int, candidate: Candidate) -> Sequence[Task]:
        seed = self.config.run.seed
        training = training_deal(seed, derived_seed(f"stage/{stage.name}"), number)
        deal = held_out_deal(seed, number) if stage.held_out else training
        group_id = f"{stage.name}-deal{number:05d}"
        return [
            game_task(
                self.config,
                game_id=f"{group_id}-prompt{candidate.digest:08x}-{side}",
                group_id=group_id,
                seed=deal,
                sampling_seed=derived_seed(f"prompt/{stage.name}/{side}", deal),
                seating=(
                    SeatingRule(side=side, players={self.player: 1.0}),
                    SeatingRule(side=OTHER_SIDE[side], players={self.opponent: 1.0}),
                ),
                trainable=frozenset(),
            )
            for side in sides_of(stage.slots)
        ]

    def reward(self, task: Task, finished: FinishedRollout) -> float:
        """1 for a game that the player's side won; a draw is no win."""
        assert isinstance(task, GameTask)
        return float(finished.outcome.result == task.seating[0].side)


Workload = AgentTasks | GameTasks


def resources_of(workload: Workload, candidate: Candidate) -> PolicyResources:
    """Resources with the candidate's prompts and, as the version, their digest: runners cache resources by version."""
    prompts = workload.base.prompt_templates | dict(candidate.templates)
    return workload.base.model_copy(update={"version": candidate.digest, "prompt_templates": prompts})
