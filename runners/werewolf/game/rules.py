"""The referee: a pure state machine over frozen data.

``PHASES`` says how each phase asks and what its answers do; ``DECISIONS`` says what may be answered.
Every function takes a state and returns a new one. Chance (the deal, ties among wolves, speaking
orders) comes from generators keyed by (seed, purpose, day), so that one draw never shifts another.

Order of a round: night falls -> the wolves talk (two or more living) -> wolves and seer act at once ->
deaths announced -> last words (first night only) -> discussion -> exile vote (-> PK) -> last words.
The win is checked after the announced deaths and after the exile. A decided game ends there: its dead
get no last words. When both sides' conditions hold after one resolution the wolves have won (狼刀在先).
"""

import random
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from runners.werewolf.game.presets import Preset, WinRule
from runners.werewolf.game.types import (
    Action,
    Decision,
    Event,
    EventKind,
    IllegalAction,
    Phase,
    Request,
    Result,
    Role,
    Side,
)


@dataclass(frozen=True, slots=True)
class GameState:
    """Everything about one game; players never see it, only ``view.observe`` of it.

    roles: role of each seat; seat N's is ``roles[N - 1]`` (``role_of`` looks it up).
    day: number of the current night or day, from 1.
    living: seats alive.
    waiting: seats still to be asked in this phase, in the order in which they are asked.
    tied: seats on the PK stage; empty outside a PK.
    resume: what follows the last words: DISCUSSION on the same day, or the next night (WOLF_TALK);
        meaningless in other phases.
    events: everything that happened, oldest first.
    told: for each seat, how many of ``events`` lay before it when it last answered (0 before its first turn).
    result: None while the game goes on.
    """

    preset: Preset
    seed: int
    roles: tuple[Role, ...]
    day: int
    phase: Phase
    living: frozenset[int]
    waiting: tuple[int, ...]
    tied: tuple[int, ...]
    resume: Phase
    events: tuple[Event, ...]
    told: tuple[int, ...]
    result: Result | None

    def role_of(self, seat: int) -> Role:
        """The role dealt to ``seat``."""
        return self.roles[seat - 1]

    @property
    def living_wolves(self) -> tuple[int, ...]:
        """Living seats of the wolves' side, ascending."""
        return tuple(seat for seat in sorted(self.living) if self.role_of(seat).side is Side.WOLF)


def deal(preset: Preset, seed: int) -> tuple[Role, ...]:
    """The roles of seats 1..n under ``seed``."""
    roles = list(preset.deck)
    _generator(seed, "deal", 0).shuffle(roles)
    return tuple(roles)


def new_game(preset: Preset, seed: int, roles: tuple[Role, ...] | None = None) -> GameState:
    """A game at its first question.

    roles: a deal to play instead of the seeded one; ValueError unless it deals exactly the preset's deck.
    """
    if roles is None:
        roles = deal(preset, seed)
    elif Counter(roles) != Counter(preset.deck):
        raise ValueError(f"roles {[*roles]} do not deal the deck of preset {preset.name!r}: {[*preset.deck]}")
    state = GameState(
        preset=preset,
        seed=seed,
        roles=roles,
        day=0,
        phase=Phase.NIGHT_ACTIONS,
        living=frozenset(preset.seats),
        waiting=(),
        tied=(),
        resume=Phase.NIGHT_ACTIONS,
        events=(),
        told=(0,) * len(roles),
        result=None,
    )
    state = _log(state, EventKind.GAME_START, data={"seats": str(len(roles))})
    for seat in preset.seats:
        state = _log(state, EventKind.ROLE_DEALT, audience={seat}, seat=seat, data={"role": state.role_of(seat).value})
    wolves = state.living_wolves
    state = _log(state, EventKind.WOLF_TEAM, audience=wolves, data={"seats": _join(wolves)})
    return _start_night(state)


def pending(state: GameState) -> tuple[Request, ...]:
    """Every question that can be put right now, in seat or speaking order; empty iff the game is over."""
    if state.result is not None:
        return ()
    asked = state.waiting if PHASES[state.phase].together else state.waiting[:1]
    return tuple(_request(state, seat) for seat in asked)


def choices(request: Request) -> tuple[int | None, ...]:
    """Every target that is legal, ascending, then None where choosing nobody is legal."""
    return (*request.targets, None) if request.may_pass else request.targets


def legal(request: Request, action: Action) -> bool:
    """Whether ``action`` answers ``request`` within the rules."""
    return action.target in choices(request) and (request.speaks or not action.text)


def check(request: Request, action: Action) -> None:
    """Raise IllegalAction, naming the seat, the action and what is legal, unless ``action`` is legal."""
    if not legal(request, action):
        speech = "speech allowed" if request.speaks else "no speech"
        raise IllegalAction(
            f"seat {request.seat} may not answer {request.decision.value} with {action}; "
            f"legal targets: {list(choices(request))}, {speech}"
        )


def apply(state: GameState, actions: Mapping[int, Action]) -> GameState:
    """The game after every pending request was answered.

    actions: seat -> answer, for exactly the seats of ``pending(state)``. Raises IllegalAction when a seat is
    missing, was not asked, or answers against the rules, and when the game is over.
    """
    requests = pending(state)
    if not requests:
        raise IllegalAction(f"the game is over ({state.result}); no seat may act, got actions of {sorted(actions)}")
    asked = {request.seat for request in requests}
    if asked != actions.keys():
        raise IllegalAction(
            f"actions must come from exactly the asked seats {sorted(asked)} ({state.phase.value}, day {state.day}); "
            f"missing: {sorted(asked - actions.keys())}, not asked: {sorted(actions.keys() - asked)}"
        )
    for request in requests:
        check(request, actions[request.seat])
    told = tuple(
        len(state.events) if seat in asked else count
        for seat, count in zip(state.preset.seats, state.told, strict=True)
    )
    state = replace(state, told=told, waiting=state.waiting[len(requests) :])
    return PHASES[state.phase].resolve(state, actions)


def winner(state: GameState) -> Result | None:
    """How the game ended; None while it goes on."""
    return state.result


def outcome(win_rule: WinRule, dealt: tuple[Role, ...], living: tuple[Role, ...]) -> Result | None:
    """Who has won with these roles living; None when nobody has. The wolves' condition is looked at first.

    Under 屠边 only kinds that were dealt can be wiped out. Parity needs a living wolf.
    """
    wolves = sum(role.side is Side.WOLF for role in living)
    if win_rule is WinRule.PARITY:
        wolves_won = wolves > 0 and wolves >= len(living) - wolves
    else:
        wolves_won = any(
            any(kind(role) for role in dealt) and not any(kind(role) for role in living)
            for kind in (lambda role: role.is_god, lambda role: role is Role.VILLAGER)
        )
    if wolves_won:
        return Result.WOLF
    return Result.GOOD if wolves == 0 else None


# --- what may be answered -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class DecisionRule:
    """What one kind of question allows. A speech-only decision has no targets and may always pass."""

    targets: Callable[[GameState, int], tuple[int, ...]]
    may_pass: Callable[[Preset], bool]
    speaks: bool


def _other_living(state: GameState, seat: int) -> tuple[int, ...]:
    return tuple(sorted(state.living - {seat}))


def _prey(state: GameState, seat: int) -> tuple[int, ...]:
    spared = () if state.preset.wolves_may_hit_wolves else state.living_wolves
    return tuple(sorted(state.living.difference(spared)))


_SPEECH_ONLY = DecisionRule(targets=lambda state, seat: (), may_pass=lambda preset: True, speaks=True)
_VOTE_OPTIONAL: Callable[[Preset], bool] = lambda preset: preset.may_abstain  # noqa: E731 (a cell of the table)

DECISIONS: Mapping[Decision, DecisionRule] = {
    Decision.WOLF_TALK: _SPEECH_ONLY,
    Decision.WOLF_KILL: DecisionRule(_prey, lambda preset: preset.wolves_may_pass, speaks=False),
    Decision.SEER_CHECK: DecisionRule(_other_living, lambda preset: True, speaks=False),
    Decision.SPEECH: _SPEECH_ONLY,
    Decision.EXILE_VOTE: DecisionRule(_other_living, _VOTE_OPTIONAL, speaks=False),
    Decision.PK_SPEECH: _SPEECH_ONLY,
    Decision.PK_VOTE: DecisionRule(lambda state, seat: state.tied, _VOTE_OPTIONAL, speaks=False),
    Decision.LAST_WORDS: _SPEECH_ONLY,
}

NIGHT_DECISIONS: Mapping[Role, Decision] = {
    Role.WOLF: Decision.WOLF_KILL,
    Role.SEER: Decision.SEER_CHECK,
}
"""What each role is asked in NIGHT_ACTIONS; the others sleep."""


def _request(state: GameState, seat: int) -> Request:
    decision = PHASES[state.phase].decision or NIGHT_DECISIONS[state.role_of(seat)]
    rule = DECISIONS[decision]
    targets, may_pass = rule.targets(state, seat), rule.may_pass(state.preset)
    return Request(
        seat=seat,
        decision=decision,
        day=state.day,
        phase=state.phase,
        targets=targets,
        may_pass=may_pass,
        speaks=rule.speaks,
        default=Action() if may_pass else Action(target=targets[0]),
    )


# --- night ----------------------------------------------------------------------------------------------------------


def _start_night(state: GameState) -> GameState:
    state = replace(state, day=state.day + 1, tied=())
    state = _log(state, EventKind.NIGHT_FALLS)
    wolves = state.living_wolves
    if len(wolves) < 2 or not state.preset.wolf_talk_rounds:
        return _start_night_actions(state)
    order = _speaking_order(state, wolves, "wolf_talk")
    return replace(state, phase=Phase.WOLF_TALK, waiting=order * state.preset.wolf_talk_rounds)


def _resolve_wolf_talk(state: GameState, actions: Mapping[int, Action]) -> GameState:
    for seat, action in actions.items():
        state = _log(state, EventKind.WOLF_SAYS, audience=state.living_wolves, seat=seat, text=action.text)
    return state if state.waiting else _start_night_actions(state)


def _start_night_actions(state: GameState) -> GameState:
    awake = tuple(seat for seat in sorted(state.living) if state.role_of(seat) in NIGHT_DECISIONS)
    return replace(state, phase=Phase.NIGHT_ACTIONS, waiting=awake)


def _resolve_night_actions(state: GameState, actions: Mapping[int, Action]) -> GameState:
    wolves = state.living_wolves
    for seat in wolves:
        state = _log(state, EventKind.WOLF_VOTE, audience=wolves, seat=seat, target=actions[seat].target)
    # 空刀 is an option like any seat. Tied options are put in one fixed order before the draw.
    leaders = _leaders([actions[seat].target for seat in wolves])
    victim = _generator(state.seed, "wolf_tie", state.day).choice(leaders)
    state = _log(state, EventKind.WOLF_TARGET, audience=wolves, target=victim)
    for seat in sorted(actions.keys() - set(wolves)):
        target = actions[seat].target
        if target is not None:
            side = state.role_of(target).side.value
            state = _log(state, EventKind.SEER_RESULT, audience={seat}, seat=seat, target=target, data={"side": side})
    return _break_day(state, () if victim is None else (victim,))


def _break_day(state: GameState, deaths: tuple[int, ...]) -> GameState:
    state = _log(state, EventKind.DAY_BREAKS)
    state = replace(state, living=state.living.difference(deaths))
    state = _log(state, EventKind.DEATHS_ANNOUNCED, data={"seats": _join(deaths)})
    state = _judge(state)
    if state.result is not None:
        return state
    if deaths and state.day == 1:
        return replace(state, phase=Phase.LAST_WORDS, waiting=deaths, resume=Phase.DISCUSSION)
    return _start_discussion(state)


# --- day ------------------------------------------------------------------------------------------------------------


def _start_discussion(state: GameState) -> GameState:
    return replace(
        state, phase=Phase.DISCUSSION, waiting=_speaking_order(state, tuple(sorted(state.living)), "discussion")
    )


def _resolve_discussion(state: GameState, actions: Mapping[int, Action]) -> GameState:
    state = _log_speech(state, EventKind.SPEECH, actions)
    return state if state.waiting else replace(state, phase=Phase.EXILE_VOTE, waiting=tuple(sorted(state.living)))


def _resolve_exile_vote(state: GameState, actions: Mapping[int, Action]) -> GameState:
    state, leaders = _count_ballot(state, actions)
    if len(leaders) == 1:
        return _exile(state, leaders[0])
    if not leaders:
        return _exile_nobody(state)
    state = _log(state, EventKind.VOTE_TIED, data={"seats": _join(leaders)})
    if state.living == set(leaders):  # Nobody is left to vote in a PK.
        return _exile_nobody(state)
    return replace(state, phase=Phase.PK_SPEECH, tied=leaders, waiting=_speaking_order(state, leaders, "pk_speech"))


def _resolve_pk_speech(state: GameState, actions: Mapping[int, Action]) -> GameState:
    state = _log_speech(state, EventKind.PK_SPEECH, actions)
    if state.waiting:
        return state
    return replace(state, phase=Phase.PK_VOTE, waiting=tuple(sorted(state.living.difference(state.tied))))


def _resolve_pk_vote(state: GameState, actions: Mapping[int, Action]) -> GameState:
    state, leaders = _count_ballot(state, actions)
    if len(leaders) == 1:
        return _exile(state, leaders[0])
    if leaders:
        state = _log(state, EventKind.VOTE_TIED, data={"seats": _join(leaders)})
    return _exile_nobody(state)


def _exile(state: GameState, seat: int) -> GameState:
    state = _log(state, EventKind.EXILED, target=seat)
    state = _judge(replace(state, living=state.living - {seat}, tied=()), last_of_day=True)
    if state.result is not None:
        return state
    return replace(state, phase=Phase.LAST_WORDS, waiting=(seat,), resume=Phase.WOLF_TALK)


def _exile_nobody(state: GameState) -> GameState:
    state = _judge(_log(state, EventKind.NOBODY_EXILED), last_of_day=True)
    return state if state.result is not None else _start_night(state)


def _resolve_last_words(state: GameState, actions: Mapping[int, Action]) -> GameState:
    state = _log_speech(state, EventKind.LAST_WORDS, actions)
    if state.waiting:
        return state
    return _start_discussion(state) if state.resume is Phase.DISCUSSION else _start_night(state)


def _judge(state: GameState, last_of_day: bool = False) -> GameState:
    """End the game if somebody has won, or if its last day is over."""
    result = outcome(state.preset.win_rule, state.roles, tuple(state.role_of(seat) for seat in state.living))
    if result is None and last_of_day and state.day >= state.preset.round_limit:
        result = Result.DRAW
    if result is None:
        return state
    state = _log(state, EventKind.GAME_OVER, data={"result": result.value})
    return replace(state, phase=Phase.GAME_OVER, waiting=(), tied=(), result=result)


# --- the table of phases ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PhaseRule:
    """How a phase asks and what its answers do.

    together: whether all waiting seats are asked at once; otherwise one after the other.
    decision: what a waiting seat is asked; None when its role decides (``NIGHT_DECISIONS``).
    resolve: (state without the seats that answered in ``waiting``, their answers) -> the next state.
    """

    together: bool
    decision: Decision | None
    resolve: Callable[[GameState, Mapping[int, Action]], GameState]


PHASES: Mapping[Phase, PhaseRule] = {
    Phase.WOLF_TALK: PhaseRule(False, Decision.WOLF_TALK, _resolve_wolf_talk),
    Phase.NIGHT_ACTIONS: PhaseRule(True, None, _resolve_night_actions),
    Phase.DISCUSSION: PhaseRule(False, Decision.SPEECH, _resolve_discussion),
    Phase.EXILE_VOTE: PhaseRule(True, Decision.EXILE_VOTE, _resolve_exile_vote),
    Phase.PK_SPEECH: PhaseRule(False, Decision.PK_SPEECH, _resolve_pk_speech),
    Phase.PK_VOTE: PhaseRule(True, Decision.PK_VOTE, _resolve_pk_vote),
    Phase.LAST_WORDS: PhaseRule(False, Decision.LAST_WORDS, _resolve_last_words),
}


# --- helpers --------------------------------------------------------------------------------------------------------


def _generator(seed: int, purpose: str, day: int) -> random.Random:
    # Seeding by text hashes it with SHA-512: the same on every machine, and keys never collide.
    return random.Random(f"{seed}/{purpose}/{day}")


def _speaking_order(state: GameState, seats: tuple[int, ...], purpose: str) -> tuple[int, ...]:
    """``seats`` (ascending) round the table from a drawn seat, in a drawn direction."""
    generator = _generator(state.seed, purpose, state.day)
    start = generator.randrange(len(seats))
    order = seats[start:] + seats[:start]
    return order if generator.random() < 0.5 else order[:1] + order[:0:-1]


def _leaders(votes: list[int | None]) -> tuple[int | None, ...]:
    """The options with the most votes, seats ascending, then None; empty without votes."""
    counts = Counter(votes)
    most = max(counts.values(), default=0)
    return tuple(sorted((option for option in counts if counts[option] == most), key=lambda o: (o is None, o or 0)))


def _count_ballot(state: GameState, actions: Mapping[int, Action]) -> tuple[GameState, tuple[int, ...]]:
    """Reveal all votes together; the second value holds the seats with the most, empty if all abstained."""
    for seat in sorted(actions):
        state = _log(state, EventKind.VOTE, seat=seat, target=actions[seat].target)
    return state, _leaders([action.target for action in actions.values() if action.target is not None])


def _log_speech(state: GameState, kind: EventKind, actions: Mapping[int, Action]) -> GameState:
    for seat, action in actions.items():
        state = _log(state, kind, seat=seat, text=action.text)
    return state


def _log(
    state: GameState,
    kind: EventKind,
    *,
    audience: tuple[int, ...] | set[int] | None = None,
    seat: int | None = None,
    target: int | None = None,
    text: str = "",
    data: Mapping[str, str] | None = None,
) -> GameState:
    event = Event(
        kind=kind,
        # What happens before the first night belongs to it.
        day=max(state.day, 1),
        audience=None if audience is None else frozenset(audience),
        seat=seat,
        target=target,
        text=text,
        data=data or {},
    )
    return replace(state, events=(*state.events, event))


def _join(seats: tuple[int, ...]) -> str:
    return ",".join(str(seat) for seat in seats)
