"""Plays agentlightning's agents: any ``@rollout`` function or ``LitAgent``, synchronous or not.

Agents live in a thread of their own, so that one that blocks its event loop, waiting for a model by a synchronous
client say, does not keep the gateway from answering it.
"""

import asyncio
import contextvars
import inspect
import logging
import pkgutil
import threading
import traceback
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import Future
from typing import Any, TypeVar

from agentlightning import AttemptedRollout, LitAgent, NamedResources, rollout
from pydantic import TypeAdapter

from runners.agents.play import AgentFailed, Session
from runners.agents.rewards import dimensions_of, emitted_rewards
from runners.errors import CannotPlay

logger = logging.getLogger(__name__)

_LONGEST_TRACEBACK = 4_000

Result = TypeVar("Result")


class AgentUnavailable(CannotPlay):
    """Something that the agent needs is away: a service, an MCP server. The attempt is played again."""


class LitPlayer:
    """A ``runners.agents.play.Player`` for one agent."""

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


async def in_thread(function: Callable[[], Result]) -> Result:
    """Call a function in a thread of its own, which may outlive us: nothing can stop it from outside."""
    future: Future[Result] = Future()
    future.set_running_or_notify_cancel()
    context = contextvars.copy_context()

    def run() -> None:
        try:
            future.set_result(context.run(function))
        except StopIteration as error:  # no future takes it
            future.set_exception(RuntimeError(f"StopIteration: {error}"))
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=run, name="agent", daemon=True).start()
    return await asyncio.wrap_future(future)


def load(name: str) -> Any:
    """What ``module:name`` names. ValueError, which says what is wrong with it, otherwise."""
    if ":" not in name:
        raise ValueError(f"{name!r} must be of the form module:name, e.g. my.module:agent")
    try:
        return pkgutil.resolve_name(name)
    except (ValueError, ModuleNotFoundError, AttributeError) as error:
        raise ValueError(f"{name!r}: {error}; modules are found from the folder that you are in") from error


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
