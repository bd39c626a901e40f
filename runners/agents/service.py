"""Runs an agent that is an HTTP service: sends it a task with the gateway's address."""

import asyncio
import inspect
import json
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import urlsplit

import aiohttp
from tenacity import AsyncRetrying, retry_if_exception_type, stop_after_delay, wait_fixed

from runners.agents.agent_play import AgentFailed, AgentUnavailable, Session, in_thread, without_exit
from runners.agents.rewards import dimensions_of
from runners.errors import CannotPlay, UnusableTask
from store.schema import PROMPT_RESOURCE_PREFIX

_POLL_SECONDS = 0.5
_TRY_AGAIN = (429, 502, 503, 504)
_SHOWN = 300

Reward = Callable[[Any, Any], Any]
"""(the task's input, the service's answer) -> a number or named numbers, or an awaitable of these."""


class ServiceRefuses(CannotPlay):
    """The service rejects the form of tasks."""


class ServicePlayer:
    """A ``runners.agents.agent_play.Player`` for the service at ``url``.

    A task is a JSON POST of the task's input with ``base_url``, ``model``, ``trace_id``, ``temperature`` and
    ``max_tokens`` added, and the published prompts by their names in the hub, such as ``prompt_template``; an input
    that is not an object becomes the field ``input``, and one with a field of these names is an error.
    reward: computes the reward from the answer, decoded if it is JSON; None: the answer's field ``reward``.
    retry_seconds: how long to retry a service that refuses connections.
    """

    def __init__(self, url: str, reward: Reward | None = None, retry_seconds: float = 60.0):
        self._url = check_url(url)
        self._reward = reward
        self._retry_seconds = retry_seconds
        self._http: aiohttp.ClientSession | None = None

    async def __call__(self, session: Session) -> Mapping[str, float]:
        """Send the task, and compute the reward of the answer.

        Raises AgentFailed for an error of the service, AgentUnavailable if it is unreachable, and UnusableTask.
        """
        given = session.task.input
        fields = given if isinstance(given, dict) else {"input": given}
        added = {
            "base_url": session.base_url,
            "model": session.model,
            "trace_id": session.trace_id,
            "temperature": session.resources.sampling.temperature,
            "max_tokens": session.task.limits.reply_tokens,
            **{PROMPT_RESOURCE_PREFIX + name: text for name, text in session.resources.prompt_templates.items()},
        }
        if taken := fields.keys() & added.keys():
            raise UnusableTask(
                f"rename {', '.join(sorted(taken))} of task {session.task.task_id} in its file (agents.train, "
                f"agents.val or --tasks): the request to the service has fields of these names"
            )
        answer = await self._ask(fields | added)
        if self._reward is None:
            reward = answer.get("reward") if isinstance(answer, dict) else None
            return dimensions_of(reward, where=f"{self._url} (without --reward)")
        judged = self._reward
        found = await in_thread(lambda: judged(given, answer))
        if inspect.isawaitable(found):
            found = await without_exit(found)
        return dimensions_of(found, where="the reward function")

    async def close(self) -> None:
        if self._http is not None:
            await self._http.close()

    async def _ask(self, body: dict[str, Any]) -> Any:
        if self._http is None:  # the task has its own timeout
            # Kept for less than the 5 s of a uvicorn, which may close a connection just as a task is sent.
            connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=3.0)
            self._http = aiohttp.ClientSession(
                trust_env=False, timeout=aiohttp.ClientTimeout(total=None), connector=connector
            )

        async def pause(seconds: float) -> None:
            try:
                await asyncio.sleep(seconds)
            except asyncio.CancelledError as error:  # the task's time has passed without the service
                raise AgentUnavailable(f"the agent's service at {self._url} refused connections") from error

        refused = retry_if_exception_type(aiohttp.ClientConnectorError)  # nothing was sent, so a retry is safe
        retrying = AsyncRetrying(
            retry=refused,
            stop=stop_after_delay(self._retry_seconds),
            wait=wait_fixed(_POLL_SECONDS),
            sleep=pause,
            reraise=True,
        )

        async def post() -> tuple[aiohttp.ClientResponse, str]:
            async with self._http.post(self._url, json=body) as answer:
                try:
                    return answer, await answer.text()
                except (UnicodeError, LookupError) as error:
                    raise AgentFailed(f"the service's answer does not fit its charset: {error}") from error

        try:
            answer, text = await retrying(post)
        except aiohttp.ClientConnectorError as error:
            raise AgentUnavailable(f"cannot connect to the agent's service at {self._url}: {error}") from error
        except aiohttp.ClientError as error:
            raise AgentUnavailable(
                f"the agent's service at {self._url} closed the connection: {type(error).__name__} {error}"
            ) from error
        if answer.status in _TRY_AGAIN:
            raise AgentUnavailable(f"the agent's service at {self._url} answers {answer.status}: {text[:_SHOWN]}")
        if answer.status >= 500:
            raise AgentFailed(f"the service answers {answer.status}: {text[:_SHOWN]}")
        if answer.status >= 400:
            raise ServiceRefuses(f"{self._url} rejects the task ({answer.status}): {text[:_SHOWN]}")
        try:
            return json.loads(text) if answer.content_type == "application/json" else text
        except ValueError as error:
            raise AgentFailed(f"the service's answer is not JSON ({error}): {text[:_SHOWN]}") from error


def check_url(url: str) -> str:
    """The URL of a service. Raises ValueError if the service could not reach the gateway."""
    parts = urlsplit(url)
    _ = parts.port  # raises ValueError
    if parts.scheme not in ("http", "https") or parts.hostname not in ("127.0.0.1", "localhost", "::1"):
        raise ValueError(
            f"{url!r} must be an http:// address on this machine (127.0.0.1 or localhost), since the address at which "
            f"a service calls models listens on loopback only: start runners where the service runs"
        )
    return url
