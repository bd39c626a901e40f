"""Which of a step's sequences reach the update, and under which reason the others are counted.

Chosen after the advantages are known, so that every game counts in the baselines, whether it is trained on or not.
"""

import random
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from algo.trajectories import SeatTrajectory

UNINFORMATIVE = "group_without_information"
OVER_GAME_LIMIT = "over_max_sequences_per_game"


@dataclass(frozen=True)
class Selection:
    """What reaches the update.

    rows: positions in the step's trajectories, ascending.
    left_out: model turns of the other trajectories, counted by reason.
    """

    rows: tuple[int, ...]
    left_out: Counter[str]


def select_sequences(
    trajectories: Sequence[SeatTrajectory], informative: Sequence[bool], max_sequences_per_game: int | None, seed: int
) -> Selection:
    """Leave out what teaches nothing, then what a game has beyond its limit.

    informative: for each trajectory whether its group could tell better from worse (``SeatAdvantages``).
    max_sequences_per_game: most sequences of one game; None: all.
    seed: with the game's id it decides which seats are left out. Seats are taken whole, in a random order, each that
        still fits; only where the very first has more segments than the limit, a random part of them is taken.
    """
    reasons: dict[int, str] = {}
    games: dict[str, dict[int, list[int]]] = defaultdict(lambda: defaultdict(list))
    for row, (trajectory, tells) in enumerate(zip(trajectories, informative, strict=True)):
        if tells:
            games[trajectory.game_id][trajectory.seat].append(row)
        else:
            reasons[row] = UNINFORMATIVE
    if max_sequences_per_game is not None:
        for game_id, seats in games.items():
            kept = _sample(seats, max_sequences_per_game, random.Random(f"{seed}/{game_id}"))
            reasons |= {row: OVER_GAME_LIMIT for rows in seats.values() for row in rows if row not in kept}
    left_out: Counter[str] = Counter()
    for row, reason in reasons.items():
        left_out[reason] += len(trajectories[row].turn_ends)
    return Selection(tuple(row for row in range(len(trajectories)) if row not in reasons), left_out)


def _sample(seats: dict[int, list[int]], limit: int, chance: random.Random) -> set[int]:
    order = sorted(seats)
    chance.shuffle(order)
    kept: set[int] = set()
    for seat in order:
        if len(kept) + len(seats[seat]) <= limit:
            kept.update(seats[seat])
        elif not kept:
            kept.update(chance.sample(seats[seat], limit))
    return kept
