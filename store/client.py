"""The client of a hub: the methods of agentlightning's LightningStore protocol that are used here, over HTTP.

agentlightning's own client gives up on a dead hub after 0.8 s, sends one request per span, and takes seconds to import.
This one retries through an outage, and sends the spans of many rollouts as one compressed OTLP request, the only bulk
route of the protocol.
"""

import asyncio
import gzip
import json
import logging
import math
import operator
import re
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, TypeVar

import aiohttp
from multidict import CIMultiDict, CIMultiDictProxy
from tenacity import (
    AsyncRetrying,
    RetryCallState,
    retry_if_exception,
    stop_before_delay,
    wait_exponential,
)
from yarl import URL

from store.addresses import problem_with_base_url
from store.auth import TOKEN_VARIABLE, check_token, read_token
from store.otlp import encode_otlp
from store.printable import printable
from store.protocol import (
    LONGEST_REASON,
    Attempt,
    AttemptedRollout,
    AttemptStatus,
    EnqueueRolloutRequest,
    NamedResources,
    Page,
    ResourcesUpdate,
    Rollout,
    RolloutConfig,
    RolloutMode,
    Span,
    Worker,
)

logger = logging.getLogger(__name__)

AttemptKey = tuple[str, str]
"""(rollout id, attempt id)."""

Answer = TypeVar("Answer")
Item = TypeVar("Item")

_NETWORK_ERRORS = (aiohttp.ClientConnectionError, aiohttp.ClientPayloadError, TimeoutError)
_CONNECT_SECONDS = 5.0
_FIRST_DELAY, _LONGEST_DELAY = 0.2, 5.0
_TRIES = 5
_CONFLICT = 409
TOO_LARGE = 413
_PROXY_STATUSES = (408, 429, 502, 503, 504)
"""Statuses of a proxy that cannot reach the hub, or limits requests."""
_DETAIL_BYTES = 8192
_DETAIL_CHARACTERS = 500
_ATTEMPTS_AT_ONCE = 8
_SPANS_PER_REQUEST = (200, 200_000, 2**24)
"""(spans, values of lists, characters of texts), token ids included: our hub accepts a million parts and 64 MiB."""
_PROTOBUF = "application/x-protobuf"
_OTLP_HEADERS = {"Content-Type": _PROTOBUF, "Content-Encoding": "gzip"}


class StoreUnreachable(ConnectionError):
    """The hub is unreachable, and the retries have run out; the message names address and remedy."""


class StoreUnauthorized(StoreUnreachable):
    """The hub rejects the token; it is not retried."""


class NotAHub(StoreUnreachable):
    """The response is not a hub's: a web page, or an empty body with a status of success."""


def describe_error(error: Exception) -> str:
    """An error for a log: its type and text.

    ``repr`` of aiohttp's ClientResponseError contains the request's headers, and with them the hub token.
    """
    text = str(error)
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def connect(url: str, retry_seconds: float = 120.0, token: str | None = None) -> "StoreClient":
    """A client of the hub at ``url``; sends nothing yet. retry_seconds: duration of retries through an outage.

    token: of the hub; None reads it by ``read_token``.
    """
    return StoreClient(url, retry_seconds, token)


class StoreClient:
    """A client that retries through outages, for one event loop. Methods as of agentlightning's ``LightningStore``.

    Requests raise aiohttp.ClientResponseError for an error that retries do not change, aiohttp.ClientError or
    TimeoutError where only the health check succeeds, and StoreUnreachable.
    request_timeout_seconds: timeout of one request.
    """

    def __init__(self, url: str, retry_seconds: float, token: str | None = None, request_timeout_seconds: float = 30.0):
        if problem := problem_with_base_url(url):
            raise ValueError(f"the hub's address {problem}, e.g. http://127.0.0.1:4747; its token is in AGL_TOKEN")
        if not (math.isfinite(retry_seconds) and retry_seconds >= 0):
            raise ValueError(f"retry_seconds must be finite and not negative, got {retry_seconds}")
        self.server_address_root = url.rstrip("/")
        self.retry_seconds = retry_seconds
        self._timeout = aiohttp.ClientTimeout(total=request_timeout_seconds, connect=_CONNECT_SECONDS)
        self._hub_found = False
        self._token = read_token() if token is None else check_token(token, "the hub's token")
        self._session: aiohttp.ClientSession | None = None

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()

    async def start_rollout(
        self,
        input: Any,
        mode: RolloutMode | None = None,
        resources_id: str | None = None,
        config: RolloutConfig | None = None,
        metadata: dict[str, Any] | None = None,
        worker_id: str | None = None,
    ) -> AttemptedRollout:
        """A new rollout with its first attempt, which bypasses the queue. A retry after a lost response makes another.

        config: needs a timeout, since a rollout whose response was lost stays open otherwise.
        """
        request = {"mode": mode, "resources_id": resources_id, "metadata": metadata, "worker_id": worker_id}
        settings = None if config is None else config.model_dump()
        body = {"input": input, "config": settings, **request}
        return AttemptedRollout.model_validate(await self.request("post", "/rollouts", body))

    async def enqueue_many_rollouts(self, rollouts: Sequence[EnqueueRolloutRequest]) -> list[Rollout]:
        """Queue rollouts. A stock hub queues them twice if the response to the first request is lost."""
        if not rollouts:
            return []
        request = {"rollouts": [rollout.model_dump() for rollout in rollouts]}
        return list(map(Rollout.model_validate, await self.request("post", "/queues/rollouts/enqueue", request)))

    async def dequeue_many_rollouts(self, *, limit: int = 1, worker_id: str | None = None) -> list[AttemptedRollout]:
        """Take up to ``limit`` rollouts. Sent once: the hub retries those in a lost response.

        Raises aiohttp.ClientError, NotAHub or TimeoutError, where the stock client returns no rollouts.
        """
        request = {"limit": limit} if worker_id is None else {"limit": limit, "worker_id": worker_id}
        answer = await self._send_once("post", "/queues/rollouts/dequeue", request, expected=list)
        return list(map(AttemptedRollout.model_validate, answer))

    async def query_rollouts(self, **query: Any) -> Page[Rollout]:
        """The rollouts that match, each with its latest attempt if it has one."""
        return await self._search("/rollouts", query, _read_rollout)

    async def query_attempts(self, rollout_id: str) -> Page[Attempt]:
        """All attempts at a rollout, in their order."""
        return await self._search(f"/rollouts/{rollout_id}/attempts", {}, Attempt.model_validate)

    async def query_spans(self, rollout_id: str, attempt_id: str | None = None, **query: Any) -> Page[Span]:
        """The spans of a rollout, or of one attempt or ``latest``, by default in the order of their sequence ids."""
        query |= {"rollout_id": rollout_id, "attempt_id": attempt_id}
        return await self._search("/spans", query, Span.model_validate)

    async def query_resources(self, **query: str) -> Page[ResourcesUpdate]:
        return _page(await self.request("get", "/resources", params=query), ResourcesUpdate.model_validate)

    async def get_latest_resources(self) -> ResourcesUpdate | None:
        """The resources that were added or updated last."""
        answer = await self.request("get", "/resources/latest")
        return None if answer is None else ResourcesUpdate.model_validate(answer)

    async def update_resources(self, resources_id: str, resources: NamedResources) -> ResourcesUpdate:
        """Publish resources under an id, in place of earlier ones."""
        request = {name: resource.model_dump() for name, resource in resources.items()}
        return ResourcesUpdate.model_validate(await self.request("post", f"/resources/{resources_id}", request))

    async def update_rollout(self, rollout_id: str, **changes: Any) -> Rollout:
        return Rollout.model_validate(await self.request("post", f"/rollouts/{rollout_id}", changes))

    async def update_attempt(self, rollout_id: str, attempt_id: str, **changes: Any) -> Attempt:
        answer = await self.request("post", f"/rollouts/{rollout_id}/attempts/{attempt_id}", changes)
        return Attempt.model_validate(answer)

    async def end_attempt(self, rollout_id: str, attempt_id: str, status: AttemptStatus, reason: str | None) -> None:
        """Close an attempt. Sent once: a stock hub closes it again after it has given the rollout to another runner.

        reason: cut at ``LONGEST_REASON`` characters. Raises aiohttp.ClientError or TimeoutError; ``with_retries``
        retries it.
        """
        if reason:  # an exception's text may hold half a surrogate pair, which no hub stores
            reason = reason[:LONGEST_REASON].encode(errors="replace").decode()
        request = {"status": status, "metadata": {"reason": reason} if reason else {}}
        await self._send_once("post", f"/rollouts/{rollout_id}/attempts/{attempt_id}", request)

    async def update_worker(self, worker_id: str, heartbeat_stats: dict[str, Any]) -> Worker:
        """A heartbeat of a runner."""
        answer = await self.request("post", f"/workers/{worker_id}", {"heartbeat_stats": heartbeat_stats})
        return Worker.model_validate(answer)

    async def _search(self, path: str, query: dict[str, Any], read: Callable[[Any], Answer]) -> Page[Answer]:
        return _page(await self.request("post", f"{path}/search", query), read)

    async def request(self, method: str, path: str, json: Any = None, params: Any = None) -> Any:
        """The JSON of the response; see ``with_retries``."""
        return await self.with_retries(self._send_once, method, path, json, params)

    async def _send_once(self, method: str, path: str, json: Any, params: Any = None, expected: Any = object) -> Any:
        async with self._ask(method, f"agl{path}", json=json, params=params) as response:
            await check_status(response)
            return await self._parse_answer(response, expected)

    def _ask(self, method: str, path: str, **request: Any) -> AbstractAsyncContextManager[aiohttp.ClientResponse]:
        if self._session is None:
            headers = {} if self._token is None else {"Authorization": f"Bearer {self._token}"}
            self._session = aiohttp.ClientSession(timeout=self._timeout, headers=headers)
        # A redirected POST would arrive as a GET.
        return self._session.request(method, f"{self.server_address_root}/v1/{path}", allow_redirects=False, **request)

    async def with_retries(self, send: Callable[..., Awaitable[Answer]], *arguments: Any) -> Answer:
        """Retry ``send`` for ``retry_seconds`` while requests fail, not counting outages, which have as long each.

        An error status of the hub itself is retried ``_TRIES`` times.
        """
        deadline = time.monotonic() + self.retry_seconds

        errors = 0

        def is_enough(state: RetryCallState) -> bool:
            nonlocal errors
            if _is_outage(state.outcome.exception()):  # type: ignore[union-attr]
                return time.monotonic() > deadline
            errors += 1
            return errors >= _TRIES

        async def wait_for_hub(state: RetryCallState) -> None:
            nonlocal deadline
            interrupted = time.monotonic()
            error = state.outcome.exception()  # type: ignore[union-attr]
            logger.info("a request to the hub is interrupted (%s)", type(error).__name__)
            await self.wait_until_reachable()
            deadline += time.monotonic() - interrupted

        return await _retrying(_is_retryable, is_enough, wait_for_hub)(send, *arguments)

    async def cancel_rollout(self, rollout_id: str) -> bool:
        """Cancel an open rollout; False if our hub reports that it has closed in the meantime."""
        try:
            await self.update_rollout(rollout_id, status="cancelled")
        except aiohttp.ClientResponseError as error:
            if error.status != _CONFLICT:
                raise
            return False
        return True

    async def finished_since(self, after: str | None) -> tuple[list[str], str] | None:
        """(ids of the rollouts closed since the mark ``after``, the next mark); see ``store.finished``.

        None from a stock hub, and from a hub that does not know the mark.
        """
        answer = await self._request_extension("/queues/rollouts/finished", {"after": after}, (400, 404, 405))
        return None if answer is None else (answer["rollout_ids"], answer["mark"])

    async def keep_alive(self, attempts: Sequence[AttemptKey]) -> bool:
        """A heartbeat of all these attempts; closed ones stay closed. False from a stock hub."""
        return await self._request_extension("/queues/attempts/alive", {"attempts": attempts}, (404, 405)) is not None

    async def _request_extension(self, path: str, json: Any, absent: Sequence[int]) -> Any:
        """The response to a request that only our hub supports; None for a status in ``absent``."""
        try:
            return await self.request("post", path, json)
        except aiohttp.ClientResponseError as error:
            if error.status not in absent:
                raise
            return None

    async def wait_until_reachable(self) -> None:
        """Return once the hub passes its health check and accepts the token.

        Raises StoreUnreachable after the retries, and at once for a status by which a hub rejects the request itself;
        StoreUnauthorized at once; NotAHub at once unless a hub has answered there before, since its proxy may show a
        page during an outage.
        """

        def passes(error: BaseException) -> bool:
            if isinstance(error, NotAHub):
                return self._hub_found
            return isinstance(error, (*_NETWORK_ERRORS, aiohttp.ClientResponseError)) and not _is_rejection(error)

        def log_first(state: RetryCallState) -> None:
            if state.attempt_number == 1:
                logger.info("waiting for a hub at %s (up to %.0f s) …", self.server_address_root, self.retry_seconds)

        try:
            async for attempt in _retrying(passes, stop_before_delay(self.retry_seconds), log_first):
                with attempt:
                    await self._check_hub()
        except (*_NETWORK_ERRORS, aiohttp.ClientResponseError) as error:
            if _is_rejection(error):
                raise StoreUnreachable(
                    f"the server at {self.server_address_root} rejects requests: {describe_error(error)}. Check the "
                    f"hub's settings, or a proxy in between"
                ) from error
            raise StoreUnreachable(
                f"no hub answers at {self.server_address_root} ({describe_error(error)}); waited "
                f"{self.retry_seconds:.0f} s. Start one with `agl store --host 127.0.0.1 --port 4747`, or name another "
                f"address"
            ) from error
        if attempt.retry_state.attempt_number > 1:
            logger.info("the hub at %s answers", self.server_address_root)
        self._hub_found = True

    async def _check_hub(self) -> None:
        await self._send_once("get", "/health", None, expected=dict)
        # The health check needs no token; any other cheap request shows whether ours is accepted.
        async with self._ask("get", "agl/resources/latest") as response:
            self._check_token(response)
            await check_status(response)
            await self._parse_answer(response, dict | None)

    async def _parse_answer(self, response: aiohttp.ClientResponse, expected: Any) -> Any:
        """The JSON of the response. Raises NotAHub if there is none, or not of the ``expected`` type."""
        try:
            text = await response.text()
            answer = json.loads(text)
        except (ValueError, RecursionError):
            text = ""
        if not (text and isinstance(answer, expected)):
            raise self._not_a_hub(response)
        return answer

    def _not_a_hub(self, response: aiohttp.ClientResponse) -> NotAHub:
        return NotAHub(
            f"{self.server_address_root} is not a hub: {response.url.path} returns {response.status} with "
            f"{printable(response.content_type)}. Remove a path from the address, or check whether it leads to a "
            f"proxy or another program"
        )

    def _check_token(self, response: aiohttp.ClientResponse) -> None:
        if response.status == 401:
            problem = "requires a token" if self._token is None else "rejects the token"
            raise StoreUnauthorized(
                f"the hub at {self.server_address_root} {problem}: set {TOKEN_VARIABLE} to that of its --token-file"
            )

    async def upload_spans(self, spans: Sequence[Span]) -> dict[AttemptKey, str]:
        """Store spans in bulk; the upload is idempotent by the spans' ids.

        Returns the attempts with spans that the hub rejects for good, each with the reason. Raises StoreUnreachable
        after the retries, and for a hub that rejects all spans.
        """
        refused: dict[AttemptKey, str] = {}
        for batch in batches(spans, _span_size, _SPANS_PER_REQUEST):
            refused |= await self._upload_batch(batch)
        return refused

    async def _upload_batch(self, batch: list[Span]) -> dict[AttemptKey, str]:
        by_attempt: dict[AttemptKey, list[Span]] = defaultdict(list)
        for span in batch:
            by_attempt[span.rollout_id, span.attempt_id].append(span)
        try:
            if await self._post_spans(by_attempt):
                return {}
        except aiohttp.ClientResponseError as error:  # TOO_LARGE
            if middle := len(batch) // 2:
                return await self._upload_batch(batch[:middle]) | await self._upload_batch(batch[middle:])
            reason = f"a span is too large: {error.message}. Raise the hub's --max-request-mb, or a proxy's limit"
            return dict.fromkeys(by_attempt, reason)
        # The hub rejects a whole request for one bad attempt: send each alone to find it.
        places = asyncio.Semaphore(_ATTEMPTS_AT_ONCE)

        async def upload(key: AttemptKey, spans: list[Span]) -> str | None:
            async with places:
                return await self._upload_attempt(key, spans)

        tasks = {key: asyncio.ensure_future(upload(key, spans)) for key, spans in by_attempt.items()}
        try:
            await asyncio.gather(*tasks.values())
        finally:  # after an error of one
            for task in tasks.values():
                task.cancel()
        return {key: reason for key, task in tasks.items() if (reason := task.result())}

    async def _upload_attempt(self, key: AttemptKey, spans: list[Span]) -> str | None:
        """Send an attempt's spans, with retries while the hub knows the attempt; returns why they fail, if they do."""
        for number in range(_TRIES):
            if await self._post_spans({key: spans}):
                return None
            if not await self.knows_attempt(key):
                return "it does not know the attempt; it may have restarted"
            await asyncio.sleep(_FIRST_DELAY * 2**number)
        return "it returns an error for them; see its log"

    async def knows_attempt(self, key: AttemptKey) -> bool:
        """Whether the hub has this attempt; a restarted in-memory hub has lost it."""
        return any(attempt.attempt_id == key[1] for attempt in await self.query_attempts(key[0]))

    async def _post_spans(self, by_attempt: dict[AttemptKey, list[Span]]) -> bool:
        """One bulk request, retried through outages; False when the hub does not know an attempt, or fails.

        Raises aiohttp.ClientResponseError for a request that is too large, StoreUnreachable for other errors.
        """
        body = gzip.compress(encode_otlp(by_attempt).SerializeToString())
        try:
            return await self.with_retries(self._post_body, body)
        except (*_NETWORK_ERRORS, aiohttp.ClientResponseError) as error:
            if isinstance(error, aiohttp.ClientResponseError) and error.status == TOO_LARGE:
                raise
            raise StoreUnreachable(
                f"the hub at {self.server_address_root} passes its health check, but uploads of spans fail: "
                f"{describe_error(error)}. Check whether a proxy in between limits requests"
            ) from error

    async def _post_body(self, body: bytes) -> bool:
        async with self._ask("post", "traces", data=body, headers=_OTLP_HEADERS) as response:
            self._check_token(response)
            # Our hub answers 400 or 404 where the stock one answers 500.
            if response.status in (400, 404) or (response.status >= 500 and response.status not in _PROXY_STATUSES):
                return False
            await check_status(response)
            if response.content_type != _PROTOBUF:  # a proxy's page: the spans are not stored
                raise self._not_a_hub(response)
            return True


async def check_status(response: aiohttp.ClientResponse) -> None:
    """Raise aiohttp.ClientResponseError for an error or a redirection, with the reason, printable, as its message."""
    if response.status < 300:
        return
    body = b""
    while len(body) < _DETAIL_BYTES and (part := await response.content.read(_DETAIL_BYTES)):
        body += part
    try:
        reason = json.loads(body)["detail"] or response.reason
    except (LookupError, TypeError, ValueError, RecursionError):
        reason = response.reason
    if response.status < 400:
        there = response.url.join(URL(response.headers.get("Location", "")))
        hub = re.sub(r"/v1/(agl|traces)\b.*", "", str(there))
        reason = f"it redirects: use the address {hub}"
    raise aiohttp.ClientResponseError(
        response.request_info._replace(headers=CIMultiDictProxy(CIMultiDict())),  # the token is among them
        response.history,
        status=response.status,
        message=printable(str(reason)[:_DETAIL_CHARACTERS]),
        headers=response.headers,
    )


def _retrying(passes: Callable[[BaseException], bool], stop: Any, before_sleep: Any) -> AsyncRetrying:
    """Retries with exponential backoff; raises an error that does not pass, and the last one."""
    return AsyncRetrying(
        retry=retry_if_exception(passes),
        stop=stop,
        wait=wait_exponential(multiplier=_FIRST_DELAY, max=_LONGEST_DELAY),
        before_sleep=before_sleep,
        reraise=True,
    )


def _is_outage(error: BaseException | None) -> bool:
    """Whether the hub, or a proxy before it, is unavailable."""
    if isinstance(error, aiohttp.ClientResponseError):
        return error.status in _PROXY_STATUSES
    return isinstance(error, _NETWORK_ERRORS)


def _is_rejection(error: BaseException) -> bool:
    """Whether a hub rejects a request that a later hub would reject, too; a proxy without a hub may answer 404."""
    status = error.status if isinstance(error, aiohttp.ClientResponseError) else 0
    return 300 <= status < 500 and status not in (404, *_PROXY_STATUSES)


def _is_retryable(error: BaseException) -> bool:
    failed = isinstance(error, aiohttp.ClientResponseError) and error.status >= 500
    return failed or isinstance(error, NotAHub) or _is_outage(error)


def _page(answer: dict[str, Any], read: Callable[[Any], Answer]) -> Page[Answer]:
    return Page(map(read, answer["items"]), answer["total"])


def _read_rollout(item: Any) -> Rollout:
    return (AttemptedRollout if "attempt" in item else Rollout).model_validate(item)


def _span_size(span: Span) -> tuple[int, int, int]:
    values = span.attributes.values()
    return (
        1,
        sum(len(value) for value in values if isinstance(value, list)),
        sum(len(value) for value in values if isinstance(value, str)),
    )


def batches(
    items: Iterable[Item], size: Callable[[Item], tuple[int, ...]], most: tuple[int, ...]
) -> Iterator[list[Item]]:
    """The items in their order, in parts whose sizes sum up to ``most`` in each dimension; a larger one is alone."""
    batch: list[Item] = []
    total = (0,) * len(most)
    for item in items:
        own = size(item)
        total = tuple(map(operator.add, total, own))
        if batch and any(map(operator.gt, total, most)):
            yield batch
            batch, total = [], own
        batch.append(item)
    if batch:
        yield batch
