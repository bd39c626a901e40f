"""Spans in the OpenTelemetry protocol (OTLP), as hubs take them in bulk."""

from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, ArrayValue, KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans, Status

from store.protocol import ATTEMPT_ID, ROLLOUT_ID, SPAN_SEQUENCE_ID, Span

_NANOSECONDS = 1_000_000_000


def encode_otlp(by_attempt: dict[tuple[str, str], list[Span]]) -> ExportTraceServiceRequest:
    """A trace request. by_attempt: (rollout id, attempt id) -> spans, each of which carries its own sequence id."""
    request = ExportTraceServiceRequest()
    for (rollout_id, attempt_id), spans in by_attempt.items():
        group: ResourceSpans = request.resource_spans.add()
        group.resource.attributes.extend(map(_key_value, (ROLLOUT_ID, ATTEMPT_ID), (rollout_id, attempt_id)))
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
            encoded.attributes.append(_key_value(SPAN_SEQUENCE_ID, span.sequence_id))
            encoded.attributes.extend(_key_value(key, value) for key, value in span.attributes.items())
    return request


def _key_value(key: str, value: Any) -> KeyValue:
    return KeyValue(key=key, value=_any_value(value))


def _any_value(value: Any) -> AnyValue:
    if isinstance(value, list):
        return AnyValue(array_value=ArrayValue(values=map(_any_value, value)))
    return AnyValue(**{_VALUE_FIELDS[type(value)]: value})


_VALUE_FIELDS = {bool: "bool_value", int: "int_value", float: "double_value", str: "string_value"}
