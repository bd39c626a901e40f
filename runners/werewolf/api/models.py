"""Models that are not trained (opponents, the judge), called through AgentScope's chat models.

The frameworks' own retries are off: a try is one request, and ``ChatEndpoint`` sets tries, rate and timeout. DashScope
is called at its OpenAI-compatible address. Keys come from the runner's command line (``runners.keys``) and go into
request headers only; error texts are redacted.
"""

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from agentscope.formatter import OpenAIMultiAgentFormatter
from agentscope.model import ChatResponse, OpenAIChatModel
from openai import APIConnectionError, APIStatusError, DefaultAsyncHttpxClient
from tenacity import (
    AsyncRetrying,
    RetryCallState,
    before_sleep_log,
    retry_if_result,
    stop_after_attempt,
    wait_exponential_jitter,
)

from runners.addresses import Addresses
from runners.errors import EndpointUnavailable
from runners.keys import ApiKeys
from runners.werewolf.api.bounded import PLAIN, CheckedTransport, UnreadableAnswer, bound
from runners.werewolf.api.throttle import Sleep, Throttle
from runners.werewolf.language.replies import split_thought
from runners.werewolf.prompts_zh.history import HISTORY_PROMPT
from runners.werewolf.prompts_zh.quoting import one_line
from store.addresses import leads_to_loopback
from store.schema import ChatEndpoint

logger = logging.getLogger(__name__)

LONGEST_RETRY_AFTER_SECONDS = 60.0
"""A server that requests a longer pause counts as unreachable."""

_OWN_OPTIONS = {"dashscope": {"extra_body": {"enable_thinking": False}}}  # thinking requires streaming
_NO_KEY = "none"  # for None the packages read other environment variables and files
_LONGEST_PAUSE_SECONDS = 20.0
_TOO_MANY_REQUESTS, _REQUEST_TIMEOUT = 429, 408
_REASON_CHARS = 300
_LONGEST_REPLY_CHARS = 100_000  # for servers that ignore max_tokens; parsing more would block other games
# AgentScope and openai do not validate answers: a malformed one raises these (invalid JSON, a missing key, None).
_MALFORMED = (AttributeError, LookupError, RecursionError, TypeError, ValueError)


@dataclass(frozen=True, slots=True)
class ApiReply:
    """A model's reply. cut: whether it was cut at the token limit, as far as the usage shows."""

    text: str
    cut: bool = False


class ApiModel:
    """A model at an endpoint, for any number of games at once.

    throttle: shared with other users of the same endpoint; by default this model's own. sleep: waits between tries.
    ``formatter`` is AgentScope's multi-agent formatter.
    """

    def __init__(
        self,
        endpoint: ChatEndpoint,
        throttle: Throttle | None = None,
        sleep: Sleep = asyncio.sleep,
        keys: ApiKeys | None = None,
        addresses: Addresses | None = None,
    ):
        """Raises MissingApiKey if the endpoint's key is not set or not allowed for its address.

        addresses: the allowed addresses of an endpoint without a key; None: any.
        """
        self.endpoint = endpoint
        self._throttle = throttle or Throttle()
        self._sleep = sleep
        self._key = _NO_KEY
        url = endpoint.url
        if endpoint.api_key_env is not None:
            self._key = (keys or ApiKeys()).key(endpoint.api_key_env, url)
        if not endpoint.endpoint or endpoint.api_key_env is not None or (addresses and addresses.allows(url)):
            addresses = None  # keys have a rule of their own, and an address that the user allows may need a proxy
        self._model = OpenAIChatModel(
            endpoint.model,
            api_key=self._key,
            stream=False,
            client_kwargs={
                "base_url": url,
                "max_retries": 0,
                "timeout": endpoint.timeout_seconds,
                # No redirects, since a hub may have chosen the address.
                "http_client": DefaultAsyncHttpxClient(
                    trust_env=not leads_to_loopback(url),
                    follow_redirects=False,
                    headers=PLAIN,
                    event_hooks={"response": [bound]},
                    transport=None if addresses is None else CheckedTransport(addresses),
                ),
            },
            generate_kwargs={
                "temperature": endpoint.temperature,
                "max_tokens": endpoint.max_tokens,
                **_OWN_OPTIONS.get(endpoint.provider, {}),
            },
        )
        self.formatter = OpenAIMultiAgentFormatter(HISTORY_PROMPT)
        self._backoff = wait_exponential_jitter(max=_LONGEST_PAUSE_SECONDS)

    def __repr__(self) -> str:
        return f"ApiModel({_name(self.endpoint)})"

    async def ask(self, messages: list[dict[str, Any]]) -> str:
        return (await self.reply(messages)).text

    async def reply(self, messages: list[dict[str, Any]]) -> "ApiReply":
        """The reply to a conversation ({"role", "content"} each), without its thought.

        Empty for a thought alone, if ``max_tokens`` is too small. Raises EndpointUnavailable, with endpoint, model and
        reason, if every try fails, the endpoint rejects the request (4xx except 408 and 429), or it requests a pause
        of more than ``LONGEST_RETRY_AFTER_SECONDS``.
        """
        retrying = AsyncRetrying(
            stop=stop_after_attempt(self.endpoint.tries),
            wait=self._pause_before_next_try,
            retry=retry_if_result(lambda outcome: isinstance(outcome, _Failure) and outcome.again),
            retry_error_callback=lambda state: state.outcome.result(),
            before_sleep=before_sleep_log(logger, logging.INFO),
            sleep=self._sleep,
        )
        outcome = await retrying(self._try_once, messages)
        if isinstance(outcome, _Failure):
            tries = retrying.statistics["attempt_number"]
            raise EndpointUnavailable(
                f"{_name(self.endpoint)} gave no usable answer in {tries} {'try' if tries == 1 else 'tries'}: "
                f"{outcome.reason}"
            )
        return outcome

    async def close(self) -> None:
        await self._model.client.close()

    async def _try_once(self, messages: list[dict[str, Any]]) -> "ApiReply | _Failure":
        # Returns failures, since the packages' exceptions hold request headers, and the context of a raised error
        # would write the key into logs.
        spacing = 60.0 / self.endpoint.requests_per_minute if self.endpoint.requests_per_minute else 0.0
        async with self._throttle.slot(self.endpoint.max_concurrent, spacing):
            try:
                async with asyncio.timeout(self.endpoint.timeout_seconds):
                    return self._reply_in(await self._model(messages))
            except TimeoutError:
                return _Failure(f"no answer within {self.endpoint.timeout_seconds:g} s")
            except APIStatusError as error:
                failure = _refusal(error.status_code, str(error), error.response.headers)
            except _MALFORMED as error:
                failure = _Failure(f"its answer is invalid ({type(error).__name__}: {error})")
            except APIConnectionError as error:
                cause = _innermost(error)
                is_connected = isinstance(cause, UnreadableAnswer)
                failure = _Failure(f"{'its answer cannot be read' if is_connected else 'no connection'} ({cause})")
        if failure.retry_after:
            self._throttle.pause(failure.retry_after)
        return self._redacted(failure)

    def _reply_in(self, response: ChatResponse) -> "ApiReply | _Failure":
        if not response.content:
            return _Failure("its answer has no reply")
        texts = [_in_one(block["text"]) for block in response.content if block["type"] == "text"]
        _, text = split_thought("\n".join(texts))
        # AgentScope drops the finish reason: a reply of ``max_tokens`` tokens was cut.
        used_up = response.usage is not None and (response.usage.output_tokens or 0) >= self.endpoint.max_tokens
        return ApiReply(text[:_LONGEST_REPLY_CHARS], cut=used_up or len(text) > _LONGEST_REPLY_CHARS)

    def _redacted(self, failure: "_Failure") -> "_Failure":
        reason = one_line(failure.reason)
        if self._key != _NO_KEY:
            reason = reason.replace(self._key, "***")
        return _Failure(reason[:_REASON_CHARS], failure.again, failure.retry_after)

    def _pause_before_next_try(self, state: RetryCallState) -> float:
        return max(self._backoff(state), state.outcome.result().retry_after)


def _in_one(text: str | list[Any]) -> str:
    """Some servers return a list of parts, which AgentScope passes on."""
    return text if isinstance(text, str) else "".join(part["text"] for part in text)


class ApiModels:
    """The models of a process: one for each ``ChatEndpoint``, and one ``Throttle`` for each account."""

    def __init__(self, keys: ApiKeys | None = None, addresses: Addresses | None = None) -> None:
        """keys: the allowed ones; None: none. addresses: see ``ApiModel``."""
        self._keys = keys
        self._addresses = addresses
        self._models: dict[ChatEndpoint, ApiModel] = {}
        self._throttles: dict[tuple[str, str, str, str | None], Throttle] = {}

    def get(self, endpoint: ChatEndpoint) -> ApiModel:
        """The model at ``endpoint``. Raises MissingApiKey as ``ApiModel`` does."""
        if endpoint not in self._models:
            # Models that differ only in settings such as temperature share an account's rate limit.
            account = (endpoint.provider, endpoint.endpoint, endpoint.model, endpoint.api_key_env)
            throttle = self._throttles.setdefault(account, Throttle())
            self._models[endpoint] = ApiModel(endpoint, throttle, keys=self._keys, addresses=self._addresses)
        return self._models[endpoint]

    async def close(self) -> None:
        for model in self._models.values():
            await model.close()


@dataclass(frozen=True, slots=True)
class _Failure:
    """A failed try. again: whether a retry may succeed. retry_after: the pause that the server requests, in seconds."""

    reason: str
    again: bool = True
    retry_after: float = 0.0


def _name(endpoint: ChatEndpoint) -> str:
    return f"model {endpoint.model!r} at {endpoint.endpoint or endpoint.provider}"


def _refusal(status: int, text: str, headers: Mapping[str, str]) -> _Failure:
    again = status >= 500 or status in (_REQUEST_TIMEOUT, _TOO_MANY_REQUESTS)
    pause = _seconds_to_wait(headers) if again else 0.0
    if pause > LONGEST_RETRY_AFTER_SECONDS:
        return _Failure(f"it requests a pause of {pause:.0f} s (HTTP {status}: {text})", again=False)
    return _Failure(f"HTTP {status}: {text}", again, pause)


def _seconds_to_wait(headers: Mapping[str, str]) -> float:
    """Seconds in ``Retry-After``; 0.0 without it, and for a date."""
    value = headers.get("Retry-After", "").strip()
    return float(value) if value.isdecimal() else 0.0


def _innermost(error: BaseException) -> BaseException:
    while error.__cause__ is not None:
        error = error.__cause__
    return error
