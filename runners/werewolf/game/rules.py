"""The referee: a pure state machine. ``PHASES`` defines entry, requests and resolution of each phase.

``apply`` takes a state and returns a new one. Chance (the deal, ties among wolves, speaking orders) comes
from generators keyed by (seed, purpose, day), so that one draw never shifts another.

A round: night falls -> the wolves talk -> guard, wolves and seer act at once -> the witch -> dawn -> the
sheriff's election (day 1, where there is one) -> deaths announced -> their aftermath -> discussion -> exile
vote (-> PK) -> its aftermath. An explosion ends the day from any speech or vote. The aftermath checks the win.
"""

from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any

from configs.roles_and_decks import deal_roles
from runners.werewolf.game import aftermath, day, election, night
from runners.werewolf.game.decisions import check, make_request
from runners.werewolf.game.presets import Preset
from runners.werewolf.game.roles import CARDS
from runners.werewolf.game.state import (
    Election,
    GameState,
    PublicView,
    drawn_order,
    join,
    log,
    log_speeches,
    with_explosive,
)
from runners.werewolf.game.types import (
    Action,
    Decision,
    EventKind,
    IllegalAction,
    Option,
    Phase,
    Request,
    Result,
    Role,
)


@dataclass(frozen=True, slots=True)
class PhaseRule:
    """How one phase works."""

    # Prepares the state; returns the next phase, or None with the seats to ask in ``waiting``.
    enter: Callable[[GameState], Phase | None]
    # Takes (state with the answered seats removed from ``waiting``, their answers but refusals to explode); returns
    # the next phase, or None to ask the next of ``waiting``.
    resolve: Callable[[GameState, Mapping[int, Action]], Phase | None] | None = None
    # The decision of all seats, or a function of the seat.
    decision: Decision | Callable[[GameState, int], Decision | None] | None = None
    together: bool = False  # whether all waiting seats are asked at once, not one by one
    by_night: bool = False  # whether other seats see only the night
    hidden: bool = False  # whether it is hidden from other seats, since the request itself reveals a role


def _of_those(
    voters: Callable[[GameState], Collection[int]], decision: Decision
) -> Callable[[GameState, int], Decision]:
    """The decision of the seats in ``voters``; other waiting seats are wolves that may explode."""
    return lambda state, seat: decision if seat in voters(state) else Decision.EXPLOSION


def _not_tied(state: GameState) -> Collection[int]:
    return state.voting.difference(state.tied)


def _start_pk_ballot(state: GameState) -> None:
    """Let all seats with a vote except the tied ones vote; wolves among the tied may explode."""
    state.waiting = with_explosive(state, _not_tied(state), among=state.tied)


def _go_on(state: GameState) -> None:
    """Begin a phase for which the previous one has set ``waiting``."""


def _ask_all_living(state: GameState) -> None:
    state.waiting = tuple(sorted(state.living))


def _ask_the_tied(purpose: str) -> Callable[[GameState], None]:
    """Let the tied seats speak, in a drawn order. purpose: key of the draw."""

    def enter(state: GameState) -> None:
        state.waiting = drawn_order(state, state.tied, purpose)

    return enter


def _hear(kind: EventKind, following: Phase) -> Callable[[GameState, Mapping[int, Action]], Phase | None]:
    """Record public speeches; ``following`` is the phase after the last."""

    def resolve(state: GameState, actions: Mapping[int, Action]) -> Phase | None:
        log_speeches(state, kind, actions)
        return None if state.waiting else following

    return resolve


PHASES: Mapping[Phase, PhaseRule] = {
    Phase.NIGHTFALL: PhaseRule(night.fall),
    Phase.WOLF_TALK: PhaseRule(night.start_wolf_talk, night.hear_wolf, Decision.WOLF_TALK, by_night=True),
    Phase.NIGHT_ACTIONS: PhaseRule(
        night.start_night_actions,
        night.take_night_actions,
        lambda state, seat: CARDS[state.role_of(seat)].by_night,
        together=True,
        by_night=True,
    ),
    Phase.WITCH_ACTION: PhaseRule(night.start_witch_action, night.take_witch_action, Decision.WITCH, by_night=True),
    Phase.DAWN: PhaseRule(night.break_day),
    Phase.SIGN_UP: PhaseRule(_ask_all_living, election.take_sign_up, Decision.SIGN_UP, together=True),
    Phase.CAMPAIGN: PhaseRule(election.start_campaign, election.hear_candidate, Decision.CAMPAIGN_SPEECH),
    Phase.WITHDRAWAL: PhaseRule(
        election.start_withdrawal,
        election.take_withdrawals,
        _of_those(election.candidates, Decision.WITHDRAWAL),
        together=True,
    ),
    Phase.SHERIFF_VOTE: PhaseRule(
        election.start_first_ballot,
        election.take_first_ballot,
        _of_those(election.first_voters, Decision.SHERIFF_VOTE),
        together=True,
    ),
    Phase.UNOPPOSED: PhaseRule(
        election.start_unopposed, election.elect_unopposed, Decision.EXPLOSION, together=True, hidden=True
    ),
    Phase.SHERIFF_PK_SPEECH: PhaseRule(
        _ask_the_tied("sheriff_pk_speech"),
        _hear(EventKind.SHERIFF_PK_SPEECH, Phase.SHERIFF_PK_VOTE),
        Decision.SHERIFF_PK_SPEECH,
    ),
    Phase.SHERIFF_PK_VOTE: PhaseRule(
        _start_pk_ballot, election.take_second_ballot, _of_those(_not_tied, Decision.SHERIFF_PK_VOTE), together=True
    ),
    Phase.ANNOUNCEMENT: PhaseRule(aftermath.announce),
    Phase.AFTERMATH: PhaseRule(aftermath.settle),
    Phase.LAST_WORDS: PhaseRule(_go_on, _hear(EventKind.LAST_WORDS, Phase.AFTERMATH), Decision.LAST_WORDS),
    Phase.SHOT: PhaseRule(
        _go_on,
        aftermath.take_shot,
        lambda state, seat: Decision.TAKE if state.role_of(seat) is Role.WHITE_WOLF_KING else Decision.SHOT,
        hidden=True,
    ),
    Phase.BADGE: PhaseRule(_go_on, aftermath.take_badge, Decision.BADGE),
    Phase.SPEAKING_ORDER: PhaseRule(day.start_speaking_order, day.take_speaking_order, Decision.SPEAKING_ORDER),
    Phase.DISCUSSION: PhaseRule(
        _go_on,
        day.hear_speech,
        lambda state, seat: Decision.CLOSING_SPEECH if seat == state.sheriff else Decision.SPEECH,
    ),
    Phase.DUEL: PhaseRule(day.start_duel, day.take_duel, Decision.DUEL, hidden=True),
    Phase.EXILE_VOTE: PhaseRule(day.start_exile_vote, day.take_exile_vote, Decision.EXILE_VOTE, together=True),
    Phase.PK_SPEECH: PhaseRule(
        _ask_the_tied("pk_speech"), _hear(EventKind.PK_SPEECH, Phase.PK_VOTE), Decision.PK_SPEECH
    ),
    Phase.PK_VOTE: PhaseRule(_start_pk_ballot, day.take_pk_vote, _of_those(_not_tied, Decision.PK_VOTE), together=True),
    Phase.GAME_OVER: PhaseRule(_go_on),
}


def new_game(preset: Preset, seed: int, roles: tuple[Role, ...] | None = None) -> GameState:
    """A game at its first request.

    roles: replaces the seeded deal; raises ValueError unless it deals exactly the preset's deck.
    """
    if roles is None:
        roles = deal_roles(preset.deck, seed)
    elif Counter(roles) != Counter(preset.deck):
        raise ValueError(f"roles {[*roles]} do not deal the deck of preset {preset.name!r}: {[*preset.deck]}")
    state = GameState(
        preset=preset,
        seed=seed,
        roles=roles,
        living=frozenset(preset.seats),
        seen=(0,) * len(roles),
        election=Election() if preset.sheriff else None,
    )
    log(state, EventKind.GAME_START, seats=str(len(roles)))
    for seat, role in zip(preset.seats, roles, strict=True):
        log(state, EventKind.ROLE_DEALT, audience=(seat,), seat=seat, role=role.value)
    wolves = state.living_wolves
    special = sorted({state.role_of(seat) for seat in wolves} - {Role.WOLF})
    named: dict[str, Any] = {role.value: join(state.living_with(role)) for role in special}
    log(state, EventKind.WOLF_TEAM, audience=wolves, seats=join(wolves), **named)
    _enter(state, Phase.NIGHTFALL)
    return state


def pending(state: GameState) -> tuple[Request, ...]:
    """All pending requests, in seat or speaking order; empty iff the game is over."""
    return tuple(_question(state, seat) for seat in asked(state))


def question_to(state: GameState, seat: int) -> Request | None:
    """The pending request of ``seat``, or None."""
    return _question(state, seat) if seat in asked(state) else None


def apply(state: GameState, actions: Mapping[int, Action]) -> GameState:
    """The state after all pending requests are answered; ``state`` does not change.

    actions: seat -> answer, for exactly the seats of ``pending(state)``. Raises IllegalAction for a missing or
    additional seat, an illegal answer, and a game that is over.
    """
    requests = pending(state)
    if not requests:
        raise IllegalAction(f"the game is over ({state.result}); no seat may act, got actions of {sorted(actions)}")
    seats = [request.seat for request in requests]
    if set(seats) != actions.keys():
        raise IllegalAction(
            f"actions must come from exactly the seats {seats} ({state.phase.value}, day {state.day}); "
            f"missing: {sorted(set(seats) - actions.keys())}, additional: {sorted(actions.keys() - set(seats))}"
        )
    for request in requests:
        check(request, actions[request.seat])
    seen = list(state.seen)
    for seat in seats:
        seen[seat - 1] = len(state.events)
    state = replace(state, seen=tuple(seen), waiting=state.waiting[len(requests) :])
    # In the order of requests, not of the mapping.
    answers = {seat: actions[seat] for seat in seats}
    if any(action.choice is Option.EXPLODE for action in answers.values()):
        following = aftermath.explode(state, answers)
    else:
        resolve = PHASES[state.phase].resolve
        assert resolve is not None
        refusing = {request.seat for request in requests if request.decision is Decision.EXPLOSION}
        following = resolve(state, {seat: answers[seat] for seat in seats if seat not in refusing})
    _enter(state, following)
    return state


def winner(state: GameState) -> Result | None:
    """The result; None while the game is running."""
    return state.result


def asked(state: GameState) -> tuple[int, ...]:
    """The seats of ``pending``, without making their requests."""
    return state.waiting if PHASES[state.phase].together else state.waiting[:1]


def _question(state: GameState, seat: int) -> Request:
    decision = PHASES[state.phase].decision
    if callable(decision):
        decision = decision(state, seat)
    assert decision is not None
    return make_request(state, seat, decision)


def _enter(state: GameState, phase: Phase | None) -> None:
    """Enter phases until there are requests or the game is over."""
    while phase is not None:
        state.phase = phase
        phase = PHASES[phase].enter(state)
    rule = PHASES[state.phase]
    if not rule.hidden:
        shown = Phase.NIGHTFALL if rule.by_night else state.phase
        state.public = PublicView(state.day, shown, state.living, state.sheriff, len(state.events))
