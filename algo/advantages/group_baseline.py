"""The baseline of a group: what the actors of one side earned in all rollouts of one task.

GRPO divides the difference by the group's deviation (Shao et al., 2024, arXiv:2402.03300), Dr. GRPO does not (Liu et
al., 2025, arXiv:2503.20783; ``advantage.normalize_by_std=false``). Suits tasks that differ in how hard they are, such
as deals, each of which can be played several times; needs no critic and no past. verl computes it; here stands what
it is compared with.
"""

from collections.abc import Sequence
from statistics import fmean

import torch

from algo.advantages.comparison import Comparison, equal
from algo.advantages.registry import takes
from algo.advantages.turn_credit import rewards_by_question
from algo.sequences.actor_rows import ActorRow
from configs.sections.training import AdvantageConfig


def within_group(members: Sequence[ActorRow], config: AdvantageConfig) -> Comparison:
    """Of rows of several rollouts, each with the others."""
    turns = rewards_by_question(members)
    divides = config.normalize_by_std and takes(config.estimator, "norm_adv_by_std_in_grpo")
    outcomes_differ = not equal(row.outcome for row in members)
    outcomes = torch.tensor([row.outcome - row.kl_penalty for row in members])
    return Comparison(
        by_outcome=outcomes_differ,
        by_turn=not all(map(equal, turns.values())),
        turn_means={question: fmean(rewards) for question, rewards in turns.items()},
        deviation=outcomes.std().item() if divides and outcomes_differ else 1.0,
    )
