"""OpenAI's Responses API: its items to and from chat messages, and its events.

What an earlier response of the attempt said can be named by its id (``previous_response_id``).
"""

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from runners.agents.gateway.requests import (
    Message,
    ModelReply,
    ModelRequest,
    RequestRefused,
    dropped_names,
    read_tools,
    text_of,
    whole_number,
)

_HEEDED = {
    *("model", "input", "instructions", "tools", "tool_choice", "parallel_tool_calls", "stream"),
    *("max_output_tokens", "previous_response_id", "include"),
}


def read_request(
    body: Mapping[str, Any], actor: str | None, sampling: Mapping[str, Any], earlier: Mapping[str, Sequence[Message]]
) -> ModelRequest:
    """A request as the gateway deals with it. Raises RequestRefused.

    sampling: what is used whatever is asked for. earlier: conversations without instructions, by their response's id.
    """
    messages: list[Message] = []
    if body.get("instructions"):  # not carried over from an earlier response, as OpenAI has it
        messages.append({"role": "system", "content": text_of(body["instructions"], "instructions")})
    previous = body.get("previous_response_id")
    if previous is not None:
        if previous not in earlier:
            raise RequestRefused(
                f"there is no earlier response {previous!r} of this attempt",
                status=404,
                code="previous_response_not_found",
                param="previous_response_id",
            )
        messages += earlier[previous]
    messages += _read_items(body.get("input"))
    tools, tools_dropped = read_tools(body)
    return ModelRequest(
        model=str(body.get("model")),
        messages=tuple(messages),
        actor=actor,
        **tools,
        reply_tokens=whole_number(body, "max_output_tokens"),
        dropped=(*dropped_names(body, _HEEDED, sampling), *tools_dropped),
    )


def _read_items(given: Any) -> list[Message]:
    if isinstance(given, str):
        return [{"role": "user", "content": given}]
    if not isinstance(given, list) or not given:
        raise RequestRefused("input must be a text or a list with at least one item", param="input")
    messages: list[Message] = []
    for number, item in enumerate(given):
        where = f"input item {number}"
        kind = item.get("type", "message") if isinstance(item, dict) else type(item).__name__
        try:
            if kind == "message":
                _add_message(messages, item["role"], text_of(item["content"], where))
            elif kind == "function_call":
                function = {"name": str(item["name"]), "arguments": str(item.get("arguments") or "{}")}
                call = {"id": str(item["call_id"]), "type": "function", "function": function}
                _add_message(messages, "assistant", "", call)
            elif kind == "function_call_output":
                text = text_of(item["output"], where)
                messages.append({"role": "tool", "content": text, "tool_call_id": str(item["call_id"])})
            elif kind != "reasoning":  # what was thought is in the tokens already, where a conversation goes on
                raise RequestRefused(f"{where} is of type {kind!r}, which policies here do not know", param="input")
        except KeyError as error:
            raise RequestRefused(f"{where} of type {kind!r} has no {error}", param="input") from error
    return messages


def _add_message(messages: list[Message], role: str, content: str, call: dict[str, Any] | None = None) -> None:
    """Add a message; what an assistant said and called in one reply comes as several items, and is one message."""
    role = "system" if role == "developer" else role
    goes_on = role == "assistant" and messages and messages[-1]["role"] == "assistant"
    if not goes_on or (content and (messages[-1]["content"] or messages[-1].get("tool_calls"))):
        messages.append({"role": role, "content": content})
    elif content:
        messages[-1]["content"] = content
    if call is not None:
        messages[-1].setdefault("tool_calls", []).append(call)


def conversation(request: ModelRequest, reply: ModelReply) -> list[Message]:
    """What ``previous_response_id`` stands for: the conversation up to the reply, without a leading system prompt."""
    messages = list(request.messages)
    if messages[0]["role"] == "system":
        messages = messages[1:]
    return [*messages, {"content": "", **reply.message}]


def answer(reply: ModelReply, reply_id: str, body: Mapping[str, Any]) -> dict[str, Any]:
    """The JSON of an answer to the request ``body``."""
    cut = reply.finish_reason == "length"
    return {
        **_head(reply, reply_id, body),
        "status": "incomplete" if cut else "completed",
        "incomplete_details": {"reason": "max_output_tokens"} if cut else None,
        "output": _items(reply, reply_id),
        "usage": {
            "input_tokens": reply.prompt_tokens,
            "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
            "output_tokens": reply.reply_tokens,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": reply.prompt_tokens + reply.reply_tokens,
        },
    }


def stream(reply: ModelReply, reply_id: str, body: Mapping[str, Any]) -> Iterator[str]:
    """The events of a streamed answer. The reply is there whole by then: its parser reads it so."""
    begun = {**_head(reply, reply_id, body), "status": "in_progress", "output": [], "usage": None}
    whole = answer(reply, reply_id, body)

    def events() -> Iterator[dict[str, Any]]:
        yield {"type": "response.created", "response": begun}
        yield {"type": "response.in_progress", "response": begun}
        for index, item in enumerate(whole["output"]):
            yield from _item_events(item, index)
        yield {"type": f"response.{whole['status']}", "response": whole}

    for number, event in enumerate(events()):
        yield f"event: {event['type']}\ndata: {json.dumps({**event, 'sequence_number': number})}\n\n"


def _item_events(item: dict[str, Any], index: int) -> Iterator[dict[str, Any]]:
    at, begun, parts = {"output_index": index, "item_id": item["id"]}, item, []
    if item["type"] == "function_call":
        begun = {**item, "arguments": "", "status": "in_progress"}
        done = {"name": item["name"], "arguments": item["arguments"]}
        parts = [
            ("function_call_arguments.delta", {"delta": item["arguments"]}),
            ("function_call_arguments.done", done),
        ]
    elif item["type"] == "message":
        begun = {**item, "content": [], "status": "in_progress"}
        (part,) = item["content"]
        at["content_index"] = 0
        parts = [
            ("content_part.added", {"part": {**part, "text": ""}}),
            ("output_text.delta", {"delta": part["text"], "logprobs": []}),
            ("output_text.done", {"text": part["text"], "logprobs": []}),
            ("content_part.done", {"part": part}),
        ]
    yield {"type": "response.output_item.added", "output_index": index, "item": begun}
    for kind, told in parts:
        yield {"type": f"response.{kind}", **at, **told}
    yield {"type": "response.output_item.done", "output_index": index, "item": item}


def _items(reply: ModelReply, reply_id: str) -> list[dict[str, Any]]:
    message, items = reply.message, []
    if message.get("reasoning"):
        thought = [{"type": "summary_text", "text": message["reasoning"]}]
        items.append({"id": f"rs_{reply_id}", "type": "reasoning", "summary": thought})
    calls = message.get("tool_calls") or ()
    if message.get("content") or not calls:
        text = {"type": "output_text", "text": message.get("content") or "", "annotations": [], "logprobs": []}
        said = {"type": "message", "role": "assistant", "status": "completed", "content": [text]}
        items.append({"id": f"msg_{reply_id}", **said})
    items += [
        {
            "id": f"fc_{reply_id}_{number}",
            "type": "function_call",
            "status": "completed",
            "call_id": call["id"],
            "name": call["function"]["name"],
            "arguments": call["function"]["arguments"],
        }
        for number, call in enumerate(calls)
    ]
    return items


def _head(reply: ModelReply, reply_id: str, body: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "id": f"resp_{reply_id}",
        "object": "response",
        "created_at": time.time(),
        "model": reply.model,
        "error": None,
        "incomplete_details": None,
        "instructions": body.get("instructions"),
        "metadata": body.get("metadata") or {},
        "parallel_tool_calls": body.get("parallel_tool_calls") is not False,
        "previous_response_id": body.get("previous_response_id"),
        "temperature": body.get("temperature"),
        "top_p": body.get("top_p"),
        "tool_choice": body.get("tool_choice") or "auto",
        "tools": body.get("tools") or [],
    }
