"""A client of a policy's vLLM server, in token ids.

Requests are retried while the server is unreachable. An answer may take as long as the server is alive, since a model
may be slow.

The address comes from a hub, so the server is not trusted: redirects are rejected, the size of answers is limited, and
compression is off, against decompression bombs.
"""

import asyncio
import hashlib
import json
import math
import random
from collections.abc import Callable, Container, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Protocol

import aiohttp
from multidict import CIMultiDict

from runners.addresses import Addresses, CheckedResolver
from runners.errors import PolicyUnavailable, RouteRefused

POLICY_VERSION_HEADER = "x-policy-version"
"""Response header with the version of the weights that sampled a completion, at least its beginning."""

POLICY_VERSION_UNTIL_HEADER = "x-policy-version-until"
"""Response header with the version that may have sampled the end of a completion during which weights changed."""

POLICY_TIMEOUT_SECONDS = 10.0
RUNNER_POLICY_TIMEOUT_SECONDS = 90.0
"""Of runners: vLLM may restart in this time."""

MAX_ANSWER_BYTES = 32 * 2**20
"""Limit of one answer; a million token ids with log-probs are smaller."""

RETRIED: ContextVar[list[Exception] | None] = ContextVar("retried", default=None)
"""Receives the errors of this context's requests after which they are tried again."""

_CONNECT_TIMEOUT_SECONDS = 5.0
_LIVENESS_TIMEOUT_SECONDS = 60.0
_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 0.5, 8.0
_RETRYABLE_STATUSES = (408, 409, 429)
# Below the 5 s after which vLLM closes idle connections, since a request at that moment fails.
_KEEP_ALIVE_SECONDS = 3.0


@dataclass(frozen=True, slots=True)
class Completion:
    """A sampled reply: ids, one log-prob for each (natural logarithm), and the finish reason.

    policy_version: of the weights that sampled it (``POLICY_VERSION_HEADER``); None if the server does not report it.
    version_until: version of weights that arrived meanwhile (``POLICY_VERSION_UNTIL_HEADER``).
    """

    token_ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    finish_reason: str
    policy_version: int | None = None
    version_until: int | None = None


TokenSink = Callable[[Sequence[int]], None]
"""Receives token ids of a reply as they are sampled."""


class Sampler(Protocol):
    """Samples replies to prompts of token ids."""

    model: str

    async def complete(self, prompt_ids: Sequence[int], max_tokens: int, seed: int) -> Completion:
        """One reply of at most ``max_tokens`` tokens."""


class PolicyClient:
    """A client of vLLM's completions endpoint. One instance serves a whole runner process.

    stop_token_ids: tokens that end a reply, in addition to the model's end-of-text token, which in base models differs
        from the end of a turn.
    addresses: the allowed addresses.
    retry_seconds: total of the pauses between retries after a connection or server error, so that a rollout survives
        a restart of the server.
    liveness_interval_seconds: interval of liveness requests while an answer is pending.
    """

    def __init__(
        self,
        endpoint: str,
        model: str,
        temperature: float,
        addresses: Addresses,
        retry_seconds: float = POLICY_TIMEOUT_SECONDS,
        liveness_interval_seconds: float = 60.0,
    ):
        self.endpoint = endpoint
        self.model = model
        self.stop_token_ids: tuple[int, ...] = ()
        self.retry_seconds = retry_seconds
        self.retrying = 0
        """Number of requests that have failed and are tried again."""
        self._liveness_interval = liveness_interval_seconds
        self._temperature = temperature
        self._addresses = addresses
        self._session: aiohttp.ClientSession | None = None

    async def complete(
        self,
        prompt_ids: Sequence[int],
        max_tokens: int,
        seed: int,
        stop: Sequence[str] = (),
        on_tokens: TokenSink | None = None,
    ) -> Completion:
        """Sample one reply. Raises PolicyUnavailable if bounded retries give no usable answer.

        stop: texts that end a reply and belong to it. on_tokens: receives ids as they are sampled; there is no retry
        after the first.
        """
        body = {
            "model": self.model,
            "prompt": list(prompt_ids),
            "max_tokens": max_tokens,
            "temperature": self._temperature,
            # Explicit, since a server's defaults (e.g. top_k of the model folder) would change the distribution.
            "top_p": 1.0,
            "top_k": -1,
            "min_p": 0.0,
            "repetition_penalty": 1.0,
            "stop_token_ids": list(self.stop_token_ids),
            "seed": seed,
            "logprobs": 0,
            "return_token_ids": True,
        }
        if stop:
            body["stop"] = list(stop)
        try:
            if on_tokens is None:
                answer, headers = await self._send("/v1/completions", body)
            else:
                answer, headers = await self._stream(body | {"stream": True}, on_tokens)
            choice = answer["choices"][0]
            found = (choice["token_ids"], choice["prompt_token_ids"], choice["logprobs"]["token_logprobs"])
            token_ids, returned_prompt, logprobs = map(tuple, found)
            finish_reason = choice["finish_reason"]
        except RouteRefused as error:
            raise PolicyUnavailable(f"the policy's server rejected a request: {error} {error.detail}") from error
        except (LookupError, TypeError, AttributeError) as error:
            raise self._unusable(
                "returns no token ids with log-probs; serve the policy with vLLM 0.28 or 0.29"
            ) from error
        if not all(type(token) is int for token in token_ids):
            raise self._unusable("returned a token id that is no integer")
        if not all(isinstance(logprob, int | float) and math.isfinite(logprob) for logprob in logprobs):
            raise self._unusable("returned a log-prob that is no finite number")
        if returned_prompt != tuple(prompt_ids):
            raise self._unusable("changed the prompt's token ids")
        if len(logprobs) != len(token_ids):
            raise self._unusable(f"returned {len(token_ids)} tokens with {len(logprobs)} log-probs")
        if finish_reason not in ("stop", "length") or not token_ids:
            raise self._unusable(
                f"aborted a reply (finish reason {finish_reason!r}, {len(token_ids)} tokens); was it paused or stopped?"
            )
        versions = []
        for name in (POLICY_VERSION_HEADER, POLICY_VERSION_UNTIL_HEADER):
            reported = headers.get(name)
            if reported is not None and not reported.isdecimal():
                raise self._unusable(f"reports policy version {reported!r}, which is not a number")
            versions.append(None if reported is None else int(reported))
        return Completion(token_ids, logprobs, finish_reason, *versions)

    async def model_folder(self) -> str:
        """The folder or Hugging Face name that the server loaded the policy from."""
        return str(await self._model_field("root"))

    async def context_tokens(self) -> int:
        """The maximal tokens of one call, prompt plus reply."""
        limit = await self._model_field("max_model_len")
        if type(limit) is not int:
            raise self._unusable(f"reports {limit!r} as the model's max_model_len")
        return limit

    async def ask(
        self, route: str, body: dict[str, Any] | None = None, *, final: Container[int] = ()
    ) -> dict[str, Any]:
        """The JSON answer of any route; GET without a body, else POST.

        body: names the model only if it is to sample, since vLLM does not know an adapter while it loads a new version.
        final: statuses of errors that a retry would repeat.
        Raises RouteRefused if the server rejects the request, PolicyUnavailable without an answer.
        """
        return (await self._send(route, body, final=final))[0]

    async def close(self) -> None:
        """Close all connections; a later request opens new ones."""
        if self._session is not None:
            session, self._session = self._session, None
            await session.close()

    def _url(self, route: str) -> str:
        return self.endpoint.rstrip("/").removesuffix("/v1") + route

    def _unusable(self, why: str) -> PolicyUnavailable:
        return PolicyUnavailable(f"the server at {self.endpoint} {why}")

    async def _model_field(self, name: str) -> Any:
        """A field of the model's card. Raises PolicyUnavailable."""
        try:
            models = {str(model["id"]): model for model in (await self.ask("/v1/models"))["data"]}
        except (RouteRefused, LookupError, TypeError) as error:
            raise PolicyUnavailable(f"no model list from the policy's server at {self.endpoint} ({error})") from error
        if self.model not in models:
            raise self._unusable(f"serves {', '.join(models) or 'nothing'}, not {self.model!r}")
        card = models[self.model]
        # An adapter's folder has neither tokenizer nor limit; its base model has.
        found = models.get(str(card.get("parent")), card).get(name)
        if not found:
            raise self._unusable(f"does not report {name!r} of its model")
        return found

    async def _stream(self, body: dict[str, Any], on_tokens: TokenSink) -> tuple[Any, Mapping[str, str]]:
        """(JSON, headers) of a streamed completion, as without streaming."""
        choice: dict[str, Any] = {"token_ids": [], "logprobs": {"token_logprobs": []}, "finish_reason": None}
        until: dict[str, str] = {}

        def take(line: bytes) -> None:
            if line.startswith(b": " + POLICY_VERSION_UNTIL_HEADER.encode()):
                until[POLICY_VERSION_UNTIL_HEADER] = line.split()[-1].decode()
            if not line.startswith(b"data: {"):
                return
            event = json.loads(line[6:])
            if error := event.get("error"):
                raise self._unusable(
                    f"ended a reply with an error: {error.get('message', error) if isinstance(error, dict) else error}"
                )
            for part in event["choices"]:  # a server may send its usage in an event of its own, without choices
                choice.update({name: part[name] for name in ("prompt_token_ids", "finish_reason") if part.get(name)})
                if part["token_ids"]:
                    choice["token_ids"] += part["token_ids"]
                    choice["logprobs"]["token_logprobs"] += part["logprobs"]["token_logprobs"]
                    if len(choice["token_ids"]) > body["max_tokens"]:
                        raise self._unusable(f"returned more than {body['max_tokens']} tokens")
                    on_tokens(part["token_ids"])

        _, headers = await self._send("/v1/completions", body, take)
        merged = CIMultiDict(headers)  # a proxy may write names in another case
        merged.update(until)
        return {"choices": [choice]}, merged

    async def _send(
        self,
        route: str,
        body: dict[str, Any] | None,
        take: Callable[[bytes], None] | None = None,
        final: Container[int] = (),
    ) -> tuple[Any, Mapping[str, str]]:
        """(JSON, headers) of an answer, or (None, headers) if ``take`` receives its lines.

        Raises RouteRefused and PolicyUnavailable.
        """
        url = self._url(route)
        data = None if body is None else json.dumps(body).encode()
        try:
            text, headers = await self._send_retrying(url, data, take, final)
            return None if take else json.loads(text), headers
        except (RouteRefused, aiohttp.ClientError, TimeoutError) as error:
            if isinstance(error, RouteRefused) and (error.status in final or not _is_unavailable(error.status)):
                raise
            reason = f"{error.status}: {error.detail}" if isinstance(error, RouteRefused) else str(error)
            raise PolicyUnavailable(
                f"no answer from {url} ({reason or type(error).__name__}). Is vLLM running and reachable from this "
                f"machine? The algorithm logs its address"
            ) from error
        except (ValueError, RecursionError) as error:
            raise RouteRefused(f"{url} answers with invalid JSON") from error

    async def _send_retrying(
        self, url: str, data: bytes | None, take: Callable[[bytes], None] | None, final: Container[int]
    ) -> tuple[bytes, Mapping[str, str]]:
        """As ``_send_while_alive``, with bounded retries. A loop: tenacity's costs a tenth of a gateway's call."""
        paused, longest, failed = 0.0, _FIRST_PAUSE_SECONDS, False
        try:
            while True:
                try:
                    return await self._send_while_alive(url, data, take)
                except (RouteRefused, aiohttp.ClientError, TimeoutError) as error:
                    pause = longest + random.uniform(0, _FIRST_PAUSE_SECONDS)
                    if not _is_retryable(error, final) or paused + pause > self.retry_seconds:
                        raise
                    if (retried := RETRIED.get()) is not None:
                        retried.append(error)
                self.retrying += not failed
                failed = True
                await asyncio.sleep(pause)
                paused, longest = paused + pause, min(2 * longest, _LONGEST_PAUSE_SECONDS)
        finally:
            self.retrying -= failed

    async def _send_while_alive(
        self, url: str, data: bytes | None, take: Callable[[bytes], None] | None
    ) -> tuple[bytes, Mapping[str, str]]:
        """The answer, however long it takes, while the server answers liveness requests; raises their errors.

        Raises PolicyUnavailable for what fails after ``take`` has received a line: a retry would repeat tokens.
        """
        session, lines = self._open_session(), 0

        def pass_on(line: bytes) -> None:
            nonlocal lines
            lines += 1
            if take:
                take(line)

        answering = asyncio.create_task(_request(session, url, data, pass_on if take else None))
        alive, seen = None, 0
        try:
            while not (await asyncio.wait({answering}, timeout=self._liveness_interval))[0]:
                if lines > seen:  # alive
                    seen = lines
                    continue
                alive = asyncio.create_task(self._check_alive(session))
                await asyncio.wait({answering, alive}, return_when=asyncio.FIRST_COMPLETED)
                if not answering.done():
                    alive.result()
            return answering.result()
        except (RouteRefused, aiohttp.ClientError, TimeoutError) as error:
            if not lines:
                raise
            raise PolicyUnavailable(f"{url} broke off during a reply: {error or type(error).__name__}") from error
        finally:
            answering.cancel()
            if alive:
                alive.cancel()

    async def _check_alive(self, session: aiohttp.ClientSession) -> None:
        url = self._url("/v1/models")  # a proxy forwards it (``serving.public_urls``)
        limit = aiohttp.ClientTimeout(total=_LIVENESS_TIMEOUT_SECONDS)
        async with session.get(url, timeout=limit, raise_for_status=True, allow_redirects=False):
            pass

    def _open_session(self) -> aiohttp.ClientSession:
        if self._session is None:  # in the event loop that first uses it
            resolver = CheckedResolver(self._addresses, self.endpoint)
            self._session = aiohttp.ClientSession(
                trust_env=False,  # a proxy from the environment must not come between a runner and its own cluster
                headers={"Content-Type": "application/json", "Accept-Encoding": "identity"},
                auto_decompress=False,
                connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=_KEEP_ALIVE_SECONDS, resolver=resolver),
                timeout=aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_TIMEOUT_SECONDS),
            )
        return self._session


async def _request(
    session: aiohttp.ClientSession, url: str, data: bytes | None, take: Callable[[bytes], None] | None
) -> tuple[bytes, Mapping[str, str]]:
    """(body, headers) of an answer. Raises RouteRefused for a status other than 2xx and for an answer that is too long.

    data: of a POST; None: a GET. take: receives lines as they arrive, and the body is empty.
    """
    method = "GET" if data is None else "POST"
    async with session.request(method, url, data=data, allow_redirects=False) as answer:

        def refused(detail: str) -> RouteRefused:
            return RouteRefused(f"{url} answers {answer.status}", answer.status, detail)

        text = bytearray()
        async for part in answer.content.iter_any():
            text += part
            if len(text) > MAX_ANSWER_BYTES:
                answer.close()
                raise refused(f"its answer is longer than {MAX_ANSWER_BYTES // 2**20} MiB")
            while take and answer.ok and (end := text.find(b"\n")) >= 0:
                take(bytes(text[:end]))
                del text[: end + 1]
        if 300 <= answer.status < 400:
            raise refused("it redirects to another address, which is not allowed")
        if answer.status >= 400:
            raise refused(_error_message(bytes(text)))
        return bytes(text), answer.headers


def _is_unavailable(status: int) -> bool:
    return status >= 500 and status != 501  # 501: this server never can


def _is_retryable(error: RouteRefused | aiohttp.ClientError | TimeoutError, final: Container[int]) -> bool:
    """Whether a retry may succeed. final: see ``PolicyClient.ask``."""
    if not isinstance(error, RouteRefused):
        return True
    return error.status not in final and (error.status in _RETRYABLE_STATUSES or _is_unavailable(error.status))


def _error_message(text: bytes) -> str:
    """The message of an error answer, in vLLM's form or as text."""
    try:
        return str(json.loads(text)["error"]["message"])
    except (ValueError, LookupError, TypeError, RecursionError):
        return text[:300].decode(errors="replace")


def seed_of(key: str) -> int:
    """A 31-bit seed derived from a name, the same on every machine."""
    return int.from_bytes(hashlib.blake2b(key.encode(), digest_size=4).digest(), "big") >> 1
