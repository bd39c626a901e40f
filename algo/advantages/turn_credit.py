"""Credit to the turn (``advantage.credit=turn``): what a turn earned counts for its own tokens alone.

A turn is compared with answers to the same question, so that a reward that only votes can earn does not speak against
every speech. Suits rewards that say which turn was good (a form that was kept, a judge's score); where only the end
is rewarded there is nothing to divide. The rule is ours, and ``estimators`` says it in full; a reward of its own for
each turn as in Zeng et al., 2025, arXiv:2505.11821.
"""

from collections import defaultdict
from collections.abc import Sequence

import torch

from algo.advantages.comparison import Comparison
from algo.sequences.actor_rows import ActorRow


def rewards_by_question(rows: Sequence[ActorRow]) -> dict[str, list[float]]:
    """Question -> what the turns earned that answered it."""
    found: dict[str, list[float]] = defaultdict(list)
    for row in rows:
        for turn in row.turns:
            found[turn.question].append(turn.reward)
    return found


def with_turn_credit(row: ActorRow, advantage: torch.Tensor, comparison: Comparison) -> torch.Tensor:
    """The advantages of a row's sampled tokens, with what each turn gained over others; shape (sampled tokens,)."""
    if not comparison.by_turn:
        return advantage
    return advantage + row.gains_of_turns(comparison.turn_means) / comparison.deviation
