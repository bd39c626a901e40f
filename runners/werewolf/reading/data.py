"""Replies as JSON: which values are the answer, which are heard, which are thoughts."""

import json
import re
from collections.abc import Iterator
from typing import Any

from runners.werewolf.game import Decision, Request
from runners.werewolf.reading.sections import Kind, Section

_LOOKS_LIKE_DATA = re.compile(r"(?:\A|\n)\s*(?:```\w*\s*)?\{\s*(?:[\"'“]|\Z)|\A\s*```json|\A\s*\[\s*[{\"]")
_TRAILING_COMMA = re.compile(r",\s*([}\]])")
_THOUGHT = re.compile(
    r"thought|think|reason|analy|思考|理由|分析|原因|想法|推理|内心|心理|策略|plan|strateg|explan|note|confidence|suspect|怀疑|解释"
)
_SPEECH = re.compile(r"speech|say|发言|statement|message|遗言|台词|words|talk|speak")
_ACTION = re.compile(r"action|动作|行动|操作|type|name|move|skill|技能")
_TARGET = re.compile(
    r"target|vote|decision|choice|answer|决定|投票|选择|答案|目标|对象|kill|check|guard|protect|shoot|shot|badge|run|order|"
    r"save|poison|antidote|explode|player|seat|exile|守|刀|袭击|验|开枪|带走|警徽|上警|顺序|救|毒|解药|自爆|退水|withdraw|归票|提议|sign|result|结果"
)
_SAVES, _POISONS = re.compile(r"save|antidote|解药|救"), re.compile(r"poison|毒")
_DEEPEST = 3


def looks_like_data(reply: str) -> bool:
    """Whether a reply is meant as JSON, whole or not."""
    return _LOOKS_LIKE_DATA.search(reply) is not None


def data_sections(reply: str, request: Request) -> list[Section] | None:
    """The sections of a reply that is or holds a JSON object; None where it cannot be read."""
    start, end = reply.find("{"), reply.rfind("}")
    fields = _object(reply[start : end + 1]) if 0 <= start < end else None
    if fields is None:
        return None
    return [section for section in _sections(fields, request) if section.text.strip()]


def _object(text: str) -> dict[str, Any] | None:
    for candidate in (text, _TRAILING_COMMA.sub(r"\1", text), text.replace("'", '"') if '"' not in text else ""):
        try:
            found = json.loads(candidate)
        except (ValueError, RecursionError):  # RecursionError: nested without end
            continue
        if isinstance(found, dict):
            return found
    return None


def _sections(fields: dict[str, Any], request: Request) -> Iterator[Section]:
    actions: list[str] = []
    targets: list[str] = []
    for key, value in _flat(fields):
        if _THOUGHT.search(key):
            yield Section(Kind.THOUGHT, str(value), key, closed=True)
        elif _SPEECH.search(key):
            if isinstance(value, str):
                yield Section(Kind.SPEECH, value, key)
        elif _ACTION.search(key) and isinstance(value, str):
            actions.append(value)
        elif _TARGET.search(key):
            targets += _answers(key, value, request)
    if len(actions) == 1 and len(targets) <= 1:
        yield Section(Kind.ANSWER, " ".join([*actions, *targets]), "action")
    else:
        for answer in (*actions, *targets):
            yield Section(Kind.ANSWER, answer, "target")


def _flat(fields: dict[str, Any], depth: int = 1) -> Iterator[tuple[str, Any]]:
    for key, value in fields.items():
        if isinstance(value, dict) and depth < _DEEPEST:
            yield from _flat(value, depth + 1)
        else:
            yield key.lower(), value


def _answers(key: str, value: Any, request: Request) -> Iterator[str]:
    """What a field states, in words; nothing for one that is empty or says no."""
    if isinstance(value, list) and len(value) == 1:
        value = value[0]
    if isinstance(value, bool):
        yield from _yes_or_no(key, value, request)
        return
    seat = f"{value}号" if str(value).isdecimal() else str(value)
    if value in (None, "", 0) or isinstance(value, dict):
        return
    yield f"毒{seat}" if request.decision is Decision.WITCH and _POISONS.search(key) and "毒" not in seat else seat


def _yes_or_no(key: str, value: bool, request: Request) -> Iterator[str]:
    match request.decision:
        case Decision.SIGN_UP:
            yield "上警" if value else "不上警"
        case Decision.SHOT if not value:
            yield "不开枪"
        case Decision.WITCH if value and _SAVES.search(key):
            yield "救"
