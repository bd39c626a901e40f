"""A speech taken apart: uniform spelling, sentences, clauses, and in each whether its speaker states it."""

import re
import unicodedata
from dataclasses import dataclass

SEATS = "(?:[0-9]{1,2}号)+"
"""One seat or several in a row; ``uniform`` has taken out what stood between them."""

_NUMERALS = {"一": 1, "二": 2, "两": 2, "三": 3, "四": 4, "五": 5, "六": 6, "七": 7, "八": 8, "九": 9, "十": 10}
_NUMERAL_SEAT = re.compile("(十[一二]?|[一二三四五六七八九])(?=号)")
_WITHOUT_MEANING = re.compile(r"[\s*#_`~|>【】\[\]()]+")
_QUOTED = re.compile('“[^”]*”|「[^」]*」|『[^』]*』|"[^"]*"|‘[^’]*’')
_SEAT_WORDS = re.compile("(?<=[0-9]号)(?:玩家|位置?(?!的)|牌)(?!是我)")
_VERBS = "出|投|票|验|查验|查杀|金水|银水|踩|归|归票|毒|救|站|站边|刀|保|信|跟|打|警徽流|怀疑|先|后|再|了|的是|袭击"
_BARE_AFTER = re.compile(f"((?:{_VERBS})给?)([0-9]{{1,2}})(?![0-9号票个人夜天轮点晚分.:%狼神民张次])")
_BARE_BEFORE = re.compile(
    "(?<![0-9第])([0-9]{1,2})(?=是|查杀|金水|银水|像|发言|狼|踩|悍跳|(?:[、,/和跟与][0-9]{1,2})*号)"
)
_BARE_IN_LIST = re.compile("(?<=[0-9]号)([、和跟与])([0-9]{1,2})(?![0-9号票个人夜天轮点晚分])")
_BETWEEN_SEATS = re.compile("(?<=[0-9]号)(?:[、/&]|和|跟|与|及|还有|以及)(?=[0-9]{1,2}号)")
_LABEL_COLON = re.compile("(警徽流|验人信息|验人结果|查验信息|验人|查验|结果|金水|查杀|银水|身份|底牌):")
_END = re.compile("([。!?;！？；\n…]+)")
_QUOTES = re.compile('["“「『‘]')
_CLAUSE_END = re.compile("[,:、—-]+")
_CONTINUES = re.compile(r"\s*(?:他|她|它|结果|身份)*(?:就?是|为|不是)(?!我|不是)|查杀|金水|结果")

_SUPPOSES = re.compile("如果|假如|要是|假设|倘若|万一|就算|即使|即便|哪怕|除非|若是|假使|的话")
_ASKS = re.compile("(?:吗|么|呢|吧\\?)$|是不是|是否|难道|谁|为什么|凭什么|怎么|哪|有没有|会不会")
_ME = re.compile("(?<!给)(?<!跟)(?<!对)(?<!说)(?<!踩)(?<!投)(?<!信)(?<!杀)(?<!出)(?:我|本人|俺)(?!们)")
_CONCLUDES = re.compile("那|所以|因此|说明|必|只能")
_ADVERBS = (
    "(?:也|就|还|又|都|一直|直接|昨天|今天|昨晚|刚才|刚刚|在|警上|警下|突然|之前|先|才|全程|这轮|上一?轮|发言|里|时|自己|"
    "明显|既然|因为|虽然|但是?|而|这个|那个|前面|后面|前置位|后置位|所以|不过|可是?)*+"
)
_OTHERS = (
    f"{SEATS}|他们?|她们?|它|你们?|有人|大家|别人|对面|狼人们?|狼队|"
    "真?预言家|真?女巫|猎人|守卫|前面|后面|前置位|后置位|队友|警长"
)
_OTHERS_SAY = re.compile(
    f"^{_ADVERBS}(?:{_OTHERS}){_ADVERBS}(?:"
    "自?称|说|讲|喊|报|起?跳(?=[预女猎守出了的])|认为|觉得|怀疑|质疑|踩|点了?|打|投|站边?(?=[0-9他她我])|给|发(?!言)|查杀(?=[0-9我])|"
    "验|查(?!杀)|摸|救|毒|守|认|保|归票?|出|想|要|不信|信|相信|跟着?(?!我)|支持|攻击|带|冲|退水|自爆|以为|猜|写|留|把)(?!到|轮)"
)
"""Somebody else says or does something: what follows is not the speaker's own statement."""


@dataclass(frozen=True, slots=True)
class Clause:
    """One clause in uniform spelling.

    mine: whether its statement is the speaker's own. asked: whether it is a question.
    supposed: whether its sentence supposes something, here or in a clause before.
    """

    words: str
    mine: bool
    asked: bool
    supposed: bool

    @property
    def stated(self) -> bool:
        """Whether the speaker states it as a fact."""
        return self.mine and not self.asked and not self.supposed


def uniform(text: str) -> str:
    """``text`` with one spelling for everything that is written in several, seats as ``3号``, without quotations."""
    text = _WITHOUT_MEANING.sub("", unicodedata.normalize("NFKC", text))
    unquoted = _QUOTED.sub("", text)
    text = unquoted if unquoted.strip("。,!?;:") else text
    text = re.sub('["“”‘’「」『』]', "", text)
    text = _NUMERAL_SEAT.sub(lambda numeral: str(sum(_NUMERALS[digit] for digit in numeral[1])), text)
    text = _SEAT_WORDS.sub("", text)
    text = _BARE_AFTER.sub(r"\1\2号", text)
    text = _BARE_BEFORE.sub(r"\1号", text).replace("号号", "号")
    text = _BARE_IN_LIST.sub(r"\1\2号", text)
    text = _BETWEEN_SEATS.sub("", text)
    return _LABEL_COLON.sub(r"\1", text)


def sentences(text: str) -> list[str]:
    """The sentences of ``text`` as they are written, each with its sign at the end."""
    if _QUOTES.search(text):  # a quotation may hold several sentences
        text = uniform(text)
    parts = _END.split(text)
    found: list[str] = []
    for words, end in zip(parts[::2], [*parts[1::2], ""], strict=True):
        if not words.strip():
            continue
        ended = "?" if "?" in end or "？" in end else "。"
        if found and found[-1][-1] != "?" and _CONTINUES.match(words):
            found[-1] = f"{found[-1][:-1]},{words}{ended}"
        else:
            found.append(words + ended)
    return found


def clauses(sentence: str) -> tuple[Clause, ...]:
    """The clauses of a sentence that ``sentences`` gave."""
    parts = [part for part in _CLAUSE_END.split(uniform(sentence[:-1])) if part]
    found = []
    mine, supposed = True, False
    for number, words in enumerate(parts, start=1):
        supposed = supposed or _SUPPOSES.search(words) is not None
        if _OTHERS_SAY.match(words):
            mine = False
        elif _ME.search(words) or _CONCLUDES.match(words):
            mine = True
        asked = _ASKS.search(words) is not None or (sentence[-1] == "?" and number == len(parts))
        found.append(Clause(words, mine, asked, supposed))
    return tuple(found)


def seats_in(words: str) -> tuple[int, ...]:
    """The seats that ``words`` names, in that order."""
    return tuple(int(number) for number in re.findall("([0-9]{1,2})号", words))
