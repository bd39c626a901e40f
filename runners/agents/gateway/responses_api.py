"""OpenAI's Responses API: items to and from chat messages, and stream events.

``previous_response_id`` may refer to earlier responses of the attempt.
"""

import time
from collections.abc import Iterator, Sequence
from typing import Any

from runners.agents.gateway.requests import Api, Block, Message, ModelReply, RequestRefused, function_call, text_of


class Responses(Api):
    """``POST /v1/responses``."""

    supported = frozenset({"input", "instructions", "parallel_tool_calls", "previous_response_id", "include"})
    most = ("max_output_tokens",)
    events = items = 0
    """Events and items in the stream so far."""

    def messages(self) -> list[Message]:
        previous, instructions = self.body.get("previous_response_id"), self.body.get("instructions")
        if previous is not None and previous not in self.earlier:
            raise RequestRefused(
                f"unknown earlier response {previous!r} of this attempt",
                status=404,
                code="previous_response_not_found",
                param="previous_response_id",
            )
        given = self.body.get("input")
        said = [{"role": "user", "content": given}] if isinstance(given, str) else _read_items(self.listed("input"))
        self._conversation = [*self.earlier.get(str(previous), ()), *said]
        # As at OpenAI, instructions of an earlier response are not carried over.
        system = [{"role": "system", "content": text_of(instructions, "instructions")}] if instructions else []
        return [*system, *self._conversation]

    def answer(self, reply: ModelReply) -> dict[str, Any]:
        """The answer; stores the conversation under its id."""
        cut = reply.finish_reason == "length"
        self.earlier[f"resp_{self.reply_id}"] = [
            *self._conversation,
            {**reply.message, "content": reply.message.get("content") or ""},
        ]
        return {
            **self._head("incomplete" if cut else "completed"),
            "incomplete_details": {"reason": "max_output_tokens"} if cut else None,
            "output": [self._item(number, block) for number, block in enumerate(reply.blocks())],
            "usage": {
                "input_tokens": reply.prompt_tokens,
                "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
                "output_tokens": reply.reply_tokens,
                "output_tokens_details": {"reasoning_tokens": 0},
                "total_tokens": reply.prompt_tokens + reply.reply_tokens,
            },
        }

    def begun(self) -> Iterator[dict[str, Any]]:
        response = {**self._head("in_progress"), "output": [], "usage": None}
        yield self._event("created", response=response)
        yield self._event("in_progress", response=response)

    def opened(self, block: Block) -> Iterator[dict[str, Any]]:
        item = self._item(self.items, Block(block.kind, "", block.call_id, block.name))
        empty = {"thought": {"summary": []}, "text": {"content": [], "status": "in_progress"}}
        item |= empty.get(block.kind, {"status": "in_progress"})
        yield self._event("output_item.added", output_index=self.items, item=item)
        if block.kind == "text":
            yield self._part("content_part.added", part=_text(""))

    def added(self, block: Block, text: str) -> Iterator[dict[str, Any]]:
        if block.kind == "text":
            yield self._part("output_text.delta", delta=text, logprobs=[])
        elif block.kind == "call":
            yield self._part("function_call_arguments.delta", delta=text)

    def closed(self, block: Block) -> Iterator[dict[str, Any]]:
        if block.kind == "text":
            yield self._part("output_text.done", text=block.text, logprobs=[])
            yield self._part("content_part.done", part=_text(block.text))
        elif block.kind == "call":
            yield self._part("function_call_arguments.done", name=block.name, arguments=block.text)
        yield self._event("output_item.done", output_index=self.items, item=self._item(self.items, block))
        self.items += 1

    def ended(self, reply: ModelReply) -> Iterator[dict[str, Any]]:
        whole = self.answer(reply)
        yield self._event(whole["status"], response=whole)

    def _event(self, kind: str, **fields: Any) -> dict[str, Any]:
        self.events += 1
        return {"type": f"response.{kind}", **fields, "sequence_number": self.events - 1}

    def _part(self, kind: str, **fields: Any) -> dict[str, Any]:
        """An event of the open item."""
        call = kind.startswith("function_call")
        place = {} if call else {"content_index": 0}
        name = f"{'fc' if call else 'msg'}_{self.reply_id}_{self.items}"
        return self._event(kind, output_index=self.items, item_id=name, **place, **fields)

    def _item(self, number: int, block: Block) -> dict[str, Any]:
        name = f"{self.reply_id}_{number}"
        if block.kind == "thought":
            summary = [{"type": "summary_text", "text": block.text}]
            return {"id": f"rs_{name}", "type": "reasoning", "summary": summary}
        if block.kind == "text":
            said = {"type": "message", "role": "assistant", "status": "completed", "content": [_text(block.text)]}
            return {"id": f"msg_{name}", **said}
        call = {"call_id": block.call_id, "name": block.name, "arguments": block.text}
        return {"id": f"fc_{name}", "type": "function_call", "status": "completed", **call}

    def _head(self, status: str) -> dict[str, Any]:
        body = self.body
        return {
            "id": f"resp_{self.reply_id}",
            "object": "response",
            "created_at": time.time(),
            "status": status,
            "model": body.get("model"),
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


def _text(text: str) -> dict[str, Any]:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


def _read_items(given: Sequence[Any]) -> list[Message]:
    messages: list[Message] = []
    for number, item in enumerate(given):
        where = f"input item {number}"
        kind = item.get("type", "message") if isinstance(item, dict) else type(item).__name__
        try:
            if kind == "message":
                if item["role"] not in ("system", "developer", "user", "assistant"):  # templates drop others
                    raise RequestRefused(f"{where} has the unknown role {item['role']!r}", param="input")
                _add_message(messages, item["role"], text_of(item["content"], where))
            elif kind == "function_call":
                call = function_call(item["call_id"], item["name"], item.get("arguments") or "{}")
                _add_message(messages, "assistant", "", call)
            elif kind == "function_call_output":
                text = text_of(item["output"], where)
                messages.append({"role": "tool", "content": text, "tool_call_id": str(item["call_id"])})
            elif kind != "reasoning":  # thoughts are in the context tokens already
                raise RequestRefused(f"{where} has the unsupported type {kind!r}", param="input")
        except KeyError as error:
            raise RequestRefused(f"{where} of type {kind!r} lacks {error}", param="input") from error
    return messages


def _add_message(messages: list[Message], role: str, content: str, call: dict[str, Any] | None = None) -> None:
    """Add a message; joins the items of one assistant reply."""
    role = "system" if role == "developer" else role
    goes_on = role == "assistant" and messages and messages[-1]["role"] == "assistant"
    if not goes_on or (content and (messages[-1]["content"] or messages[-1].get("tool_calls"))):
        messages.append({"role": role, "content": content})
    elif content:
        messages[-1]["content"] = content
    if call is not None:
        messages[-1].setdefault("tool_calls", []).append(call)
