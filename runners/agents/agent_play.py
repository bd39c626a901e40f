"""Plays one attempt of an agent's task: opens its gateway, runs the agent, and returns the outcome."""

import asyncio
import contextvars
import pkgutil
import threading
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from runners.addresses import Addresses
from runners.agents.gateway.address import Gateway
from runners.agents.gateway.attempt import Attempt
from runners.agents.gateway.chat_server import ChatServer
from runners.errors import CannotPlay, PolicyUnavailable, UnusableTask
from runners.play import TurnSink
from runners.policy.client import POLICY_TIMEOUT_SECONDS
from runners.policy.connections import Connections
from runners.policy.resources import PublishedResources
from store.agents import AgentOutcome, AgentTask
from store.client import StoreClient
from store.players import AGENT, MAIN_LLM
from store.protocol import LLM, AttemptedRollout, NamedResources, PromptTemplate, Rollout
from store.schema import PROMPT_RESOURCE_PREFIX, TRAINED_POLICY, PolicyResources, check_kind

_STOP_SECONDS = 5.0

Result = TypeVar("Result")


class AgentFailed(Exception):
    """The agent itself failed: the attempt has an outcome, and is not retried.

    traceback: of its exception, or empty.
    """

    def __init__(self, message: str, traceback: str = ""):
        super().__init__(message)
        self.traceback = traceback


class AgentUnavailable(CannotPlay):
    """A dependency of the agent is unreachable: a service, an MCP server. The attempt is retried."""


@dataclass(frozen=True)
class Session:
    """The inputs of an agent for one attempt.

    rollout: with the agent's ``input`` in place of the hub's task.
    base_url: the gateway's URL for the attempt, ending in /v1. model: the trained policy's name there.
    """

    task: AgentTask
    rollout: AttemptedRollout
    resources: PolicyResources
    base_url: str
    model: str = TRAINED_POLICY

    @property
    def trace_id(self) -> str:
        """Value of the header ``x-trace-id``, for agents with one address for all tasks."""
        return f"{self.rollout.rollout_id}/{self.rollout.attempt.attempt_id}"

    def named_resources(self) -> NamedResources:
        """The policies at the gateway, by name, and the published prompts.

        Nothing else: a client that writes to the hub must not choose an address that receives an agent's keys.
        """
        sampling = {
            "temperature": self.resources.sampling.temperature,
            "max_tokens": self.task.limits.reply_tokens,
        }

        def at_gateway(model: str) -> LLM:
            return LLM(endpoint=self.base_url, model=model, api_key="none", sampling_parameters=dict(sampling))

        named: NamedResources = {MAIN_LLM: at_gateway(self.model)}
        named |= {name: at_gateway(name) for name in self.resources.frozen}
        named |= {
            PROMPT_RESOURCE_PREFIX + name: PromptTemplate(template=template, engine="f-string")
            for name, template in self.resources.prompt_templates.items()
        }
        return named


class Player(Protocol):
    """Runs an agent. One instance serves a whole runner process."""

    async def __call__(self, session: Session) -> Mapping[str, float]:
        """The agent's rewards by name, the primary one first. Raises AgentFailed, or CannotPlay for a retry."""

    async def close(self) -> None:
        """Close all connections."""


class _OutOfTime(Exception):
    """The agent took longer than ``AgentTask.max_seconds``."""


class AgentPlay:
    """A ``runners.play.Play`` for agents. One instance serves a whole runner process.

    policy_timeout_seconds: how long to retry an unreachable policy server.
    addresses: the allowed addresses of models; None: the defaults for the client's hub.
    """

    def __init__(
        self,
        client: StoreClient,
        player: Player,
        policy_timeout_seconds: float = POLICY_TIMEOUT_SECONDS,
        addresses: Addresses | None = None,
    ):
        self._player = player
        addresses = addresses or Addresses(client.server_address_root)
        self._resources = PublishedResources(client, addresses)
        self._servers = Connections(ChatServer.of, addresses, policy_timeout_seconds)
        self._gateway = Gateway()
        self._starting: asyncio.Task[None] | None = None

    async def __call__(self, rollout: AttemptedRollout, on_turn: TurnSink) -> AgentOutcome:
        """Play the rollout's task. Raises CannotPlay, naming the task, resources, server or agent at fault."""
        task = read_task(rollout)
        resources = await self._resources.of(rollout)
        if self._starting is None:
            self._starting = asyncio.create_task(self._gateway.start())
        await asyncio.shield(self._starting)
        attempt = Attempt(rollout, task, resources, self._servers, on_turn)
        async with self._gateway.serving(attempt) as base_url:
            own = rollout.model_copy(update={"input": task.input})
            failure, traceback, dimensions = "", "", dict(task.failure_rewards)
            try:
                found = await self._act(Session(task, own, resources, base_url), attempt)
                dimensions = dimensions if found is None else dict(found)
            except AgentFailed as error:
                failure, traceback = str(error), error.traceback
            except _OutOfTime:
                failure = f"timeout after {task.max_seconds:g} s"
        if attempt.fatal_error is not None:
            if isinstance(attempt.fatal_error, PolicyUnavailable):
                # The algorithm may have restarted and published the same version with another server.
                self._resources.forget(resources.resources_id)
            raise attempt.fatal_error
        return attempt.outcome(dimensions, failure, traceback)

    async def close(self) -> None:
        """Close the gateway and all connections but the client's."""
        if self._starting is not None:
            await self._gateway.close()
        await self._player.close()
        await self._resources.close()
        await self._servers.close()

    async def _act(self, session: Session, attempt: Attempt) -> Mapping[str, float] | None:
        """The agent's rewards; None after a fatal error. Raises _OutOfTime and the player's errors."""
        acting = asyncio.ensure_future(self._player(session))
        acting.add_done_callback(lambda task: task.cancelled() or task.exception())  # or asyncio logs it
        watching = asyncio.create_task(attempt.failed_event.wait())
        try:
            either, limit = {acting, watching}, session.task.max_seconds
            in_time = (await asyncio.wait(either, timeout=limit, return_when=asyncio.FIRST_COMPLETED))[0]
            if not in_time:
                await attempt.check_servers()
        finally:
            watching.cancel()
            if acting.cancel():  # time for cleanup
                with suppress(BaseException):
                    await asyncio.wait({acting}, timeout=_STOP_SECONDS)
        if attempt.failed_event.is_set():
            return None
        if in_time:
            return acting.result()
        if acting.done() and not acting.cancelled() and isinstance(error := acting.exception(), CannotPlay):
            raise error  # the agent waited for that server
        raise _OutOfTime


def read_task(rollout: Rollout) -> AgentTask:
    """The task in a rollout's input. Raises UnusableTask, naming its kind or the field at fault."""
    try:
        check_kind(rollout.input, AGENT)
        return AgentTask.decode(rollout.input)
    except ValueError as error:
        text = "; ".join(str(error).splitlines())
        raise UnusableTask(f"rollout {rollout.rollout_id} cannot be played by this runner: {text}") from error


async def without_exit(awaitable: Awaitable[Result]) -> Result:
    """The awaitable's result; its ``exit``, which would end the event loop, is a RuntimeError."""
    try:
        return await awaitable
    except (SystemExit, KeyboardInterrupt) as error:
        raise RuntimeError(f"{type(error).__name__}: {error}") from error


async def in_thread(function: Callable[[], Result]) -> Result:
    """Call a function in a new daemon thread, which cannot be cancelled."""
    future: Future[Result] = Future()
    future.set_running_or_notify_cancel()
    context = contextvars.copy_context()

    def run() -> None:
        try:
            future.set_result(context.run(function))
        except (StopIteration, SystemExit, KeyboardInterrupt) as error:  # not for futures, or for asyncio's loop
            future.set_exception(RuntimeError(f"{type(error).__name__}: {error}"))
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=run, name="agent", daemon=True).start()
    return await asyncio.wrap_future(future)


def load(name: str) -> Any:
    """The object at ``module:name``. Raises ValueError for an invalid or unknown name."""
    if ":" not in name:
        raise ValueError(f"{name!r} must be of the form module:name, e.g. my.module:agent")
    try:
        return pkgutil.resolve_name(name)
    except (ValueError, ModuleNotFoundError, AttributeError) as error:
        raise ValueError(f"{name!r}: {error}; modules are imported from the working folder") from error
