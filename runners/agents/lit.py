"""Plays agentlightning's agents: any ``@rollout`` function or ``LitAgent``, synchronous or not.

Agents live in a thread of their own, so that one that blocks its event loop, waiting for a model by a synchronous
client say, does not keep the gateway from answering it.
"""

import asyncio
import inspect
import logging
import threading
import traceback
from collections.abc import Coroutine, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TypeVar

from agentlightning import (
    AttemptedRollout,
    DummyTracer,
    LitAgent,
    NamedResources,
    Span,
    SpanCoreFields,
    get_active_tracer,
    rollout,
    set_active_tracer,
)
from agentlightning.emitter import get_rewards_from_span
from pydantic import TypeAdapter

from runners.agents.agent_play import AgentFailed, AgentUnavailable, Session, in_thread, load
from runners.agents.rewards import dimensions_of

logger = logging.getLogger(__name__)

_LONGEST_TRACEBACK = 4_000
_emitted: ContextVar[list[Mapping[str, float]]] = ContextVar("emitted")

Result = TypeVar("Result")


class EmittedRewards(DummyTracer):
    """Takes what agents emit (``agentlightning.emit_reward``) to the attempt that emits it, many at once.

    agentlightning keeps one tracer for a process, and its own allow one attempt at a time.
    """

    def create_span(self, *args: Any, **kwargs: Any) -> SpanCoreFields:
        """Note the rewards of a span; other spans go nowhere."""
        span = super().create_span(*args, **kwargs)
        noted = _emitted.get(None)
        if noted is not None and (dimensions := _of_span(span)):
            noted.append(dimensions)
        return span


@contextmanager
def emitted_rewards() -> Iterator[list[Mapping[str, float]]]:
    """Rewards that are emitted in this context, and in tasks and threads begun within it with their context."""
    if get_active_tracer() is None:
        set_active_tracer(EmittedRewards())
    noted: list[Mapping[str, float]] = []
    token = _emitted.set(noted)
    try:
        yield noted
    finally:
        _emitted.reset(token)


def _of_span(span: Span | SpanCoreFields) -> dict[str, float]:
    return {reward.name: reward.value for reward in get_rewards_from_span(span)}


class LitPlayer:
    """A ``runners.agents.agent_play.Player`` for one agent."""

    def __init__(self, agent: LitAgent[Any]):
        self._agent = agent
        self._logged: set[tuple[type[Exception], str, int | None]] = set()
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, name="agents", daemon=True).start()

    async def __call__(self, session: Session) -> Mapping[str, float]:
        """Let the agent act. Raises AgentFailed for what it raises, AgentUnavailable where a connection broke."""
        agent, training = self._agent, session.rollout.mode in (None, "train")
        resources = TypeAdapter(NamedResources).validate_python(session.named_resources(), from_attributes=True)
        own = AttemptedRollout.model_validate(session.rollout, from_attributes=True)
        given = (own.input, resources, own)
        with emitted_rewards() as emitted:
            try:
                if agent.is_async():
                    act = agent.training_rollout_async if training else agent.validation_rollout_async
                    result = await self._in_loop(act(*given))
                else:
                    act_now = agent.training_rollout if training else agent.validation_rollout
                    result = await in_thread(lambda: act_now(*given))
            except ConnectionError as error:
                raise AgentUnavailable(f"{type(error).__name__}: {error}") from error
            except Exception as error:
                raise self._failed(error) from error
        if isinstance(result, list) and all(isinstance(span, Span) for span in result):
            result = next((found for span in reversed(result) if (found := _of_span(span))), None)
        return dimensions_of(result, emitted)

    async def close(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)

    def _failed(self, error: Exception) -> AgentFailed:
        """With its traceback, which is logged once for each place that raises."""
        where = traceback.extract_tb(error.__traceback__)[-1]
        place = (type(error), where.filename, where.lineno)
        if place not in self._logged:
            self._logged.add(place)
            logger.warning("the agent raises an exception (logged once for each place)", exc_info=error)
        text = "".join(traceback.format_exception(error))
        return AgentFailed(f"{type(error).__name__}: {error}", text[-_LONGEST_TRACEBACK:])

    async def _in_loop(self, coroutine: Coroutine[Any, Any, Result]) -> Result:
        # The context of this moment goes along, and with it where emitted rewards are noted.
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(coroutine, self._loop))


def load_agent(name: str) -> LitAgent[Any]:
    """The agent that ``module:name`` names: a LitAgent, a class of such, or a function. ValueError for others."""
    found = load(name)
    if inspect.isclass(found) and issubclass(found, LitAgent):
        found = found()
    if isinstance(found, LitAgent):
        return found
    if not callable(found):
        raise ValueError(f"{name!r} is no agent but a {type(found).__name__}")
    try:
        return rollout(found)
    except NotImplementedError as error:
        raise ValueError(
            f"{name!r} cannot be played: its parameters must be task and llm, task and prompt_template, and may have "
            f"rollout after them"
        ) from error
