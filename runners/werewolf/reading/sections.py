"""A reply as sections, by its labels, tags and boxes: what is thought, what is said, what is decided."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import lru_cache

from runners.werewolf.game import Decision, Request
from runners.werewolf.prompts_zh.names import DECISION_MARKER, SPEECH_MARKER
from runners.werewolf.reading.words import WORDS


class Kind(StrEnum):
    """What a section of a reply is for."""

    PLAIN = "plain"  # no label
    THOUGHT = "thought"  # never heard, and no place for a choice
    REASON = "reason"  # heard in a speech; no place for a choice
    SPEECH = "speech"
    ANSWER = "answer"  # a name that a choice goes by, such as 投票
    DECISION = "decision"  # the marker that was asked for


@dataclass(frozen=True, slots=True)
class Section:
    """kind: what the text is for. text: all up to the next label, lines kept. label: as it was written.

    closed: whether the section's end was marked, so that what follows is not part of it.
    """

    kind: Kind
    text: str
    label: str = ""
    closed: bool = False


_COLON = "[:：﹕︓]"
_SIGNS = r"[\s*_`#\"”’'】\]」』>）)]"
_OPENING = r"[\s*_`~#>\-–•·“\"‘'「『【\[(（<《✅☑✔🗳️]*+"
_OPENING_SIGNS = " *_`#~>“\"‘'「『【[(（<《"
_WHOSE = r"(?:我的|我|本轮的?|今[天晚夜]的?|最终的?|最后的?|公开|正式|简要|详细|具体|my |final |the )*"

_THOUGHT = (
    r"(?:内心|心理)?思考(?:过程)?|思路|想法|内心(?:独白|想法|活动|戏)?|心理(?:活动)?|心里话|心声|独白|推理(?:过程)?|分析(?:过程)?|"
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
    r"\\boxed\s*\{\s*(?:\\(?:text|mathrm|textbf)\s*\{)?([^{}\\\n]{1,40})\}\s*\}?|<\|begin_of_box\|>([^<\n]{1,40})<\|end_of_box\|>"
)
_COLON_BEFORE = re.compile(rf"{_COLON}[\s$*]*$")
_SENTENCE_END = re.compile(r"(?<=[。！？!?；;.\n])|(?<=[。.！!？?][”\"*])")
_MARKER = re.compile(rf"(?:{_DECISION}){_SIGNS}*{_COLON}")
_ENCLOSED_THOUGHT = re.compile(rf"[（(【\[]\s*(?:{_THOUGHT})\s*{_COLON}([^（）()【】\[\]]*)[）)】\]]", re.IGNORECASE)
_TAGS = re.compile(
    rf"<(/?)(?:(?P<thought>{_THOUGHT})|(?P<reason>{_REASON})|(?P<speech>{_SPEECH})|(?P<decision>{_DECISION})|"
    rf"(?P<answer>{_ANSWER}|vote|kill|check|guard|shoot|badge))>",
    re.IGNORECASE,
)
_BEFORE_MARKER = re.compile(
    r"(?:.*[,，、…])?[\s*_`~#>“\"‘'「『【\[(（<《-]*(?:[0-9]{1,2}号(?:玩家)?的?)?"
    r"(?:所以|因此|那么?|综上所述|综上|最终|最后|我|的|本轮|今[天晚夜]|经过(?:慎重|仔细)?(?:考虑|分析)|好的?|于是|就|以下是)*[\s*_`“\"「『【\[]*"
)
"""What may stand before the marker on its line, if it is the marker."""


def sections_of(reply: str, request: Request) -> list[Section]:
    """The sections of a reply in order, those without text left out unless they have a label."""
    found = [
        section
        for piece in _enclosed(_BOX.sub(_unboxed, reply))
        for section in (_labelled(piece.text, request.decision, request.seat) if piece.kind is Kind.PLAIN else (piece,))
    ]
    return [section for section in found if section.label or section.text.strip()]


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
    of = WORDS.get(decision)

    def names(answer: str) -> str:
        return (
            rf"(?:{me}号(?:玩家|位)?的?)?{_WHOSE}(?:(?P<thought>{_THOUGHT})|(?P<reason>{_REASON})|(?P<speech>{_SPEECH})|"
            rf"(?P<decision>{_DECISION})|(?P<answer>(?:{answer}){_OF_ANSWER}))"
        )

    general = names(_ANSWER)
    every = names(f"{_ANSWER}|{of.labels}" if of else _ANSWER)
    return (
        re.compile(rf"{_OPENING}{every}(?:是|为|如下)?{_SIGNS}*+{_COLON}[\s*_`]*", re.IGNORECASE),
        re.compile(rf"[\s*_#>-]*[【\[〔]\s*{every}\s*[】\]〕][\s*_]*", re.IGNORECASE),
        # A word such as 上警 on a line of its own is an answer, not a heading.
        re.compile(rf"[\s*_`>]*#[\s*_`#]*{every}[\s*_`#]*$", re.IGNORECASE),
        re.compile(rf"[\s*_`>]*{general}[\s*_`]*$", re.IGNORECASE),
    )


def _labelled(text: str, decision: Decision, me: int) -> Iterator[Section]:
    colon, bracketed, heading, general_heading = _label_patterns(decision, me)
    current = Section(Kind.PLAIN, "")
    parts: list[str] = []
    for line in text.split("\n"):
        parts.append("\n")
        for segment in _SENTENCE_END.split(line):
            while segment:
                alone = segment == line
                label = colon.match(segment) or bracketed.match(segment)
                if label is None and alone:
                    label = heading.match(segment) or general_heading.match(segment)
                rest = segment[label.end() :] if label else ""
                before = ""
                if label is None and (label := _MARKER.search(segment)):
                    before, rest = segment[: label.start()], segment[label.end() :]
                    if not _BEFORE_MARKER.fullmatch(before):
                        label = None
                if label is None:
                    parts.append(segment)
                    break
                yield replace(current, text="".join([*parts, before]).rstrip(_OPENING_SIGNS))
                kind = Kind(label.lastgroup) if label.lastgroup else Kind.DECISION
                current, parts, segment = Section(kind, "", label[0].strip()), [], rest
    yield replace(current, text="".join(parts))
