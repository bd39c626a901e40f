"""One attempt at the gateway: its actors, their tokens and spans."""

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from aiohttp import ClientConnectionResetError

from runners.agents.gateway.chat_server import ChatServer
from runners.agents.gateway.requests import (
    Message,
    ModelReply,
    ModelRequest,
    PartSink,
    RequestRefused,
    json_object,
    warn_once,
)
from runners.agents.gateway.timelines import Place, Timelines
from runners.agents.transcript import Transcript
from runners.errors import CannotPlay, PolicyUnavailable
from runners.play import TurnSink
from runners.policy.client import RETRIED, Completion, seed_of
from runners.policy.codecs import UnusableTemplate
from runners.policy.connections import Connections
from store.agents import ActorResult, AgentCallSpan, AgentOutcome, AgentTask
from store.players import AGENT
from store.protocol import AttemptedRollout
from store.schema import TRAINED_POLICY, PolicyResources
from store.token_spans import context_digest

logger = logging.getLogger(__name__)

_CHECK_SECONDS = 5.0


class AttemptEnded(RequestRefused):
    """A call after the end of its attempt."""

    def __init__(self) -> None:
        super().__init__("this attempt has ended; further calls are rejected", 410, "attempt_ended")


@dataclass
class _Actor:
    """One actor: its conversations and counts."""

    policy: str
    trainable: bool
    timelines: Timelines = field(default_factory=Timelines)
    turns: int = 0
    facts: Counter[str] = field(default_factory=Counter)


class Attempt:
    """The calls of one attempt. ``fatal_error`` is what ended it from outside the agent, such as an unreachable server.

    on_turn: takes the span of every answered call. failed_event: is set together with ``fatal_error``.
    """

    def __init__(
        self,
        rollout: AttemptedRollout,
        task: AgentTask,
        resources: PolicyResources,
        servers: Connections[ChatServer],
        on_turn: TurnSink,
    ):
        self.key = (rollout.rollout_id, rollout.attempt.attempt_id)
        self.task = task
        self.resources = resources
        self.fatal_error: Exception | None = None
        self.failed_event = asyncio.Event()
        self._servers = servers
        self._on_turn = on_turn
        self._actors: dict[str, _Actor] = {}
        self._asked = 0
        self.refused = 0
        """Number of rejected calls."""
        self._dropped: Counter[str] = Counter()
        self._open_calls: set[asyncio.Timeout] = set()
        self.responses: dict[str, list[Message]] = {}
        """Conversations without instructions by the id of the response that ended them, for the Responses API."""
        self._transcript = Transcript()
        self._ended = False
        self._started = time.monotonic()

    @property
    def models(self) -> tuple[str, ...]:
        """Valid model names; the trained policy's may be followed by ``/`` and an actor's name."""
        return (TRAINED_POLICY, *self.resources.frozen)

    async def call(self, request: ModelRequest, on_part: PartSink | None = None) -> ModelReply:
        """Answer a call. Raises RequestRefused, also if the attempt has ended meanwhile.

        on_part: receives parts of the reply as they are sampled, if the policy's server can parse parts. Its
            ClientConnectionResetError ends the call alone, which is not recorded.
        """
        if self._ended:
            raise AttemptEnded
        self._dropped.update(request.dropped)
        for name in request.dropped:
            warn_once(name, "ignoring %r in an agent's requests: the run sets the sampling parameters", name)
        scope = asyncio.timeout(None)
        retried: list[Exception] = []
        RETRIED.set(retried)
        try:
            async with scope:
                self._open_calls.add(scope)
                try:
                    return await self._answer(request, on_part)
                finally:
                    self._open_calls.discard(scope)
        except asyncio.CancelledError:
            if retried and not self._ended:  # the agent has its own timeout
                self._fail(PolicyUnavailable(f"requests to the policy's server fail: {retried[-1]!r}"))
            raise
        except (RequestRefused, ClientConnectionResetError):  # the latter by ``on_part``: the agent has left its stream
            raise
        except Exception as error:
            if scope.expired():  # by ``end``
                raise AttemptEnded from None
            # Not caused by the agent: the attempt ends, and is retried.
            if self.fatal_error is None and not isinstance(error, CannotPlay):
                logger.exception("rollout %s: a model call failed", self.key[0])
            self._fail(error)
            raise RequestRefused(f"the policy is unavailable: {error}", status=503) from error

    async def check_servers(self) -> None:
        """End the attempt with a ``fatal_error`` if calls are in progress and a server is unreachable."""
        if not self._open_calls:
            return
        try:
            async with asyncio.timeout(_CHECK_SECONDS):  # the client retries for longer
                for name, actor in list(self._actors.items()):
                    server = (await self._server(name, actor.policy)).server
                    if server.retrying:  # it may still list its models
                        raise PolicyUnavailable(f"requests to {server.endpoint} fail")
                    await server.model_folder()
        except (CannotPlay, TimeoutError) as error:
            self._fail(PolicyUnavailable(f"a policy's server is unreachable: {str(error) or 'no answer'}"))

    def _fail(self, error: Exception) -> None:
        self.fatal_error = self.fatal_error or error
        self.end()
        self.failed_event.set()

    def end(self) -> None:
        """Reject further calls and cancel those in progress."""
        self._ended = True
        while self._open_calls:
            self._open_calls.pop().reschedule(0.0)

    def outcome(self, dimensions: Mapping[str, float], failure: str = "", traceback: str = "") -> AgentOutcome:
        actors = tuple(
            ActorResult(
                name=name,
                policy=actor.policy,
                trainable=actor.trainable,
                turns=actor.turns,
                segments=actor.timelines.count,
                facts=dict(actor.facts),
            )
            for name, actor in sorted(self._actors.items())
            if actor.turns
        )
        return AgentOutcome(
            task_id=self.task.task_id,
            group_id=self.task.group_id,
            policy_version=self.resources.version,
            dimensions=dict(dimensions),
            failure=failure,
            traceback=traceback,
            turns=sum(actor.turns for actor in actors),
            refused=self.refused,
            actors=actors,
            dropped=dict(self._dropped),
            seconds=time.monotonic() - self._started,
            transcript=self._transcript.text(traceback or failure),
        )

    async def _answer(self, request: ModelRequest, on_part: PartSink | None) -> ModelReply:
        name, policy = self._who(request)
        if self._asked >= self.task.max_calls:
            raise RequestRefused(
                f"this attempt has reached its limit of {self.task.max_calls} model calls",
                status=429,
                code="too_many_calls",
            )
        self._asked += 1
        seed = seed_of(f"{self.task.sampling_seed}/{name}/{self._asked}")
        actor = self._actors.setdefault(name, _Actor(policy, policy == TRAINED_POLICY and self.task.may_train(name)))
        if actor.policy != policy:
            raise RequestRefused(
                f"actor {name!r} calls {policy!r} and {actor.policy!r}: use one actor name for each policy"
            )
        server = await self._server(name, policy)
        with actor.timelines.place([list(request.tools), request.use_tools], request.messages) as place:
            known, new_ids = await self._prompt(server, request, place)
            prompt = [*known, *new_ids]
            reply_tokens = self._room(request, len(prompt))
            started = time.time()
            sampled, message = await server.reply(request, prompt, len(new_ids), reply_tokens, seed, on_part)
            if self._ended:  # ``outcome`` has counted the calls
                raise AttemptEnded
            ended = time.time()
            stop_text = _cut_at(message, request.stop)
            timeline, known, new_ids = actor.timelines.extend(place, known, new_ids, sampled.token_ids, message)
        facts = _facts(request, message, sampled)
        span = AgentCallSpan(
            task_id=self.task.task_id,
            group_id=self.task.group_id,
            name=name,
            turn=actor.turns,
            segment=timeline.segment,
            policy=policy,
            policy_version=self._version(policy, sampled),
            version_until=sampled.version_until,
            trainable=actor.trainable,
            valid="invalid" not in facts,
            error="invalid_tool_call" if "invalid" in facts else None,
            context_tokens=len(known),
            context_digest=context_digest(known),
            prompt_ids=tuple(new_ids),
            response_ids=sampled.token_ids,
            logprobs=sampled.logprobs,
            finish_reason=sampled.finish_reason,
            reply=message.get("content") or "",
            thought=message.get("reasoning") or "",
            facts=facts,
        )
        actor.turns += 1
        actor.facts.update(facts)
        self._transcript.add(name, timeline.segment, request.messages, message)
        self._on_turn(span, started, ended)
        calls_tools = sampled.finish_reason == "stop" and "tool_calls" in message
        return ModelReply(
            message=message,
            finish_reason="tool_calls" if calls_tools else sampled.finish_reason,
            prompt_tokens=len(prompt),
            reply_tokens=len(sampled.token_ids),
            stop_text=stop_text,
        )

    async def _server(self, name: str, policy: str) -> ChatServer:
        return await self._servers.get(self.resources, policy, f"{self.task.task_id}/{name}")

    def _who(self, request: ModelRequest) -> tuple[str, str]:
        policy, slash, actor = request.model.partition("/")
        if request.model in self.resources.frozen:
            return request.actor or request.model, request.model
        if policy != TRAINED_POLICY or bool(slash) != bool(actor):
            raise RequestRefused(
                f"unknown model {request.model!r}; there are {', '.join(self.models)}, and {TRAINED_POLICY}/NAME for "
                f"an actor NAME",
                status=404,
                code="model_not_found",
                param="model",
            )
        name = request.actor or actor or AGENT
        if name in self.resources.frozen:
            raise RequestRefused(f"{name!r} is a frozen policy, so it cannot name an actor of {TRAINED_POLICY!r}")
        return name, policy

    async def _prompt(
        self, server: ChatServer, request: ModelRequest, place: Place
    ) -> tuple[tuple[int, ...], list[int]]:
        """(context ids, new ids)."""
        if place.known:
            try:
                return place.known, await server.next_prompt(request, place.messages, place.known[-1])
            except UnusableTemplate as error:
                logger.info("rollout %s: rendering a conversation again: %s", self.key[0], error)
        return (), await server.first_prompt(request)

    def _room(self, request: ModelRequest, prompt_tokens: int) -> int:
        """The reply's token limit. Raises RequestRefused if the context is full."""
        limits = self.task.limits
        wanted = min(request.reply_tokens or 1, limits.reply_tokens)
        if prompt_tokens + wanted > limits.context_tokens:
            raise RequestRefused(
                f"This model's maximum context length is {limits.context_tokens} tokens. However, you requested "
                f"{prompt_tokens + wanted} tokens ({prompt_tokens} in the messages, {wanted} in the completion). "
                f"Please reduce the length of the messages or completion.",
                code="context_length_exceeded",
                param="messages",
            )
        if request.reply_tokens is not None:
            return wanted
        return min(limits.reply_tokens, limits.context_tokens - prompt_tokens)

    def _version(self, policy: str, sampled: Completion) -> int:
        if sampled.policy_version is not None:
            return sampled.policy_version
        return self.resources.version if policy == TRAINED_POLICY else 0


def _cut_at(message: Message, stop: tuple[str, ...]) -> str | None:
    """Remove the stop text and all after it from the message; returns the stop text."""
    content = message.get("content") or ""
    places = [(place, text) for text in stop if (place := content.find(text)) >= 0]
    if not places:
        return None
    place, text = min(places)
    message["content"] = content[:place]
    return text


def _facts(request: ModelRequest, message: Message, sampled: Completion) -> dict[str, float]:
    """Facts of a reply (``store.agents.CALL_FACTS``) that are not neutral."""
    calls = message.get("tool_calls") or ()
    offered = {tool["function"]["name"] for tool in request.tools}
    wrong = any(
        call["function"]["name"] not in offered or json_object(call["function"]["arguments"]) is None for call in calls
    )
    facts = {
        "invalid": float(wrong),
        "cut": float(sampled.finish_reason == "length"),
        "tool_calls": float(len(calls)),
    }
    return {name: value for name, value in facts.items() if value}
