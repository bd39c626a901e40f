"""Credit to the turn (``advantage.credit=turn``): what a turn earned counts for its own tokens alone.

A turn is compared with answers to the same question, so that a reward that only votes can earn does not speak against
every speech. Suits rewards that say which turn was good (a form that was kept, a judge's score); where only the end
is rewarded there is nothing to divide. The rule is ours, and ``estimators`` says it in full; a reward of its own for
each turn as in Zeng et al., 2025, arXiv:2505.11821.

Looking ahead (``advantage.look_ahead``), a turn is worth what it earned and what its seat's later turns earn, each
discounted once for every turn between: a speech that leads to a good vote is told so. Compared among answers to
the same question, as Feng et al., 2025, arXiv:2505.10978 (GiGPO) compare discounted returns among actions in the same
state; the same question is a far coarser likeness than the same state, so that near 1 much of the comparison is luck.
"""

from collections import defaultdict
from collections.abc import Sequence

import torch

from algo.advantages.comparison import Comparison
from algo.sequences.actor_rows import ActorRow


def rewards_by_question(rows: Sequence[ActorRow]) -> dict[str, list[float]]:
    """Question -> what was to come from each turn on that answered it."""
    found: dict[str, list[float]] = defaultdict(list)
    for row in rows:
        for turn in row.turns:
            found[turn.question].append(turn.to_come)
    return found


def with_turn_credit(row: ActorRow, advantage: torch.Tensor, comparison: Comparison) -> torch.Tensor:
    """The advantages of a row's sampled tokens, with what each turn gained over others; shape (sampled tokens,)."""
    if not comparison.by_turn:
        return advantage
    return advantage + row.gains_of_turns(comparison.turn_means) / comparison.deviation
