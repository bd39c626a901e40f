"""Which of a step's sequences reach the update, and under which reason the others are counted.

Chosen after the advantages are known, so that every game counts in the baselines, whether it is trained on or not.

What is sampled follows from the seed and from what was played: the run's name, which is in the ids of its games, has no
part in it, so a run that is repeated under another name chooses the same.
"""

import hashlib
import random
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

from algo.sequences.trajectories import SeatTrajectory
from configs.training import SelectionConfig

ROLE_NOT_SELECTED = "role_not_selected"
STALE = "stale"
UNINFORMATIVE = "group_without_information"
OVER_GAME_LIMIT = "over_max_sequences_per_game"
NOT_SAMPLED = {1.0: "winner_not_sampled", -1.0: "loser_not_sampled", 0.0: "draw_not_sampled"}
"""The outcome of a seat (``SeatTrajectory.dimensions``) -> why it is left out."""

_Row = TypeVar("_Row")
_SeatGame = tuple[str, int]


@dataclass(frozen=True)
class Selection:
    """What reaches the update.

    rows: positions in the step's trajectories, ascending.
    left_out: model turns of the other trajectories, counted by reason.
    """

    rows: tuple[int, ...]
    left_out: Counter[str]

    def of(self, per_trajectory: Sequence[_Row] | None) -> list[_Row] | None:
        """What of one entry per trajectory of the step belongs to those that reach the update; None stays None."""
        return None if per_trajectory is None else [per_trajectory[row] for row in self.rows]


def select_sequences(
    trajectories: Sequence[SeatTrajectory],
    informative: Sequence[bool],
    config: SelectionConfig,
    seed: int,
    *,
    oldest_version_allowed: int,
) -> Selection:
    """Leave out other roles, what is too old, what teaches nothing, the seats that a share does not reach, and what a
    game has beyond its limit; in this order, so that what is left out for one reason takes no place in the next.

    informative: for each trajectory whether its group could tell better from worse (``SeatAdvantages``).
    seed: decides, together with what was played, which seats are sampled. Seats are taken whole. Of a share s of n
        seats floor(s * n) are kept and, with the probability of the remainder, one more. Under the limit of a game its
        seats come in a random order, each that still fits; only where the very first has more segments than the limit,
        a random part of them is taken.
    oldest_version_allowed: a sequence with a turn that older weights sampled is left out.

    Raises ValueError, naming the game and seat, where a share is to be sampled and a seat's outcome is not known.
    """
    reasons: dict[int, str] = {}
    for row, (trajectory, tells) in enumerate(zip(trajectories, informative, strict=True)):
        if config.roles is not None and trajectory.role not in config.roles:
            reasons[row] = ROLE_NOT_SELECTED
        elif trajectory.oldest_version < oldest_version_allowed:
            reasons[row] = STALE
        elif not tells:
            reasons[row] = UNINFORMATIVE
    contents = _digests(trajectories)
    shares = {1.0: config.winners, -1.0: config.losers, 0.0: config.draws}
    if min(shares.values()) < 1:
        by_outcome: dict[float, dict[_SeatGame, list[int]]] = defaultdict(dict)
        for seat, rows in _by_seat(trajectories, reasons).items():
            by_outcome[_outcome(trajectories[rows[0]])][seat] = rows
        for outcome, seats in by_outcome.items():
            for row in _outside_share(seats, shares[outcome], contents, f"{seed}/{outcome}"):
                reasons[row] = NOT_SAMPLED[outcome]
    if config.max_sequences_per_game is not None:
        games: dict[str, dict[int, list[int]]] = defaultdict(dict)
        for (game_id, seat), rows in _by_seat(trajectories, reasons).items():
            games[game_id][seat] = rows
        for game_id, seats in games.items():
            kept = _fitting(seats, config.max_sequences_per_game, random.Random(f"{seed}/{contents[game_id]}"))
            reasons |= {row: OVER_GAME_LIMIT for rows in seats.values() for row in rows if row not in kept}
    left_out: Counter[str] = Counter()
    for row, reason in reasons.items():
        left_out[reason] += len(trajectories[row].turn_ends)
    return Selection(tuple(row for row in range(len(trajectories)) if row not in reasons), left_out)


def _by_seat(trajectories: Sequence[SeatTrajectory], left_out: dict[int, str]) -> dict[_SeatGame, list[int]]:
    """Rows of each seat that are not left out yet, in the order of their segments."""
    seats: dict[_SeatGame, list[int]] = defaultdict(list)
    for row, trajectory in enumerate(trajectories):
        if row not in left_out:
            seats[trajectory.game_id, trajectory.seat].append(row)
    for rows in seats.values():
        rows.sort(key=lambda row: trajectories[row].segment)
    return seats


def _digests(trajectories: Sequence[SeatTrajectory]) -> dict[str, str]:
    """game -> a digest of all that its seats saw and said."""
    tokens: dict[str, list[tuple[int, int, tuple[int, ...]]]] = defaultdict(list)
    for trajectory in trajectories:
        tokens[trajectory.game_id].append((trajectory.seat, trajectory.segment, trajectory.token_ids))
    return {game_id: _digest(repr(sorted(found))) for game_id, found in tokens.items()}


def _digest(text: str) -> str:
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def _outside_share(seats: dict[_SeatGame, list[int]], share: float, contents: dict[str, str], seed: str) -> list[int]:
    order = sorted(seats, key=lambda seat: (_digest(f"{seed}/{contents[seat[0]]}/{seat[1]}"), seat))
    everything = "/".join(f"{contents[game_id]}/{seat}" for game_id, seat in order)
    count = int(share * len(order) + random.Random(f"{seed}/{everything}").random())
    return [row for seat in order[count:] for row in seats[seat]]


def _outcome(trajectory: SeatTrajectory) -> float:
    outcome = trajectory.dimensions.get("outcome")
    if outcome not in NOT_SAMPLED:
        raise ValueError(
            f"game {trajectory.game_id}, seat {trajectory.seat}: its outcome is {outcome}, not one of "
            f"{sorted(NOT_SAMPLED)}; selection.winners, losers and draws need it"
        )
    return outcome


def _fitting(seats: dict[int, list[int]], limit: int, chance: random.Random) -> set[int]:
    order = sorted(seats)
    chance.shuffle(order)
    kept: set[int] = set()
    for seat in order:
        if len(kept) + len(seats[seat]) <= limit:
            kept.update(seats[seat])
        elif not kept:
            kept.update(chance.sample(seats[seat], limit))
    return kept
