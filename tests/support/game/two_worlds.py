"""Two games that differ in two roles which a seat cannot know: whatever that seat sees must be the same in both."""

import random
from collections.abc import Iterable

from hypothesis import assume
from hypothesis import strategies as st

from runners.werewolf.game import Action, Decision, Option, Preset, Request, Role, Side, choices, new_game
from tests.support.game.game_playing import Chooser, Step, steps

NIGHT_WORK = {Role.GUARD: Decision.GUARD, Role.WITCH: Decision.WITCH}


class _Undecidable(Exception):
    """A wolf must hit somebody, and everybody left is a wolf in one of the two deals."""


def draw_worlds(preset: Preset, seed: int, play: int, data: st.DataObject) -> tuple[int, list[list[Step]]]:
    """(the seat that looks on, the steps of both games as long as both go on)."""
    roles = new_game(preset, seed).roles
    observer, one, other = data.draw(st.permutations(preset.seats))[:3]
    swapped = list(roles)
    swapped[one - 1], swapped[other - 1] = roles[other - 1], roles[one - 1]
    assume(roles[one - 1] is not roles[other - 1])
    # A wolf knows the wolves, so only good seats can be swapped without its knowing.
    assume(roles[observer - 1].side is Side.GOOD or roles[one - 1].side is roles[other - 1].side is Side.GOOD)
    prey = frozenset(s for s in preset.seats if roles[s - 1].side is swapped[s - 1].side is Side.GOOD)
    # What a guard or a witch does dies with it, and the two may die on different days.
    swapped_roles = {roles[one - 1], roles[other - 1]}
    idle = frozenset(NIGHT_WORK[role] for role in swapped_roles if role in NIGHT_WORK)
    # Exiled, 白痴 shows its card.
    spared = frozenset((one, other)) if Role.IDIOT in swapped_roles else frozenset()
    choose = _blind_chooser(play, frozenset((one, other)), prey, idle, spared)
    return observer, [_steps(preset, seed, dealt, choose) for dealt in (roles, tuple(swapped))]


def _steps(preset: Preset, seed: int, roles: tuple[Role, ...], choose: Chooser) -> list[Step]:
    found = []
    try:
        for step in steps(new_game(preset, seed, roles), choose):
            found.append(step)
    except _Undecidable:
        pass
    return found


def _blind_chooser(
    play: int, pair: frozenset[int], prey: frozenset[int], idle: frozenset[Decision], spared: frozenset[int]
) -> Chooser:
    """Choices that are the same in two games that differ only in the roles of ``pair``.

    prey: whom the wolves hit: seats that are good in both deals. idle: decisions in which nobody is chosen.
    spared: seats that nobody votes to exile.
    """

    def pick(options: Iterable, *key: object):
        return random.Random("/".join(map(str, (play, *key)))).choice([*options])

    def choose(request: Request) -> Action:
        decision, day = request.decision, request.day
        if decision in idle or (decision in (Decision.SHOT, Decision.DUEL) and request.seat in pair):
            return Action()
        match decision:
            case Decision.WOLF_TALK | Decision.WOLF_KILL:
                targets = [target for target in request.targets if target in prey]
                talks = decision is Decision.WOLF_TALK
                if not targets and not request.may_pass:
                    raise _Undecidable
                if not targets or (talks and pick((True, False), day, "silent")):
                    return Action()
                return Action(pick(targets, day, "prey"))
            case Decision.SEER_CHECK:
                return Action(pick([None, *(target for target in request.targets if target not in pair)], day, "check"))
            case Decision.GUARD | Decision.WITCH:
                return Action(pick(choices(request), day, decision))
            case Decision.DUEL:
                return Action(pick([None, *(target for target in request.targets if target not in pair)], day, "duel"))
            case Decision.EXILE_VOTE | Decision.PK_VOTE if spared:
                targets = [target for target in request.targets if target not in spared]
                if not targets and not request.may_pass:
                    raise _Undecidable
                return Action(pick(targets, day, decision, request.seat) if targets else None)
        # Only wolves are offered to explode, so the two must not: whether they are offered differs.
        explodes = Option.EXPLODE in request.options and request.seat not in pair
        if explodes and pick(range(10), day, request.phase, request.seat, "explode") == 0:
            return Action(Option.EXPLODE)
        return Action(
            pick([option for option in choices(request) if option is not Option.EXPLODE], day, decision, request.seat),
            pick(("", "我是好人"), day, request.phase, request.seat, "speech") if request.speaks else "",
        )

    return choose
