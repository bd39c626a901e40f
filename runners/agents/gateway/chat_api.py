"""OpenAI's chat completions API."""

import time
from collections.abc import Iterator
from typing import Any

from runners.agents.gateway.requests import Api, Block, Message, ModelReply, RequestRefused, function_call, text_of

_ROLES = {"system", "developer", "user", "assistant", "tool"}


class ChatCompletions(Api):
    """``POST /v1/chat/completions``."""

    supported = frozenset({"messages", "parallel_tool_calls"})
    most = ("max_completion_tokens", "max_tokens")
    last_line = "data: [DONE]\n\n"
    calls = 0
    """Tool calls in the stream so far."""

    def messages(self) -> list[Message]:
        return [_read_message(message, number) for number, message in enumerate(self.listed("messages"))]

    def answer(self, reply: ModelReply) -> dict[str, Any]:
        message = {"role": "assistant", "content": None, "refusal": None, **reply.message}
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": reply.finish_reason}
        return {**self._head("chat.completion"), "choices": [choice], "usage": _usage(reply)}

    def begun(self) -> Iterator[dict[str, Any]]:
        yield self._chunk({"role": "assistant", "content": ""})

    def opened(self, block: Block) -> Iterator[dict[str, Any]]:
        if block.kind == "call":
            self.calls += 1
            yield self._call_chunk(function_call(block.call_id, block.name, ""))

    def added(self, block: Block, text: str) -> Iterator[dict[str, Any]]:
        if block.kind == "call":
            yield self._call_chunk({"function": {"arguments": text}})
        else:
            yield self._chunk({"content" if block.kind == "text" else "reasoning": text})

    def ended(self, reply: ModelReply) -> Iterator[dict[str, Any]]:
        yield self._chunk({}, reply.finish_reason)
        if (self.body.get("stream_options") or {}).get("include_usage"):
            yield {**self._head("chat.completion.chunk"), "choices": [], "usage": _usage(reply)}

    def _call_chunk(self, call: dict[str, Any]) -> dict[str, Any]:
        return self._chunk({"tool_calls": [{"index": self.calls - 1, **call}]})

    def _chunk(self, delta: dict[str, Any], finish_reason: str | None = None) -> dict[str, Any]:
        # AgentScope 1.0.21 looks into it and fails at None, the Agents SDK fails at anything else.
        delta["audio"] = ""
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish_reason}
        return {**self._head("chat.completion.chunk"), "choices": [choice]}

    def _head(self, kind: str) -> dict[str, Any]:
        name = f"chatcmpl-{self.reply_id}"
        return {"id": name, "object": kind, "created": int(time.time()), "model": self.body.get("model")}


def _read_message(message: Any, number: int) -> Message:
    where = f"message {number}"
    if not isinstance(message, dict) or message.get("role") not in _ROLES:
        raise RequestRefused(f"{where} must be an object with a role of {', '.join(sorted(_ROLES))}", param="messages")
    # The two are the same to OpenAI; templates know one of them.
    role = "system" if message["role"] == "developer" else message["role"]
    read: Message = {"role": role, "content": text_of(message.get("content"), where)}
    for name in ("name", "tool_call_id"):
        if message.get(name):
            read[name] = str(message[name])
    if reasoning := message.get("reasoning") or message.get("reasoning_content"):
        read["reasoning"] = text_of(reasoning, where)
    if calls := message.get("tool_calls"):
        try:
            read["tool_calls"] = [
                function_call(call.get("id"), call["function"]["name"], call["function"].get("arguments") or "{}")
                for call in calls
            ]
        except (AttributeError, KeyError, TypeError) as error:
            raise RequestRefused(f"{where} has tool calls without a function", param="messages") from error
    return read


def _usage(reply: ModelReply) -> dict[str, int]:
    return {
        "prompt_tokens": reply.prompt_tokens,
        "completion_tokens": reply.reply_tokens,
        "total_tokens": reply.prompt_tokens + reply.reply_tokens,
    }
