"""A reply as sections, by its labels, tags, boxes and JSON fields: what is thought, what is said, what is decided."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import lru_cache
from typing import Any

from runners.werewolf.game import Decision, Request
from runners.werewolf.language.lexicon import WORDS, Words
from runners.werewolf.prompts_zh.names import DECISION_MARKER, SPEECH_MARKER


class Kind(StrEnum):
    """What a section of a reply is for."""

    PLAIN = "plain"  # no label
    THOUGHT = "thought"  # never heard, and no place for a choice
    REASON = "reason"  # heard in a speech; no place for a choice
    SPEECH = "speech"
    ANSWER = "answer"  # a name that a choice goes by, such as 投票
    DECISION = "decision"  # the marker that the question asks for


@dataclass(frozen=True, slots=True)
class Section:
    """kind: what the text is for. text: all up to the next label, lines kept. label: as it was written.

    closed: whether the section's end was marked, so that what follows is not part of it.
    """

    kind: Kind
    text: str
    label: str = ""
    closed: bool = False


def sections_of(reply: str, request: Request) -> list[Section] | None:
    """The sections of a reply in order, without empty ones; None for a reply that is meant as JSON and is none."""
    if _LOOKS_LIKE_DATA.search(reply):
        start, end = reply.find("{"), reply.rfind("}")
        fields = _object(reply[start : end + 1]) if 0 <= start < end else None
        if fields is None:
            return None
        return [section for section in _fields(fields, request) if section.text.strip()]
    found = [
        section
        for piece in _enclosed(_BOX.sub(_unboxed, reply))
        for section in (_labelled(piece.text, request.decision, request.seat) if piece.kind is Kind.PLAIN else (piece,))
    ]
    return [section for section in found if section.label or section.text.strip()]


# --- labels, tags and boxes -----------------------------------------------------------------------------------------

COLON = "[:：﹕︓]"
_SIGNS = r"[\s*_`#\"”’'】\]」』>）)]"
_OPENING = r"[\s*_`~#>\-–•·“\"‘'「『【\[(（<《✅☑✔🗳️]*+"
_OPENING_SIGNS = " *_`#~>“\"‘'「『【[(（<《"
_WHOSE = r"(?:我的|我|本轮的?|今[天晚夜]的?|最终的?|最后的?|公开|正式|简要|详细|具体|my |final |the )*"
_THOUGHT = (
    r"(?:内心|心理)?思考(?:过程)?|思路|想法|内心(?:独白|想法|活动|戏)?|心理(?:活动)?|心里话|心声|独白|推理(?:过程)?|"
    r"分析(?:过程)?|"
    r"(?:局势|局面|形势|场上)(?:分析|判断)|策略|计划|os|thoughts?|thinking|(?:inner )?monologue|reasoning|analysis|"
    r"strategy|plan|scratchpad|reflection"
)
_REASON = r"理由|原因|依据|解释|备注|说明|逻辑|reasons?|explanation|rationale|justification|notes?"
_SPEECH = rf"(?:竞选)?{SPEECH_MARKER}(?:内容|稿|如下)?|遗言|台词|(?:public )?(?:speech|statement)|say|message"
_DECISION = rf"{DECISION_MARKER}|決定"
_ANSWER = (
    r"选择|選擇|答案|回答|结论|結論|行动|行動|操作|动作|目标|目標|人选|choice|action|answer|decision|target|conclusion"
)
_OF_ANSWER = r"(?: ?(?:对象|目标|人选|的?玩家|号码|给|for|target|choice|decision|vote))?"
_BOX = re.compile(
    r"\\boxed\s*\{\s*(?:\\(?:text|mathrm|textbf)\s*\{)?([^{}\\\n]{1,40})\}\s*\}?|<\|begin_of_box\|>([^<\n]{1,40})<\|"
    r"end_of_box\|>"
)
_COLON_BEFORE = re.compile(rf"{COLON}[\s$*]*$")
_SENTENCE_END = re.compile(r"(?<=[。！？!?；;.\n])|(?<=[。.！!？?][”\"*])")
MARKER = re.compile(rf"(?:{_DECISION}){_SIGNS}*{COLON}")
_ENCLOSED_THOUGHT = re.compile(rf"[（(【\[]\s*(?:{_THOUGHT})\s*{COLON}([^（）()【】\[\]]*)[）)】\]]", re.IGNORECASE)
_TAGS = re.compile(
    rf"<(/?)(?:(?P<thought>{_THOUGHT})|(?P<reason>{_REASON})|(?P<speech>{_SPEECH})|(?P<decision>{_DECISION})|"
    rf"(?P<answer>{_ANSWER}|vote|kill|check|guard|shoot|badge))>",
    re.IGNORECASE,
)
_BEFORE_MARKER = re.compile(
    r"(?:.*[,，、…])?[\s*_`~#>“\"‘'「『【\[(（<《-]*(?:[0-9]{1,2}号(?:玩家)?的?)?"
    r"(?:所以|因此|那么?|综上所述|综上|最终|最后|我|的|本轮|今[天晚夜]|经过(?:慎重|仔细)?(?:考虑|分析)|好的?|于是|就|"
    r"以下是)*[\s*_`“\"「『【\[]*"
)
"""What may stand before the marker on its line, if it is the marker."""


def _unboxed(box: re.Match[str]) -> str:
    inside = box[1] or box[2]
    labelled = _COLON_BEFORE.search(box.string[max(box.start() - 40, 0) : box.start()])
    return inside if labelled else f"\n答案：{inside}\n"


def _enclosed(text: str) -> Iterator[Section]:
    """Thoughts in brackets and what stands in tags, apart from everything else."""
    start, kind, label = 0, Kind.PLAIN, ""
    marks = sorted([*_ENCLOSED_THOUGHT.finditer(text), *_TAGS.finditer(text)], key=lambda mark: mark.start())
    for mark in marks:
        if mark.start() < start:
            continue
        ends = mark.re is _TAGS and mark[1] == "/"
        yield Section(kind, text[start : mark.start()], label, closed=ends)
        start = mark.end()
        if mark.re is _ENCLOSED_THOUGHT:
            yield Section(Kind.THOUGHT, mark[1], mark[0], closed=True)
            continue
        kind, label = (Kind.PLAIN, "") if ends else (Kind(mark.lastgroup), mark[0])
    yield Section(kind, text[start:], label)


@lru_cache
def _label_patterns(decision: Decision, me: int) -> tuple[re.Pattern[str], ...]:
    def names(answer: str) -> str:
        return (
            rf"(?:{me}号(?:玩家|位)?的?)?{_WHOSE}(?:(?P<thought>{_THOUGHT})|(?P<reason>{_REASON})|"
            rf"(?P<speech>{_SPEECH})|"
            rf"(?P<decision>{_DECISION})|(?P<answer>(?:{answer}){_OF_ANSWER}))"
        )

    general, every = names(_ANSWER), names(f"{_ANSWER}|{WORDS.get(decision, Words()).labels}")
    return (
        re.compile(rf"{_OPENING}{every}(?:是|为|如下)?{_SIGNS}*+{COLON}[\s*_`]*", re.IGNORECASE),
        re.compile(rf"[\s*_#>-]*[【\[〔]\s*{every}\s*[】\]〕][\s*_]*", re.IGNORECASE),
        # A word such as 上警 on a line of its own is an answer, not a heading.
        re.compile(rf"[\s*_`>]*#[\s*_`#]*{every}[\s*_`#]*$", re.IGNORECASE),
        re.compile(rf"[\s*_`>]*{general}[\s*_`]*$", re.IGNORECASE),
    )


def _labelled(text: str, decision: Decision, me: int) -> Iterator[Section]:
    colon, bracketed, *headings = _label_patterns(decision, me)
    current = Section(Kind.PLAIN, "")
    parts: list[str] = []
    for line in text.split("\n"):
        parts.append("\n")
        for segment in _SENTENCE_END.split(line):
            while segment:
                label = colon.match(segment) or bracketed.match(segment)
                if label is None and segment == line:
                    label = next((found for heading in headings if (found := heading.match(segment))), None)
                before = ""
                if label is None and (label := MARKER.search(segment)):
                    before = segment[: label.start()]
                    if not _BEFORE_MARKER.fullmatch(before):
                        label = None
                if label is None:
                    parts.append(segment)
                    break
                yield replace(current, text="".join([*parts, before]).rstrip(_OPENING_SIGNS))
                kind = Kind(label.lastgroup) if label.lastgroup else Kind.DECISION
                current, parts, segment = Section(kind, "", label[0].strip()), [], segment[label.end() :]
    yield replace(current, text="".join(parts))


# --- JSON -----------------------------------------------------------------------------------------------------------

_LOOKS_LIKE_DATA = re.compile(r"(?:\A|\n)\s*(?:```\w*\s*)?\{\s*(?:[\"'“]|\Z)|\A\s*```json|\A\s*\[\s*[{\"]")
_TRAILING_COMMA = re.compile(r",\s*([}\]])")
_FIELDS = {
    Kind.THOUGHT: re.compile(
        r"thought|think|reason|analy|思考|理由|分析|原因|想法|推理|内心|心理|策略|plan|strateg|explan|note|confidence|"
        r"suspect|怀疑|解释"
    ),
    Kind.SPEECH: re.compile(r"speech|say|发言|statement|message|遗言|台词|words|talk|speak"),
    Kind.DECISION: re.compile(r"action|动作|行动|操作|type|name|move|skill|技能"),
    Kind.ANSWER: re.compile(
        r"target|vote|decision|choice|answer|决定|投票|选择|答案|目标|对象|kill|check|guard|protect|shoot|shot|badge|"
        r"run|order|save|"
        r"poison|antidote|explode|player|seat|exile|守|刀|袭击|验|开枪|带走|警徽|上警|顺序|救|毒|解药|自爆|退水|"
        r"withdraw|归票|提议|sign|result|结果"
    ),
}
"""Names of fields by what they hold; of several kinds the first decides. DECISION is what to do, ANSWER to whom."""
_SAVES, _POISONS = re.compile(r"save|antidote|解药|救"), re.compile(r"poison|毒")
_DEEPEST = 3


def _object(text: str) -> dict[str, Any] | None:
    for candidate in (text, _TRAILING_COMMA.sub(r"\1", text), text.replace("'", '"') if '"' not in text else ""):
        try:
            found = json.loads(candidate)
        except (ValueError, RecursionError):  # RecursionError: nested without end
            continue
        if isinstance(found, dict):
            return found
    return None


def _fields(fields: dict[str, Any], request: Request) -> Iterator[Section]:
    actions: list[str] = []
    targets: list[str] = []
    for key, value in _flat(fields):
        kind = next((kind for kind, names in _FIELDS.items() if names.search(key)), None)
        if kind is Kind.THOUGHT or (kind is Kind.SPEECH and isinstance(value, str)):
            yield Section(kind, str(value), key, closed=True)
        elif kind is Kind.DECISION and isinstance(value, str):
            actions.append(value)
        elif kind in (Kind.ANSWER, Kind.DECISION) and _FIELDS[Kind.ANSWER].search(key):
            targets += _answers(key, value, request)
    answers = [" ".join([*actions, *targets])] if len(actions) == 1 and len(targets) <= 1 else [*actions, *targets]
    for answer in answers:
        yield Section(Kind.ANSWER, answer, "field", closed=True)


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
        match request.decision:
            case Decision.SIGN_UP:
                yield "上警" if value else "不上警"
            case Decision.SHOT if not value:
                yield "不开枪"
            case Decision.WITCH if value and _SAVES.search(key):
                yield "救"
    elif value not in (None, "", 0) and not isinstance(value, dict):
        seat = f"{value}号" if str(value).isdecimal() else str(value)
        yield f"毒{seat}" if request.decision is Decision.WITCH and _POISONS.search(key) and "毒" not in seat else seat
