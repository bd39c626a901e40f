"""Splits a reply into sections (thought, speech, decision) by labels, tags, boxes and JSON fields."""

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import lru_cache
from typing import Any

from runners.werewolf.game import Decision, Request
from runners.werewolf.language.lexicon import WORDS, Words, simplified
from runners.werewolf.prompts_zh.names import DECISION_MARKER, SPEECH_MARKER


class Kind(StrEnum):
    """Purpose of a section."""

    PLAIN = "plain"  # no label
    THOUGHT = "thought"  # not heard by others; holds no choice
    REASON = "reason"  # heard as a part of a speech; holds no choice
    SPEECH = "speech"
    ANSWER = "answer"  # another label of a choice, such as 投票
    DECISION = "decision"  # the marker that the question requires


@dataclass(frozen=True, slots=True)
class Section:
    """text: everything up to the next label, with line breaks. label: as written, with a line break before it.

    closed: whether the section's end was marked.
    """

    kind: Kind
    text: str
    label: str = ""
    closed: bool = False


def sections_of(reply: str, request: Request) -> list[Section] | None:
    """The sections of a reply in order, without empty ones; None for invalid JSON."""
    if _LOOKS_LIKE_DATA.search(reply):
        fields, end = _object(reply), reply.rfind("}") + 1
        if fields is None:
            return None
        after = _labelled(reply[end:].replace("`", ""), request)  # may take the choice back
        # What is said stands in the object: a comment on it must not be heard.
        parts = [
            *_fields(fields, request),
            *(part for part in after if part.kind is Kind.DECISION or not request.speaks),
        ]
        return [part for part in parts if part.text.strip()]
    text = _with_thoughts_tagged(_BOX.sub(r"\1\2", reply))
    found = [
        section
        for piece in _tagged(text)
        for section in (_labelled(piece.text, request) if piece.kind is Kind.PLAIN else (piece,))
    ]
    return [*_joined(section for section in found if section.label or section.text.strip())]


def _joined(sections: Iterable[Section]) -> Iterator[Section]:
    """With an answer that directly follows an empty decision in its place: 决定：投票：3号."""
    empty: Section | None = None
    for section in sections:
        if empty is not None and section.kind is Kind.ANSWER:
            section = replace(section, kind=Kind.DECISION)
        elif empty is not None:
            yield empty
        empty = section if section.kind is Kind.DECISION and not section.text.strip(_OPENING_SIGNS + "\n") else None
        if empty is None:
            yield section
    if empty is not None:
        yield empty


# --- labels, tags and boxes -----------------------------------------------------------------------------------------

COLON = "[:：﹕︓]"
_SIGNS = r"[\s*_`#\"”’'】\]」』>）)]"
_OPENING = r"[\s*_`~#>\-–•·“\"‘'「『【\[(（<《✅☑✔🗳️]*+"
_OPENING_SIGNS = " *_`#~>“\"‘'「『【[(（<《"
_WHOSE = r"(?:我的|我|本轮的?|今[天晚夜]的?|最终的?|最后的?|公开|正式|简要|详细|具体|my |final |the )*"
_NAMES = {
    Kind.THOUGHT: (
        "(?:内心|心理)?思考(?:过程)?|思路|想法|内心(?:独白|想法|活动|戏|os)?|心理(?:活动)?|心声|心里话|独白|"
        "(?:推理|分析)(?:过程)?|(?:局势|局面|形势|场上)(?:分析|判断)|策略|计划|os|thoughts?|thinking|"
        "(?:inner )?monologue|reasoning|analysis|strategy|plan|reflection"
    ),
    Kind.REASON: "理由|原因|依据|解释|备注|说明|逻辑|reasons?|explanation|notes?",
    Kind.SPEECH: f"(?:竞选)?{SPEECH_MARKER}(?:内容|稿)?|遗言|台词|(?:public )?(?:speech|statement)|say|message",
    Kind.DECISION: DECISION_MARKER,
    Kind.ANSWER: "选择|答案|回答|结论|行动|动作|目标|人选|choice|action|answer|decision|target",
}
_OF_ANSWER = "(?: ?(?:对象|目标|人选|的?玩家|给|for|target|choice))?"
_BOX = re.compile(
    r"\\boxed\s*\{\s*(?:\\text\s*\{)?([^{}\\\n]{1,40})\}\s*\}?|<\|begin_of_box\|>([^<\n]{1,40})<\|end_of_box\|>"
)
_ENCLOSED_THOUGHT = re.compile(
    rf"[（(【\[]\s*(?:{_NAMES[Kind.THOUGHT]})\s*{COLON}([^（）()【】\[\]]*)[）)】\]]", re.IGNORECASE
)
_TAGS = re.compile(
    "<(/?)(?:"
    + "|".join(f"(?P<{kind}>{names})" for kind, names in _NAMES.items() if kind is not Kind.ANSWER)
    + rf"|(?P<answer>{_NAMES[Kind.ANSWER]}|vote|kill|check|guard|shoot|badge))>",
    re.IGNORECASE,
)
_SENTENCE = r"(?:^|(?<=[。！？!?；;.:：])|(?<=[。.！!？?][”\"*]))"
"""The beginning of a line, of a sentence, or of the text after another label."""
_SO = (
    r"(?:所以|因此|那么?|综上(?:所述)?|最[终后]|我|的|本轮|今[天晚夜]|考虑|分析|"
    r"好的?|就|以下是|(?:更正|修正|修改|重新|新)后?)*+[\s*_`“\"「『【\[]*+"
)
"""Words before the marker in its clause."""


def _with_thoughts_tagged(text: str) -> str:
    for found in reversed([*_ENCLOSED_THOUGHT.finditer(simplified(text))]):
        thought = text[found.start(1) : found.end(1)]
        text = f"{text[: found.start()]}<思考>{thought}</思考>{text[found.end() :]}"
    return text


def _tagged(text: str) -> Iterator[Section]:
    start, kind, label = 0, Kind.PLAIN, ""
    for tag in _TAGS.finditer(simplified(text)):
        yield Section(kind, text[start : tag.start()], label, closed=tag[1] == "/")
        start = tag.end()
        kind, label = (Kind.PLAIN, "") if tag[1] else (Kind(tag.lastgroup), tag[0])
    yield Section(kind, text[start:], label)


@lru_cache
def _labels(decision: Decision, me: int) -> re.Pattern[str]:
    """Pattern of all labels; the name of a group is its kind and a number."""

    def names(way: int, answers: str) -> str:
        kinds = {**_NAMES, Kind.ANSWER: rf"(?:{answers}){_OF_ANSWER}"}
        of_kinds = "|".join(f"(?P<{kind}{way}>{names})" for kind, names in kinds.items())
        return rf"(?:{me}号(?:玩家|位)?的?)?{_WHOSE}(?:{of_kinds})"

    every = f"{_NAMES[Kind.ANSWER]}|{WORDS.get(decision, Words()).labels}"
    ways = (
        rf"{_SENTENCE}{_OPENING}{names(1, every)}(?:是|为|如下)?{_SIGNS}*+{COLON}[\s*_`]*",
        rf"{_SENTENCE}[\s*_#>-]*+[【\[〔]\s*{names(2, every)}\s*[】\]〕][\s*_]*",
        # A heading needs ``#``, since a word such as 上警 on its own line is an answer.
        rf"^[ \t*_`>]*#[ \t*_`#]*{names(3, every)}[ \t*_`#]*$",
        rf"(?:{_SENTENCE}|(?<=[,，、…])){_OPENING}(?:{me}号(?:玩家)?的?)?{_SO}(?P<decision4>{_NAMES[Kind.DECISION]}){_SIGNS}*{COLON}[\s*_`]*",
    )
    # A bold line heads only a thought, a speech or a decision, since other labels may be answers.
    bold = "|".join(f"(?P<{kind}5>{_NAMES[kind]})" for kind in (Kind.THOUGHT, Kind.SPEECH, Kind.DECISION))
    ways += (rf"^[ \t]*(?:\*\*|__)[ \t]*{_WHOSE}(?:{bold})[ \t]*(?:\*\*|__)[ \t]*$",)
    return re.compile("|".join(ways), re.IGNORECASE | re.MULTILINE)


def _labelled(text: str, request: Request) -> Iterator[Section]:
    start, current = 0, Section(Kind.PLAIN, "")
    labels = [*_labels(request.decision, request.seat).finditer(simplified(text))]
    last = max((label.start() for label in labels if label.lastgroup[:-1] in (Kind.SPEECH, Kind.DECISION)), default=0)
    for label in labels:
        if label.lastgroup == f"{Kind.THOUGHT}5" and label.start() >= last:
            continue  # **分析** without one of these after it is a part of a speech
        yield replace(current, text=text[start : label.start()].rstrip(_OPENING_SIGNS))
        start, current = label.end(), Section(Kind(label.lastgroup[:-1]), "", text[slice(*label.span())].rstrip())
    yield replace(current, text=text[start:])


# --- JSON -----------------------------------------------------------------------------------------------------------

_LOOKS_LIKE_DATA = re.compile(r"(?:\A|\n)\s*+(?:```\w*+\s*+)?\{\s*+(?:[\"'“]|\Z)|\A\s*+```json|\A\s*+\[\s*+[{\"]")
_FIELDS = {
    Kind.THOUGHT: re.compile(
        "thought|think|reason|analy|思考|理由|分析|原因|想法|推理|内心|策略|plan|strateg|expla|note|解释"
    ),
    Kind.SPEECH: re.compile("speech|say|发言|statement|message|遗言|台词|words|talk|speak"),
    Kind.DECISION: re.compile("action|动作|行动|操作|type|move|skill|技能"),
    Kind.ANSWER: re.compile(
        "target|vote|decision|choice|answer|决定|投票|选择|答案|目标|对象|kill|check|guard|protect|shoot|shot|badge|run|order|"
        "save|poison|antidote|explode|player|seat|exile|守|刀|袭击|验|开枪|带走|警徽|上警|顺序|救|毒|解药|自爆|退水|withdraw|"
        "归票|提议|sign|result|结果"
    ),
}
"""Names of JSON fields by kind; the first kind that matches counts. DECISION is the action, ANSWER its target."""
_SAVES, _POISONS = re.compile(r"save|antidote|解药|救"), re.compile(r"poison|毒")
_WORDS_OF = {(Decision.SIGN_UP, True): "上警", (Decision.SIGN_UP, False): "不上警", (Decision.SHOT, False): "不开枪"}
"""Answers of the values true and false."""


def _object(text: str) -> dict[str, Any] | None:
    text = text[text.find("{") : text.rfind("}") + 1]
    try:
        found = json.loads(text if '"' in text else text.replace("'", '"'))
    except (ValueError, RecursionError):  # RecursionError: nested too deeply
        return None
    return found if isinstance(found, dict) else None


def _fields(fields: dict[str, Any], request: Request) -> Iterator[Section]:
    actions: list[str] = []
    targets: list[str] = []
    for key, value in fields.items():
        key = simplified(key.lower())
        kind = next((kind for kind, names in _FIELDS.items() if names.search(key)), None)
        if kind in (Kind.THOUGHT, Kind.SPEECH) and isinstance(value, str):
            yield Section(kind, value, key, closed=True)
        elif kind is Kind.DECISION and isinstance(value, str):
            actions.append(value)
        elif kind is Kind.ANSWER:
            targets += _answers(key, value, request.decision)
    for answer in [" ".join([*actions, *targets])] if len(actions) == 1 and len(targets) < 2 else [*actions, *targets]:
        yield Section(Kind.ANSWER, answer, "field", closed=True)


def _answers(key: str, value: Any, decision: Decision) -> Iterator[str]:
    """The answer of a field in words; none for an empty or negative value."""
    if isinstance(value, bool):
        saves = value and decision is Decision.WITCH and _SAVES.search(key)
        yield "救" if saves else _WORDS_OF.get((decision, value), "")
    elif value not in (None, "", 0) and not isinstance(value, dict | list):
        seat = f"{value}号" if str(value).isdecimal() else str(value)
        yield f"毒{seat}" if decision is Decision.WITCH and _POISONS.search(key) and "毒" not in seat else seat
