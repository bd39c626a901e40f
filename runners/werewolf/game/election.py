"""The sheriff's election (警长竞选). It precedes the announcement of the night's deaths, so the dead take part.

All sign up at once; candidates speak in a drawn order and may withdraw with their speech, and once more, all at once,
after the last speech; then the seats that never signed up vote. A tie leads to PK speeches and a second ballot of all
living seats not on the PK stage; a second tie loses the badge. After an explosion the election is held the next day as
a plain vote without speeches; a second explosion swallows the badge (``aftermath.explode``).

A seat that may explode gets the offer once more before a ballot and before the election of a lone candidate: with its
vote or with the offer to withdraw, otherwise by a request of its own in the same round.
"""

from collections.abc import Mapping
from dataclasses import replace

from runners.werewolf.game.state import (
    Election,
    GameState,
    count_ballot,
    drawn_order,
    join,
    log,
    log_speeches,
    lose_badge,
    with_explosive,
)
from runners.werewolf.game.types import Action, BadgeLost, EventKind, Option, Phase


def candidates(state: GameState) -> tuple[int, ...]:
    """Living seats that run and have not withdrawn, ascending; empty without an election."""
    if state.election is None:
        return ()
    return tuple(seat for seat in state.election.signed_up if seat in state.living - state.election.withdrawn)


def take_sign_up(state: GameState, actions: Mapping[int, Action]) -> Phase:
    """Reveal who runs."""
    signed_up = tuple(seat for seat in sorted(actions) if actions[seat].choice is Option.RUN)
    state.election = replace(_running(state), signed_up=signed_up)
    log(state, EventKind.SIGNED_UP, seats=join(signed_up))
    return Phase.CAMPAIGN


def start_campaign(state: GameState) -> Phase | None:
    """Candidates speak in a drawn order."""
    running = candidates(state)
    if not running:
        lose_badge(state, BadgeLost.NOBODY_RUNS)
        return Phase.ANNOUNCEMENT
    state.waiting = drawn_order(state, running, "campaign")
    return None


def hear_candidate(state: GameState, actions: Mapping[int, Action]) -> Phase | None:
    """Record a speech and whether the candidate withdraws (退水)."""
    log_speeches(state, EventKind.CAMPAIGN_SPEECH, actions)
    _withdraw(state, actions)
    return None if state.waiting else Phase.WITHDRAWAL


def start_withdrawal(state: GameState) -> Phase | None:
    """Ask all candidates at once, after their speeches, whether they withdraw."""
    running = candidates(state)
    if not running:
        return Phase.SHERIFF_VOTE
    # A wolf that withdrew with its speech has no vote, either.
    state.waiting = with_explosive(state, running, among=_running(state).signed_up)
    return None


def take_withdrawals(state: GameState, actions: Mapping[int, Action]) -> Phase:
    """Reveal together who withdraws."""
    _withdraw(state, actions)
    return Phase.SHERIFF_VOTE


def start_first_ballot(state: GameState) -> Phase | None:
    """Let the seats that never signed up vote; skip the vote if the outcome is clear."""
    running = candidates(state)
    if not running:
        lose_badge(state, BadgeLost.NOBODY_RUNS)
        return Phase.ANNOUNCEMENT
    if len(running) == 1:
        return Phase.UNOPPOSED
    voters = first_voters(state)
    if not voters:
        lose_badge(state, BadgeLost.NO_VOTERS)
        return Phase.ANNOUNCEMENT
    state.waiting = with_explosive(state, voters, among=_not_asked_to_withdraw(state))
    return None


def start_unopposed(state: GameState) -> Phase | None:
    """Offer an explosion once more before a lone candidate is elected."""
    state.waiting = with_explosive(state, (), among=_not_asked_to_withdraw(state))
    return None if state.waiting else elect_unopposed(state, {})


def elect_unopposed(state: GameState, actions: Mapping[int, Action]) -> Phase:
    """Elect the lone candidate after a round without an explosion."""
    return _elect(state, *candidates(state))


def take_first_ballot(state: GameState, actions: Mapping[int, Action]) -> Phase:
    """Elect the seat with the most votes, or put the tied seats on the PK stage."""
    most = count_ballot(state, EventKind.SHERIFF_VOTE, actions)
    if len(most) < 2:
        return _conclude(state, most)
    state.tied = most
    # A put-off election is a plain vote without speeches, the second ballot included.
    return Phase.SHERIFF_PK_VOTE if _running(state).put_off else Phase.SHERIFF_PK_SPEECH


def take_second_ballot(state: GameState, actions: Mapping[int, Action]) -> Phase:
    """Elect the seat with the most votes; a tie loses the badge."""
    return _conclude(state, count_ballot(state, EventKind.SHERIFF_VOTE, actions))


def _running(state: GameState) -> Election:
    assert state.election is not None
    return state.election


def first_voters(state: GameState) -> frozenset[int]:
    """Living seats that never signed up."""
    return state.living.difference(_running(state).signed_up)


def _not_asked_to_withdraw(state: GameState) -> frozenset[int]:
    """Seats outside this day's round of withdrawals; all seats before a put-off vote, which has no round."""
    return state.living if _running(state).put_off else first_voters(state)


def _withdraw(state: GameState, actions: Mapping[int, Action]) -> None:
    for seat, action in actions.items():
        if action.choice is Option.WITHDRAW:
            state.election = replace(_running(state), withdrawn=_running(state).withdrawn | {seat})
            log(state, EventKind.WITHDREW, seat=seat)


def _conclude(state: GameState, most: tuple[int, ...]) -> Phase:
    if len(most) == 1:
        return _elect(state, most[0])
    lose_badge(state, BadgeLost.TIED_TWICE if most else BadgeLost.NO_VOTES)
    state.tied = ()
    return Phase.ANNOUNCEMENT


def _elect(state: GameState, seat: int) -> Phase:
    state.sheriff, state.election, state.tied = seat, None, ()
    log(state, EventKind.SHERIFF_ELECTED, target=seat)
    return Phase.ANNOUNCEMENT
