"""One game at an AgentScope table: the referee asks, the players answer, every model turn is recorded.

The rules decide who is asked and who may know what; this module only carries questions, answers and
announcements. Public events go out over one MsgHub, the wolves' over another, anything else to
the seats it concerns. Nothing is broadcast automatically, so a private reply stays private.
"""

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing, nullcontext
from statistics import fmean
from types import MappingProxyType

from agentscope.message import Msg
from agentscope.pipeline import MsgHub

from runners.play import TurnSink
from runners.policy.model import SampledTurn
from runners.werewolf.api.judge import Judge, JudgedGame
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
from runners.werewolf.seating import who_plays
from runners.werewolf.study.beliefs import BeliefProbes
from runners.werewolf.study.notes import study_of
from runners.werewolf.transcript import Transcript, asked_in, event_data
from runners.werewolf.turn_facts import Speaker, claimed_role, turn_facts
from store.schema import TRAINED_POLICY
from store.werewolf import TURN_FACTS, GameTask, Judgement, ResultSpan, SeatResult, TurnSpan, encode_events

SeatPlayer = Callable[[int, Role, str], Player]
"""Makes the player for a seat, given its role and its player's name (``store.werewolf.SeatingRule``)."""


async def play_game(
    task: GameTask,
    policy_version: int,
    seat_player: SeatPlayer,
    on_turn: TurnSink,
    judge: Judge | None = None,
    prompt_templates: Mapping[str, str] = NO_OVERRIDES,
    past_selves: Mapping[str, float] = MappingProxyType({}),
    learners: Mapping[int, str] = MappingProxyType({}),
) -> ResultSpan:
    """Play one game to its end.

    policy_version: version of the trained policy that the game was enqueued for; a turn is of the version that its
        server names, where it names one.
    on_turn: called for every model turn as soon as all seats that were asked at once have answered, so that the last
        of these turns carries the events that followed, and at the end with what the task wants noted.
    judge: judges what trained seats say in public; the game's end waits for it, within its patience.
    prompt_templates: what the players' system prompts were made with, so that a speech that prints one is recognised.
    past_selves: see ``who_plays``.
    learners: seat -> who of the trained policy's team plays it, where it is one.
    Raises ValueError for an unknown preset, and whatever a player raises when it cannot go on (an
    unreachable model); bad replies never raise.
    """
    state = new_game(get_preset(task.preset, task.rules), task.seed)
    roles = {seat: state.role_of(seat) for seat in state.preset.seats}
    names = who_plays(task, roles, past_selves)
    players = {seat: seat_player(seat, role, names[seat]) for seat, role in roles.items()}
    speakers = _speakers(state, prompt_templates)
    probes = None if task.study is None else BeliefProbes(task.study, players)
    with nullcontext() if judge is None else closing(judge.new_game()) as judged:
        table = _Table(task, policy_version, roles, names, players, speakers, on_turn, judged, learners)
        announced = 0
        async with table.public_hub, table.wolf_hub:
            while True:
                await table.announce(state.events[announced:])
                announced = len(state.events)
                table.dismiss_dead_wolves(state)
                requests = pending(state)
                if probes is not None:
                    await probes.look(state, requests)
                if not requests:
                    if probes is not None:
                        noted = study_of(task.game_id, state, probes.answers, table.speaking_turns)
                        on_turn(noted, time.time(), time.time())
                    return table.result(state, () if judged is None else await judged.judgements())
                state = apply(state, await table.ask(state, requests))
                table.write_down(state)


def _speakers(state: GameState, prompt_templates: Mapping[str, str]) -> dict[int, Speaker]:
    wolves = frozenset(seat for seat in state.preset.seats if state.role_of(seat).side is Side.WOLF)
    return {
        seat: Speaker(
            side=state.role_of(seat).side,
            mates=wolves - {seat},
            prompt_runs=prompt_runs(system_prompt(state.preset, seat, state.role_of(seat), prompt_templates)),
        )
        for seat in state.preset.seats
    }


class _Table:
    """The players of one game, who hears what, and the count of what they did."""

    def __init__(
        self,
        task: GameTask,
        policy_version: int,
        roles: Mapping[int, Role],
        names: Mapping[int, str],
        players: Mapping[int, Player],
        speakers: Mapping[int, Speaker],
        on_turn: TurnSink,
        judged: JudgedGame | None,
        learners: Mapping[int, str],
    ):
        self._task = task
        self._policy_version = policy_version
        self._roles = roles
        self._names = names
        self._players = players
        self._speakers = speakers
        self._on_turn = on_turn
        self._judged = judged
        self._learners = learners
        self._turns: list[tuple[TurnSpan, float, float]] = []  # of the seats that are asked right now
        self._written_events = 0
        self._facts: dict[int, list[dict[str, float]]] = {seat: [] for seat in players}  # one for each model turn
        self._said: dict[int, list[str]] = {seat: [] for seat in players}
        self.speaking_turns: dict[tuple[int, int], int] = {}  # (events before, seat) -> number of its turn that spoke
        self._segments = dict.fromkeys(players, 0)
        self._decisions = dict.fromkeys(players, 0)
        self._reasked = dict.fromkeys(players, 0)
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
            self._record(state, request, turn, None if turn.error else decided.action)
        self._decisions[request.seat] += 1
        self._reasked[request.seat] += decided.reasked
        self._defaulted[request.seat] += decided.defaulted
        return decided.action

    def _record(self, state: GameState, request: Request, turn: ModelTurn, action: Action | None) -> None:
        """Write down one call. action: what it made the seat say and choose; None for a reply that cannot be used."""
        seat, sampled = request.seat, turn.sampled
        heard = "" if action is None else action.text
        claimed = claimed_role(request, heard)
        target = action.choice if action is not None and isinstance(action.choice, int) else None
        chosen = None if target is None else self._roles[target].side
        facts = turn_facts(turn, request, heard, self._speakers[seat], self._said[seat], chosen)
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
            turn=len(self._facts[seat]),
            segment=sampled.segment,
            is_reask=turn.is_reask,
            policy=self._names[seat],
            learner=self._learners.get(seat),
            policy_version=self._version_of(seat, sampled),
            version_until=sampled.version_until,
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
            target=target,
            claimed_role=None if claimed is None else claimed.value,
            facts=facts,
        )
        if heard:
            self._said[seat].append(heard)
            self.speaking_turns[len(state.events), seat] = span.turn
        if self._judged is not None and heard and span.trainable and request.is_public:
            self._judged.ask(span.turn, request, heard, role, state.events)
        self._facts[seat].append(facts)
        self._segments[seat] = sampled.segment + 1
        self._turns.append((span, sampled.started, sampled.ended))

    def write_down(self, state: GameState) -> None:
        """Hand on the turns of the seats that were asked at once, the last one with the events that followed."""
        for number, (turn, *times) in enumerate(self._turns, start=1):
            last = number == len(self._turns)
            self._on_turn(turn.model_copy(update={"events": self._new_events(state)}) if last else turn, *times)
        self._turns.clear()

    def _new_events(self, state: GameState) -> str:
        first, self._written_events = self._written_events, len(state.events)
        return encode_events(first, [event_data(event) for event in state.events[first:]], asked_in(state))

    def _version_of(self, seat: int, sampled: SampledTurn) -> int:
        if sampled.policy_version is not None:
            return sampled.policy_version
        return self._policy_version if self._names[seat] == TRAINED_POLICY else 0  # frozen weights have one version

    def _is_trainable(self, seat: int) -> bool:
        return self._task.may_train(self._names[seat], self._roles[seat].side.value)

    def result(self, state: GameState, judgements: tuple[Judgement, ...]) -> ResultSpan:
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
            turns=sum(map(len, self._facts.values())),
            seats=tuple(self._seat_result(seat, role, result) for seat, role in self._roles.items()),
            transcript=Transcript.of(state).as_text(),
            judgements=judgements,
            judge_asked=0 if self._judged is None else self._judged.asked,
            events=self._new_events(state),
        )

    def _seat_result(self, seat: int, role: Role, result: Result) -> SeatResult:
        side, facts = role.side.value, self._facts[seat]
        return SeatResult(
            seat=seat,
            role=role.value,
            side=side,
            policy=self._names[seat],
            trainable=self._is_trainable(seat),
            outcome=0.0 if result is Result.DRAW else 1.0 if result.value == side else -1.0,
            turns=len(facts),
            invalid_turns=sum(turn["invalid"] == 1.0 for turn in facts),
            segments=self._segments[seat],
            decisions=self._decisions[seat],
            reasked_decisions=self._reasked[seat],
            defaulted_decisions=self._defaulted[seat],
            facts={name: fmean(turn[name] for turn in facts) for name in TURN_FACTS} if facts else {},
        )
