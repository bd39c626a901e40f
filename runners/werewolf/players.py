"""AgentScope agents of the seats: policies in token ids, and players without a model.

A player receives events through ``observe`` and answers the referee's request through ``reply``. The answer is a
``Decided`` in the message's metadata; only the table announces what others hear of it, so a private answer cannot leak.
"""

import asyncio
import logging
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any, NoReturn

from agentscope.agent import AgentBase
from agentscope.message import Msg
from agentscope.model import ChatResponse

from runners.errors import CannotPlay
from runners.policy.chat_tokens import ChatMessage
from runners.policy.model import ContextFull, ProbePrompt, SampledTurn, TokenExactChatModel
from runners.werewolf.brains import Brain
from runners.werewolf.brains.expert import ExpertBrain
from runners.werewolf.brains.odds import role_odds
from runners.werewolf.game import Action, Decision, Event, EventKind, Observation, Role
from runners.werewolf.language.replies import ReplyError, parse_reply, split_thought
from runners.werewolf.prompts_zh.names import ROLE_NAMES, seat_name
from runners.werewolf.prompts_zh.questions import (
    render_probe,
    render_question,
    render_reply_error,
    render_turn,
)
from runners.werewolf.prompts_zh.quoting import one_line
from runners.werewolf.prompts_zh.record import RECAP_SPEECH_CHARS, render_events, render_recap
from store.werewolf_study import ProbeTokens

logger = logging.getLogger(__name__)

_RECAP_SHARE = 0.5
"""Largest share of the context for a recap with speeches; a fuller one would soon need the next recap."""


def log_refusal(player: str, decision: Decision, error: ReplyError, reply: str) -> None:
    """Log an invalid reply with the reason."""
    logger.info("%s, %s: invalid reply (%s): %s", player, decision.value, error.code, one_line(reply)[:200])


@dataclass(frozen=True, slots=True)
class ModelTurn:
    """One call of a policy with its parsed reply."""

    sampled: SampledTurn
    is_reask: bool
    reply: str
    thought: str
    error: str | None  # why the reply is invalid; None for a legal action


@dataclass(frozen=True, slots=True)
class Decided:
    """A player's answer."""

    action: Action
    reasked: bool = False  # there was a re-ask
    defaulted: bool = False  # the re-ask failed, too: the default action was taken
    turns: tuple[ModelTurn, ...] = ()  # calls of a policy, trained or frozen


@dataclass(frozen=True, slots=True)
class BeliefQuestion:
    """A probe (``runners.werewolf.study``): the roles of ``targets``."""

    events: tuple[Event, ...]  # all events that the seat knows, oldest first
    deck: tuple[Role, ...]
    targets: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Believed:
    """mass, asked: as in ``store.werewolf_study.BeliefRecord``."""

    # Seat -> role -> probability; None if the player cannot be probed.
    chances: Mapping[int, Mapping[Role, float]] | None = None
    mass: float | None = None
    asked: tuple[ProbeTokens, ...] = ()


Reminder = Callable[[Sequence[Event]], str]
NO_REMINDER: Reminder = lambda known: ""  # noqa: E731


class Player(AgentBase):
    """A seat's agent. ``heard`` holds the events since its last decision, oldest first."""

    def __init__(self, seat: int):
        super().__init__()
        self.seat = seat
        self.name = seat_name(seat)
        self.heard: list[Event] = []
        self.set_console_output_enabled(False)

    async def observe(self, msg: Msg | list[Msg] | None) -> None:
        """Receive an announcement; its event is in ``metadata["event"]``."""
        for message in msg if isinstance(msg, list) else [msg]:
            if message is not None:
                self.heard.append(message.metadata["event"])

    async def reply(self, msg: Msg) -> Msg:
        """Answer the request in ``metadata["observation"]``; the answer is in ``metadata["decided"]``."""
        decided = await self.decide(msg.metadata["observation"])
        return Msg(self.name, decided.action.text, "assistant", metadata={"decided": decided})

    async def decide(self, observation: Observation) -> Decided:
        raise NotImplementedError

    async def believe(self, question: BeliefQuestion) -> Believed:
        """Its beliefs about other seats' roles. Does not change its state."""
        return Believed()

    async def handle_interrupt(self, *args: Any, **kwargs: Any) -> NoReturn:
        """AgentScope calls this for a cancelled reply; a cancelled game must stay cancelled."""
        raise asyncio.CancelledError


class BrainPlayer(Player):
    """A player without a model."""

    def __init__(self, seat: int, brain: Brain):
        super().__init__(seat)
        self._brain = brain

    async def decide(self, observation: Observation) -> Decided:
        """The brain's action; the observation holds all that it may know."""
        self.heard.clear()
        return Decided(self._brain.act(observation))

    async def believe(self, question: BeliefQuestion) -> Believed:
        if not isinstance(self._brain, ExpertBrain):
            return Believed()
        odds = role_odds(question.events, self.seat, question.deck)
        return Believed({target: odds[target] for target in question.targets})


class PolicyPlayer(Player):
    """Calls a policy once per decision, and once more after an invalid reply.

    reminder: ends each question, made of the known events.
    """

    def __init__(self, seat: int, model: TokenExactChatModel, system_prompt: str, reminder: Reminder = NO_REMINDER):
        super().__init__(seat)
        self._model, self._reminder = model, reminder
        self._system: ChatMessage = {"role": "system", "content": system_prompt}
        self._conversation: list[ChatMessage] = [self._system]
        self._known: list[Event] = []

    async def decide(self, observation: Observation) -> Decided:
        """Prompt the policy with the news and the question, parse its reply, and re-ask at most once."""
        request = observation.question
        news, self.heard = self.heard, []
        self._known += news
        reminder = self._reminder(self._known)
        question = render_question(request) + reminder
        content = render_turn(news, question)
        turns: list[ModelTurn] = []
        for is_reask in (False, True):
            response = await self._ask(content, question)
            text = response.content[0]["text"]
            sampled: SampledTurn = response.metadata["sampled"]
            thought, reply = split_thought(text)
            try:
                action = parse_reply(text, request, cut=sampled.finish_reason == "length")
            except ReplyError as error:
                log_refusal(self.name, request.decision, error, reply)
                turns.append(ModelTurn(sampled, is_reask, reply, thought, error.code))
                content = question = render_reply_error(error, request) + reminder
            else:
                turns.append(ModelTurn(sampled, is_reask, reply, thought, None))
                return Decided(action, reasked=is_reask, turns=tuple(turns))
        return Decided(request.default, reasked=True, defaulted=True, turns=tuple(turns))

    async def believe(self, question: BeliefQuestion) -> Believed:
        """Probabilities of the role names, normalized over the deck's roles; none if the question exceeds the context.

        The question follows the conversation and the news; the conversation does not change.
        """
        roles = sorted(set(question.deck))
        words = await self._names_of(roles)
        try:
            prompts, found = await self._model.word_log_probs(self._asking(question, roles), words)
        except ContextFull:
            return Believed()
        chances = {}
        for seat, values in zip(question.targets, found, strict=True):
            shares = [math.exp(value - max(values)) for value in values]
            chances[seat] = {role: share / sum(shares) for role, share in zip(roles, shares, strict=True)}
        mass = fmean(sum(map(math.exp, values)) for values in found) if found else None
        return Believed(chances, mass, _in_tokens(question, roles, words, prompts))

    async def questions_in_tokens(self, question: BeliefQuestion) -> tuple[ProbeTokens, ...]:
        """The prompts of ``believe``, without a call; empty if they exceed the context."""
        roles = sorted(set(question.deck))
        try:
            prompts = await self._model.probe_prompts(self._asking(question, roles))
        except ContextFull:
            return ()
        return _in_tokens(question, roles, await self._names_of(roles), prompts)

    def _asking(self, question: BeliefQuestion, roles: Sequence[Role]) -> list[list[ChatMessage]]:
        """The conversation with the news and the question about each seat."""
        return [
            [*self._conversation, {"role": "user", "content": render_turn(self.heard, render_probe(seat, roles))}]
            for seat in question.targets
        ]

    async def _names_of(self, roles: Sequence[Role]) -> list[tuple[int, ...]]:
        return [await self._model.encode_words(ROLE_NAMES[role]) for role in roles]

    async def _ask(self, content: str, question: str) -> ChatResponse:
        """Continue the conversation with ``content``; if it exceeds the context, restart from a recap.

        question: follows the recap, which includes the news.
        """
        conversation: list[ChatMessage] = [*self._conversation, {"role": "user", "content": content}]
        try:
            response = await self._model(conversation)
        except ContextFull:
            conversation, response = await self._restart_from_recap(question)
        self._conversation = [*conversation, {"role": "assistant", "content": response.content[0]["text"]}]
        return response

    async def _restart_from_recap(self, question: str) -> tuple[list[ChatMessage], ChatResponse]:
        """A new conversation that begins with a recap and leaves room for later turns.

        To shorten the recap, texts of speeches are dropped: those of earlier days, then all. All events stay.
        """
        nights = [number for number, event in enumerate(self._known) if event.kind is EventKind.NIGHT_FALLS]
        for wordless in (0, nights[-1] if nights else 0, len(self._known)):
            conversation = self._recap(wordless, question)
            if await self._model.excess(conversation, _RECAP_SHARE) <= 0:
                break
        if (excess := await self._model.excess(conversation)) > 0:
            by = "" if excess == math.inf else f" by {excess} tokens"
            raise CannotPlay(
                f"{self.name}: a recap without speeches exceeds the context{by}; raise rollout.context_tokens"
            )
        return conversation, await self._model(conversation)

    def _recap(self, wordless: int, question: str) -> list[ChatMessage]:
        """A conversation of recap and question; the oldest ``wordless`` events have no texts of speeches."""
        oldest = render_recap(self._known[:wordless], self.seat, speech_chars=0).rstrip("\n")
        latest = render_events(self._known[wordless:], RECAP_SPEECH_CHARS)
        recap = "\n".join(part for part in (oldest, latest, question) if part)
        return [self._system, {"role": "user", "content": recap}]


def _in_tokens(
    question: BeliefQuestion, roles: Sequence[Role], words: Sequence[tuple[int, ...]], prompts: Sequence[ProbePrompt]
) -> tuple[ProbeTokens, ...]:
    """The questions in the form of the record."""
    return tuple(
        ProbeTokens(
            target=seat,
            segment=prompt.segment,
            context_tokens=prompt.context_tokens,
            prompt_ids=prompt.prompt_ids,
            words={role.value: word for role, word in zip(roles, words, strict=True)},
        )
        for seat, prompt in zip(question.targets, prompts, strict=True)
    )
