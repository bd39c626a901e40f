"""Runs agentlightning's agents: any ``@rollout`` function or ``LitAgent``, synchronous or not.

Agents run in a separate thread, so that an agent that blocks its event loop, e.g. with a synchronous client, does not
block the gateway.
"""

import asyncio
import inspect
import logging
import threading
import traceback
from collections.abc import Coroutine, Mapping
from concurrent.futures import Future
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

from runners.agents.agent_play import AgentFailed, AgentUnavailable, Session, in_thread, load, without_exit
from runners.agents.rewards import dimensions_of

logger = logging.getLogger(__name__)
logging.getLogger("agentlightning.litagent").setLevel(logging.ERROR)  # it warns about several LLMs at every rollout

_LONGEST_TEXT = 4_000
_emitted: ContextVar[list[Mapping[str, float]]] = ContextVar("emitted")

Result = TypeVar("Result")


class EmittedRewards(DummyTracer):
    """Assigns emitted rewards (``agentlightning.emit_reward``) to attempts, many at once.

    agentlightning has one tracer per process, and its own tracers allow one attempt at a time.
    """

    def create_span(self, *args: Any, **kwargs: Any) -> SpanCoreFields:
        """Record the rewards of a span; other spans are dropped."""
        span = super().create_span(*args, **kwargs)
        noted = _emitted.get(None)
        if noted is not None and (dimensions := _of_span(span)):
            noted.append(dimensions)
        return span


def _of_span(span: Span | SpanCoreFields) -> dict[str, float]:
    return {reward.name: reward.value for reward in get_rewards_from_span(span)}


class LitPlayer:
    """A ``runners.agents.agent_play.Player`` for an agentlightning agent."""

    def __init__(self, agent: LitAgent[Any]):
        self._agent = agent
        self._logged: set[tuple[type[Exception], str, int | None]] = set()
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, name="agents", daemon=True).start()

    async def __call__(self, session: Session) -> Mapping[str, float]:
        """Run the agent. Raises AgentFailed for its exceptions, AgentUnavailable for its ConnectionError."""
        agent, training = self._agent, session.rollout.mode in (None, "train")
        resources = TypeAdapter(NamedResources).validate_python(session.named_resources(), from_attributes=True)
        own = AttemptedRollout.model_validate(session.rollout, from_attributes=True)
        given = (own.input, resources, own)
        if get_active_tracer() is None:
            set_active_tracer(EmittedRewards())
        emitted: list[Mapping[str, float]] = []
        _emitted.set(emitted)  # in the task of this call, and in the loop or thread that begins in its context
        try:
            if agent.is_async():
                act = agent.training_rollout_async if training else agent.validation_rollout_async
                result = await self._in_loop(act(*given))
            else:
                act_now = agent.training_rollout if training else agent.validation_rollout
                result = await in_thread(lambda: act_now(*given))
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            raise AgentFailed("CancelledError: the agent cancelled its own call") from error
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
        """The failure with its traceback, which is logged once per raising line."""
        where = traceback.extract_tb(error.__traceback__)[-1]
        place = (type(error), where.filename, where.lineno)
        if place not in self._logged:
            self._logged.add(place)
            logger.warning("the agent raised an exception (logged once per line)", exc_info=error)
        text = "".join(traceback.format_exception(error))
        return AgentFailed(f"{type(error).__name__}: {error}"[:_LONGEST_TEXT], text[-_LONGEST_TEXT:])

    async def _in_loop(self, coroutine: Coroutine[Any, Any, Result]) -> Result:
        """The coroutine's result. Cancelled, it waits until the coroutine has ended."""
        tasks: list[asyncio.Task[Result]] = []
        ended: Future[asyncio.Task[Result]] = Future()

        def start() -> None:
            # The task inherits the current context, in which emitted rewards are recorded.
            tasks.append(self._loop.create_task(without_exit(coroutine)))
            tasks[0].add_done_callback(ended.set_result)

        self._loop.call_soon_threadsafe(start)
        waiting = asyncio.wrap_future(ended)
        try:
            await asyncio.wait({waiting})
        except asyncio.CancelledError:
            self._loop.call_soon_threadsafe(lambda: tasks[0].cancel())
            await asyncio.wait({waiting})
            waiting.result().result()  # raises its error, or that it was cancelled
            raise
        return waiting.result().result()


def load_agent(name: str) -> LitAgent[Any]:
    """The agent at ``module:name``: a LitAgent, a subclass, or a function. Raises ValueError otherwise."""
    found = load(name)
    if inspect.isclass(found) and issubclass(found, LitAgent):
        found = found()
    if isinstance(found, LitAgent):
        return found
    if not callable(found):
        raise ValueError(f"{name!r} must be an agent, not a {type(found).__name__}")
    try:
        return rollout(found)
    except NotImplementedError as error:
        raise ValueError(
            f"{name!r} is not a valid agent: its parameters must be task and llm, or task and prompt_template, "
            f"optionally followed by rollout"
        ) from error
