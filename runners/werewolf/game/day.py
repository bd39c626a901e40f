"""The day after the aftermath: speaking order, discussion, exile vote and its PK."""

from collections.abc import Mapping

from runners.werewolf.game.aftermath import exile
from runners.werewolf.game.state import GameState, bury, count_ballot, drawn_order, join, log
from runners.werewolf.game.types import Action, EventKind, Option, Phase, Role, Side


def start_speaking_order(state: GameState) -> Phase | None:
    """The sheriff picks the order; without one it is drawn."""
    if state.sheriff is not None:
        state.waiting = (state.sheriff,)
        return None
    return _announce_order(state, drawn_order(state, tuple(sorted(state.living)), "discussion"), None)


def order_options(state: GameState) -> tuple[Option, ...]:
    """死左 and 死右 after a single death in the night, else 警左 and 警右."""
    if len(state.night.deaths) == 1:
        return (Option.DEAD_LEFT, Option.DEAD_RIGHT)
    return (Option.SHERIFF_LEFT, Option.SHERIFF_RIGHT)


def take_speaking_order(state: GameState, actions: Mapping[int, Action]) -> Phase:
    """Round the table from the chosen side, the sheriff last (归票)."""
    assert state.sheriff is not None
    way = actions[state.sheriff].choice
    assert isinstance(way, Option)
    start = state.night.deaths[0] if way in (Option.DEAD_LEFT, Option.DEAD_RIGHT) else state.sheriff
    rising = way in (Option.DEAD_LEFT, Option.SHERIFF_LEFT)
    total = len(state.roles)
    round_the_table = ((start - 1 + (step if rising else -step)) % total + 1 for step in range(1, total + 1))
    others = tuple(seat for seat in round_the_table if seat in state.living and seat != state.sheriff)
    return _announce_order(state, (*others, state.sheriff), way)


def hear_speech(state: GameState, actions: Mapping[int, Action]) -> Phase | None:
    """Record the speech of one seat; the sheriff, the last speaker, also names its exile target."""
    for seat, action in actions.items():
        if seat == state.sheriff:
            log(state, EventKind.CLOSING_SPEECH, seat=seat, text=action.text, target=action.seat)
        else:
            log(state, EventKind.SPEECH, seat=seat, text=action.text)
    return None if state.waiting else Phase.DUEL


def start_duel(state: GameState) -> Phase | None:
    """Ask a knight that has not fought yet."""
    fought = {event.seat for event in state.events if event.kind is EventKind.DUEL}
    state.waiting = tuple(seat for seat in state.living_with(Role.KNIGHT) if seat not in fought)
    return None if state.waiting else Phase.EXILE_VOTE


def take_duel(state: GameState, actions: Mapping[int, Action]) -> Phase:
    """A wolf that is challenged dies, and the day ends; otherwise the knight dies, and all vote."""
    ((knight, action),) = actions.items()
    if action.seat is None:
        return Phase.EXILE_VOTE
    side = state.role_of(action.seat).side
    dead = action.seat if side is Side.WOLF else knight
    log(state, EventKind.DUEL, seat=knight, target=action.seat, role=Role.KNIGHT.value, side=side.value, dead=str(dead))
    bury(state, (dead,), unable_to_shoot=(dead,))
    state.resume = Phase.NIGHTFALL if side is Side.WOLF else Phase.EXILE_VOTE
    return Phase.AFTERMATH


def start_exile_vote(state: GameState) -> Phase | None:
    """Let all seats vote except 白痴 that showed their card; skip the vote without targets."""
    if len(state.voting) < 2:
        return exile(state, None)
    state.waiting = tuple(sorted(state.voting))
    return None


def take_exile_vote(state: GameState, actions: Mapping[int, Action]) -> Phase:
    """Exile the seat with the most votes, put the tied on the PK stage, or exile nobody."""
    most = count_ballot(state, EventKind.VOTE, actions)
    if len(most) == 1:
        return exile(state, most[0])
    if not most or state.voting == set(most):  # a PK would have no voters
        return exile(state, None)
    state.tied = most
    return Phase.PK_SPEECH


def take_pk_vote(state: GameState, actions: Mapping[int, Action]) -> Phase:
    """Exile the seat with the most votes; a second tie exiles nobody."""
    most = count_ballot(state, EventKind.VOTE, actions)
    return exile(state, most[0] if len(most) == 1 else None)


def _announce_order(state: GameState, order: tuple[int, ...], way: Option | None) -> Phase:
    log(state, EventKind.SPEAKING_ORDER, seat=state.sheriff, way=way or "", seats=join(order))
    state.waiting = order
    return Phase.DISCUSSION
