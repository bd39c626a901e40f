"""Plays one attempt of an agent's task: opens its address, lets the agent act, and says what came of it."""

import asyncio
import contextvars
import pkgutil
import threading
from collections.abc import Callable, Mapping
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
from runners.policy.resources import PublishedResources
from runners.policy.server import POLICY_PATIENCE_SECONDS
from runners.policy.servers import Connections
from store.agents import AGENT, AgentOutcome, AgentTask
from store.client import StoreClient
from store.protocol import LLM, AttemptedRollout, NamedResources, PromptTemplate, Rollout
from store.schema import TRAINED_POLICY, PolicyResources, check_kind

MAIN_LLM = "main_llm"
"""Name of the trained policy's ``LLM`` among an agent's resources, and the first of them."""

_STOP_SECONDS = 5.0

Result = TypeVar("Result")


class AgentFailed(Exception):
    """The agent failed by its own doing: the attempt has an outcome, and is not tried again.

    traceback: of the exception that it raised; empty where it raised none.
    """

    def __init__(self, message: str, traceback: str = ""):
        super().__init__(message)
        self.traceback = traceback


class AgentUnavailable(CannotPlay):
    """Something that the agent needs is away: a service, an MCP server. The attempt is played again."""


@dataclass(frozen=True)
class Session:
    """What an agent is given for one attempt.

    rollout: with the agent's own ``input``, without what surrounds it in the hub.
    base_url: the attempt's address for clients, ending in /v1. model: the trained policy's name there.
    """

    task: AgentTask
    rollout: AttemptedRollout
    resources: PolicyResources
    base_url: str
    model: str = TRAINED_POLICY

    @property
    def trace_id(self) -> str:
        """Names the attempt in the header ``x-trace-id``, for agents that are given one address for all tasks."""
        return f"{self.rollout.rollout_id}/{self.rollout.attempt.attempt_id}"

    def named_resources(self) -> NamedResources:
        """The policies at the attempt's address, by their names, and the prompts that the algorithm published.

        Nothing else: whoever can write to the hub must not choose an address that an agent sends its keys to.
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
            name: PromptTemplate(template=template, engine="f-string")
            for name, template in self.resources.prompt_templates.items()
        }
        return named


class Player(Protocol):
    """Lets an agent act. One instance serves a whole runner process."""

    async def __call__(self, session: Session) -> Mapping[str, float]:
        """The agent's rewards by name, the primary one first. Raises AgentFailed, or CannotPlay to try again."""

    async def close(self) -> None:
        """Close what it has opened."""


class AgentPlay:
    """A ``runners.play.Play`` for agents. One instance serves a whole runner process.

    policy_patience_seconds: how long a policy's server that is away is waited for.
    resources_patience_seconds: how long missing resources are waited for.
    addresses: that models may be called at; None: the defaults for the client's hub.
    """

    def __init__(
        self,
        client: StoreClient,
        player: Player,
        policy_patience_seconds: float = POLICY_PATIENCE_SECONDS,
        resources_patience_seconds: float = 60.0,
        addresses: Addresses | None = None,
    ):
        self._player = player
        addresses = addresses or Addresses(client.server_address_root)
        self._resources = PublishedResources(client, resources_patience_seconds, addresses)
        self._servers = Connections(ChatServer.of, addresses, policy_patience_seconds)
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
            except TimeoutError:
                failure = f"it had not ended after {task.max_seconds:g} s"
        if attempt.trouble is not None:
            if isinstance(attempt.trouble, PolicyUnavailable):
                # The algorithm may have started again, and published the same version with another server.
                self._resources.forget(resources.resources_id)
            raise attempt.trouble
        return attempt.outcome(dimensions, failure, traceback)

    async def close(self) -> None:
        """Stop answering agents, and close all connections but the client's."""
        if self._starting is not None:
            await self._gateway.close()
        await self._player.close()
        await self._resources.close()
        await self._servers.close()

    async def _act(self, session: Session, attempt: Attempt) -> Mapping[str, float] | None:
        """The agent's rewards; None where trouble came first. Raises TimeoutError, and what the player raises."""
        acting = asyncio.ensure_future(self._player(session))
        watching = asyncio.create_task(attempt.troubled.wait())
        try:
            either = asyncio.wait({acting, watching}, return_when=asyncio.FIRST_COMPLETED)
            await asyncio.wait_for(either, session.task.max_seconds)
            return None if attempt.troubled.is_set() else acting.result()
        finally:
            watching.cancel()
            if acting.cancel():  # it gets a moment to close what it has opened
                with suppress(BaseException):
                    await asyncio.wait({acting}, timeout=_STOP_SECONDS)


def read_task(rollout: Rollout) -> AgentTask:
    """The task in a rollout's input. Raises UnusableTask, which names its kind, or the field at fault."""
    try:
        check_kind(rollout.input, AGENT)
        return AgentTask.decode(rollout.input)
    except ValueError as error:
        raise UnusableTask(f"rollout {rollout.rollout_id} cannot be played by this runner: {error}") from error


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
