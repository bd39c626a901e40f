"""A game that is still being played, put together from its turn spans: the referee plays it again, turn by turn.

The hub holds no events of a game under way, only the replies of its models. The rules are deterministic and so are the
players without a model, whose chance follows from the task: with the replies the whole game follows, as far as they
go. Seats that leave no turns, such as those of a model behind an API, leave their answers; where neither came, as from
a runner of an earlier version, the game stands still until its transcript tells the rest (``blocked``).
"""

import random
from collections import defaultdict, deque
from statistics import fmean

from runners.policy.server import seed_of
from runners.werewolf.brains import BRAINS, Brain
from runners.werewolf.demonstrations import DEFAULTED
from runners.werewolf.game import (
    Action,
    Decision,
    GameState,
    Option,
    Request,
    apply,
    get_preset,
    legal,
    new_game,
    observe,
    pending,
)
from runners.werewolf.game.rules import PHASES
from runners.werewolf.language.replies import ReplyError, parse_reply
from runners.werewolf.seating import who_plays
from runners.werewolf.web.transcripts import ShownEvent, UnreadableGame, of_event
from runners.werewolf.web.views import Asked, ShownTurn
from store.werewolf import AnswerSpan, GameTask, TurnSpan


class LiveGame:
    """Plays a task's game as far as its turns go. Raises UnreadableGame for a task that these rules cannot play."""

    def __init__(self, task: GameTask):
        try:
            self._state = new_game(get_preset(task.preset, task.rules), task.seed)
            roles = {seat: self._state.role_of(seat) for seat in self._state.preset.seats}
            self.players = who_plays(task, roles)
        except ValueError as error:
            raise UnreadableGame(f"this version cannot play the game's rules: {error}") from error
        self._brains: dict[int, Brain] = {
            seat: BRAINS[name](random.Random(seed_of(f"{task.sampling_seed}/{seat}")))
            for seat, name in self.players.items()
            if name in BRAINS and name not in task.demonstrators
        }
        self._told: dict[int, deque[TurnSpan | AnswerSpan]] = defaultdict(deque)
        self._answers: dict[int, Action] = {}
        self._go_on()

    @property
    def seats(self) -> int:
        """How many."""
        return len(self._state.preset.seats)

    @property
    def events(self) -> tuple[ShownEvent, ...]:
        """Everything that happened so far."""
        return tuple(of_event(event) for event in self._state.events)

    @property
    def asked(self) -> tuple[Asked, ...]:
        """Whom the game waits for."""
        return tuple(asked for asked in asked_in(self._state) if asked.seat not in self._answers)

    @property
    def blocked(self) -> bool:
        """Whether turns came that cannot be reached, since a seat before them leaves none."""
        waiting = {asked.seat for asked in self.asked}
        return any(turns for seat, turns in self._told.items() if seat not in waiting)

    def take(self, turn: TurnSpan | AnswerSpan) -> None:
        """One more turn or answer, in the order in which they were made."""
        self._told[turn.seat].append(turn)
        self._go_on()

    def _go_on(self) -> None:
        while requests := pending(self._state):
            for request in requests:
                if request.seat not in self._answers:
                    action = self._answer(request)
                    if action is not None:
                        self._answers[request.seat] = action
            if len(self._answers) < len(requests):
                return
            self._state, self._answers = apply(self._state, self._answers), {}

    def _answer(self, request: Request) -> Action | None:
        brain = self._brains.get(request.seat)
        if brain is not None:
            return brain.act(observe(self._state, request.seat))
        turns = self._told[request.seat]
        while turns:
            turn = turns.popleft()
            if isinstance(turn, AnswerSpan):
                return _said(turn, request)
            if turn.valid or turn.error == DEFAULTED:
                try:
                    return parse_reply(turn.reply, request)
                except ReplyError as error:
                    raise UnreadableGame(f"seat {turn.seat}, turn {turn.turn}: {error}") from error
            if turn.is_reask:
                return request.default
        return None


def _said(answer: AnswerSpan, request: Request) -> Action:
    options = [option for option in Option if option.value == answer.option]
    action = Action(options[0] if options else answer.target, answer.text)
    if (answer.option is not None and not options) or not legal(request, action):
        raise UnreadableGame(f"seat {answer.seat}, day {answer.day}: the rules do not allow what it is said to answer")
    return action


def asked_in(state: GameState) -> tuple[Asked, ...]:
    """Whom a game asks, with whether that is a secret."""
    rule = PHASES[state.phase]
    return tuple(
        # Who is asked about an explosion on its own is a wolf, also in a round in which all others vote.
        Asked(
            request.seat,
            request.decision.value,
            rule.by_night or rule.hidden or request.decision is Decision.EXPLOSION,
        )
        for request in pending(state)
    )


def turn_of(span: TurnSpan) -> ShownTurn:
    """A stored turn as pages show it."""
    return ShownTurn(
        seat=span.seat,
        day=span.day,
        decision=span.decision,
        reply=span.reply,
        thought=span.thought,
        error=span.error,
        target=span.target,
        number=span.turn,
        segment=span.segment,
        is_reask=span.is_reask,
        policy=span.policy,
        version=span.policy_version,
        trainable=span.trainable,
        finish_reason=span.finish_reason,
        tokens=(len(span.prompt_ids), len(span.response_ids)),
        # All zeros are a demonstration's: no policy sampled it.
        logprob=round(fmean(span.logprobs), 4) if any(span.logprobs) else None,
        facts={name: value for name, value in span.facts.items() if value},
    )
