"""One game at an AgentScope table: the referee asks, the players answer, every model turn is recorded.

The rules decide on requests and audiences; this module carries questions, answers and announcements. Public events use
one MsgHub, wolves' events another, others go to their seats. Automatic broadcast is off, so private replies stay
private.
"""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, nullcontext
from dataclasses import dataclass, field
from statistics import fmean
from types import MappingProxyType

from agentscope.message import Msg
from agentscope.pipeline import MsgHub

from runners.errors import UnusableTask
from runners.play import TurnSink
from runners.policy.model import SampledTurn
from runners.werewolf.api.judge import JudgedGame
from runners.werewolf.game import (
    Action,
    Event,
    GameState,
    Request,
    Result,
    Role,
    Side,
    apply,
    get_preset,
    new_game,
    observe,
    pending,
    winner,
)
from runners.werewolf.language.leaks import prompt_runs
from runners.werewolf.players import Decided, ModelTurn, Player
from runners.werewolf.prompts_zh.names import REFEREE
from runners.werewolf.prompts_zh.questions import render_question
from runners.werewolf.prompts_zh.record import render_event
from runners.werewolf.prompts_zh.system import NO_OVERRIDES, system_prompt
from runners.werewolf.seating import players_by_seat
from runners.werewolf.study.beliefs import BeliefProbes
from runners.werewolf.study.notes import study_of
from runners.werewolf.transcript import asked_in, event_data, game_text
from runners.werewolf.turn_facts import Speaker, turn_facts
from store.schema import TRAINED_POLICY
from store.werewolf import TURN_FACTS, GameTask, Judgement, ResultSpan, SeatResult, TurnSpan, encode_events

SeatPlayer = Callable[[int, Role, str], Player]
"""Makes the player for a seat, given its role and its player's name (``store.werewolf.SeatingRule``)."""


async def play_game(
    task: GameTask,
    policy_version: int,
    seat_player: SeatPlayer,
    on_turn: TurnSink,
    judge: JudgedGame | None = None,
    prompt_templates: Mapping[str, str] = NO_OVERRIDES,
    past_selves: Mapping[str, float] = MappingProxyType({}),
    learners: Mapping[int, str] = MappingProxyType({}),
    on_branch: Callable[[], None] = lambda: None,
) -> ResultSpan:
    """Play one game to its end.

    policy_version: of the trained policy when the game was enqueued; used for turns whose server reports no version.
    on_turn: called for every model turn once all concurrently asked seats have answered, so that the last of these
        turns carries the following events, and at the end with the notes of a study.
    judge: scores public speeches of trained seats; the end of the game waits for it, and closes it.
    prompt_templates: of the players' system prompts, to detect speeches that print them.
    past_selves: see ``players_by_seat``.
    learners: seat -> its policy of the team, if several policies learn.
    on_branch: called once the seats asked at the moment of ``task.past`` have answered.
    Raises UnusableTask if the game does not repeat ``task.past``, ValueError for an unknown preset, and errors of
    players, e.g. for an unreachable model; invalid replies never raise.
    """
    state = new_game(get_preset(task.preset, task.rules), task.seed)
    roles = {seat: state.role_of(seat) for seat in state.preset.seats}
    names = players_by_seat(task, roles, past_selves)
    players = {seat: seat_player(seat, role, names[seat]) for seat, role in roles.items()}
    wolves = frozenset(seat for seat, role in roles.items() if role.side is Side.WOLF)
    seats = {
        seat: _Seat(
            player=players[seat],
            role=role,
            name=names[seat],
            learner=learners.get(seat),
            trainable=task.may_train(names[seat], role.side.value),
            repeated=0 if task.past is None else len(task.past.replies.get(seat, ())),
            speaker=Speaker(
                side=role.side,
                mates=wolves - {seat},
                prompt_runs=prompt_runs(system_prompt(state.preset, seat, role, prompt_templates)),
            ),
        )
        for seat, role in roles.items()
    }
    probes = None if task.study is None else BeliefProbes(task.study, players)
    with nullcontext() if judge is None else closing(judge):
        table = _Table(task, policy_version, seats, on_turn, judge)
        async with table.public_hub, table.wolf_hub:
            while True:
                requests = pending(state)
                await table.announce(state, [request.seat for request in requests])
                table.dismiss_dead_wolves(state)
                if probes is not None:
                    await probes.look(state, requests)
                if not requests:
                    if probes is not None:
                        noted = study_of(task.game_id, state, probes.answers, table.speaking_turns)
                        on_turn(noted, time.time(), time.time())
                    return table.result(state, () if judge is None else await judge.judgements())
                answers = await table.ask(state, requests)
                if task.past is not None and table.moment == task.past.moment:
                    if task.past.seat not in answers:
                        raise UnusableTask(
                            f"game {task.game_id} differs from its recorded past at seat {task.past.seat}"
                        )
                    on_branch()
                state = apply(state, answers)
                table.flush_turns(state)
                table.moment += 1


@dataclass(slots=True)
class _Seat:
    """The player of a seat, and its counts so far. segments: number of its conversations.

    repeated: number of its first turns that are those of a recorded game.
    """

    player: Player
    role: Role
    name: str
    learner: str | None
    trainable: bool
    repeated: int
    speaker: Speaker
    facts: list[dict[str, float]] = field(default_factory=list)  # of each model turn
    said: list[str] = field(default_factory=list)
    segments: int = 0
    decisions: int = 0
    reasked: int = 0
    defaulted: int = 0


def _message(event: Event) -> Msg:
    return Msg(REFEREE, render_event(event), "system", metadata={"event": event})


class _Table:
    """The seats of one game and their audiences."""

    def __init__(
        self,
        task: GameTask,
        policy_version: int,
        seats: Mapping[int, _Seat],
        on_turn: TurnSink,
        judged: JudgedGame | None,
    ):
        self._task = task
        self._policy_version = policy_version
        self._seats = seats
        self._on_turn = on_turn
        self._judged = judged
        self._turns: list[tuple[TurnSpan, float, float]] = []  # of the seats that are being asked
        self._written_events = 0
        self._announced = 0  # number of events that all have received
        self._ahead: dict[int, int] = {}  # seat -> number of events that it has received, if more
        self.moment = 0  # number of finished rounds of questions
        self.speaking_turns: dict[tuple[int, int], int] = {}  # (events before, seat) -> number of its turn that spoke
        self._wolves = frozenset(number for number, seat in seats.items() if seat.role.side is Side.WOLF)
        self.public_hub = MsgHub([seat.player for seat in seats.values()], enable_auto_broadcast=False)
        wolves = [seats[number].player for number in sorted(self._wolves)]
        self.wolf_hub = MsgHub(wolves, enable_auto_broadcast=False)

    async def announce(self, state: GameState, asked: Sequence[int]) -> None:
        """Send each event to exactly the seats of its audience.

        While a secret request is pending, only the seats that are asked receive what follows the public view: a pause
        after a death would reveal a hunter that may shoot.
        """
        assert state.public is not None
        shown = state.public.events if asked else len(state.events)
        for number, event in enumerate(state.events[self._announced : shown], self._announced):
            early = {seat for seat, received in self._ahead.items() if received > number}
            message = _message(event)
            if event.audience is None and not early:
                await self.public_hub.broadcast(message)
            elif event.audience == self._wolves and not early:
                await self.wolf_hub.broadcast(message)
            else:
                for seat in sorted((self._seats.keys() if event.audience is None else event.audience) - early):
                    await self._seats[seat].player.observe(message)
        self._announced = shown
        self._ahead = {seat: received for seat, received in self._ahead.items() if received > shown}
        for seat in asked if shown < len(state.events) else ():
            for event in state.events[self._ahead.get(seat, shown) :]:
                if event.visible_to(seat):
                    await self._seats[seat].player.observe(_message(event))
            self._ahead[seat] = len(state.events)

    def dismiss_dead_wolves(self, state: GameState) -> None:
        """Remove publicly dead wolves from the wolves' hub."""
        for seat in self._wolves - state.living:
            self.wolf_hub.delete(self._seats[seat].player)
        self._wolves &= state.living

    async def ask(self, state: GameState, requests: Sequence[Request]) -> dict[int, Action]:
        """Ask all seats concurrently; one player's error cancels the others."""
        try:
            async with asyncio.TaskGroup() as group:
                tasks = {request.seat: group.create_task(self._ask_one(state, request)) for request in requests}
        except ExceptionGroup as failures:
            raise failures.exceptions[0] from None
        return {seat: task.result() for seat, task in tasks.items()}

    async def _ask_one(self, state: GameState, request: Request) -> Action:
        seat, observation = self._seats[request.seat], observe(state, request.seat)
        message = Msg(REFEREE, render_question(request), "system", metadata={"observation": observation})
        answer = await seat.player(message)
        decided: Decided = answer.metadata["decided"]
        for turn in decided.turns:
            self._record(state, request, turn, None if turn.error else decided.action)
        seat.decisions += 1
        seat.reasked += decided.reasked
        seat.defaulted += decided.defaulted
        return decided.action

    def _record(self, state: GameState, request: Request, turn: ModelTurn, action: Action | None) -> None:
        """Record one call. action: of the seat; None for an invalid reply."""
        seat, role, sampled = self._seats[request.seat], self._seats[request.seat].role, turn.sampled
        heard = "" if action is None else action.text
        target = action.choice if action is not None and isinstance(action.choice, int) else None
        chosen = None if target is None else self._seats[target].role.side
        facts = turn_facts(turn, request, heard, seat.speaker, seat.said, chosen)
        span = TurnSpan(
            game_id=self._task.game_id,
            group_id=self._task.group_id,
            seat=request.seat,
            role=role.value,
            side=role.side.value,
            day=request.day,
            decision=request.decision.value,
            turn=len(seat.facts),
            segment=sampled.segment,
            is_reask=turn.is_reask,
            policy=seat.name,
            learner=seat.learner,
            policy_version=self._version_of(seat, sampled),
            version_until=sampled.version_until,
            trainable=seat.trainable and len(seat.facts) >= seat.repeated,
            valid=turn.error is None,
            error=turn.error,
            context_tokens=sampled.context_tokens,
            context_digest=sampled.context_digest,
            prompt_ids=sampled.prompt_ids,
            response_ids=sampled.response_ids,
            logprobs=sampled.logprobs,
            finish_reason=sampled.finish_reason,
            reply=turn.reply,
            thought=turn.thought,
            target=target,
            events_before=len(state.events),
            moment=self.moment,
            facts=facts,
        )
        if heard:
            seat.said.append(heard)
            self.speaking_turns[len(state.events), request.seat] = span.turn
        if self._judged is not None and heard and span.trainable and request.is_public:
            self._judged.ask(span.turn, request, heard, role, state.events)
        seat.facts.append(facts)
        seat.segments = sampled.segment + 1
        self._turns.append((span, sampled.started, sampled.ended))

    def flush_turns(self, state: GameState) -> None:
        """Pass on the turns of concurrently asked seats, the last one with the following events."""
        for number, (turn, *times) in enumerate(self._turns, start=1):
            last = number == len(self._turns)
            self._on_turn(turn.model_copy(update={"events": self._new_events(state)}) if last else turn, *times)
        self._turns.clear()

    def _new_events(self, state: GameState) -> str:
        first, self._written_events = self._written_events, len(state.events)
        return encode_events(first, [event_data(event) for event in state.events[first:]], asked_in(state))

    def _version_of(self, seat: _Seat, sampled: SampledTurn) -> int:
        if sampled.policy_version is not None:
            return sampled.policy_version
        return self._policy_version if seat.name == TRAINED_POLICY else 0  # frozen weights have one version

    def result(self, state: GameState, judgements: tuple[Judgement, ...]) -> ResultSpan:
        result = winner(state)
        if result is None:
            raise ValueError(f"game {self._task.game_id} is not over")
        return ResultSpan(
            game_id=self._task.game_id,
            group_id=self._task.group_id,
            preset=self._task.preset,
            seed=self._task.seed,
            policy_version=self._policy_version,
            result=result.value,
            days=state.day,
            turns=sum(len(seat.facts) for seat in self._seats.values()),
            seats=tuple(_seat_result(number, seat, result) for number, seat in self._seats.items()),
            transcript=game_text(state),
            judgements=judgements,
            judge_asked=0 if self._judged is None else self._judged.asked,
            events=self._new_events(state),
        )


def _seat_result(number: int, seat: _Seat, result: Result) -> SeatResult:
    side, facts = seat.role.side.value, seat.facts
    return SeatResult(
        seat=number,
        role=seat.role.value,
        side=side,
        policy=seat.name,
        trainable=seat.trainable,
        outcome=0.0 if result is Result.DRAW else 1.0 if result.value == side else -1.0,
        turns=len(facts),
        invalid_turns=sum(turn["invalid"] == 1.0 for turn in facts),
        segments=seat.segments,
        decisions=seat.decisions,
        reasked_decisions=seat.reasked,
        defaulted_decisions=seat.defaulted,
        facts={name: fmean(turn[name] for turn in facts) for name in TURN_FACTS} if facts else {},
    )
