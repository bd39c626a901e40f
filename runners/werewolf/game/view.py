"""A seat's view of the game: pure functions of (state, seat).

A seat with a request sees the current state. Other seats see the public view, which does not change while a secret
request is pending by day (e.g. a shot), so that polling does not reveal it.
"""

from runners.werewolf.game.rules import question_to
from runners.werewolf.game.state import GameState, PublicView
from runners.werewolf.game.types import Event, Observation


def observe(state: GameState, seat: int) -> Observation:
    """The view of ``seat``, with events since its last answer. Raises ValueError for an unknown seat."""
    _check_seat(state, seat)
    role, request = state.role_of(seat), question_to(state, seat)
    now = PublicView(state.day, state.phase, state.living, state.sheriff, len(state.events))
    shown = now if request is not None else state.public
    assert shown is not None
    return Observation(
        seat=seat,
        role=role,
        side=role.side,
        day=shown.day,
        phase=shown.phase,
        living=tuple(sorted(shown.living)),
        sheriff=shown.sheriff,
        events=tuple(event for event in state.events[state.seen[seat - 1] : shown.events] if event.visible_to(seat)),
        request=request,
        deck=state.preset.deck,
    )


def known_events(state: GameState, seat: int) -> tuple[Event, ...]:
    """All events visible to ``seat``, from the start. Raises ValueError for an unknown seat."""
    _check_seat(state, seat)
    assert state.public is not None
    until = state.public.events if question_to(state, seat) is None else len(state.events)
    return tuple(event for event in state.events[:until] if event.visible_to(seat))


def _check_seat(state: GameState, seat: int) -> None:
    if seat not in state.preset.seats:
        raise ValueError(
            f"no seat {seat!r} in preset {state.preset.name!r}, which has seats {list(state.preset.seats)}"
        )
