"""Assigns players to the seats of a game."""

import random
from collections.abc import Mapping

from runners.errors import UnknownPlayer
from runners.werewolf.game import Role
from store.players import PAST_SELVES
from store.werewolf import GameTask, SeatingRule


def players_by_seat(
    task: GameTask, roles: Mapping[int, Role], past_selves: Mapping[str, float] | None = None
) -> dict[int, str]:
    """seat -> name of its player, by the first rule that matches the seat.

    roles: seat -> role as dealt. Draws use the task's seed, so that games of one deal have the same players.
    past_selves: member -> share of the pool, from which one member is drawn for all ``PAST_SELVES`` seats of a game;
        None keeps the name ``PAST_SELVES``.
    Raises ValueError for a seat without a matching rule, UnknownPlayer for an empty pool.
    """
    names = {seat: _draw(task, _rule_for(task, seat, role), seat) for seat, role in roles.items()}
    if past_selves is None or PAST_SELVES not in names.values():
        return names
    if not past_selves:
        raise UnknownPlayer(
            f"game {task.game_id} seats {PAST_SELVES!r}, but its run has no past selves: set league.every_steps of "
            f"the run, or seat another player"
        )
    member = _draw_one(past_selves, f"{task.seed}/{PAST_SELVES}")
    return {seat: member if name == PAST_SELVES else name for seat, name in names.items()}


def _rule_for(task: GameTask, seat: int, role: Role) -> SeatingRule:
    for rule in task.seating:
        if rule.matches(seat, role.value, role.side.value):
            return rule
    raise ValueError(f"game {task.game_id}: no seating rule matches seat {seat} ({role.value})")


def _draw(task: GameTask, rule: SeatingRule, seat: int) -> str:
    # Keyed by the rule's conditions, not its position, so that reordering rules does not change a lineup.
    drawn_for = f"{rule.side}/{rule.role}/{rule.seat}" if rule.together else f"{seat}"
    return _draw_one(rule.players, f"{task.seed}/seating/{drawn_for}")


def _draw_one(shares: Mapping[str, float], seed: str) -> str:
    names = sorted(shares)  # independent of the mapping's order
    return random.Random(seed).choices(names, [shares[name] for name in names])[0]
