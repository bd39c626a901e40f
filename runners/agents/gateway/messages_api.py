"""Anthropic's Messages API.

A tool call's input is a JSON object: ``as_object`` converts invalid JSON.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from runners.agents.gateway.requests import (
    INVALID_JSON,
    Api,
    Block,
    Message,
    ModelReply,
    RequestRefused,
    as_object,
    function_call,
    text_of,
)

_STOP_REASONS = {"stop": "end_turn", "length": "max_tokens", "tool_calls": "tool_use"}
_CHOICES = {"auto": "auto", "none": "none", "any": "required", "tool": "required"}
_BILLING = "x-anthropic-billing-header"
"""Prefix of a block in Claude Code's system prompt that changes with every call."""


class Messages(Api):
    """``POST /v1/messages``."""

    # ``thinking`` controls whether thoughts are shown; the run controls whether the policy thinks.
    supported = frozenset({"messages", "system", "thinking", "cache_control"})
    stop = "stop_sequences"
    index = -1
    """Index of the stream's current block."""

    def messages(self) -> list[Message]:
        given, system = self.listed("messages"), self.body.get("system")
        self._shows_thoughts = (self.body.get("thinking") or {}).get("type", "disabled") != "disabled"
        messages = [read for number, message in enumerate(given) for read in _read_message(message, number)]
        if messages and messages[-1]["role"] == "assistant":
            raise RequestRefused("the last message is the assistant's: prefill is not supported", param="messages")
        blocks = [{"text": system}] if system and isinstance(system, str) else system or ()
        instructions = [block for block in blocks if not str(block.get("text")).startswith(_BILLING)]
        return [{"role": "system", "content": text_of(instructions, "system")}, *messages] if instructions else messages

    def tools(self) -> Mapping[str, Any]:
        tools = [
            {**tool, "type": "function", "parameters": tool.get("input_schema")}
            if isinstance(tool, dict) and tool.get("type") in (None, "custom")
            else tool  # Anthropic's own tools are rejected by type
            for tool in self.body.get("tools") or ()
        ]
        choice = self.body.get("tool_choice") or {}
        parallel, kind = not choice.get("disable_parallel_tool_use"), _CHOICES.get(str(choice.get("type")))
        return {"tools": tools, "tool_choice": kind, "parallel_tool_calls": parallel}

    def answer(self, reply: ModelReply) -> dict[str, Any]:
        content = [_content(block) for block in reply.blocks() if self._shows(block)]
        return {**self._head(), "content": content, **_stopped(reply), "usage": _usage(reply)}

    def begun(self) -> Iterator[dict[str, Any]]:
        usage = {"input_tokens": 0, "output_tokens": 0}  # known at the end only
        message = {**self._head(), "content": [], "stop_reason": None, "stop_sequence": None, "usage": usage}
        yield {"type": "message_start", "message": message}

    def opened(self, block: Block) -> Iterator[dict[str, Any]]:
        if self._shows(block):
            self.index += 1
            empty = _content(Block(block.kind, "{}" if block.kind == "call" else "", block.call_id, block.name))
            yield {"type": "content_block_start", "index": self.index, "content_block": empty}

    def added(self, block: Block, text: str) -> Iterator[dict[str, Any]]:
        if block.kind != "call" and self._shows(block):
            kind = {"thought": "thinking", "text": "text"}[block.kind]
            yield self._delta(f"{kind}_delta", {kind: text})

    def closed(self, block: Block) -> Iterator[dict[str, Any]]:
        if not self._shows(block):
            return
        if block.kind == "call":  # sent whole: clients fail at invalid JSON
            yield self._delta("input_json_delta", {"partial_json": json.dumps(as_object(block.text))})
        yield {"type": "content_block_stop", "index": self.index}

    def ended(self, reply: ModelReply) -> Iterator[dict[str, Any]]:
        yield {"type": "message_delta", "delta": _stopped(reply), "usage": _usage(reply)}
        yield {"type": "message_stop"}

    def _shows(self, block: Block) -> bool:
        return block.kind != "thought" or self._shows_thoughts

    def _delta(self, kind: str, fields: dict[str, Any]) -> dict[str, Any]:
        return {"type": "content_block_delta", "index": self.index, "delta": {"type": kind, **fields}}

    def _head(self) -> dict[str, Any]:
        return {"id": f"msg_{self.reply_id}", "type": "message", "role": "assistant", "model": self.body.get("model")}


def _read_message(message: Any, number: int) -> Iterator[Message]:
    """The messages of one message: tool results become separate messages."""
    where = f"message {number}"
    role = message.get("role") if isinstance(message, dict) else None
    if role not in ("user", "assistant", "system"):
        raise RequestRefused(f"{where} must be an object with a role of user or assistant", param="messages")
    content = message.get("content")
    blocks = content if isinstance(content, list) else [{"type": "text", "text": content}]
    read: Message = {"role": role, "content": ""}
    texts: list[Any] = []
    try:
        for block in blocks:
            kind = block["type"]
            if kind == "tool_result" and role == "user":
                text = text_of(block.get("content"), where)
                yield {"role": "tool", "content": text, "tool_call_id": str(block["tool_use_id"])}
            elif kind == "tool_use" and role == "assistant":
                call = function_call(block["id"], block["name"], _arguments(block.get("input")))
                read.setdefault("tool_calls", []).append(call)
            elif kind == "thinking":
                read["reasoning"] = read.get("reasoning", "") + str(block["thinking"])
            elif kind != "redacted_thinking":
                texts.append(block)
    except (KeyError, TypeError) as error:
        raise RequestRefused(f"{where} has a block that cannot be read: {error!r}", param="messages") from error
    # Join the blocks into which a client splits a reply.
    read["content"] = (
        "".join(text_of([text], where) for text in texts) if role == "assistant" else text_of(texts, where)
    )
    if texts or role != "user":
        yield read


def _arguments(given: Any) -> str:
    """A call's arguments as text, as sampled if they were invalid JSON."""
    if isinstance(given, dict) and given.keys() == {INVALID_JSON}:
        return str(given[INVALID_JSON])
    return json.dumps(given or {}, ensure_ascii=False)


def _content(block: Block) -> dict[str, Any]:
    if block.kind == "call":
        return {"type": "tool_use", "id": block.call_id, "name": block.name, "input": as_object(block.text)}
    if block.kind == "thought":
        return {"type": "thinking", "thinking": block.text, "signature": ""}
    return {"type": "text", "text": block.text}


def _stopped(reply: ModelReply) -> dict[str, Any]:
    reason = "stop_sequence" if reply.stop_text is not None else _STOP_REASONS[reply.finish_reason]
    return {"stop_reason": reason, "stop_sequence": reply.stop_text}


def _usage(reply: ModelReply) -> dict[str, int]:
    return {"input_tokens": reply.prompt_tokens, "output_tokens": reply.reply_tokens}
