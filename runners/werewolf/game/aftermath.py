"""The aftermath of deaths: last words, shots, the badge, and the end of the game.

Deaths come from the night (``announce``), the vote (``exile``) and an explosion (``explode``); ``settle`` then
handles, in this order: a win, once no shot is pending; last words; shots, each of which may kill another shooter;
the badge of a dead sheriff. A decided game ends at once: its dead get no last words and pass no badge.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from runners.werewolf.game.presets import WinRule
from runners.werewolf.game.state import GameState, bury, generator, join, log, lose_badge
from runners.werewolf.game.types import Action, BadgeLost, EventKind, Option, Phase, Result, Role, Side


def announce(state: GameState) -> Phase:
    """Announce last night's deaths, not their causes; the day continues after their aftermath."""
    _announce_deaths(state)
    state.resume = Phase.SPEAKING_ORDER
    return Phase.AFTERMATH


def exile(state: GameState, seat: int | None) -> Phase:
    """Exile ``seat``, or nobody (平安日); night falls after the aftermath. 白痴 shows its card and stays."""
    state.tied = ()
    state.resume = Phase.NIGHTFALL
    if seat is None:
        log(state, EventKind.NOBODY_EXILED)
    elif state.role_of(seat) is Role.IDIOT:
        log(state, EventKind.REVEALED, target=seat, role=Role.IDIOT.value)
        state.revealed |= {seat}
    else:
        log(state, EventKind.EXILED, target=seat)
        bury(state, (seat,))
        state.last_words = (seat,)
    return Phase.AFTERMATH


def explode(state: GameState, actions: Mapping[int, Action]) -> Phase:
    """A wolf explodes (自爆): it dies at once without last words, the day ends, night follows.

    A white wolf king takes a seat with it. Of several that explode at once, one is drawn. An election in progress is
    put off to the next day; put off before, it loses the badge for good (双爆吞警徽). Deaths not yet announced are
    announced, including the wolf's own if it was attacked in the night, since 平安夜 would be untrue.
    """
    exploding = sorted(seat for seat, action in actions.items() if action.choice is Option.EXPLODE)
    seat = generator(state, f"explosion {state.phase}").choice(exploding)
    log(state, EventKind.EXPLODED, seat=seat)
    state.waiting, state.tied = (), ()
    state.resume = Phase.NIGHTFALL
    bury(state, (seat,), unable_to_shoot=(seat,))
    if state.role_of(seat) is Role.WHITE_WOLF_KING:
        state.shooters += (seat,)
    if state.election is not None:
        if state.election.put_off:
            lose_badge(state, BadgeLost.SWALLOWED)
        else:
            state.election = replace(state.election, put_off=True)
            log(state, EventKind.ELECTION_PUT_OFF)
        # The election precedes the announcement of last night's deaths.
        _announce_deaths(state)
    return Phase.AFTERMATH


def settle(state: GameState) -> Phase:
    """Set the seats to ask in the next step of the aftermath, or return the phase after it.

    The dead speak in order of seats.
    """
    result = None if state.shooters else outcome(state.preset.win_rule, state.roles, state.living)
    if result is not None:
        return _end(state, result)
    if state.last_words:
        state.waiting, state.last_words = state.last_words, ()
        return Phase.LAST_WORDS
    if state.shooters:
        state.waiting, state.shooters = state.shooters[:1], state.shooters[1:]
        return Phase.SHOT
    if state.sheriff is not None and state.sheriff not in state.living:
        state.waiting = (state.sheriff,)
        return Phase.BADGE
    if state.resume is Phase.NIGHTFALL and state.day >= state.preset.round_limit:
        return _end(state, Result.DRAW)
    return state.resume


def take_shot(state: GameState, actions: Mapping[int, Action]) -> Phase:
    """The target dies without last words and may shoot in turn; a shot that is not taken is not announced."""
    for seat, action in actions.items():
        if action.seat is not None:
            exploded: dict[str, Any] = {"exploded": "yes"} if state.role_of(seat) is Role.WHITE_WOLF_KING else {}
            log(state, EventKind.SHOT, seat=seat, target=action.seat, **exploded)
            bury(state, (action.seat,))
    return Phase.AFTERMATH


def take_badge(state: GameState, actions: Mapping[int, Action]) -> Phase:
    """The badge is passed on (移交) or torn (撕毁)."""
    for seat, action in actions.items():
        state.sheriff = action.seat
        if action.seat is None:
            log(state, EventKind.BADGE_TORN, seat=seat)
        else:
            log(state, EventKind.BADGE_PASSED, seat=seat, target=action.seat)
    return Phase.AFTERMATH


def outcome(win_rule: WinRule, roles: tuple[Role, ...], living: frozenset[int]) -> Result | None:
    """The winner with these seats living; None without one.

    roles: as dealt, seat N's at N - 1. The wolves' condition is checked first (狼刀在先). Under 屠边 only kinds that
    were dealt can be wiped out. Parity needs a living wolf.
    """
    alive = [roles[seat - 1] for seat in living]
    wolves = sum(role.side is Side.WOLF for role in alive)
    if win_rule is WinRule.PARITY:
        wolves_won = wolves > 0 and wolves >= len(alive) - wolves
    else:
        gods_wiped_out = _has_god(roles) and not _has_god(alive)
        villagers_wiped_out = Role.VILLAGER in roles and Role.VILLAGER not in alive
        wolves_won = gods_wiped_out or villagers_wiped_out
    if wolves_won:
        return Result.WOLF
    return Result.GOOD if wolves == 0 else None


def _has_god(roles: Iterable[Role]) -> bool:
    return any(role.is_god for role in roles)


def _announce_deaths(state: GameState) -> None:
    deaths, state.unannounced = state.unannounced, ()
    log(state, EventKind.DEATHS_ANNOUNCED, seats=join(deaths))
    if state.day == 1:
        # A wolf that exploded has no last words.
        state.last_words = tuple(seat for seat in deaths if seat in state.living)
    bury(state, deaths, unable_to_shoot=() if state.night.poisoned is None else (state.night.poisoned,))


def _end(state: GameState, result: Result) -> Phase:
    state.result = result
    state.waiting, state.last_words, state.tied = (), (), ()
    log(state, EventKind.GAME_OVER, result=result.value)
    return Phase.GAME_OVER
