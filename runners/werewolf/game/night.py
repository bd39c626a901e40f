"""The night: the wolves talk; guard, wolves and seer act at once; then the witch; dawn."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

from runners.werewolf.game.roles import CARDS
from runners.werewolf.game.state import GameState, Night, drawn_order, generator, leaders, log
from runners.werewolf.game.types import Action, Decision, EventKind, Option, Phase, Role, Side


def fall(state: GameState) -> Phase:
    """Begin a night."""
    state.day += 1
    state.last_guarded = state.night.guarded
    state.night = Night()
    state.tied = ()
    log(state, EventKind.NIGHT_FALLS)
    return Phase.WOLF_TALK


def start_wolf_talk(state: GameState) -> Phase | None:
    """Let two or more wolves talk in a drawn order, in rounds."""
    wolves = state.living_wolves
    if len(wolves) < 2 or not state.preset.wolf_talk_rounds:
        return Phase.NIGHT_ACTIONS
    state.proposals = ()
    state.waiting = drawn_order(state, wolves, "wolf_talk") * state.preset.wolf_talk_rounds
    return None


def hear_wolf(state: GameState, actions: Mapping[int, Action]) -> Phase | None:
    """Record the speech of one wolf; a round in which all propose one victim settles it."""
    wolves = state.living_wolves
    for seat, action in actions.items():
        log(state, EventKind.WOLF_SAYS, audience=wolves, seat=seat, text=action.text, target=action.seat)
        state.proposals += (action.seat,)
    if len(state.proposals) == len(wolves):
        if len(set(state.proposals)) == 1 and state.proposals[0] is not None:
            _settle_victim(state, state.proposals[0], agreed=True)
            state.waiting = ()
        state.proposals = ()
    return None if state.waiting else Phase.NIGHT_ACTIONS


def start_night_actions(state: GameState) -> Phase | None:
    """Ask guard, wolves and seer at once, since they act independently."""
    state.waiting = tuple(
        seat
        for seat in sorted(state.living)
        if (decision := CARDS[state.role_of(seat)].by_night) is not None
        and not (decision is Decision.WOLF_KILL and state.night.agreed)
    )
    return None if state.waiting else Phase.WITCH_ACTION


def take_night_actions(state: GameState, actions: Mapping[int, Action]) -> Phase:
    """Resolve protection, attack and check."""
    wolves = [seat for seat in sorted(actions) if state.role_of(seat).side is Side.WOLF]
    for seat in wolves:
        log(state, EventKind.WOLF_VOTE, audience=wolves, seat=seat, target=actions[seat].seat)
    if wolves:
        # 空刀 is an option like any seat. Tied options are put in one fixed order before the draw.
        tied = leaders(Counter(actions[seat].seat for seat in wolves))
        _settle_victim(state, generator(state, "wolf_tie").choice(tied), agreed=False)
    for seat, action in actions.items():
        match state.role_of(seat):
            case Role.GUARD:
                state.night = replace(state.night, guarded=action.seat)
                log(state, EventKind.GUARDED, audience=(seat,), seat=seat, target=action.seat)
            case Role.SEER if action.seat is not None:
                side = state.role_of(action.seat).side.value
                log(state, EventKind.SEER_RESULT, audience=(seat,), seat=seat, target=action.seat, side=side)
    return Phase.WITCH_ACTION


def start_witch_action(state: GameState) -> Phase | None:
    """Show the witch tonight's victim while she has the antidote; ask her if she can use a potion."""
    for seat in state.living_with(Role.WITCH):
        if state.antidote:
            log(state, EventKind.WITCH_TOLD, audience=(seat,), seat=seat, target=state.night.victim)
        if state.poison or may_save(state, seat):
            state.waiting = (seat,)
            return None
    return Phase.DAWN


def may_save(state: GameState, witch: int) -> bool:
    """Whether the witch can use the antidote tonight."""
    victim = state.night.victim
    return state.antidote and victim is not None and (victim != witch or state.preset.witch_self_save)


def take_witch_action(state: GameState, actions: Mapping[int, Action]) -> Phase:
    """Save, poison, or neither; never both in one night, since there is one answer."""
    for seat, action in actions.items():
        if action.choice is Option.SAVE:
            state.antidote = False
            state.night = replace(state.night, saved=True)
            log(state, EventKind.ANTIDOTE_USED, audience=(seat,), seat=seat, target=state.night.victim)
        elif action.seat is not None:
            state.poison = False
            state.night = replace(state.night, poisoned=action.seat)
            log(state, EventKind.POISON_USED, audience=(seat,), seat=seat, target=action.seat)
    return Phase.DAWN


def break_day(state: GameState) -> Phase:
    """End the night; its deaths are announced after the sheriff's election."""
    for seat in sorted(state.living):
        if CARDS[state.role_of(seat)].shoots:
            may_shoot = "no" if seat == state.night.poisoned else "yes"
            log(state, EventKind.SHOT_STATUS, audience=(seat,), seat=seat, may_shoot=may_shoot)
    log(state, EventKind.DAY_BREAKS)
    state.unannounced = state.night.deaths
    if state.election is None:
        return Phase.ANNOUNCEMENT
    return Phase.SHERIFF_VOTE if state.election.put_off else Phase.SIGN_UP


def _settle_victim(state: GameState, victim: int | None, *, agreed: bool) -> None:
    state.night = replace(state.night, victim=victim, agreed=agreed)
    log(state, EventKind.WOLF_TARGET, audience=state.living_wolves, target=victim)
