"""The requests that make up nearly all of a hub's work, answered without the layers that FastAPI puts around a call.

The same requests and answers as the stock server's, which still gets whatever is out of the ordinary, and whose models
these are. What is wrong with a large request is told after the first fault: a list of all of them would take a thousand
times the request's size.
"""

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from typing import Annotated, Any

from agentlightning import Attempt, AttemptedRollout, EnqueueRolloutRequest, LightningStore, Rollout, Span
from agentlightning.store.base import UNSET
from agentlightning.store.client_server import (
    API_V1_AGL_PREFIX,
    DequeueManyRolloutsRequest,
    QueryRolloutsRequest,
    QuerySpansRequest,
    UpdateAttemptRequest,
    UpdateWorkerRequest,
    WaitForRolloutsRequest,
)
from agentlightning.types import Worker
from agentlightning.utils.otlp import spans_from_proto
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from pydantic import BaseModel, FailFast, TypeAdapter, ValidationError
from starlette.datastructures import Headers, QueryParams
from starlette.requests import ClientDisconnect
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from store.hub.database.lightning_store import SqlLightningStore
from store.hub.otlp_size import check_values
from store.printable import printable

logger = logging.getLogger(__name__)

Handler = Callable[[Any], Awaitable[Response | None]]
"""Answers a request's JSON (or OTLP bytes); None leaves it to the stock server."""

FINISHED_PATH = f"{API_V1_AGL_PREFIX}/queues/rollouts/finished"
"""Not of the stock protocol: a stock hub answers 405."""

ALIVE_PATH = f"{API_V1_AGL_PREFIX}/queues/attempts/alive"
"""Nor is this."""

_LONGEST_DETAIL = 500
_MOST_CONDITIONS = 100
_LARGEST_PAGE = 1000
"""Of rollouts, that is read at once; more are read and sent in batches."""
_ITEMS = {
    Rollout: TypeAdapter(list[Rollout]),
    AttemptedRollout: TypeAdapter(list[AttemptedRollout]),
    Span: TypeAdapter(list[Span]),
}
_MIXED_ROLLOUTS = TypeAdapter(list[AttemptedRollout | Rollout])


class _EnqueueRequest(BaseModel):
    rollouts: Annotated[list[EnqueueRolloutRequest], FailFast()]


class FinishedRequest(BaseModel):
    """Which rollouts were closed since a mark; see ``SqlLightningStore.finished_since``."""

    after: str | None = None


class AliveRequest(BaseModel):
    """Attempts that are being made, as (rollout id, attempt id); see ``SqlLightningStore.keep_alive``."""

    attempts: Annotated[list[tuple[str, str]], FailFast()]


class HotRoutes:
    """ASGI middleware, the innermost: answers some requests from the store, and passes the others on.

    refuse: the answer to an error that the store raised, given method and path; None for what is a bug.
    """

    def __init__(self, app: ASGIApp, store: LightningStore, refuse: Callable[[str, str, Exception], Response | None]):
        self._app = app
        self._store = store
        self._refuse = refuse
        self._fixed: dict[str, Handler] = {
            "/v1/traces": self._add_otlp,
            f"{API_V1_AGL_PREFIX}/spans": self._add_span,
            f"{API_V1_AGL_PREFIX}/spans/search": self._search_spans,
            f"{API_V1_AGL_PREFIX}/rollouts/search": self._search_rollouts,
            f"{API_V1_AGL_PREFIX}/queues/rollouts/enqueue": self._enqueue,
            f"{API_V1_AGL_PREFIX}/queues/rollouts/dequeue": self._dequeue,
        }
        if isinstance(store, SqlLightningStore):
            self._fixed[FINISHED_PATH] = self._finished
            self._fixed[ALIVE_PATH] = self._keep_alive

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer the request, or pass it on."""
        handler = self._handler(scope, receive) if scope["type"] == "http" else None
        if handler is None:
            await self._app(scope, receive, send)
            return
        body = await _whole_body(receive)
        answer = await self._answer(scope, body, handler)
        if answer is not None:
            await answer(scope, receive, send)
            return
        whole: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

        async def replay() -> Message:
            return whole.pop() if whole else await receive()

        await self._app(scope, replay, send)

    def _handler(self, scope: Scope, receive: Receive) -> Handler | None:
        path: str = scope["path"]
        if scope["method"] == "GET" and path == f"{API_V1_AGL_PREFIX}/rollouts":
            return lambda _: self._search_rollouts(_query(scope))
        if scope["method"] != "POST":
            return None
        kind = Headers(scope=scope).get("content-type", "").partition(";")[0].strip().lower()
        if kind != ("application/x-protobuf" if path == "/v1/traces" else "application/json"):
            return None
        if path == f"{API_V1_AGL_PREFIX}/waits/rollouts":
            return lambda request: self._wait(request, receive)
        if (fixed := self._fixed.get(path)) is not None:
            return fixed
        match path.removeprefix(f"{API_V1_AGL_PREFIX}/").split("/"):
            case ["rollouts", rollout_id, "attempts", attempt_id] if attempt_id != "search":
                return lambda request: self._update_attempt(rollout_id, attempt_id, request)
            case ["workers", worker_id] if worker_id != "search":
                return lambda request: self._update_worker(worker_id, request)
        return None

    async def _answer(self, scope: Scope, body: bytes, handler: Handler) -> Response | None:
        """None leaves the request to the stock server."""
        try:
            request = body if scope["path"] == "/v1/traces" or scope["method"] == "GET" else json.loads(body)
        except (ValueError, RecursionError):
            return None  # which says what is wrong
        try:
            return await handler(request)
        except _Invalid as invalid:
            logger.warning("%s %s answered 422: %s", scope["method"], printable(scope["path"]), invalid)
            return JSONResponse({"detail": str(invalid)}, status_code=422)
        except ClientDisconnect:
            return Response(status_code=499)  # nobody reads it
        except Exception as error:
            answer = self._refuse(scope["method"], scope["path"], error)
            if answer is None:
                raise
            return answer

    async def _enqueue(self, request: Any) -> Response:
        _check_conditions(request)
        tasks = _valid(_EnqueueRequest, request).rollouts
        rollouts = await self._store.enqueue_many_rollouts(tasks) if tasks else []
        return _json(_ITEMS[Rollout].dump_json(list(rollouts)), 201)

    async def _dequeue(self, request: Any) -> Response | None:
        if request is None:
            return None
        wanted = _valid(DequeueManyRolloutsRequest, request)
        if wanted.limit <= 0:
            return None
        rollouts = await self._store.dequeue_many_rollouts(limit=wanted.limit, worker_id=wanted.worker_id)
        return _json(_ITEMS[AttemptedRollout].dump_json(list(rollouts)))

    async def _search_rollouts(self, request: Any) -> Response | None:
        wanted = _valid(QueryRolloutsRequest, request)
        if not _is_page(wanted, Rollout):
            return None
        query = wanted.model_dump(exclude={"status_in", "rollout_id_in"})
        for name in ("status_in", "rollout_id_in"):
            query[name] = getattr(wanted, name) if name in wanted.model_fields_set else None
        is_large = wanted.limit == -1 or wanted.limit > _LARGEST_PAGE
        if is_large and query["rollout_id_in"] is None and isinstance(self._store, SqlLightningStore):
            total, batches = await self._store.all_rollouts(**query)
            pieces = _in_pieces(batches, wanted.limit, wanted.offset, total)
            return StreamingResponse(pieces, media_type="application/json")
        page = await self._store.query_rollouts(**query)
        return _page(_MIXED_ROLLOUTS.dump_json(list(page.items)), page)

    async def _search_spans(self, request: Any) -> Response | None:
        wanted = _valid(QuerySpansRequest, request)
        if not _is_page(wanted, Span):
            return None
        page = await self._store.query_spans(**wanted.model_dump())
        return _page(_ITEMS[Span].dump_json(list(page.items)), page)

    async def _wait(self, request: Any, receive: Receive) -> Response:
        """The wait ends with its client's connection."""
        wanted = _valid(WaitForRolloutsRequest, request)
        waiting = self._store.wait_for_rollouts(rollout_ids=wanted.rollout_ids, timeout=wanted.timeout)
        if wanted.timeout is None or wanted.timeout > 0:
            rollouts = await _unless_disconnected(waiting, receive)
        else:
            rollouts = await waiting
        return _json(_ITEMS[Rollout].dump_json(rollouts))

    async def _finished(self, request: Any) -> Response:
        wanted = _valid(FinishedRequest, request)
        rollout_ids, mark = await self._store.finished_since(wanted.after)
        return JSONResponse({"rollout_ids": rollout_ids, "mark": mark})

    async def _keep_alive(self, request: Any) -> Response:
        await self._store.keep_alive(_valid(AliveRequest, request).attempts)
        return _json(b"{}")

    async def _add_span(self, request: Any) -> Response:
        _check_attributes(request)
        span = await self._store.add_span(_valid(Span, request))
        return _json(b"null" if span is None else span.model_dump_json().encode(), 201)

    async def _add_otlp(self, body: bytes) -> Response | None:
        export = ExportTraceServiceRequest()
        try:
            export.ParseFromString(body)
        except Exception:  # whatever protobuf raises; the stock server says what is wrong
            return None
        check_values(export)
        await self._store.add_many_spans(await spans_from_proto(export, self._store.get_many_span_sequence_ids))
        return Response(b"", media_type="application/x-protobuf")

    async def _update_attempt(self, rollout_id: str, attempt_id: str, request: Any) -> Response | None:
        changes = _changes(UpdateAttemptRequest, request)
        if changes is None:
            return None
        attempt: Attempt = await self._store.update_attempt(rollout_id, attempt_id, **changes)
        return _json(attempt.model_dump_json().encode())

    async def _update_worker(self, worker_id: str, request: Any) -> Response | None:
        changes = None if request is None else _changes(UpdateWorkerRequest, request)
        if changes is None:
            return None
        worker: Worker = await self._store.update_worker(worker_id, changes.get("heartbeat_stats", UNSET))
        return _json(worker.model_dump_json().encode())


class _Invalid(Exception):
    """What is wrong with a request, and where."""


def invalid(problems: list[Any]) -> str:
    """pydantic's problems in a line: what is wrong and where, without the data itself."""
    told = (f"{'.'.join(map(str, ('body', *problem['loc'])))}: {problem['msg']}" for problem in problems)
    return printable("; ".join(told)[:_LONGEST_DETAIL])


def _valid(model: type[Any], request: Any) -> Any:
    try:
        return model.model_validate(request)
    except ValidationError as error:
        raise _Invalid(invalid(error.errors(include_url=False, include_context=False, include_input=False))) from None


def _check_conditions(request: Any) -> None:
    """A task's only list whose faulty items would all be told."""
    tasks = request.get("rollouts") if isinstance(request, dict) else None
    for task in tasks if isinstance(tasks, list) else ():
        config = task.get("config") if isinstance(task, dict) else None
        conditions = config.get("retry_condition") if isinstance(config, dict) else None
        if isinstance(conditions, list) and len(conditions) > _MOST_CONDITIONS:
            raise _Invalid(f"body.rollouts.config.retry_condition: at most {_MOST_CONDITIONS}")


def _check_attributes(span: Any) -> None:
    """Refuse at the first value that no attribute can have: every one of very many would be told, in five ways each."""
    if not isinstance(span, dict):
        return
    parts = [span, *(part for kind in ("events", "links") if isinstance(span.get(kind), list) for part in span[kind])]
    for part in parts:
        if not isinstance(part, dict):
            raise _Invalid(f"body: a span's events and links are objects, not {type(part).__name__}")
        attributes = part.get("attributes")
        for name, value in attributes.items() if isinstance(attributes, dict) else ():
            kinds = set(map(type, value)) if isinstance(value, list) else {type(value)}
            if kinds != {str} and not kinds <= {bool, int, float}:
                raise _Invalid(f"body.attributes.{printable(name)[:100]}: only text, numbers, or a list of one of them")


def _changes(model: type[BaseModel], request: Any) -> dict[str, Any] | None:
    """The fields that a request sets; None if one of them is null, which the stock server refuses."""
    wanted = _valid(model, request)
    changes = {name: getattr(wanted, name) for name in wanted.model_fields_set & model.model_fields.keys()}
    return None if None in changes.values() else changes


def _is_page(wanted: Any, model: type[BaseModel]) -> bool:
    sortable = wanted.sort_by is None or wanted.sort_by in model.model_fields
    return sortable and (wanted.limit > 0 or wanted.limit == -1) and wanted.offset >= 0


def _json(content: bytes, status: int = 200) -> Response:
    return Response(content, status, media_type="application/json")


def _page(items: bytes, page: Any) -> Response:
    return _json(b'{"items":%b,"limit":%d,"offset":%d,"total":%d}' % (items, page.limit, page.offset, page.total))


def _query(scope: Scope) -> dict[str, Any]:
    """The parameters of a request for rollouts, as the JSON of a search has them."""
    parameters = QueryParams(scope["query_string"])
    lists = ("status_in", "rollout_id_in")
    return {name: parameters.getlist(name) if name in lists else parameters[name] for name in parameters}


async def _in_pieces(
    batches: AsyncIterator[list[Rollout]], limit: int, offset: int, total: int
) -> AsyncIterator[bytes]:
    """A page of rollouts."""
    separator = b'{"items":['
    async for batch in batches:
        yield separator + _MIXED_ROLLOUTS.dump_json(batch)[1:-1]
        separator = b","
    yield (b"" if separator == b"," else separator) + b'],"limit":%d,"offset":%d,"total":%d}' % (limit, offset, total)


async def _unless_disconnected(answering: Coroutine[Any, Any, Any], receive: Receive) -> Any:
    """What the coroutine returns; ClientDisconnect if the client leaves first, and the coroutine is cancelled."""

    async def disconnect() -> None:
        while (await receive())["type"] != "http.disconnect":
            pass

    tasks = [asyncio.create_task(answering), asyncio.create_task(disconnect())]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        if not tasks[0].done():
            raise ClientDisconnect
        return tasks[0].result()
    finally:
        for task in tasks:
            task.cancel()


async def _whole_body(receive: Receive) -> bytes:
    chunks, more = [], True
    while more:
        message = await receive()
        chunks.append(message.get("body", b""))
        more = message.get("more_body", False)
    return b"".join(chunks)
