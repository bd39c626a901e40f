"""Who plays which seat of a game."""

import random
from collections.abc import Mapping

from runners.werewolf.game import Role
from store.werewolf import GameTask, SeatingRule


def who_plays(task: GameTask, roles: Mapping[int, Role]) -> dict[int, str]:
    """seat -> name of its player, by the first rule that matches the seat.

    roles: seat -> role as dealt. The draws follow from the task's seed, so that games of one deal seat the same
    players. ValueError for a seat that no rule matches.
    """
    return {seat: _draw(task, _rule_for(task, seat, role), seat) for seat, role in roles.items()}


def _rule_for(task: GameTask, seat: int, role: Role) -> SeatingRule:
    for rule in task.seating:
        if rule.matches(seat, role.value, role.side.value):
            return rule
    raise ValueError(f"game {task.game_id}: no seating rule says who plays seat {seat} ({role.value})")


def _draw(task: GameTask, rule: SeatingRule, seat: int) -> str:
    # By what the rule matches and not by its number: where else it stands among rules must not change a lineup.
    drawn_for = f"{rule.side}/{rule.role}/{rule.seat}" if rule.together else f"{seat}"
    names = sorted(rule.players)  # the order of a mapping must not decide
    shares = [rule.players[name] for name in names]
    return random.Random(f"{task.seed}/seating/{drawn_for}").choices(names, shares)[0]
