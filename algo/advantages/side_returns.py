"""Returns standardised over all tokens of a side: REINFORCE++ and GAE, which compare with no baseline of a group.

REINFORCE++ (Hu et al., 2025, arXiv:2501.03262) suits single rollouts of many tasks without a critic. GAE (Schulman et
al., 2016, arXiv:1506.02438) has one, and suits long rollouts whose critic has had time to learn. Both take rewards
where they lie (``advantage.credit=turn``). verl computes them; here stands whether there is anything to compare.
"""

from collections.abc import Sequence

from algo.advantages.comparison import equal
from algo.advantages.registry import needs_values
from algo.sequences.actor_rows import ActorRow
from configs.sections.training import AdvantageConfig


def returns_differ(members: Sequence[ActorRow], config: AdvantageConfig) -> bool:
    """Whether an estimator that standardises over a side's tokens has anything to compare there."""
    if sum(row.tokens for row in members) < 2:
        return False
    if needs_values(config.estimator) or config.gamma < 1 or any(row.kl is not None for row in members):
        return True
    return not equal([row.outcome for row in members]) or any(turn.reward for row in members for turn in row.turns)
