"""What must hold after every step of every game, whoever plays. Cheap, since endurance runs check every step.

``check_invariants`` looks at one step: who is asked what, whether the answers are recorded, who may still shoot, and
what each seat sees; ``game_record`` at a whole game, by replaying its events as a second referee that knows no engine.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping

from runners.werewolf.game import (
    Action,
    Decision,
    Event,
    EventKind,
    GameState,
    Option,
    Phase,
    Request,
    Role,
    Side,
    Unsaved,
    choices,
    known_events,
    legal,
    observe,
    pending,
    winner,
)
from tests.support.game.game_record import who_has_won

AFTER_DEATH = {Decision.LAST_WORDS, Decision.SHOT, Decision.TAKE, Decision.BADGE}
BY_DAY = set(Decision) - {
    *(Decision.WOLF_TALK, Decision.GUARD, Decision.WOLF_KILL, Decision.SEER_CHECK, Decision.WITCH),
    *(Decision.SIGN_UP, Decision.SPEAKING_ORDER, Decision.DUEL, *AFTER_DEATH),
}
"""Decisions on which an explosion may ride."""


def _last(state: GameState, kind: EventKind) -> Event | None:
    return next((event for event in reversed(state.events) if event.kind is kind), None)


def _prey(state: GameState, seat: int) -> set[int]:
    wolves = {seat for seat in state.living if state.role_of(seat).side is Side.WOLF}
    return set(state.living) - (set() if state.preset.wolves_may_hit_wolves else wolves)


def _not_guarded_last_night(state: GameState, seat: int) -> set[int]:
    guarded = _last(state, EventKind.GUARDED)
    return set(state.living) - ({guarded.target} if guarded is not None else set())


def _running(state: GameState) -> set[int]:
    withdrawn = {event.seat for event in state.events if event.kind is EventKind.WITHDREW}
    return (set(_last(state, EventKind.SIGNED_UP).seats) - withdrawn) & state.living


def _tied(state: GameState) -> set[int]:
    return set(_last(state, EventKind.VOTE_TIED).seats)


def _with_a_vote(state: GameState) -> set[int]:
    return set(state.living) - {event.target for event in state.events if event.kind is EventKind.REVEALED}


_BY_OTHERS = (Decision.CLOSING_SPEECH, Decision.EXILE_VOTE)
TARGETS: Mapping[Decision, Callable[[GameState, int], set[int]]] = {
    **dict.fromkeys(Decision, lambda state, seat: set()),
    **dict.fromkeys((Decision.WOLF_TALK, Decision.WOLF_KILL), _prey),
    **dict.fromkeys(_BY_OTHERS, lambda state, seat: _with_a_vote(state) - {seat}),
    Decision.DUEL: lambda state, seat: set(state.living) - {seat},
    Decision.SEER_CHECK: lambda state, seat: set(state.living) - {seat},
    # The dead are not among the living, so that nobody shoots itself.
    **dict.fromkeys((Decision.SHOT, Decision.TAKE, Decision.BADGE), lambda state, seat: set(state.living)),
    **dict.fromkeys((Decision.SHERIFF_PK_VOTE, Decision.PK_VOTE), lambda state, seat: _tied(state)),
    Decision.GUARD: _not_guarded_last_night,
    Decision.WITCH: lambda state, seat: (
        set() if _last(state, EventKind.POISON_USED) is not None else set(state.living) - {seat}
    ),
    Decision.SHERIFF_VOTE: lambda state, seat: _running(state),
}
"""Whom each decision may name, from what was logged."""

SHOOTERS = {Role.HUNTER, Role.WOLF_KING}

PK_PHASES = {Phase.SHERIFF_PK_SPEECH, Phase.SHERIFF_PK_VOTE, Phase.PK_SPEECH, Phase.PK_VOTE}

NIGHT = (Phase.WOLF_TALK, Phase.NIGHT_ACTIONS, Phase.WITCH_ACTION)
"""Phases of which a seat that is not asked sees that it is night."""

HIDDEN = (Phase.SHOT, Phase.DUEL, Phase.UNOPPOSED)
"""Phases of which a seat that is not asked sees nothing: to it the table stands where it stood before."""

BEFORE_A_SHERIFF = (Phase.WITHDRAWAL, Phase.SHERIFF_VOTE, Phase.UNOPPOSED)
BALLOTS_OF_A_PK = (Phase.SHERIFF_PK_VOTE, Phase.PK_VOTE)


def check_start(state: GameState) -> None:
    """What must hold for a new game."""
    assert state.living == frozenset(state.preset.seats) and state.day == 1 and winner(state) is None
    assert [event.target or event.seat for event in state.events if event.kind is EventKind.ROLE_DEALT] == [
        *state.preset.seats
    ]
    assert _public(state) == _seen(state)
    assert all([*observe(state, seat).events] == [*known_events(state, seat)] for seat in state.preset.seats)


def check_invariants(before: GameState, actions: Mapping[int, Action], after: GameState) -> None:
    """What must hold for one step: ``after`` is ``before`` with ``actions`` taken. AssertionError where it does not."""
    requests = pending(before)
    assert requests and Counter(request.seat for request in requests) == Counter(actions.keys())
    assert after.events[: len(before.events)] == before.events
    assert (after.preset, after.seed, after.roles) == (before.preset, before.seed, before.roles)
    assert before.day <= after.day <= min(before.day + 1, before.preset.round_limit)
    new = after.events[len(before.events) :]
    for request in requests:
        _check_question(request, before)
    _check_who_is_asked({request.seat: request.decision for request in requests}, before)
    _check_recorded(actions, new)
    _check_shooters(requests, before, after, new)
    _check_told(actions, before, after)
    # Whoever looks on while somebody is asked in secret sees what it saw before.
    assert _public(after) == (_public(before) if after.phase in HIDDEN else _seen(after))
    _check_views(before, {request.seat: request for request in requests})
    decided = who_has_won(after.preset, after.roles, after.living)
    if winner(after) is None:
        # A decided game goes on only for as long as somebody may still shoot.
        assert pending(after) and (decided is None or after.shooters or after.phase is Phase.SHOT)
    else:
        assert after.phase is Phase.GAME_OVER and pending(after) == () and not after.shooters
    assert not after.tied or after.phase in PK_PHASES


def _check_question(request: Request, state: GameState) -> None:
    seat, decision = request.seat, request.decision
    assert (request.day, request.phase) == (state.day, state.phase)
    # Nobody may be asked, or spared, because of a death that is not announced: ``living`` is what all seats see.
    assert (seat in state.living) is (decision not in AFTER_DEATH), request
    assert [*request.targets] == sorted(TARGETS[decision](state, seat)), request
    assert len(set(choices(request))) == len(choices(request)) > 0 and legal(request, request.default), request
    assert request.default.choice is None or not request.may_pass, request
    may_explode = decision in BY_DAY and state.preset.may_explode(state.role_of(seat))
    assert (Option.EXPLODE in request.options) is may_explode, request
    withdrawable = decision in (Decision.CAMPAIGN_SPEECH, Decision.WITHDRAWAL)
    assert (Option.WITHDRAW in request.options) is withdrawable, request
    assert decision is Decision.WITCH or Option.SAVE not in request.options, request
    if decision is Decision.WITCH:
        _check_witch(request, state)
    elif request.subject is not None:
        assert state.phase is Phase.UNOPPOSED and {request.subject} == _running(state), request
    assert request.may_pass or not request.speaks, request


def _check_witch(request: Request, state: GameState) -> None:
    used, victim = _last(state, EventKind.ANTIDOTE_USED) is not None, _last(state, EventKind.WOLF_TARGET).target
    herself = victim == request.seat and not state.preset.witch_self_save
    why = Unsaved.USED if used else Unsaved.NOBODY_HIT if victim is None else Unsaved.HERSELF if herself else None
    assert (request.unsaved, request.subject) == (why, None if why else victim), request
    assert request.options == (() if why else (Option.SAVE,)), request


def _explosive(state: GameState) -> set[int]:
    """Living seats that may explode."""
    able = {Role.WOLF, Role.WHITE_WOLF_KING, *([Role.WOLF_KING] if state.preset.wolf_king_may_explode else [])}
    return {seat for seat in state.living if state.preset.wolves_may_explode and state.role_of(seat) in able}


def _is_put_off(state: GameState) -> bool:
    return _last(state, EventKind.ELECTION_PUT_OFF) is not None


def _check_who_is_asked(asked: Mapping[int, Decision], state: GameState) -> None:
    """Before a sheriff or an exile everybody that may explode is asked, with one question a round."""
    explosive, phase = _explosive(state), state.phase
    if phase in BEFORE_A_SHERIFF:
        ran, put_off = set(_last(state, EventKind.SIGNED_UP).seats), _is_put_off(state)
        voters = set(state.living) - ran
        # On the first day those that ran were asked while candidates could withdraw.
        alone = explosive if put_off else explosive - ran
        ordinary, apart = {
            Phase.WITHDRAWAL: (dict.fromkeys(_running(state), Decision.WITHDRAWAL), explosive & ran),
            Phase.SHERIFF_VOTE: (dict.fromkeys(voters, Decision.SHERIFF_VOTE), alone),
            Phase.UNOPPOSED: ({}, alone),
        }[phase]
        assert asked == {**dict.fromkeys(apart, Decision.EXPLOSION), **ordinary}, asked
        assert phase is Phase.UNOPPOSED or ordinary, asked
    elif phase in BALLOTS_OF_A_PK:
        stage = _tied(state)
        voters = dict.fromkeys(_with_a_vote(state) - stage, Decision(phase.value))
        assert asked == {**dict.fromkeys(explosive & stage, Decision.EXPLOSION), **voters}, asked
    else:
        assert Decision.EXPLOSION not in asked.values(), asked


def _check_recorded(actions: Mapping[int, Action], new: Iterable[Event]) -> None:
    """Whom a seat names and what it says is in the record, unless a wolf explodes; and who runs."""
    if not any(action.choice is Option.EXPLODE for action in actions.values()):
        told = {(event.seat, event.target, event.text) for event in new}
        answers = {(seat, action.seat, action.text) for seat, action in actions.items() if action.seat or action.text}
        assert answers <= told, answers - told
    running = tuple(seat for seat in sorted(actions) if actions[seat].choice is Option.RUN)
    assert all(event.seats == running for event in new if event.kind is EventKind.SIGNED_UP), running


def _check_shooters(requests: Iterable[Request], before: GameState, after: GameState, new: Iterable[Event]) -> None:
    """Whoever dies in this step and may shoot joins the queue, and who was asked has left it for good."""
    queue = [*after.shooters, *(after.waiting if after.phase is Phase.SHOT else ())]
    queued = {*before.shooters, *(before.waiting if before.phase is Phase.SHOT else ())}
    asked = {request.seat for request in requests if request.decision in (Decision.SHOT, Decision.TAKE)}
    exploded = {event.seat for event in new if event.kind is EventKind.EXPLODED}
    taking = {seat for seat in exploded if before.role_of(seat) is Role.WHITE_WOLF_KING}
    barred = exploded - taking | {event.target for event in new if event.kind is EventKind.DUEL}
    poisoned = _last(after, EventKind.POISON_USED)
    if poisoned is not None and poisoned.day == before.day:
        barred |= {poisoned.target} - taking  # its explosion takes a seat, not its death
    died = {seat for seat in before.living - after.living if before.role_of(seat) in SHOOTERS} | taking
    assert sorted(queue) == sorted((queued - asked) | (died - barred)), (queued, asked, died, barred, queue)


def _check_told(actions: Mapping[int, Action], before: GameState, after: GameState) -> None:
    """With this, and what ``observe`` shows, a seat hears everything that it may know exactly once."""
    for seat in before.preset.seats:
        expected = len(before.events) if seat in actions else before.seen[seat - 1]
        assert after.seen[seat - 1] == expected, (seat, after.seen)


View = tuple[int, Phase, frozenset[int], int | None, int]
"""Day, phase, living seats, sheriff, and how many events happened before."""


def _public(state: GameState) -> View:
    public = state.public
    return (public.day, public.phase, public.living, public.sheriff, public.events)


def _seen(state: GameState) -> View:
    """What a seat that is not asked sees of ``state`` where nobody is asked in secret by day."""
    phase = Phase.NIGHTFALL if state.phase in NIGHT else state.phase
    return (state.day, phase, state.living, state.sheriff, len(state.events))


def _check_views(state: GameState, questions: Mapping[int, Request]) -> None:
    """Two seats' views in each step, one of them asked; another pair the next time, to stay cheap."""
    turn = len(state.events)
    asked = [*questions]
    for seat in {asked[turn % len(asked)], state.preset.seats[turn % len(state.preset.seats)]}:
        view = observe(state, seat)
        assert view.request == questions.get(seat)
        now: View = (state.day, state.phase, state.living, state.sheriff, len(state.events))
        day, phase, living, sheriff, events = now if seat in questions else _public(state)
        assert (view.day, view.phase, view.living, view.sheriff) == (day, phase, tuple(sorted(living)), sheriff)
        assert view.role is state.role_of(seat) and view.side is view.role.side
        known = [event for event in state.events[:events] if event.visible_to(seat)]
        news = [event for event in state.events[state.seen[seat - 1] : events] if event.visible_to(seat)]
        assert [*known_events(state, seat)] == known and [*view.events] == news
