"""A LightningStoreClient that rides out a hub outage and uploads spans in bulk.

agentlightning's own client gives up on a dead hub after 0.8 s and sends one request per span. This
one waits as long as it is told to, and sends many spans of many games as one compressed OTLP request,
the only bulk route of the protocol.
"""

import asyncio
import gzip
import logging
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence

import aiohttp
from agentlightning import LightningStoreClient, Span
from agentlightning.semconv import LightningResourceAttributes
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans, Status

logger = logging.getLogger(__name__)

AttemptKey = tuple[str, str]
"""(rollout id, attempt id)."""

_NETWORK_ERRORS = (aiohttp.ClientConnectionError, aiohttp.ClientPayloadError, asyncio.TimeoutError)
_FIRST_DELAY, _LONGEST_DELAY = 0.2, 5.0
_NANOSECONDS = 1_000_000_000


class StoreUnreachable(ConnectionError):
    """The hub did not answer for as long as we were told to wait; the message names address and remedy."""


def connect(url: str, patience_seconds: float = 120.0) -> "PatientStoreClient":
    """A client of the hub at ``url``; nothing is sent yet. An outage is waited out for ``patience_seconds``."""
    return PatientStoreClient(url, patience_seconds)


class PatientStoreClient(LightningStoreClient):
    """The stock client with a patient retry schedule, a reachability check and a bulk span upload."""

    def __init__(self, url: str, patience_seconds: float = 120.0):
        if not url.startswith(("http://", "https://")):
            raise ValueError(f"hub address {url!r} must start with http:// or https://, e.g. http://127.0.0.1:4747")
        super().__init__(url, retry_delays=(0.2, 1.0, 2.0), health_retry_delays=_delays_within(patience_seconds))
        self.patience_seconds = patience_seconds

    async def wait_until_reachable(self, patience_seconds: float | None = None) -> None:
        """Return once the hub answers its health check. Raises StoreUnreachable after the patience is spent."""
        patience = self.patience_seconds if patience_seconds is None else patience_seconds
        deadline = time.monotonic() + patience
        session = await self._get_session()
        for attempt, delay in enumerate(_delays()):
            try:
                async with session.get(f"{self.server_address}/health") as response:
                    response.raise_for_status()
                    if attempt:
                        logger.info("the hub at %s answers", self.server_address_root)
                    return
            except (*_NETWORK_ERRORS, aiohttp.ClientResponseError) as error:
                if time.monotonic() + delay > deadline:
                    raise StoreUnreachable(
                        f"no hub answers at {self.server_address_root} ({error}); waited {patience:.0f} s. "
                        f"Start one with `agl store --host 127.0.0.1 --port 4747`, or name another address"
                    ) from error
                if attempt == 0:
                    logger.info("waiting for a hub at %s (up to %.0f s) …", self.server_address_root, patience)
                await asyncio.sleep(delay)

    async def upload_spans(self, spans: Sequence[Span]) -> set[AttemptKey]:
        """Store spans in bulk; sending a span again is harmless, its id makes it the same span.

        Returns the attempts that the hub does not know (it restarted and lost them): their spans are
        refused for good. Raises StoreUnreachable when the hub stays away longer than the patience.
        """
        by_attempt: dict[AttemptKey, list[Span]] = defaultdict(list)
        for span in spans:
            by_attempt[span.rollout_id, span.attempt_id].append(span)
        if not by_attempt or await self._post_spans(by_attempt):
            return set()
        # One unknown attempt makes the hub refuse a whole request, so find out which it was.
        refused = set()
        for key, group in by_attempt.items():
            deadline = time.monotonic() + self.patience_seconds
            while not await self._post_spans({key: group}):
                if not await self.knows_attempt(key):
                    refused.add(key)
                    break
                if time.monotonic() > deadline:
                    raise StoreUnreachable(
                        f"the hub at {self.server_address_root} keeps refusing spans of rollout {key[0]} "
                        f"with a server error; see its log"
                    )
                await asyncio.sleep(_LONGEST_DELAY)
        return refused

    async def knows_attempt(self, key: AttemptKey) -> bool:
        """Whether the hub still has this attempt. A restarted in-memory hub has forgotten it."""
        rollout_id, attempt_id = key
        attempts = await self.query_attempts(rollout_id)
        return any(attempt.attempt_id == attempt_id for attempt in attempts)

    async def _post_spans(self, by_attempt: dict[AttemptKey, list[Span]]) -> bool:
        """One bulk request; False when the hub answers with a server error. Outages are waited out."""
        body = gzip.compress(encode_otlp(by_attempt).SerializeToString())
        headers = {"Content-Type": "application/x-protobuf", "Content-Encoding": "gzip"}
        while True:
            session = await self._get_session()
            try:
                async with session.post(self.otlp_traces_endpoint(), data=body, headers=headers) as response:
                    if response.status >= 500:
                        return False
                    response.raise_for_status()
                    return True
            except _NETWORK_ERRORS as error:
                logger.warning("span upload interrupted (%s); waiting for the hub", type(error).__name__)
                await self.wait_until_reachable()


def encode_otlp(by_attempt: dict[AttemptKey, list[Span]]) -> ExportTraceServiceRequest:
    """Spans as an OTLP trace request, grouped by attempt, each carrying its own sequence id."""
    request = ExportTraceServiceRequest()
    for (rollout_id, attempt_id), spans in by_attempt.items():
        group: ResourceSpans = request.resource_spans.add()
        group.resource.attributes.extend(
            [
                _key_value(LightningResourceAttributes.ROLLOUT_ID.value, rollout_id),
                _key_value(LightningResourceAttributes.ATTEMPT_ID.value, attempt_id),
            ]
        )
        scope = group.scope_spans.add()
        for span in spans:
            encoded = scope.spans.add(
                trace_id=bytes.fromhex(span.trace_id),
                span_id=bytes.fromhex(span.span_id),
                name=span.name,
                start_time_unix_nano=int((span.start_time or 0) * _NANOSECONDS),
                end_time_unix_nano=int((span.end_time or 0) * _NANOSECONDS),
                status=Status(code=Status.STATUS_CODE_OK),
            )
            encoded.attributes.append(_key_value(LightningResourceAttributes.SPAN_SEQUENCE_ID.value, span.sequence_id))
            encoded.attributes.extend(_key_value(key, value) for key, value in span.attributes.items())
    return request


def _key_value(key: str, value: object) -> KeyValue:
    match value:
        case bool():  # before int: a bool is one
            return KeyValue(key=key, value=AnyValue(bool_value=value))
        case int():
            return KeyValue(key=key, value=AnyValue(int_value=value))
        case float():
            return KeyValue(key=key, value=AnyValue(double_value=value))
        case str():
            return KeyValue(key=key, value=AnyValue(string_value=value))
    raise TypeError(f"span attribute {key!r} has type {type(value).__name__}; only bool, int, float and str are sent")


def _delays() -> Iterator[float]:
    """Seconds between probes: doubling, capped, without end."""
    delay = _FIRST_DELAY
    while True:
        yield delay
        delay = min(delay * 2, _LONGEST_DELAY)


def _delays_within(total_seconds: float) -> list[float]:
    """The first of ``_delays`` that together cover ``total_seconds``."""
    delays: list[float] = []
    for delay in _delays():
        if sum(delays) >= total_seconds:
            break
        delays.append(delay)
    return delays
