"""OpenAI's chat completions: from the JSON of a request, and to that of an answer, whole or streamed."""

import json
import time
from collections.abc import Iterator, Mapping
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
    *("model", "messages", "tools", "tool_choice", "parallel_tool_calls", "stream", "stop"),
    *("max_tokens", "max_completion_tokens"),
}
_ROLES = {"system", "developer", "user", "assistant", "tool"}


def read_request(
    body: Mapping[str, Any], actor: str | None, sampling: Mapping[str, Any], earlier: Any = None
) -> ModelRequest:
    """A request as the gateway deals with it. Raises RequestRefused.

    sampling: what is used whatever is asked for, by the names of the interface. earlier: of no use here.
    """
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        raise RequestRefused("messages must be a list with at least one message", param="messages")
    tools, tools_dropped = read_tools(body)
    stop = body.get("stop") or ()
    return ModelRequest(
        model=str(body.get("model")),
        messages=tuple(_read_message(message, number) for number, message in enumerate(messages)),
        actor=actor,
        **tools,
        reply_tokens=whole_number(body, "max_completion_tokens", "max_tokens"),
        stop=(stop,) if isinstance(stop, str) else tuple(map(str, stop)),
        dropped=(*dropped_names(body, _HEEDED, sampling), *tools_dropped),
    )


def _read_message(message: Any, number: int) -> Message:
    where = f"message {number}"
    if not isinstance(message, dict) or message.get("role") not in _ROLES:
        raise RequestRefused(f"{where} must be an object with a role of {', '.join(sorted(_ROLES))}", param="messages")
    role = "system" if message["role"] == "developer" else message["role"]  # the same, to OpenAI; templates know one
    read: Message = {"role": role, "content": text_of(message.get("content"), where)}
    for name in ("name", "tool_call_id"):
        if message.get(name):
            read[name] = str(message[name])
    if reasoning := message.get("reasoning") or message.get("reasoning_content"):
        read["reasoning"] = text_of(reasoning, where)
    if calls := message.get("tool_calls"):
        try:
            read["tool_calls"] = [
                {
                    "id": str(call.get("id")),
                    "type": "function",
                    "function": {
                        "name": str(call["function"]["name"]),
                        "arguments": str(call["function"].get("arguments") or "{}"),
                    },
                }
                for call in calls
            ]
        except (AttributeError, KeyError, TypeError) as error:
            raise RequestRefused(f"{where} has tool calls without a function", param="messages") from error
    return read


def answer(reply: ModelReply, reply_id: str, body: Mapping[str, Any]) -> dict[str, Any]:
    """The JSON of an answer."""
    message = {"role": "assistant", "content": None, "refusal": None, **reply.message}
    return {
        **_head(reply, reply_id, "chat.completion"),
        "choices": [{"index": 0, "message": message, "logprobs": None, "finish_reason": reply.finish_reason}],
        "usage": _usage(reply),
    }


def stream(reply: ModelReply, reply_id: str, body: Mapping[str, Any]) -> Iterator[str]:
    """The events of a streamed answer. The reply is there whole by then: its parser reads it so."""
    with_usage = bool((body.get("stream_options") or {}).get("include_usage"))
    for event in _events(reply, reply_id, with_usage):
        yield f"data: {json.dumps(event)}\n\n"
    yield "data: [DONE]\n\n"


def _events(reply: ModelReply, reply_id: str, with_usage: bool) -> Iterator[dict[str, Any]]:
    head = _head(reply, reply_id, "chat.completion.chunk")

    def chunk(delta: dict[str, Any], finish_reason: str | None = None) -> dict[str, Any]:
        delta["audio"] = {}  # AgentScope 1.0.21 looks into it, and fails where openai's package has made it None
        return {**head, "choices": [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish_reason}]}

    message = reply.message
    yield chunk({"role": "assistant", "content": ""})
    if message.get("reasoning"):
        yield chunk({"reasoning": message["reasoning"]})
    if message.get("content"):
        yield chunk({"content": message["content"]})
    for number, call in enumerate(message.get("tool_calls") or ()):
        yield chunk({"tool_calls": [{"index": number, **call}]})
    yield chunk({}, reply.finish_reason)
    if with_usage:
        yield {**head, "choices": [], "usage": _usage(reply)}


def _head(reply: ModelReply, reply_id: str, kind: str) -> dict[str, Any]:
    return {"id": f"chatcmpl-{reply_id}", "object": kind, "created": int(time.time()), "model": reply.model}


def _usage(reply: ModelReply) -> dict[str, int]:
    return {
        "prompt_tokens": reply.prompt_tokens,
        "completion_tokens": reply.reply_tokens,
        "total_tokens": reply.prompt_tokens + reply.reply_tokens,
    }
