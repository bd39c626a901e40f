"""What agents ask of the gateway, whichever of OpenAI's two interfaces they speak, and what of it is heeded.

Whatever would change the distribution that a reply is sampled from is left out and counted: sampling is the trainer's
business, and log-probs under a grammar's mask, a forced tool call or a penalty are not the policy's own.
"""

import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

logger = logging.getLogger(__name__)

Message = dict[str, Any]
"""A chat message as the gateway keeps it: role, content (a text), and where there are any name, tool_calls,
tool_call_id and reasoning."""

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
}
_MOST_LOGGED = 200
_logged: set[str] = set()


class RequestRefused(Exception):
    """The agent cannot be answered as it asks; what it gets is an error as OpenAI's servers give it.

    code: OpenAI's name for the error, where it has one.
    """

    def __init__(self, message: str, status: int = 400, code: str | None = None, param: str | None = None):
        super().__init__(message)
        self.status = status
        self.code = code
        self.param = param

    def body(self) -> dict[str, Any]:
        kind = "invalid_request_error" if self.status < 500 else "server_error"
        return {"error": {"message": str(self), "type": kind, "param": self.param, "code": self.code}}


@dataclass(frozen=True)
class ModelRequest:
    """One call of a model.

    model: as the agent names it. actor: who calls, where a header says so.
    tools: in the form of chat completions, without ``strict``. use_tools: False where the agent wants no tool call.
    parallel: whether the reply may hold several tool calls.
    reply_tokens: the most that the agent wants to have sampled; None where it does not say.
    stop: texts that end a reply.
    dropped: names of the parameters that are not heeded.
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


@dataclass(frozen=True)
class ModelReply:
    """What a model answered.

    message: of role assistant, as the server's parsers read it. finish_reason: "stop", "length" or "tool_calls".
    """

    model: str
    message: Message
    finish_reason: str
    prompt_tokens: int
    reply_tokens: int


def text_of(content: Any, where: str) -> str:
    """The text of a message's content: a text, nothing, or parts that are texts. Raises RequestRefused for others."""
    if content is None or isinstance(content, str):
        return content or ""
    if not isinstance(content, list):
        raise RequestRefused(f"the content of {where} is neither a text nor a list of parts", param="messages")
    texts = []
    for part in content:
        text = part if isinstance(part, str) else None
        if isinstance(part, dict):
            text = part.get("text") if isinstance(part.get("text"), str) else part.get("refusal")
        if not isinstance(text, str):
            kind = part.get("type") if isinstance(part, dict) else type(part).__name__
            raise RequestRefused(f"{where} has a part of type {kind!r}; policies here read text only", param="messages")
        texts.append(text)
    return "\n".join(texts)


def dropped_names(body: Mapping[str, Any], heeded: set[str], sampling: Mapping[str, Any]) -> tuple[str, ...]:
    """Parameters of a request that ask for something and are not heeded.

    heeded: those that are. sampling: what is used whatever is asked for; asking for the same is no matter.
    """
    return tuple(
        name
        for name, value in body.items()
        if name not in heeded
        and name not in _NOT_COUNTED
        and value not in (None, [], {})
        and (name not in _DEFAULTS or value != _DEFAULTS[name])
        and (name not in sampling or value != sampling[name])
    )


def warn_once(kind: str, message: str, *arguments: Any) -> None:
    """Log a warning the first time in this process that there is one of its kind."""
    if kind not in _logged and len(_logged) < _MOST_LOGGED:
        _logged.add(kind)
        logger.warning(message, *arguments)


def read_tools(body: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """What a request says of tools: fields of ``ModelRequest``, and the names of what is not heeded of it.

    Takes the form of chat completions and the flat one of the Responses API. Raises RequestRefused.
    """
    tools, dropped = [], []
    for tool in body.get("tools") or ():
        function = tool.get("function", tool) if isinstance(tool, dict) else None
        function = function if isinstance(function, dict) else {}
        told = {name: function.get(name) for name in ("name", "description", "parameters")}
        if not isinstance(tool, dict) or tool.get("type") != "function" or not isinstance(told["name"], str):
            kind = tool.get("type") if isinstance(tool, dict) else tool
            raise RequestRefused(f"only tools of type function can be called here, not {kind!r}", param="tools")
        kept = {name: value for name, value in told.items() if value is not None}
        tools.append({"type": "function", "function": kept})
        if function.get("strict"):
            dropped.append("strict")
    choice = body.get("tool_choice")
    if choice not in (None, "auto", "none"):
        dropped.append("tool_choice")
    parallel = body.get("parallel_tool_calls") is not False
    return {"tools": tuple(tools), "use_tools": choice != "none", "parallel": parallel}, dropped


def whole_number(body: Mapping[str, Any], *names: str) -> int | None:
    """The first of the named parameters that is set. Raises RequestRefused unless it is a whole number above 0."""
    for name in names:
        value = body.get(name)
        if value is not None:
            if not isinstance(value, int) or value < 1:
                raise RequestRefused(f"{name} must be a whole number of at least 1, got {value!r}", param=name)
            return value
    return None


def is_json_object(text: str) -> bool:
    """Whether a tool call's arguments are what they should be."""
    try:
        return isinstance(json.loads(text), dict)
    except ValueError:
        return False
