"""Requests and replies, independent of the API, and which request parameters are supported.

Parameters that change the sampling distribution are ignored and counted: the run sets sampling, and log-probs under a
grammar mask, a forced tool call or a penalty are not the policy's. Unsupported parameters with content are rejected.
"""

import json
import logging
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any, Literal

logger = logging.getLogger(__name__)

Message = dict[str, Any]
"""A chat message in the gateway: role, content (text), optionally name, tool_calls, tool_call_id and reasoning."""

INVALID_JSON = "INVALID_JSON"

_NOT_COUNTED = {"user", "metadata", "store", "service_tier", "safety_identifier", "prompt_cache_key", "stream_options"}
_DEFAULTS: Mapping[str, Any] = {
    "n": 1,
    "logprobs": False,
    "top_logprobs": 0,
    "frequency_penalty": 0,
    "presence_penalty": 0,
    "response_format": {"type": "text"},
    "text": {"format": {"type": "text"}},
    "truncation": "disabled",
    "background": False,
    "top_p": 1,
    "modalities": ["text"],
}
_IN_PLACE_OF_CONTENT: Mapping[str, str] = {
    "functions": "tools",
    "function_call": "tool_choice",
    "conversation": "previous_response_id or input",
    "prompt": "instructions",
    "mcp_servers": "tools",
    "modalities": "text alone",
    "audio": "text alone",
}
"""Unsupported parameters without which the model would get another request, and what to send instead."""
_MOST_LOGGED = 200
_logged: set[str] = set()


class RequestRefused(Exception):
    """The request is rejected with an error in OpenAI's and Anthropic's format.

    code: OpenAI's error code, if there is one.
    """

    def __init__(self, message: str, status: int = 400, code: str | None = None, param: str | None = None):
        super().__init__(message)
        self.status = status
        self.code = code
        self.param = param

    def body(self) -> dict[str, Any]:
        """The error in OpenAI's format and, by the outer ``type``, in Anthropic's."""
        kind = "invalid_request_error" if self.status < 500 else "server_error"
        error = {"message": str(self), "type": kind, "param": self.param, "code": self.code}
        return {"type": "error", "error": error}


@dataclass(frozen=True)
class ModelRequest:
    """One call of a model.

    model: the requested name. actor: from the header, or None.
    tools: in the format of chat completions, without ``strict``. use_tools: False for ``tool_choice: none``.
    parallel: whether the reply may hold several tool calls.
    reply_tokens: the requested limit, or None.
    stop: texts that end a reply.
    dropped: names of the parameters that are not supported.
    """

    model: str
    messages: Sequence[Message]
    actor: str | None = None
    tools: Sequence[dict[str, Any]] = ()
    use_tools: bool = True
    parallel: bool = True
    reply_tokens: int | None = None
    stop: tuple[str, ...] = ()
    dropped: tuple[str, ...] = ()


@dataclass
class Block:
    """A part of a reply: a thought, a text, or a tool call with its arguments in ``text``."""

    kind: Literal["thought", "text", "call"]
    text: str = ""
    call_id: str = ""
    name: str = ""


PartSink = Callable[[Block, str], Awaitable[None]]
"""Receives a block, the last or a new one, and the text added to it."""


@dataclass(frozen=True)
class ModelReply:
    """A model's reply.

    message: of role assistant, as parsed by the server. finish_reason: "stop", "length" or "tool_calls".
    stop_text: the element of the request's ``stop`` that ended it.
    """

    message: Message
    finish_reason: str
    prompt_tokens: int
    reply_tokens: int
    stop_text: str | None = None

    def blocks(self) -> Iterator[Block]:
        """Its parts in order of sampling; at least one."""
        message, calls = self.message, self.message.get("tool_calls") or ()
        if message.get("reasoning"):
            yield Block("thought", message["reasoning"])
        if message.get("content") or not calls:
            yield Block("text", message.get("content") or "")
        for call in calls:
            yield Block("call", call["function"]["arguments"], call["id"], call["function"]["name"])


def message_of(blocks: Sequence[Block]) -> Message:
    """The assistant message with these parts."""
    texts = {kind: "".join(block.text for block in blocks if block.kind == kind) for kind in ("text", "thought")}
    message: Message = {"role": "assistant", "content": texts["text"]}
    if texts["thought"]:
        message["reasoning"] = texts["thought"]
    if calls := [function_call(block.call_id, block.name, block.text) for block in blocks if block.kind == "call"]:
        message["tool_calls"] = calls
    return message


class Api:
    """An API of model providers: reads requests, writes answers, whole or as events of a stream.

    body: a request's JSON. reply_id: id of the answer. earlier: conversations of the attempt by response id, to which
    answers are added.
    """

    supported: frozenset[str]
    """Supported parameters, in addition to those of all APIs."""
    most, stop = ("max_tokens",), "stop"
    """Names of the parameters for token limit and stop texts."""
    last_line = ""
    """Last line of a stream."""

    def __init__(self, body: Mapping[str, Any], reply_id: str, earlier: dict[str, list[Message]]):
        self.body = body
        self.reply_id = reply_id
        self.earlier = earlier

    def read(self, actor: str | None, sampling: Mapping[str, Any]) -> ModelRequest:
        """The request. Raises RequestRefused. actor: from the header. sampling: the run's parameters."""
        supported = self.supported | {"model", "tools", "tool_choice", "stream", self.stop, *self.most}
        dropped = _dropped_names(self.body, supported, sampling)
        body, stop = self.body, self.body.get(self.stop) or ()
        stop = [stop] if isinstance(stop, str) else list(stop)
        if not all(isinstance(text, str) and text for text in stop):
            raise RequestRefused(f"{self.stop} must be a text or a list of texts, none empty", param=self.stop)
        model, messages = str(body.get("model")), tuple(self.messages())
        if not messages:
            raise RequestRefused("the request has no message", param="messages")
        if not f"{model}{actor}".isprintable():
            raise RequestRefused("the names of model and actor must have printable characters only", param="model")
        tools, tools_dropped = _read_tools(self.tools())
        return ModelRequest(
            model=model,
            messages=messages,
            actor=actor,
            **tools,
            reply_tokens=_whole_number(body, self.most),
            stop=tuple(stop),
            dropped=(*dropped, *tools_dropped),
        )

    def messages(self) -> list[Message]:
        """Messages of the request. Raises RequestRefused."""
        raise NotImplementedError

    def tools(self) -> Mapping[str, Any]:
        """The request's parameters for tools, under OpenAI's names."""
        return self.body

    def listed(self, name: str) -> list[Any]:
        """A parameter that must be a list that is not empty. Raises RequestRefused."""
        value = self.body.get(name)
        if not isinstance(value, list) or not value:
            raise RequestRefused(f"{name} must be a list with at least one item", param=name)
        return value

    def answer(self, reply: ModelReply) -> dict[str, Any]:
        """The JSON of a whole answer."""
        raise NotImplementedError

    # The events of a stream: blocks follow one another, each opened, added to and closed.
    def begun(self) -> Iterator[dict[str, Any]]:
        yield from ()

    def opened(self, block: Block) -> Iterator[dict[str, Any]]:
        yield from ()

    def added(self, block: Block, text: str) -> Iterator[dict[str, Any]]:
        yield from ()

    def closed(self, block: Block) -> Iterator[dict[str, Any]]:
        yield from ()

    def ended(self, reply: ModelReply) -> Iterator[dict[str, Any]]:
        yield from ()


def text_of(content: Any, where: str) -> str:
    """The text of a message's content: a string, None, or text parts. Raises RequestRefused otherwise."""
    if content is None or isinstance(content, str):
        return content or ""
    if not isinstance(content, list):
        raise RequestRefused(f"the content of {where} must be a string or a list of parts", param="messages")
    texts = []
    for part in content:
        text = part if isinstance(part, str) else None
        if isinstance(part, dict):
            text = part.get("text") if isinstance(part.get("text"), str) else part.get("refusal")
        if not isinstance(text, str):
            kind = part.get("type") if isinstance(part, dict) else type(part).__name__
            raise RequestRefused(f"{where} has a part of type {kind!r}; only text is supported", param="messages")
        texts.append(text)
    return "\n".join(texts)


def _dropped_names(body: Mapping[str, Any], supported: Set[str], sampling: Mapping[str, Any]) -> tuple[str, ...]:
    """Parameters of a request that are ignored and differ from their default. Raises RequestRefused for content.

    supported: names that are not ignored. sampling: the run's parameters; equal values are not counted.
    """
    names = tuple(
        name
        for name, value in body.items()
        if name not in supported
        and name not in _NOT_COUNTED
        and value not in (None, [], {})
        and (name not in _DEFAULTS or value != _DEFAULTS[name])
        and (name not in sampling or value != sampling[name])
    )
    for name in names:
        if name in _IN_PLACE_OF_CONTENT:
            raise RequestRefused(f"{name} is not supported: use {_IN_PLACE_OF_CONTENT[name]}", param=name)
    return names


def warn_once(kind: str, message: str, *arguments: Any) -> None:
    """Log a warning once per kind and process."""
    if kind not in _logged and len(_logged) < _MOST_LOGGED:
        _logged.add(kind)
        logger.warning(message, *arguments)


def _read_tools(body: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """Fields of ``ModelRequest`` for tools, and the names of ignored parameters.

    Reads the formats of chat completions and of the Responses API. Raises RequestRefused.
    """
    tools, dropped = [], []
    for tool in body.get("tools") or ():
        function = tool.get("function", tool) if isinstance(tool, dict) else None
        function = function if isinstance(function, dict) else {}
        described = {name: function.get(name) for name in ("name", "description", "parameters")}
        if not isinstance(tool, dict) or tool.get("type") != "function" or not isinstance(described["name"], str):
            kind = tool.get("type") if isinstance(tool, dict) else tool
            raise RequestRefused(f"only tools of type function are supported, not {kind!r}", param="tools")
        kept = {name: value for name, value in described.items() if value is not None}
        tools.append({"type": "function", "function": kept})
        if function.get("strict"):
            dropped.append("strict")
    choice = body.get("tool_choice")
    if choice not in (None, "auto", "none"):
        dropped.append("tool_choice")
    parallel = body.get("parallel_tool_calls") is not False
    return {"tools": tuple(tools), "use_tools": choice != "none", "parallel": parallel}, dropped


def _whole_number(body: Mapping[str, Any], names: Sequence[str]) -> int | None:
    """The first of the named parameters that is set. Raises RequestRefused unless it is a positive integer."""
    for name in names:
        value = body.get(name)
        if value is not None:
            if type(value) is not int or value < 1:  # True is an int
                raise RequestRefused(f"{name} must be an integer of at least 1, got {value!r}", param=name)
            return value
    return None


def function_call(call_id: Any, name: Any, arguments: Any) -> dict[str, Any]:
    """A tool call of a message. arguments: text, or what some clients send instead: the object."""
    text = arguments if isinstance(arguments, str) else json.dumps(arguments)
    function = {"name": str(name), "arguments": text}
    return {"id": str(call_id), "type": "function", "function": function}


def json_object(text: str) -> dict[str, Any] | None:
    """A tool call's arguments; None if they are not a JSON object that can be encoded again."""
    try:
        value = json.loads(text)
        json.dumps(value, allow_nan=False, ensure_ascii=False).encode()
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def as_object(arguments: str) -> dict[str, Any]:
    """A tool call's arguments as an object; invalid JSON in the form that Anthropic documents."""
    found = json_object(arguments)
    return {INVALID_JSON: arguments} if found is None else found
