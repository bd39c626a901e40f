"""Text as sentences and clauses in one plain spelling, and what of it is said in earnest.

Plain text is NFKC, in lower case, with simplified characters where the game's words have others, without decoration,
seats in digits, quotation marks all ``"``. Every step takes time linear in the text.
"""

import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass

from runners.werewolf.reading.words import ALTERNATIVE, CONDITION, ELSEWHEN, REPORTED, REPORTER_AFTER

_SIMPLIFIED = str.maketrans(
    "號決棄選擇殺驗開槍帶給發毀藥銷護襲擊獵預職單雙隊進過個為這來對說邊讓誰麼嗎輪徽競",
    "号决弃选择杀验开枪带给发毁药销护袭击猎预职单双队进过个为这来对说边让谁么吗轮徽竞",
)
_NUMERALS = {numeral: str(number) for number, numeral in enumerate("一二三四五六七八九十", start=1)}
_NUMERALS |= {"十一": "11", "十二": "12"}
_NUMERAL = r"(?<![一二三四五六七八九十])(?:十[一二]?|[一二三四五六七八九])"
_NUMBERED_SEAT = re.compile(rf"{_NUMERAL}(?=号)")
_NUMERAL_AFTER_VERB = re.compile(rf"(?<=[投刀守验毒]){_NUMERAL}$|^{_NUMERAL}$")
_SPECIAL_TOKEN = re.compile(r"<\|[^|<>\n]{1,30}\|>")
_DECORATION = re.compile(r"[*_`#~$【】\[\]《》<>{}✅☑✔👉➡️🗳]+")
_QUOTES = str.maketrans(dict.fromkeys("“”「」『』‘’'", '"'))
_APOSTROPHE = re.compile(r"(?<=[a-z])[’'](?=[a-z])")
_GAP_IN_DIGITS = re.compile(r"(?<=[0-9])\s+(?=[0-9])")
_GAP_AFTER_CHOICE = re.compile(r"(?<=[号票警刀守药爆水毁枪]) (?=[^\x00-\xff])(?![给投出玩位当为开发,:。;!?()、\"])")
_GAP = re.compile(r"(?<=[^\x00-\xff]) | (?=[^\x00-\xff])")
_BECAUSE = re.compile(r"(?:因为|由于|理由(?=[是:])|原因(?=[是:])| because | since )")
_QUOTATION = re.compile(r'"[^"\n]*[,。:;!?][^"\n]*"')
_LIST_MARK = re.compile(r"^(?:[-•·](?=\s)|[0-9]{1,2}[.)](?![0-9]))\s*")
_SENTENCE = re.compile(r"[^。!?;\n]*[。!?;]?")
_STOP = re.compile(r"\.(?![0-9])")
_CLAUSE_END = re.compile(r"[,:()|—→…]|->| - ")
_ASKS = re.compile(r"(?:吗|么|呢|好不好|行不行|是不是|要不要|该不该)$")
LONGEST_CLAUSE = 60
"""In characters: a longer one states no choice."""


def plain(text: str) -> str:
    """``text`` in the plain spelling, its lines kept."""
    text = unicodedata.normalize("NFKC", _SPECIAL_TOKEN.sub("", text)).lower().translate(_SIMPLIFIED)
    text = _APOSTROPHE.sub("", text).translate(_QUOTES)
    return "\n".join(_plain_line(line) for line in text.split("\n"))


def _plain_line(line: str) -> str:
    line = _LIST_MARK.sub("", _DECORATION.sub("", " ".join(line.split())).strip())
    line = _GAP_IN_DIGITS.sub(",", line)
    line = _STOP.sub("。", _BECAUSE.sub(",因为", line).replace("no. ", "no."))
    # A name such as no.3 keeps its point, since a digit follows.
    line = _GAP.sub("", _GAP_AFTER_CHOICE.sub(",", line))
    whole = line.rstrip("。!")
    if whole.count('"') == 2 and whole[0] == whole[-1] == '"':
        line = whole[1:-1]  # put between quotation marks as a whole, it is no quotation
    elif line.count('"') == 1:
        line = line.strip('"。 ')
    return _NUMBERED_SEAT.sub(lambda numeral: _NUMERALS[numeral[0]], _QUOTATION.sub('""', line))


def digits(clause: str) -> str:
    """``clause`` with a numeral that stands for a seat, but without 号, in digits."""
    return _NUMERAL_AFTER_VERB.sub(lambda numeral: _NUMERALS[numeral[0]], clause)


@dataclass(frozen=True, slots=True)
class Clause:
    """A clause and where it stands.

    text: without decoration at its ends. sentence: the number of its sentence. place: its place in it, from 0.
    last: whether it is its sentence's last. ended: whether something follows, if only a sign.
    earnest: whether it is the writer's own, unconditional statement about now, as far as its sentence tells.
    label: whether it stands before a colon.
    """

    text: str
    sentence: int
    place: int
    last: bool
    label: bool
    supposed: bool
    earnest: bool
    alternative: bool


def clauses_of(text: str) -> list[Clause]:
    """All clauses of a plain text that say anything."""
    found: list[Clause] = []
    for number, sentence in enumerate(_sentences(text)):
        found += _clauses(sentence, number)
    return found


def ended_clauses(text: str) -> str:
    """A plain text that was cut off, without the clause that the cut went through."""
    return text[: max(text.rfind(end) for end in ",。;!?:()|\n") + 1]


def ended_sentences(text: str) -> str:
    """A plain text that was cut off, without the sentence that the cut went through."""
    return text[: max(text.rfind(end) for end in "。;!?\n") + 1]


def _sentences(text: str) -> Iterator[str]:
    for sentence in _SENTENCE.findall(text):
        if sentence.strip():
            yield sentence


def _clauses(sentence: str, number: int) -> list[Clause]:
    is_question = sentence.endswith("?")
    body = sentence.rstrip("。!?; ")
    pieces: list[tuple[str, str]] = []  # (clause, what ends it)
    start = 0
    for end in _CLAUSE_END.finditer(body):
        pieces.append((body[start : end.start()].strip(), end[0]))
        start = end.end()
    pieces.append((body[start:].strip(), ""))
    pieces = [(piece, end) for piece, end in pieces if piece]
    if not pieces:
        return []
    is_question = is_question or bool(_ASKS.search(pieces[-1][0].rstrip('"')))
    conditional = bool(CONDITION.search(body))
    clauses: list[Clause] = []
    own = True  # until somebody else is quoted, a label is set or another time is spoken of
    for place, (piece, end) in enumerate(pieces):
        text = piece.strip('" ') if piece.count('"') == 1 else piece
        following = pieces[place + 1][0] if place + 1 < len(pieces) else ""
        reported = '"' in text and bool(REPORTER_AFTER.fullmatch(following.strip('"')))
        alternative = ALTERNATIVE.match(text)
        clauses.append(
            Clause(
                text=text[alternative.end() :] if alternative else text,
                sentence=number,
                place=place,
                last=place == len(pieces) - 1,
                label=end == ":",
                supposed=is_question or conditional,
                earnest=own and not is_question and not conditional and not reported,
                alternative=alternative is not None,
            )
        )
        if len(text) <= LONGEST_CLAUSE and (REPORTED.match(text) or ELSEWHEN.fullmatch(text)):
            own = False
        if end == ":" and not _OWN_LABEL.fullmatch(text):
            own = False
    return clauses


_OWN_LABEL = re.compile(
    r"(?:我|我的|所以|因此|于是|那么|综上|综上所述|总之|最后|最终|好的?|如下|我的看法|我说|我宣布|"
    r"[^0-9他她你们家巫狼人不没未别无非]{0,6}(?:结论|总结|综合(?:来看|考虑|分析)|决定|选择|答案|投票|行动|操作|目标)[^0-9他她你们]{0,2})(?:是|为)?"
)
"""Before a colon: what follows is still the writer's own."""
