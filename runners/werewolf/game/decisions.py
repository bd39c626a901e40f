"""The legal answers of each decision, and requests made from them."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

from runners.werewolf.game.day import order_options
from runners.werewolf.game.election import candidates
from runners.werewolf.game.night import may_save
from runners.werewolf.game.presets import Preset
from runners.werewolf.game.state import GameState, generator
from runners.werewolf.game.types import (
    Action,
    Choice,
    Decision,
    EventKind,
    IllegalAction,
    Option,
    Phase,
    Request,
    Unsaved,
)


def _others(state: GameState, seat: int) -> Collection[int]:
    return state.living - {seat}


def _others_with_a_vote(state: GameState, seat: int) -> Collection[int]:
    return state.voting - {seat}


def _prey(state: GameState, seat: int) -> Collection[int]:
    return state.living.difference(() if state.preset.wolves_may_hit_wolves else state.living_wolves)


def _explosion(state: GameState, seat: int) -> tuple[Option, ...]:
    return (Option.EXPLODE,) if state.preset.may_explode(state.role_of(seat)) else ()


def _withdrawal(state: GameState, seat: int) -> tuple[Option, ...]:
    return (Option.WITHDRAW, *_explosion(state, seat))


@dataclass(frozen=True, slots=True)
class DecisionRule:
    """The legal answers of one decision. With a speech, choosing nobody is always legal."""

    targets: Callable[[GameState, int], Collection[int]] = lambda state, seat: ()
    options: Callable[[GameState, int], tuple[Option, ...]] = lambda state, seat: ()
    may_pass: Callable[[Preset], bool] = lambda preset: True
    speaks: bool = False


def _ballot(targets: Callable[[GameState, int], Collection[int]]) -> DecisionRule:
    return DecisionRule(targets, _explosion, may_pass=lambda preset: preset.may_abstain)


DECISIONS: Mapping[Decision, DecisionRule] = {
    Decision.WOLF_TALK: DecisionRule(_prey, speaks=True),
    Decision.GUARD: DecisionRule(lambda state, seat: state.living - {state.last_guarded}),
    Decision.WOLF_KILL: DecisionRule(_prey, may_pass=lambda preset: preset.wolves_may_pass),
    Decision.SEER_CHECK: DecisionRule(_others),
    Decision.WITCH: DecisionRule(
        lambda state, seat: _others(state, seat) if state.poison else (),
        lambda state, seat: (Option.SAVE,) if may_save(state, seat) else (),
    ),
    Decision.SIGN_UP: DecisionRule(options=lambda state, seat: (Option.RUN,)),
    Decision.CAMPAIGN_SPEECH: DecisionRule(options=_withdrawal, speaks=True),
    Decision.WITHDRAWAL: DecisionRule(options=_withdrawal),
    Decision.SHERIFF_VOTE: _ballot(lambda state, seat: candidates(state)),
    Decision.SHERIFF_PK_SPEECH: DecisionRule(options=_explosion, speaks=True),
    Decision.SHERIFF_PK_VOTE: _ballot(lambda state, seat: state.tied),
    Decision.LAST_WORDS: DecisionRule(speaks=True),
    Decision.SHOT: DecisionRule(lambda state, seat: state.living),
    Decision.TAKE: DecisionRule(lambda state, seat: state.living),
    Decision.BADGE: DecisionRule(lambda state, seat: state.living),
    Decision.SPEAKING_ORDER: DecisionRule(
        options=lambda state, seat: order_options(state), may_pass=lambda preset: False
    ),
    Decision.SPEECH: DecisionRule(options=_explosion, speaks=True),
    Decision.CLOSING_SPEECH: DecisionRule(_others_with_a_vote, _explosion, speaks=True),
    Decision.DUEL: DecisionRule(_others),
    Decision.EXILE_VOTE: _ballot(_others_with_a_vote),
    Decision.PK_SPEECH: DecisionRule(options=_explosion, speaks=True),
    Decision.PK_VOTE: _ballot(lambda state, seat: state.tied),
    Decision.EXPLOSION: DecisionRule(options=_explosion),
}


def make_request(state: GameState, seat: int, decision: Decision) -> Request:
    """The request for ``decision`` to ``seat``."""
    rule = DECISIONS[decision]
    targets, options = tuple(sorted(rule.targets(state, seat))), rule.options(state, seat)
    may_pass = rule.may_pass(state.preset)
    if may_pass:
        default = Action()
    else:  # drawn, since a fixed choice would always hit the same seats
        default = Action(generator(state, f"default {decision} {seat}").choice(targets or options))
    subject = state.night.victim if Option.SAVE in options else None
    if state.phase is Phase.UNOPPOSED:
        (subject,) = candidates(state)
    return Request(
        seat=seat,
        decision=decision,
        day=state.day,
        phase=state.phase,
        targets=targets,
        options=options,
        may_pass=may_pass,
        speech_chars=state.preset.speech_chars if rule.speaks else 0,
        default=default,
        subject=subject,
        unsaved=_why_unsaved(state) if decision is Decision.WITCH and Option.SAVE not in options else None,
        **(_talk(state, seat) if decision is Decision.WOLF_TALK else {}),
    )


def _why_unsaved(state: GameState) -> Unsaved:
    if not state.antidote:
        return Unsaved.USED
    return Unsaved.NOBODY_HIT if state.night.victim is None else Unsaved.HERSELF


def _talk(state: GameState, seat: int) -> dict[str, Any]:
    said = [event for event in state.events if event.kind is EventKind.WOLF_SAYS and event.day == state.day]
    last = {event.seat: event.target for event in said if event.seat != seat}
    proposed = tuple((mate, victim) for mate, victim in last.items() if victim is not None)
    return {"rounds_left": state.waiting.count(seat) - 1, "proposed": proposed}


def choices(request: Request) -> tuple[Choice, ...]:
    """All legal choices: targets, options, then None if choosing nobody is legal."""
    return (*request.targets, *request.options, *((None,) if request.may_pass else ()))


def legal(request: Request, action: Action) -> bool:
    """Whether ``action`` answers ``request`` within the rules."""
    # Types must be equal, too: "explode" == Option.EXPLODE and True == 1, but neither is a choice.
    chosen = any(action.choice == choice and type(action.choice) is type(choice) for choice in choices(request))
    return chosen and len(action.text) <= request.speech_chars


def check(request: Request, action: Action) -> None:
    """Raise IllegalAction, with the seat, the action and the legal choices, unless ``action`` is legal."""
    if not legal(request, action):
        speech = f"speech of at most {request.speech_chars} characters allowed" if request.speaks else "no speech"
        raise IllegalAction(
            f"seat {request.seat} may not answer {request.decision.value} with {action}; "
            f"legal: {[getattr(choice, 'value', choice) for choice in choices(request)]}, {speech}"
        )
