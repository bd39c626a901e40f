"""Who plays which seat of a game."""

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

    roles: seat -> role as dealt. The draws follow from the task's seed, so that games of one deal seat the same
    players.
    past_selves: member -> share, of the pool that seats for ``PAST_SELVES`` are filled from, all of a game by the same
        member; None leaves such seats without a name of their own, for who looks at a task alone.
    ValueError for a seat that no rule matches, UnknownPlayer where a pool is needed that has no member.
    """
    names = {seat: _draw(task, _rule_for(task, seat, role), seat) for seat, role in roles.items()}
    if past_selves is None or PAST_SELVES not in names.values():
        return names
    if not past_selves:
        raise UnknownPlayer(
            f"game {task.game_id} seats {PAST_SELVES!r}, and its run has published no past selves: set "
            f"league.every_steps where it is trained, or seat others"
        )
    member = _draw_one(past_selves, f"{task.seed}/{PAST_SELVES}")
    return {seat: member if name == PAST_SELVES else name for seat, name in names.items()}


def _rule_for(task: GameTask, seat: int, role: Role) -> SeatingRule:
    for rule in task.seating:
        if rule.matches(seat, role.value, role.side.value):
            return rule
    raise ValueError(f"game {task.game_id}: no seating rule says who plays seat {seat} ({role.value})")


def _draw(task: GameTask, rule: SeatingRule, seat: int) -> str:
    # By what the rule matches and not by its number: where else it stands among rules must not change a lineup.
    drawn_for = f"{rule.side}/{rule.role}/{rule.seat}" if rule.together else f"{seat}"
    return _draw_one(rule.players, f"{task.seed}/seating/{drawn_for}")


def _draw_one(shares: Mapping[str, float], seed: str) -> str:
    names = sorted(shares)  # the order of a mapping must not decide
    return random.Random(seed).choices(names, [shares[name] for name in names])[0]
