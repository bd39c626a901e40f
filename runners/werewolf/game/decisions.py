"""What may be answered: the table of decisions, and the questions made from it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from runners.werewolf.game.day import order_options
from runners.werewolf.game.election import candidates
from runners.werewolf.game.night import may_save
from runners.werewolf.game.presets import Preset
from runners.werewolf.game.state import GameState, generator
from runners.werewolf.game.types import Action, Choice, Decision, IllegalAction, Option, Phase, Request

Targets = Callable[[GameState, int], tuple[int, ...]]
Options = Callable[[GameState, int], tuple[Option, ...]]


def _nobody(state: GameState, seat: int) -> tuple[int, ...]:
    return ()


def _living(state: GameState, seat: int) -> tuple[int, ...]:
    return tuple(sorted(state.living))


def _other_living(state: GameState, seat: int) -> tuple[int, ...]:
    return tuple(sorted(state.living - {seat}))


def _unguarded(state: GameState, seat: int) -> tuple[int, ...]:
    return tuple(sorted(state.living - {state.last_guarded}))


def _prey(state: GameState, seat: int) -> tuple[int, ...]:
    spared = () if state.preset.wolves_may_hit_wolves else state.living_wolves
    return tuple(sorted(state.living.difference(spared)))


def _poisonable(state: GameState, seat: int) -> tuple[int, ...]:
    return _other_living(state, seat) if state.poison else ()


def _candidates(state: GameState, seat: int) -> tuple[int, ...]:
    return candidates(state)


def _on_pk_stage(state: GameState, seat: int) -> tuple[int, ...]:
    return state.tied


def _no_options(state: GameState, seat: int) -> tuple[Option, ...]:
    return ()


def _antidote(state: GameState, seat: int) -> tuple[Option, ...]:
    return (Option.SAVE,) if may_save(state, seat) else ()


def _run(state: GameState, seat: int) -> tuple[Option, ...]:
    return (Option.RUN,)


def _orders(state: GameState, seat: int) -> tuple[Option, ...]:
    return order_options(state)


def _explosion(state: GameState, seat: int) -> tuple[Option, ...]:
    # Also offered to a wolf that died last night: it cannot know before the deaths are announced.
    return (Option.EXPLODE,) if state.preset.may_explode(state.role_of(seat)) else ()


def _withdrawal(state: GameState, seat: int) -> tuple[Option, ...]:
    return (Option.WITHDRAW, *_explosion(state, seat))


def _always(preset: Preset) -> bool:
    return True


def _never(preset: Preset) -> bool:
    return False


def _where_votes_are_free(preset: Preset) -> bool:
    return preset.may_abstain


def _where_wolves_may_pass(preset: Preset) -> bool:
    return preset.wolves_may_pass


@dataclass(frozen=True, slots=True)
class DecisionRule:
    """What one kind of question allows. Where a seat speaks, choosing nobody is always allowed."""

    targets: Targets = _nobody
    options: Options = _no_options
    may_pass: Callable[[Preset], bool] = _always
    speaks: bool = False


DECISIONS: Mapping[Decision, DecisionRule] = {
    Decision.WOLF_TALK: DecisionRule(targets=_prey, speaks=True),
    Decision.GUARD: DecisionRule(targets=_unguarded),
    Decision.WOLF_KILL: DecisionRule(targets=_prey, may_pass=_where_wolves_may_pass),
    Decision.SEER_CHECK: DecisionRule(targets=_other_living),
    Decision.WITCH: DecisionRule(targets=_poisonable, options=_antidote),
    Decision.SIGN_UP: DecisionRule(options=_run),
    Decision.CAMPAIGN_SPEECH: DecisionRule(options=_withdrawal, speaks=True),
    Decision.SHERIFF_VOTE: DecisionRule(targets=_candidates, options=_explosion, may_pass=_where_votes_are_free),
    Decision.SHERIFF_PK_SPEECH: DecisionRule(options=_explosion, speaks=True),
    Decision.SHERIFF_PK_VOTE: DecisionRule(targets=_on_pk_stage, options=_explosion, may_pass=_where_votes_are_free),
    Decision.LAST_WORDS: DecisionRule(speaks=True),
    Decision.SHOT: DecisionRule(targets=_living),
    Decision.BADGE: DecisionRule(targets=_living),
    Decision.SPEAKING_ORDER: DecisionRule(options=_orders, may_pass=_never),
    Decision.SPEECH: DecisionRule(options=_explosion, speaks=True),
    Decision.CLOSING_SPEECH: DecisionRule(targets=_other_living, options=_explosion, speaks=True),
    Decision.EXILE_VOTE: DecisionRule(targets=_other_living, options=_explosion, may_pass=_where_votes_are_free),
    Decision.PK_SPEECH: DecisionRule(options=_explosion, speaks=True),
    Decision.PK_VOTE: DecisionRule(targets=_on_pk_stage, options=_explosion, may_pass=_where_votes_are_free),
}


def make_request(state: GameState, seat: int, phase: Phase, decision: Decision) -> Request:
    """The question ``decision`` put to ``seat``."""
    rule = DECISIONS[decision]
    targets, options, may_pass = rule.targets(state, seat), rule.options(state, seat), rule.may_pass(state.preset)
    return Request(
        seat=seat,
        decision=decision,
        day=state.day,
        phase=phase,
        targets=targets,
        options=options,
        may_pass=may_pass,
        speech_chars=state.preset.speech_chars if rule.speaks else 0,
        default=Action() if may_pass else _drawn(state, seat, decision, targets or options),
        subject=state.night.victim if Option.SAVE in options else None,
    )


def _drawn(state: GameState, seat: int, decision: Decision, among: tuple[Choice, ...]) -> Action:
    """The default where somebody must be chosen: drawn, since a fixed one would fall on the same seats every time."""
    return Action(generator(state, f"default {decision} {seat}").choice(among))


def choices(request: Request) -> tuple[Choice, ...]:
    """Everything that is legal to choose: targets, options, then None where choosing nobody is legal."""
    return (*request.targets, *request.options, *((None,) if request.may_pass else ()))


def legal(request: Request, action: Action) -> bool:
    """Whether ``action`` answers ``request`` within the rules."""
    # Of the same type, since "explode" equals Option.EXPLODE and True equals 1, and neither is a choice.
    chosen = any(action.choice == choice and type(action.choice) is type(choice) for choice in choices(request))
    return chosen and len(action.text) <= request.speech_chars


def check(request: Request, action: Action) -> None:
    """Raise IllegalAction, naming the seat, the action and what is legal, unless ``action`` is legal."""
    if not legal(request, action):
        speech = f"speech of at most {request.speech_chars} characters allowed" if request.speaks else "no speech"
        raise IllegalAction(
            f"seat {request.seat} may not answer {request.decision.value} with {action}; "
            f"legal: {[getattr(choice, 'value', choice) for choice in choices(request)]}, {speech}"
        )
