"""What scripted players say, and how they understand each other: through the words of speeches alone.

Every sentence that carries a fact has a fixed core, which ``understand`` reads back, inside one of several
wordings. A speech is put together from sentences, the most important first (``fit_together``).
"""

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from random import Random

from runners.werewolf.game import Decision, Role, Side
from runners.werewolf.prompts_zh.names import CHECK_NAMES, ROLE_NAMES, seat_names

_SIDES_BY_NAME: Mapping[str, Side] = {name: side for side, name in CHECK_NAMES.items()}
_CLAIMABLE = {ROLE_NAMES[role]: role for role in Role if role.side is Side.GOOD}

_SEAT = "([0-9]{1,2})号"
_CLAIM = re.compile(f"我是({'|'.join(_CLAIMABLE)})")
_CHECK = re.compile(f"第[0-9]{{1,2}}夜查验{_SEAT}，是({'|'.join(_SIDES_BY_NAME)})")
_ACCUSATION = re.compile(f"我(?:怀疑|要踩|想出|归票){_SEAT}")
_FOLLOWING = re.compile(f"我相信{_SEAT}是预言家")
_SAVED = re.compile(f"我救了{_SEAT}")
_POISONED = re.compile(f"我毒了{_SEAT}")
_PREY = re.compile(f"建议袭击{_SEAT}")
_POSER = re.compile(f"{_SEAT}悍跳")

ACCUSATIONS = (
    "我怀疑{seat}号，发言像在带节奏。",
    "我怀疑{seat}号，视角不像好人。",
    "我要踩{seat}号，一直在划水。",
    "我要踩{seat}号，站边太随意。",
    "我想出{seat}号，先听这里怎么说。",
    "我想出{seat}号，这个位置最像狼。",
)
ACCUSATIONS_OF_NAMED = (
    "我想出{seat}号，查杀先出。",
    "我怀疑{seat}号，预言家的查杀我认。",
)
ACCUSATIONS_OF_CLAIMANTS = (
    "我怀疑{seat}号，预言家是跳出来骗票的。",
    "我要踩{seat}号，报的查验说不通。",
)
FOLLOWINGS = (
    "我相信{seat}号是预言家。",
    "我相信{seat}号是预言家，跟着走。",
    "我相信{seat}号是预言家，验人讲得通。",
)
RALLIES = ("我归票{seat}号，大家一起投。", "我归票{seat}号，不要分票。")
DEFENCES = ("踩我的人请想清楚，不要投错。", "投我出局就是帮狼，请再听一轮。", "我问心无愧，请看我的投票。")
SMALL_TALK = (
    "先听大家的。",
    "大家好好分析，不要乱投。",
    "信息还不多，多听多想。",
    "我会看票型。",
    "请大家多给点信息。",
)
CALLS_FOR_SEER = ("我没有线索，请预言家说话。", "预言家请报查验。")
CAMPAIGN_LINES = ("我想拿警徽带队。", "上警是为了多听信息。", "警徽给我，我会好好归票。")
WITHDRAWALS = ("警徽应该给预言家，我退水。", "我没有信息，我退水。")
FAREWELLS = ("希望好人能赢。", "大家加油，别被带偏。", "我走了，请看清票型。")
_LAST_LINES: Mapping[Decision, tuple[str, ...]] = {
    Decision.CAMPAIGN_SPEECH: CAMPAIGN_LINES,
    Decision.SHERIFF_PK_SPEECH: CAMPAIGN_LINES,
    Decision.PK_SPEECH: DEFENCES,
    Decision.LAST_WORDS: FAREWELLS,
}
PROPOSALS = ("建议袭击{seat}号。", "建议袭击{seat}号，先削弱好人。", "建议袭击{seat}号，不给他们机会。")
AGREEMENTS = ("同意，建议袭击{seat}号。", "可以，建议袭击{seat}号。")


@dataclass(frozen=True, slots=True)
class Heard:
    """What a scripted player takes from one speech.

    claimed: the role that the speaker says it has, the first that it names; None without one.
    reports: (seat, side found) for each check that it tells of, in that order.
    accused: seats that it wants exiled. followed: the seat that it calls the seer; None without one.
    saved, poisoned: seats on which it says it used a potion.
    """

    claimed: Role | None
    reports: tuple[tuple[int, Side], ...]
    accused: frozenset[int]
    followed: int | None
    saved: frozenset[int]
    poisoned: frozenset[int]


@lru_cache(maxsize=4096)  # A speech is understood once for all who hear it.
def understand(text: str) -> Heard:
    """What a public speech says, as far as scripted players understand it."""
    claim = _CLAIM.search(text)
    return Heard(
        claimed=_CLAIMABLE[claim[1]] if claim else None,
        reports=tuple((int(seat), _SIDES_BY_NAME[word]) for seat, word in _CHECK.findall(text)),
        accused=frozenset(map(int, _ACCUSATION.findall(text))),
        followed=_first_seat(_FOLLOWING, text),
        saved=frozenset(map(int, _SAVED.findall(text))),
        poisoned=frozenset(map(int, _POISONED.findall(text))),
    )


@lru_cache(maxsize=4096)
def understand_wolf(text: str) -> tuple[int | None, int | None]:
    """What a wolf says to the others by night: (whom it proposes to hit, who is to pose as the seer)."""
    return _first_seat(_PREY, text), _first_seat(_POSER, text)


def fit_together(sentences: Iterable[str], limit: int) -> str:
    """The sentences as one speech of at most ``limit`` characters; one that no longer fits is left out whole."""
    speech = ""
    for sentence in sentences:
        if len(speech) + len(sentence) <= limit:
            speech += sentence
    return speech


def say(chance: Random, templates: Collection[str], seat: int | None = None) -> str:
    """One of ``templates``, about ``seat`` where it names one."""
    return chance.choice(templates).format(seat=seat)


def claim_role(role: Role) -> str:
    """The claim to have ``role``."""
    return f"我是{ROLE_NAMES[role]}。"


CLAIM_GOOD = "我是好人。"
"""Says no more than every player would."""


def seer_report(reports: Collection[tuple[int, int, Side]]) -> list[str]:
    """A seer's claim and its checks (night, seat, side found): wolves first, then the newest, should room be short."""
    ranked = sorted(reports, key=lambda report: (report[2] is not Side.WOLF, -report[0]))
    checks = [f"第{night}夜查验{seat}号，是{CHECK_NAMES[side]}。" for night, seat, side in ranked]
    return [claim_role(Role.SEER), *checks]


def name_next_checks(seats: Collection[int]) -> str:
    """Whom the seer will check next (警徽流)."""
    return f"警徽流{seat_names(seats)}。"


def report_saving(seat: int) -> str:
    """The witch's antidote, and what follows from it (银水)."""
    return f"我救了{seat}号，是银水。"


def report_poisoning(seat: int) -> str:
    """The witch's poison."""
    return f"我毒了{seat}号。"


def plan_posing(seat: int) -> str:
    """Among wolves: ``seat`` is to pose as the seer (悍跳)."""
    return f"{seat}号悍跳预言家。"


def last_line(chance: Random, decision: Decision) -> str:
    """What a speech of this kind ends with."""
    return say(chance, _LAST_LINES.get(decision, SMALL_TALK))


def _first_seat(pattern: re.Pattern[str], text: str) -> int | None:
    found = pattern.search(text)
    return int(found[1]) if found else None
