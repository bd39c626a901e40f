"""Limits of OTLP requests, checked before decoding: an empty value grows from two bytes to five kilobytes."""

from collections.abc import Iterable
from typing import TypeAlias

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from starlette.exceptions import HTTPException

from store.printable import printable
from store.protocol import ATTEMPT_ID, ROLLOUT_ID, SPAN_SEQUENCE_ID

_MOST_SPANS = 20_000
_MOST_PARTS = 1_000_000
_MOST_FIELDS = 4 * _MOST_PARTS
_MOST_EVENTS = 50_000
_SMALL_BYTES = 512 * 1024
"""Requests up to this size are decoded without a check: they take some tens of MB at most."""

_MOST_REPEATED_BYTES = 256 * 1024 * 1024
_TOO_MANY_SPANS = f"a request may have at most {_MOST_SPANS} spans; send smaller requests"
_TOO_MANY_PARTS = f"a request may have at most {_MOST_PARTS} attributes, values and events; send smaller requests"
_IDS = {ROLLOUT_ID, ATTEMPT_ID}
_TEXTS, _NUMBERS = {"string_value", "bytes_value"}, {"bool_value", "int_value", "double_value"}

Message: TypeAlias = dict[int, "Message"]
"""Field number -> message type, for the fields of a message that are messages."""

_ANY_VALUE: Message = {}
_KEY_VALUE: Message = {2: _ANY_VALUE}
_ANY_VALUE |= {5: {1: _ANY_VALUE}, 6: {1: _KEY_VALUE}}
_SPAN: Message = {9: _KEY_VALUE, 11: {3: _KEY_VALUE}, 13: {4: _KEY_VALUE}, 15: {}}
_RESOURCE: Message = {1: _KEY_VALUE, 3: {}}
_REQUEST: Message = {1: {1: _RESOURCE, 2: {1: {3: _KEY_VALUE}, 2: _SPAN}}}
"""ExportTraceServiceRequest of opentelemetry-proto, with its parts."""


def check_otlp_size(body: bytes) -> None:
    """Raises HTTPException for a request with too many parts, and for groups or lengths beyond the end.

    A part is a length-delimited field: a span, an attribute, a value of a list, a text.
    """
    if len(body) <= _SMALL_BYTES:
        return
    position = fields = parts = spans = 0
    inside = [(len(body), _REQUEST)]  # (end, type) of the messages around the position
    while inside:
        end, message = inside[-1]
        if position >= end:
            _check(position == end, "invalid OTLP request: a field ends after its message")
            inside.pop()
            continue
        tag, position = _varint(body, position)
        kind = tag & 7
        fields += 1
        _check(fields <= _MOST_FIELDS, f"a request may have at most {_MOST_FIELDS} fields; send smaller requests")
        _check(kind in (0, 1, 2, 5), "invalid OTLP request: groups are not supported")
        if kind != 2:
            position = _varint(body, position)[1] if kind == 0 else position + (8 if kind == 1 else 4)
            continue
        length, position = _varint(body, position)
        inner = message.get(tag >> 3)
        parts += 1
        spans += inner is _SPAN
        _check(parts <= _MOST_PARTS, _TOO_MANY_PARTS)
        _check(spans <= _MOST_SPANS, _TOO_MANY_SPANS)
        if inner is None:
            position += length
        else:
            inside.append((position + length, inner))


def check_values(request: ExportTraceServiceRequest) -> None:
    """Raises HTTPException for too many spans, for the first invalid attribute, and for large shared resources.

    pydantic would report every invalid value in five ways; a resource is stored with each of its spans.
    """
    number = sum(len(scope.spans) for group in request.resource_spans for scope in group.scope_spans)
    _check(number <= _MOST_SPANS, _TOO_MANY_SPANS)
    repeated_bytes = events = 0
    for group in request.resource_spans:
        _check_attributes(group.resource.attributes)
        spans = [span for scope in group.scope_spans for span in scope.spans]
        repeated_bytes += (group.resource.ByteSize() + len(group.schema_url.encode())) * len(spans)
        events += sum(len(span.events) + len(span.links) for span in spans)
        _check(events <= _MOST_EVENTS, f"a request may have at most {_MOST_EVENTS} events and links; send fewer")
        for span in spans:
            for part in (span, *span.events, *span.links):
                _check_attributes(part.attributes)
    _check(repeated_bytes <= _MOST_REPEATED_BYTES, "the resource is too large for that many spans, each stored with it")


def drop_spans_of_no_attempt(request: ExportTraceServiceRequest) -> int:
    """Remove the spans that belong to no attempt; returns their number.

    A tracer exports them, too. agentlightning leaves them out with a line of log each, which has whatever their
    attributes contain.
    """
    dropped = 0
    for group in request.resource_spans:
        shared = {attribute.key for attribute in group.resource.attributes}
        for scope in group.scope_spans:
            kept = [span for span in scope.spans if shared | {attribute.key for attribute in span.attributes} >= _IDS]
            if len(kept) < len(scope.spans):
                dropped += len(scope.spans) - len(kept)
                del scope.spans[:]
                scope.spans.extend(kept)
    return dropped


def _check_attributes(attributes: Iterable[KeyValue]) -> None:
    for attribute in attributes:
        kind = attribute.value.WhichOneof("value")
        possible = kind is not None and kind != "kvlist_value"
        if attribute.key == SPAN_SEQUENCE_ID and not _is_sequence_id(attribute.value):
            # agentlightning would log a line for each span that has it.
            raise HTTPException(400, f"attributes: {SPAN_SEQUENCE_ID} must be a number that is not negative")
        if kind == "array_value":
            kinds = {value.WhichOneof("value") for value in attribute.value.array_value.values}
            possible = kinds <= _TEXTS or kinds <= _NUMBERS
        if not possible:
            name = printable(attribute.key)[:100]
            raise HTTPException(400, f"attributes: {name!r} must be a text, a number, or a list of one of them")


def _is_sequence_id(value: AnyValue) -> bool:
    text = str(value.int_value) if value.WhichOneof("value") == "int_value" else value.string_value
    return text.isdecimal() and len(text) < 20


def _check(holds: bool, otherwise: str) -> None:
    if not holds:
        raise HTTPException(400, otherwise)


def _varint(body: bytes, position: int) -> tuple[int, int]:
    """(value, position after it)."""
    value = shift = 0
    while position < len(body) and shift < 70:
        byte = body[position]
        position += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, position
        shift += 7
    raise HTTPException(400, "invalid OTLP request: unterminated number")
