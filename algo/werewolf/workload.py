"""The game as a workload of the training loop (``algo.loop.workload``)."""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any

from algo.league.results import Match
from algo.loop.workload import EvaluatedPolicy
from algo.rollouts.played import PlayedRollouts
from algo.rollouts.triplets import FinishedRollout
from algo.sequences.targets import TargetRow
from algo.sequences.trajectories import ActorReward
from algo.werewolf.branching import BranchPoint, branch_points
from algo.werewolf.listening import listening_of
from algo.werewolf.matches import league_match
from algo.werewolf.metrics import game_metrics
from algo.werewolf.resources import game_resources
from algo.werewolf.rewards import game_rewards
from algo.werewolf.tasks import step_tasks
from configs.sections.opponents import INITIAL_POLICY
from configs.werewolf import WerewolfConfig
from store.werewolf import GAME, GameTask

Evaluate = Callable[[WerewolfConfig, EvaluatedPolicy, int, bool], Awaitable[dict[str, float]]]
"""(configuration, policy, step, whether an earlier process may have begun it) -> metrics of held-out deals."""


class Werewolf:
    """The game as a workload (``algo.loop.workload.Workload``).

    evaluate: of ``algo.evaluation.play``; a parameter, since that package imports this one.
    """

    kind = GAME
    score = "evaluation/win_rate"

    def __init__(self, config: WerewolfConfig, evaluate: Evaluate):
        self.config = config
        self.target_weight = config.probes.listening
        self._evaluate = evaluate

    def tasks(self, step: int) -> Sequence[GameTask]:
        return step_tasks(self.config, step)

    def published(self) -> Mapping[str, Any]:
        return game_resources(self.config)

    def frozen_names(self) -> Sequence[str]:
        game, evaluation = self.config.game, self.config.evaluation
        seated = {game.opponent, *(name for rule in game.seating for name in rule.players)}
        if evaluation.enabled:
            seated |= {*evaluation.opponents}
        return sorted(seated & {*self.config.frozen, INITIAL_POLICY})

    def rewards_of(self, rollout: FinishedRollout) -> Mapping[str, ActorReward]:
        return game_rewards(rollout, self.config.reward)

    def targets_of(self, rollout: FinishedRollout) -> Iterable[TargetRow]:
        return listening_of([rollout], self.config)

    def branch_points(
        self, step: int, games: Sequence[FinishedRollout], spreads: Mapping[str, Sequence[float]]
    ) -> Sequence[BranchPoint]:
        """None without ``advantage.credit=branch``."""
        most = self.config.branched_groups * self.config.rollout.rollouts_per_group
        if not most:
            return ()
        branching, roles = self.config.advantage.branching, self.config.selection.role_shares
        return branch_points(branching, self.tasks(step), games, most, spreads, roles)

    def metrics(self, played: PlayedRollouts) -> dict[str, float]:
        return game_metrics(played)

    def matches(self, played: PlayedRollouts) -> Iterable[Match]:
        """Games of the policy as one whole side against one other player."""
        return filter(None, (league_match(game.outcome) for game in played.finished))

    async def evaluate(self, policy: EvaluatedPolicy, step: int, resumed: bool) -> dict[str, float]:
        """Play held-out deals against the panel."""
        return await self._evaluate(self.config, policy, step, resumed)
