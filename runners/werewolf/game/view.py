"""What one seat may know: a pure function of (state, seat)."""

from runners.werewolf.game.rules import GameState, pending
from runners.werewolf.game.types import Observation, Phase, Side


def observe(state: GameState, seat: int) -> Observation:
    """What ``seat`` may know now; its events are those since it last answered. ValueError for no such seat."""
    if seat not in state.preset.seats:
        raise ValueError(
            f"no seat {seat!r} in preset {state.preset.name!r}, which has seats {list(state.preset.seats)}"
        )
    role = state.role_of(seat)
    # That wolves are talking would tell the others that two or more of them live.
    hidden = state.phase is Phase.WOLF_TALK and role.side is not Side.WOLF
    return Observation(
        seat=seat,
        role=role,
        side=role.side,
        day=state.day,
        phase=Phase.NIGHT_ACTIONS if hidden else state.phase,
        living=tuple(sorted(state.living)),
        events=tuple(event for event in state.events[state.told[seat - 1] :] if event.visible_to(seat)),
        request=next((request for request in pending(state) if request.seat == seat), None),
    )
