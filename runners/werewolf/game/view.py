"""What one seat may know: pure functions of (state, seat).

A seat that is asked sees the table as it stands. Whoever is not asked sees what is public: while somebody is asked in
secret by day (to shoot, say), that is the table as it stood before, so that not even a caller who looks all the time
learns that there is somebody to ask.
"""

from runners.werewolf.game.rules import question_to
from runners.werewolf.game.state import GameState, PublicView
from runners.werewolf.game.types import Event, Observation


def observe(state: GameState, seat: int) -> Observation:
    """What ``seat`` may know now; its events are those since it last answered. ValueError for no such seat."""
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
        events=tuple(event for event in state.events[state.told[seat - 1] : shown.events] if event.visible_to(seat)),
        request=request,
        deck=state.preset.deck,
    )


def known_events(state: GameState, seat: int) -> tuple[Event, ...]:
    """All that ``seat`` may know of what happened, from the start of the game on. ValueError for no such seat."""
    _check_seat(state, seat)
    assert state.public is not None
    until = state.public.events if question_to(state, seat) is None else len(state.events)
    return tuple(event for event in state.events[:until] if event.visible_to(seat))


def _check_seat(state: GameState, seat: int) -> None:
    if seat not in state.preset.seats:
        raise ValueError(
            f"no seat {seat!r} in preset {state.preset.name!r}, which has seats {list(state.preset.seats)}"
        )
