"""One game at an AgentScope table: the referee asks, the players answer, every model turn is recorded.

The rules decide who is asked and who may know what; this module only carries questions, answers and
announcements. Public events go out over one MsgHub, the wolves' over another, anything else to
the seats it concerns. Nothing is broadcast automatically, so a private reply stays private.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence

from agentscope.message import Msg
from agentscope.pipeline import MsgHub

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
from runners.werewolf.players import Decided, ModelTurn, Player
from runners.werewolf.prompts_zh.names import REFEREE
from runners.werewolf.prompts_zh.questions import render_question
from runners.werewolf.prompts_zh.record import render_event
from runners.werewolf.seating import who_plays
from runners.werewolf.transcript import Transcript
from store.schema import TRAINED_POLICY, GameTask
from store.spans import ResultSpan, SeatResult, TurnSpan

TurnSink = Callable[[TurnSpan, float, float], None]
"""Takes a turn, and when it started and ended (seconds since the epoch)."""

SeatPlayer = Callable[[int, Role, str], Player]
"""Makes the player for a seat, given its role and its player's name (``store.schema.SeatingRule``)."""


async def play_game(task: GameTask, policy_version: int, seat_player: SeatPlayer, on_turn: TurnSink) -> ResultSpan:
    """Play one game to its end.

    on_turn: called for every model turn as soon as its decision is made.
    Raises ValueError for an unknown preset, and whatever a player raises when it cannot go on (an
    unreachable model); bad replies never raise.
    """
    state = new_game(get_preset(task.preset, task.rules), task.seed)
    roles = {seat: state.role_of(seat) for seat in state.preset.seats}
    names = who_plays(task, roles)
    players = {seat: seat_player(seat, role, names[seat]) for seat, role in roles.items()}
    table = _Table(task, policy_version, roles, names, players, on_turn)
    announced = 0
    async with table.public_hub, table.wolf_hub:
        while True:
            await table.announce(state.events[announced:])
            announced = len(state.events)
            table.dismiss_dead_wolves(state)
            requests = pending(state)
            if not requests:
                return table.result(state)
            state = apply(state, await table.ask(state, requests))


class _Table:
    """The players of one game, who hears what, and the count of what they did."""

    def __init__(
        self,
        task: GameTask,
        policy_version: int,
        roles: Mapping[int, Role],
        names: Mapping[int, str],
        players: Mapping[int, Player],
        on_turn: TurnSink,
    ):
        self._task = task
        self._policy_version = policy_version
        self._roles = roles
        self._names = names
        self._players = players
        self._on_turn = on_turn
        self._turns = dict.fromkeys(players, 0)
        self._segments = dict.fromkeys(players, 0)
        self._invalid_turns = dict.fromkeys(players, 0)
        self._decisions = dict.fromkeys(players, 0)
        self._defaulted = dict.fromkeys(players, 0)
        self._wolves = frozenset(seat for seat, role in self._roles.items() if role.side is Side.WOLF)
        self.public_hub = MsgHub(list(players.values()), enable_auto_broadcast=False)
        self.wolf_hub = MsgHub([players[seat] for seat in sorted(self._wolves)], enable_auto_broadcast=False)

    async def announce(self, events: Iterable[Event]) -> None:
        """Tell each event to exactly the seats that may know it."""
        for event in events:
            message = Msg(REFEREE, render_event(event), "system", metadata={"event": event})
            if event.audience is None:
                await self.public_hub.broadcast(message)
            elif event.audience == self._wolves:
                await self.wolf_hub.broadcast(message)
            else:
                for seat in sorted(event.audience):
                    await self._players[seat].observe(message)

    def dismiss_dead_wolves(self, state: GameState) -> None:
        """Wolves whose death is public hear no more of what the wolves say and do."""
        for seat in self._wolves - state.living:
            self.wolf_hub.delete(self._players[seat])
        self._wolves &= state.living

    async def ask(self, state: GameState, requests: Sequence[Request]) -> dict[int, Action]:
        """Put all requests at once and wait for every answer; one player's failure cancels the others."""
        try:
            async with asyncio.TaskGroup() as group:
                tasks = {request.seat: group.create_task(self._ask_one(state, request)) for request in requests}
        except ExceptionGroup as failures:
            raise failures.exceptions[0] from None
        return {seat: task.result() for seat, task in tasks.items()}

    async def _ask_one(self, state: GameState, request: Request) -> Action:
        observation = observe(state, request.seat)
        message = Msg(REFEREE, render_question(request), "system", metadata={"observation": observation})
        answer = await self._players[request.seat](message)
        decided: Decided = answer.metadata["decided"]
        for turn in decided.turns:
            self._record(request, turn)
        self._decisions[request.seat] += 1
        self._defaulted[request.seat] += decided.defaulted
        return decided.action

    def _record(self, request: Request, turn: ModelTurn) -> None:
        seat, sampled = request.seat, turn.sampled
        role = self._roles[seat]
        span = TurnSpan(
            game_id=self._task.game_id,
            group_id=self._task.group_id,
            seat=seat,
            role=role.value,
            side=role.side.value,
            day=request.day,
            phase=request.phase.value,
            decision=request.decision.value,
            turn=self._turns[seat],
            segment=sampled.segment,
            is_reask=turn.is_reask,
            policy=self._names[seat],
            policy_version=self._policy_version,
            trainable=self._is_trainable(seat),
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
        )
        self._turns[seat] += 1
        self._segments[seat] = sampled.segment + 1
        self._invalid_turns[seat] += not span.valid
        self._on_turn(span, sampled.started, sampled.ended)

    def _is_trainable(self, seat: int) -> bool:
        return self._names[seat] == TRAINED_POLICY and self._roles[seat].side.value in self._task.trainable

    def result(self, state: GameState) -> ResultSpan:
        """The finished game as the span that ends it."""
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
            turns=sum(self._turns.values()),
            seats=tuple(self._seat_result(seat, role, result) for seat, role in self._roles.items()),
            transcript=Transcript.of(state).as_text(),
        )

    def _seat_result(self, seat: int, role: Role, result: Result) -> SeatResult:
        side = role.side.value
        return SeatResult(
            seat=seat,
            role=role.value,
            side=side,
            policy=self._names[seat],
            trainable=self._is_trainable(seat),
            outcome=0.0 if result is Result.DRAW else 1.0 if result.value == side else -1.0,
            turns=self._turns[seat],
            invalid_turns=self._invalid_turns[seat],
            segments=self._segments[seat],
            decisions=self._decisions[seat],
            defaulted_decisions=self._defaulted[seat],
        )
