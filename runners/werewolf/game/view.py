"""What one seat may know: a pure function of (state, seat)."""

from runners.werewolf.game.rules import PHASES, GameState, question_to
from runners.werewolf.game.types import Observation, Phase


def observe(state: GameState, seat: int) -> Observation:
    """What ``seat`` may know now; its events are those since it last answered. ValueError for no such seat."""
    if seat not in state.preset.seats:
        raise ValueError(
            f"no seat {seat!r} in preset {state.preset.name!r}, which has seats {list(state.preset.seats)}"
        )
    role = state.role_of(seat)
    request = question_to(state, seat)
    return Observation(
        seat=seat,
        role=role,
        side=role.side,
        day=state.day,
        phase=state.phase if request is not None else _public_phase(state),
        living=tuple(sorted(state.living)),
        sheriff=state.sheriff,
        events=tuple(event for event in state.events[state.told[seat - 1] :] if event.visible_to(seat)),
        request=request,
        deck=state.preset.deck,
    )


def _public_phase(state: GameState) -> Phase:
    """The phase as a seat sees it that is not asked: by night, and when somebody may shoot, it only sees that much."""
    if not PHASES[state.phase].secret:
        return state.phase
    return Phase.AFTERMATH if state.phase is Phase.SHOT else Phase.NIGHTFALL
