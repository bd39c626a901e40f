"""A LightningStoreClient that waits for a hub that is away, and uploads spans in bulk.

agentlightning's own client gives up on a dead hub after 0.8 s and sends one request per span. This one sends many spans
of many games as one compressed OTLP request, the only bulk route of the protocol.
"""

import asyncio
import gzip
import json
import logging
import math
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Literal

import aiohttp
from agentlightning import AttemptedRollout, LightningStoreClient, Span
from agentlightning.semconv import LightningResourceAttributes
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, ArrayValue, KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans, Status
from tenacity import (
    AsyncRetrying,
    RetryCallState,
    retry_if_exception,
    stop_after_attempt,
    stop_before_delay,
    wait_exponential,
)

from store.auth import TOKEN_VARIABLE, check_token, read_token
from store.printable import printable

logger = logging.getLogger(__name__)

AttemptKey = tuple[str, str]
"""(rollout id, attempt id)."""

_NETWORK_ERRORS = (aiohttp.ClientConnectionError, aiohttp.ClientPayloadError, asyncio.TimeoutError)
_FIRST_DELAY, _LONGEST_DELAY = 0.2, 5.0
_RETRY_DELAYS = (0.2, 1.0, 2.0)
_CONFLICT = 409
_TOO_MANY_REQUESTS = 429
_NOT_THE_HUB = (408, _TOO_MANY_REQUESTS, 502, 503, 504)
"""Answers of a gateway in between, which has trouble with the hub, or with us for a moment."""
_SPANS_PER_REQUEST = 200
_VALUES_PER_REQUEST = 200_000
"""Of lists in spans' attributes: our hub takes a million parts of a request."""
_NANOSECONDS = 1_000_000_000
_OTLP_HEADERS = {"Content-Type": "application/x-protobuf", "Content-Encoding": "gzip"}


class StoreUnreachable(ConnectionError):
    """The hub did not answer for as long as we were told to wait; the message names address and remedy."""


class StoreRefused(StoreUnreachable):
    """The hub answers, but wants another token; waiting does not help."""


class NotAHub(StoreUnreachable):
    """Something else than a hub answers at the address: a web page, or nothing at all with a status of success."""


def described(error: Exception) -> str:
    """An error as a log may show it: its type and text.

    ``repr`` of aiohttp's ClientResponseError has the headers of the request in it, and with them the hub's token.
    """
    text = str(error)
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def connect(url: str, patience_seconds: float = 120.0, token: str | None = None) -> "PatientStoreClient":
    """A client of the hub at ``url``; nothing is sent yet. An outage is waited out for ``patience_seconds``.

    token: what the hub wants from those who use it; None takes it from ``AGL_TOKEN``, where there may be none.
    """
    return PatientStoreClient(url, patience_seconds, token)


class PatientStoreClient(LightningStoreClient):
    """The stock client with a patient retry schedule, a reachability check and a bulk span upload.

    request_timeout_seconds: how long the answer to one request is waited for.
    """

    def __init__(
        self, url: str, patience_seconds: float, token: str | None = None, request_timeout_seconds: float = 30.0
    ):
        if not url.startswith(("http://", "https://")):
            raise ValueError(f"hub address {url!r} must start with http:// or https://, e.g. http://127.0.0.1:4747")
        if not (math.isfinite(patience_seconds) and patience_seconds >= 0):
            raise ValueError(f"the patience with the hub must be a finite number of seconds, got {patience_seconds}")
        super().__init__(
            url,
            retry_delays=_RETRY_DELAYS,
            health_retry_delays=[0.2, 0.4, 0.8, 1.6, 3.2, *[_LONGEST_DELAY] * int(patience_seconds / _LONGEST_DELAY)],
            request_timeout=request_timeout_seconds,
        )
        self.patience_seconds = patience_seconds
        self._has_met_hub = False
        self._token = read_token() if token is None else check_token(token, "the hub's token")

    async def _request_json(
        self, method: Literal["get", "post"], path: str, *, json: Any | None = None, params: Any | None = None
    ) -> Any:
        """Also asks again where the stock client gives up: an answer broke off, or a gateway has too many requests.

        Raises NotAHub, or aiohttp.ContentTypeError, when a page comes where JSON is expected, and goes on coming.
        """

        async def wait_for_hub(_: RetryCallState) -> None:
            await self.wait_until_reachable()

        async for attempt in _retrying(_is_broken_answer, stop_after_attempt(len(_RETRY_DELAYS) + 1), wait_for_hub):
            with attempt:
                answer = await super()._request_json(method, path, json=json, params=params)
                if answer is None and method == "post" and path != "/spans":  # an empty body; the others may say "null"
                    raise NotAHub(f"what answers at {self.server_address_root} is no hub: nothing comes for {path}")
        return answer

    async def _get_session(self) -> aiohttp.ClientSession:
        session = await super()._get_session()
        if self._token is not None:
            session.headers["Authorization"] = f"Bearer {self._token}"
        return session

    async def dequeue_many_rollouts(self, *, limit: int = 1, worker_id: str | None = None) -> list[AttemptedRollout]:
        """Take up to ``limit`` games. Asked once: what the hub hands out in an answer that is lost must time out.

        Raises aiohttp.ClientError, NotAHub or TimeoutError, where the stock client says that there are no games.
        """
        session = await self._get_session()
        request = {"limit": limit} if worker_id is None else {"limit": limit, "worker_id": worker_id}
        async with session.post(f"{self.server_address}/queues/rollouts/dequeue", json=request) as response:
            response.raise_for_status()
            answer = await self._answer_of_a_hub(response, list)
        return [AttemptedRollout.model_validate(rollout) for rollout in answer]

    async def take_back(self, rollout_id: str) -> bool:
        """Cancel a game that is open; False if our hub says that it has been closed in the meantime."""
        try:
            await self.update_rollout(rollout_id, status="cancelled")
        except aiohttp.ClientResponseError as error:
            if error.status != _CONFLICT:
                raise
            return False
        return True

    async def finished_since(self, after: str | None) -> tuple[list[str], str] | None:
        """(ids of the rollouts closed since the mark ``after``, the next mark); see ``store.finished``.

        None where the hub cannot tell: a stock one, or one that does not know the mark.
        """
        answer = await self._ask_ours("/queues/rollouts/finished", {"after": after}, (400, 404, 405))
        return None if answer is None else (answer["rollout_ids"], answer["mark"])

    async def keep_alive(self, attempts: Sequence[AttemptKey]) -> bool:
        """A heartbeat of all these attempts; those that are closed stay closed. False where the hub is a stock one."""
        return await self._ask_ours("/queues/attempts/alive", {"attempts": attempts}, (404, 405)) is not None

    async def _ask_ours(self, path: str, json: Any, absent: Sequence[int]) -> Any:
        """The answer to a request that only our hub knows; None for a status in ``absent``."""
        try:
            return await self._request_json("post", path, json=json)
        except aiohttp.ClientResponseError as error:
            if error.status not in absent:
                raise
            return None

    async def wait_until_reachable(self, patience_seconds: float | None = None) -> None:
        """Return once the hub answers its health check and lets us in.

        Raises StoreUnreachable after the patience is spent, StoreRefused at once; NotAHub at once unless a hub has
        answered there before, whose proxy may show a page while it is away.
        """
        patience = self.patience_seconds if patience_seconds is None else patience_seconds

        def passes(error: BaseException) -> bool:
            if isinstance(error, NotAHub):
                return self._has_met_hub
            return _is_outage(error)

        def log_first(state: RetryCallState) -> None:
            if state.attempt_number == 1:
                logger.info("waiting for a hub at %s (up to %.0f s) …", self.server_address_root, patience)

        try:
            async for attempt in _retrying(passes, stop_before_delay(patience), log_first):
                with attempt:
                    await self._check_hub()
        except (*_NETWORK_ERRORS, aiohttp.ClientResponseError) as error:
            raise StoreUnreachable(
                f"no hub answers at {self.server_address_root} ({described(error)}); waited {patience:.0f} s. "
                f"Start one with `agl store --host 127.0.0.1 --port 4747`, or name another address"
            ) from error
        if attempt.retry_state.attempt_number > 1:
            logger.info("the hub at %s answers", self.server_address_root)
        self._has_met_hub = True

    async def _check_hub(self) -> None:
        session = await self._get_session()
        async with session.get(f"{self.server_address}/health") as response:
            response.raise_for_status()
            await self._answer_of_a_hub(response, dict)
        # The health check is open to everybody; any other cheap request shows whether we are admitted.
        async with session.get(f"{self.server_address}/resources/latest") as response:
            self._check_admission(response)
            response.raise_for_status()
            await self._answer_of_a_hub(response, dict | None)

    async def _answer_of_a_hub(self, response: aiohttp.ClientResponse, expected: Any) -> Any:
        """The JSON in the answer. Raises NotAHub if there is none, or not of the ``expected`` type."""
        try:
            text = await response.text()
            answer = json.loads(text)
        except (UnicodeDecodeError, ValueError):
            text = ""
        if not (text and isinstance(answer, expected)):
            raise NotAHub(
                f"what answers at {self.server_address_root} is no hub: {response.status} with "
                f"{printable(response.content_type)} for {response.url.path}. Does the address have a path too much, "
                f"or lead to a proxy or another program?"
            )
        return answer

    def _check_admission(self, response: aiohttp.ClientResponse) -> None:
        if response.status == 401:
            problem = "wants a token" if self._token is None else "does not accept our token"
            raise StoreRefused(
                f"the hub at {self.server_address_root} {problem}: set {TOKEN_VARIABLE} to what its --token-file holds"
            )

    async def upload_spans(self, spans: Sequence[Span]) -> set[AttemptKey]:
        """Store spans in bulk; sending a span again is harmless, its id makes it the same span.

        Returns the attempts whose spans the hub refuses for good, mostly because it does not know them (it
        restarted and lost them). Raises StoreUnreachable when the hub stays away longer than the
        patience, or does not take spans at all.
        """
        refused: set[AttemptKey] = set()
        for batch in _batches(spans):
            by_attempt: dict[AttemptKey, list[Span]] = defaultdict(list)
            for span in batch:
                by_attempt[span.rollout_id, span.attempt_id].append(span)
            # One attempt that the hub cannot take makes it refuse a whole request, so find out which it was.
            if not await self._post_spans(by_attempt):
                refused |= {key for key, group in by_attempt.items() if not await self._insist(key, group)}
        return refused

    async def _insist(self, key: AttemptKey, spans: list[Span]) -> bool:
        """Send an attempt's spans, again as long as the hub knows the attempt; False when it is no use."""
        for delay in (*_RETRY_DELAYS, None):
            if await self._post_spans({key: spans}):
                return True
            if not await self.knows_attempt(key):
                return False
            if delay is not None:
                await asyncio.sleep(delay)
        logger.error("the hub keeps answering spans of rollout %s with a server error; see its log", key[0])
        return False

    async def knows_attempt(self, key: AttemptKey) -> bool:
        """Whether the hub still has this attempt. A restarted in-memory hub has forgotten it."""
        return any(attempt.attempt_id == key[1] for attempt in await self.query_attempts(key[0]))

    async def _post_spans(self, by_attempt: dict[AttemptKey, list[Span]]) -> bool:
        """One bulk request; False when the hub does not know an attempt or fails. Outages are waited out."""
        body = gzip.compress(encode_otlp(by_attempt).SerializeToString())
        deadline = time.monotonic() + self.patience_seconds

        async def wait_for_hub(state: RetryCallState) -> None:
            nonlocal deadline
            error = state.outcome.exception() if state.outcome else None
            logger.warning("span upload interrupted (%s); waiting for the hub", type(error).__name__)
            interrupted = time.monotonic()
            await self.wait_until_reachable()
            deadline += time.monotonic() - interrupted  # an outage has its own patience

        try:
            async for attempt in _retrying(_is_outage, lambda _: time.monotonic() > deadline, wait_for_hub):
                with attempt:
                    return await self._post_body(body)
        except (*_NETWORK_ERRORS, aiohttp.ClientResponseError) as error:
            raise StoreUnreachable(
                f"the hub at {self.server_address_root} answers its health check, but no upload of spans "
                f"gets through within {self.patience_seconds:.0f} s: {described(error)}"
            ) from error
        return False

    async def _post_body(self, body: bytes) -> bool:
        session = await self._get_session()
        async with session.post(self.otlp_traces_endpoint(), data=body, headers=_OTLP_HEADERS) as response:
            self._check_admission(response)
            if response.status in _NOT_THE_HUB:
                response.raise_for_status()
            # Our hub answers 400 or 404 where the stock one answers 500.
            if 400 <= response.status < 500 and response.status not in (400, 404):
                raise StoreUnreachable(
                    f"the hub at {self.server_address_root} does not take spans: it answers "
                    f"{response.status} {response.reason}. Is there a proxy in between that limits requests?"
                )
            return response.status < 400


def _retrying(passes: Callable[[BaseException], bool], stop: Any, before_sleep: Any) -> AsyncRetrying:
    """Tries at growing intervals; an error that does not pass, and the last one, are raised."""
    return AsyncRetrying(
        retry=retry_if_exception(passes),
        stop=stop,
        wait=wait_exponential(multiplier=_FIRST_DELAY, max=_LONGEST_DELAY),
        before_sleep=before_sleep,
        reraise=True,
    )


def _is_outage(error: BaseException) -> bool:
    return isinstance(error, (*_NETWORK_ERRORS, aiohttp.ClientResponseError))


def _is_broken_answer(error: BaseException) -> bool:
    """An answer that broke off, is no JSON, or comes from a gateway that has too many requests.

    So is a connection that ends before the answer: a long wait may meet several hubs that are killed, more often than
    the stock client tries.
    """
    broken = aiohttp.ClientPayloadError | aiohttp.ContentTypeError | aiohttp.ServerDisconnectedError | NotAHub
    if isinstance(error, broken):
        return True
    return isinstance(error, aiohttp.ClientResponseError) and error.status == _TOO_MANY_REQUESTS


def _batches(spans: Iterable[Span]) -> Iterator[list[Span]]:
    batch: list[Span] = []
    room = _VALUES_PER_REQUEST
    for span in spans:
        values = sum(len(value) for value in span.attributes.values() if isinstance(value, list))
        if batch and (len(batch) == _SPANS_PER_REQUEST or values > room):
            yield batch
            batch, room = [], _VALUES_PER_REQUEST
        batch.append(span)
        room -= values
    if batch:
        yield batch


def encode_otlp(by_attempt: dict[AttemptKey, list[Span]]) -> ExportTraceServiceRequest:
    """Spans as an OTLP trace request, grouped by attempt, each carrying its own sequence id."""
    request = ExportTraceServiceRequest()
    for (rollout_id, attempt_id), spans in by_attempt.items():
        group: ResourceSpans = request.resource_spans.add()
        names = [LightningResourceAttributes.ROLLOUT_ID.value, LightningResourceAttributes.ATTEMPT_ID.value]
        group.resource.attributes.extend(map(_key_value, names, (rollout_id, attempt_id)))
        scope = group.scope_spans.add()
        for span in spans:
            encoded = scope.spans.add(
                trace_id=bytes.fromhex(span.trace_id),
                span_id=bytes.fromhex(span.span_id),
                parent_span_id=bytes.fromhex(span.parent_id or ""),
                name=span.name,
                start_time_unix_nano=int((span.start_time or 0) * _NANOSECONDS),
                end_time_unix_nano=int((span.end_time or 0) * _NANOSECONDS),
                status=Status(code=Status.STATUS_CODE_OK),
            )
            encoded.attributes.append(_key_value(LightningResourceAttributes.SPAN_SEQUENCE_ID.value, span.sequence_id))
            encoded.attributes.extend(_key_value(key, value) for key, value in span.attributes.items())
    return request


def _key_value(key: str, value: Any) -> KeyValue:
    return KeyValue(key=key, value=_any_value(value))


def _any_value(value: Any) -> AnyValue:
    if isinstance(value, list):
        return AnyValue(array_value=ArrayValue(values=map(_any_value, value)))
    return AnyValue(**{_VALUE_FIELDS[type(value)]: value})


_VALUE_FIELDS = {bool: "bool_value", int: "int_value", float: "double_value", str: "string_value"}
