"""What a speech states: the one reader of natural Chinese, for players, facts of turns and tables of behaviour.

It reads statements in the speaker's own name. What is supposed, asked, denied, quoted, or said of somebody else's words
is none; in doubt nothing is read. Sentences are understood by themselves and remembered, since players repeat them.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache

from runners.werewolf.game import Role, Side
from runners.werewolf.talk_zh.clauses import SEATS, Clause, clauses, seats_in, sentences, uniform

_ROLES = {
    "预言家": Role.SEER, "先知": Role.SEER, "女巫": Role.WITCH, "猎人": Role.HUNTER, "守卫": Role.GUARD,
    "村民": Role.VILLAGER, "平民": Role.VILLAGER, "民": Role.VILLAGER, "闭眼玩家": Role.VILLAGER, "白板": Role.VILLAGER,
}  # fmt: skip
_ROLE = rf"(?:那个|真正的?|真|铁|正牌|唯一的?|普普通通的?|普通的?|纯|老)*(?P<role>{'|'.join(_ROLES)})(?:牌|身份)?"
# Not of what belongs to the role, nor of what it does to others.
_ENDS_ROLE = r"(?![验查救毒守]的(?!是))(?!的|面|团|坑|位|牌的|阵营|眼|视角|那边|出局|报|说|给[^了]|这)"
_SURELY = (
    "(?:也|就|真的?|确实|其实|的确|可|当然|今天|这[局把张]牌?|本局|手里|直接|先|只能?|在这里?|来|必须|现在|才|摊牌|明牌|再|一定|肯定|我|裸|强|警[上下]|在此|"
    "都|早就|反正|一直|这里|这边|首先|不装了|好吧|行|全场|场上|唯一)*+"
)
_CLAIMS = tuple(
    re.compile(pattern)
    for pattern in (
        rf"(?<![给说对跟])(?:我|本人|在下|俺|老子){_SURELY}(?:(?:要|得)?(?:起跳|跳|拍|认)(?:的?是|个|出)?|(?:的|真实)*(?:底牌|身份牌?|牌面?)(?:就)?(?:是|为)?|拿的?是?|摸到的?是?|是)?"
        rf"{_SURELY}一?[个张名只]?{_ROLE}{_ENDS_ROLE}",
        rf"^{_SURELY}(?:底牌(?:是)?|身份(?:是)?|明牌|起跳|跳|拍|是|就是|本)一?[个张名]?{_ROLE}{_ENDS_ROLE}",
        rf"^(?:全场|场上)?唯一的?{_ROLE}$",
        rf"{_ROLE}(?:牌)?(?:就)?(?:是(?:本人|我(?![的们]))|在此|在这里?$|本尊|本人)",
    )
)
_NEVER_CLAIMS = re.compile(
    r"想(?:过|要)?(?:起?跳|拍)|不(?:是|敢|想|会|要|能)|没(?:有|想)?|不可能|假装|冒充|伪装|像|当时|以为"
)

_WOLVES, _GOODS = "狼人|狼王|查杀|坏人|匪徒?|狼", "好人|金水|好的|民"
_SIDE = (
    r"(?P<denied>不是)?(?:是|为)?(?:一?[个张只匹名头]|铁|我的?|真的?|大|结果是?|身份是?)*"
    rf"(?:(?P<wolf>{_WOLVES})|(?P<good>{_GOODS}))"
)
_BETWEEN = (
    "(?:(?:的)?(?:结果|身份|底牌)?(?:他|她|它|的|都|确实|结果|就|果然|身份|显示|报的|出来|验出来|(?=是))*(?:是|为)?)"
)
_NIGHTS = (
    "第[0-9一二三四五六七八九十]+[晚夜](?:上)?|首夜|首晚|头夜|头晚|"
    "昨晚|昨夜|昨天晚上|昨天夜里|前晚|前夜|前天晚上|夜里|晚上"
)
_TO_COME = re.compile("(?:今[晚夜]|明[晚夜]|下一?个?[晚夜]|接下来|之后|待会|下轮)")
_WANTS = re.compile("想|要(?!么)|准备|打算|应该|建议|可以|请|不如|优先|会(?!是)|该|留|流")
_PROBES = "(?:查验|验|查|摸)(?:的?是|出来?的?|了|过|的|到|人|信息|结果)*(?:一下)?(?:一?[个张手])?"
_CHECK = re.compile(rf"(?<![测经体考])(?P<probe>{_PROBES})(?!杀)(?P<seats>{SEATS}){_BETWEEN}(?P<verdict>{_SIDE})?")
_CHECKED = re.compile(
    rf"(?P<seats>{SEATS})(?:就?是|被)?我?(?:{_NIGHTS})?(?:亲手)?(?P<probe>(?:查验|验|查|摸)(?:过|了|出来?|的)*)(?!杀){_BETWEEN}(?P<verdict>{_SIDE})?"
)
_BY_NIGHT = re.compile(rf"^(?:我)?(?:的)?(?:{_NIGHTS})(?:的|是)?(?P<seats>{SEATS})(?:是)?(?P<verdict>{_SIDE})?")
_VERDICT = re.compile(rf"^{_BETWEEN}(?P<verdict>{_SIDE})")
_GIVEN = tuple(
    re.compile(pattern)
    for pattern in (
        rf"(?<![被吃])(?P<verdict>(?P<denied>不是)?(?:(?P<wolf>查杀)|(?P<good>金水)))(?:的?是|给了?|到|了|发给)?(?P<seats>{SEATS})",
        rf"(?P<seats>{SEATS})(?P<verdict>(?P<denied>不是)?(?:就|也|都)?(?:是|为)?(?:我(?:昨[晚夜])?(?:发|给|验出)?的?|一?[个张])*(?:(?P<wolf>查杀)|(?P<good>金水)))(?!我)(?!{SEATS})",
        rf"(?:给|发|报)(?:了)?(?P<seats>{SEATS})(?:发|报|一?[个张])*(?:了)?(?:一?[个张])?(?P<verdict>(?P<denied>不是)?(?:(?P<wolf>查杀)|(?P<good>金水)))",
    )
)
_NOT_GIVEN = re.compile(
    rf"(?:预言家|他|她|你|{SEATS})(?:给的?|发的?|报的?|的)(?:金水|查杀)|被[^我]*查杀|[吃接]到?|给我|查杀我|认|假|所谓"
)

_HEDGES = (
    "(?:今天|这轮|这把|先|就|也|直接|还是|主要|比较|第一个|重点|更|最|很|还|会|想|要|建议|大家|我们|一起|都|应该|必须|可以|得|来|全票|把票|跟我|请|麻烦|优先|"
    "非常|有点|现在|仍然|依然|目前|只能|再|统一|好人|一定要?|坚持|只|倾向于?|最想|选择|还要|个人|继续|推荐|坚决|号召|可能|在|不得不)*+"
)
_AGAINST = re.compile(
    rf"(?:^|我|[看听]下来|所以|那么?|{_HEDGES})(?P<hedge>{_HEDGES})(?:怀疑|质疑|踩|点(?:出)?|盯着?|打|(?<![验查退得看跳杀走给突付指提说派])出|投|票|归票?|冲|标|抗推|放逐|处理|推|抬|先走|走|锤|弄|下)"
    rf"(?:狼|掉|死|飞|一下|的对象|的是|是|给|到|就是|在)*(?P<seats>{SEATS})"
)
_PAST_VOTE = re.compile("昨天|上一?轮|前天|投了|投过|投的|票了|刚才投|第[0-9一二三]+天")
_AWAY = re.compile(
    rf"把(?P<seats>{SEATS})(?:先|给|直接)*(?:投|票|出|推|放逐|抬|归|送)|(?P<also>{SEATS})(?:今天|必须|应该|先|得|该|要|就|可以|直接)+(?:出局?|出去|走|下去|死|被放逐|被票|上票)"
)
_DEGREE = (
    "(?:玩家|这张牌|这个人|这个位置|身上|的?发言|的?视角|的?行为|的?票型|的?投票|的?心态|的?逻辑|的?状态|的?站边|的?表现|这里|那里|这|那|我觉得|我认为|我感觉|"
    "确实|也|都|还|很|太|有点|有些|非常|明显|肯定|一定|应该|就|大概率|多半|可能|八成|更|最|真的?|绝对|必|像|就像|是|一直|一路|全程|一?[张匹只个头]|铁|偏|算|"
    "百分百|站边|十分|特别|极其|实在|倒(?!钩)|才|绝|比较|在|今天|昨天|刚才|比|带|有|听起来|听着|看着|看起来|反倒|始终|,)*+"
)
_SUSPECT = re.compile(
    rf"(?P<seats>{SEATS}){_DEGREE}(?:双?狼|可疑|随意|在?找人抗推|带节奏|有问题|问题|不对劲|不对|奇怪|说不通|倒钩|悍跳|划水|不像好人|不是好人|骗|假|匪|不好(?!说)|不行|太差|聊爆|爆了|站不住|对不上|不正常|飘|做作|可恶)"
    r"(?!面(?:很|比较|不|最|更)*(?:小|低))(?!人?杀)(?!打我|踩我|咬)"
)
_SUSPECT_LAST = re.compile(
    rf"(?:我的?|最大的?)?(?:狼坑|狼人?|怀疑对象|嫌疑人?|狼位|第一嫌疑)(?:里有|是|在|就是|先放|:)+(?P<seats>{SEATS})"
)
_ONE_SEAT = re.compile(r"(?<!号)[0-9]{1,2}号(?![0-9])")
_OF_THE_SAME = re.compile("(?:倒|更|就|反而)?像|狼面|心态|视角|逻辑|状态|(?:肯定|一定|必|就|明显)是?狼")
_REQUEST = re.compile("(?:请|麻烦|辛苦)(?P<seat>[0-9]{1,2})号(?:你|去|来|今天)*投(?:给)?(?P<whom>[0-9]{1,2})号")
_DENIES = re.compile("不|没|别|未|非|勿|甭|否认|取消|撤回|放过|拒绝")

_SEER_WORD = "(?:真|个|那个|一?张|我们的|全场|唯一的?)*预言家"
_FOLLOWS = (
    re.compile(
        rf"(?:相信|更信|信|认下|认|站边|站队|站|跟着?|支持|选择|力挺|挺|追随|听){_HEDGES}(?P<seats>{SEATS})(?!说|的(?!边)|投|(?:是|像)?一?[张个]?(?:铁|真|大)*好人)"
        rf"(?:是|就是|为|这边|走|边|{_SEER_WORD}|的|吧|了|这)*"
    ),
    re.compile(
        rf"(?P<seats>{SEATS})(?:我觉得|我认为|我感觉|我认|应该|就|才|更像|更|大概率|肯定|一定|多半|八成|确实|可能|的?发言|比较|在我这|这里|还是|暂时|绝对|必|铁)*(?:是|像|为)?{_SEER_WORD}(?!的)(?:面(?:很|更|比较|最)*[大高])?"
    ),
    re.compile(rf"{_SEER_WORD}(?:应该|就|肯定|一定|多半|大概率)*(?:是|在)(?P<seats>{SEATS})"),
)
_NOT_FOLLOWED = re.compile("不|没|别|假|悍跳|未必|难|怀疑|自称|质疑|骗|竞选|警徽|警长|投警")

_POTION_NIGHT = rf"(?:{_NIGHTS})"
_SAVED = (
    re.compile(rf"(?:救|解药(?:给了?|用在了?|用给了?|救了?|开了?给?))(?:的是|了|的|起|过|下)*(?P<seats>{SEATS})"),
    re.compile(
        rf"(?<!的)银水(?:是|给了?|发给)?(?P<seats>{SEATS})|(?P<also>{SEATS})(?:就|也)?(?:是|为)?(?:我的?|一?[张个])*银水"
    ),
    re.compile(rf"(?P<seats>{SEATS})(?:就?是)?我?(?:{_POTION_NIGHT})?(?:用解药)?救(?:的|了|起|下)"),
)
_POISONED = (
    re.compile(
        rf"(?:毒(?:的是|了|的|死|掉|杀|走|过)+|撒毒给?了?|毒药?(?:给了|用在了?|撒给了?|撒在了?|开给了?|泼给了?))(?P<seats>{SEATS})"
    ),
    re.compile(rf"{_POTION_NIGHT}我?(?:用毒药?)?(?:开)?毒(?P<seats>{SEATS})"),
    re.compile(rf"(?P<seats>{SEATS})(?:就?是)?我?(?:{_POTION_NIGHT})?(?:用毒药?)?毒(?:的|了|死|掉|走)"),
)
_NOT_USED = re.compile("想|要|会|准备|打算|应该|建议|可以|没|不|别|女巫的|能|谁|请|敢|值得|不如|优先")
_GUARDED = re.compile(rf"我.{{0,6}}守(?:护)?(?:的是|了|的|过|住)+(?P<seats>{SEATS})")

_PLAN = re.compile("警徽流")
_PLAN_GOES_ON = re.compile(
    rf"^(?:第[一二三1-3][个晚验]?|先|再|后|然后|接着|其次|最后|第二晚|之后|下一?[个晚]|[验查打留给看]|是|,)*{SEATS}"
)
_CHECKS_NEXT = re.compile(
    rf"(?:今[晚夜]|明[晚夜]|下一?个?[晚夜]|接下来|之后)(?:上)?我?(?:会|要|想|准备|打算|去|先|再|来|优先|就)*(?:查验|验|查|摸)(?:一下|一手)?(?P<seats>{SEATS})"
)
_TRUSTED = re.compile(
    rf"(?<![不没别])(?:保一?手?|力保|认好|认可)(?P<seats>{SEATS})|(?P<also>{SEATS})(?:我觉得|我认为|应该|就|也|都|确实|肯定|一定|大概率|多半|可能|更|偏|很|比较|暂时|发言|在我这|听着|还)*"
    r"(?:(?:是|像|为)(?:一?[张个])?(?:铁|真|大)*好人|不像狼|不是狼|好人面|不错|没问题|偏好|挺好|做好)"
)
_NOT_TRUSTED = re.compile("不像好|不是好|不太像|没有好|不算")


@dataclass(frozen=True, slots=True)
class Heard:
    """What one public speech states.

    claimed: the role that the speaker says it has, the first that it names; None without one.
    reports: (seat, side found) for each check that it tells of, in that order; meant as its own if it is the seer.
    accused: seats that it wants exiled or calls wolves. followed: the seat that it calls the seer; None without one.
    trusted: seats that it calls good. saved, poisoned: seats on which it says it used a potion.
    next_checks: whom it will check next (警徽流), the first first.
    asked: (seat, whom) for each seat that it tells whom to vote for (分票).
    """

    claimed: Role | None = None
    reports: tuple[tuple[int, Side], ...] = ()
    accused: frozenset[int] = frozenset()
    followed: int | None = None
    trusted: frozenset[int] = frozenset()
    saved: frozenset[int] = frozenset()
    poisoned: frozenset[int] = frozenset()
    next_checks: tuple[int, ...] = ()
    asked: tuple[tuple[int, int], ...] = ()


NOTHING_HEARD = Heard()


@lru_cache(maxsize=4096)  # A speech is understood once for all who hear it.
def understand(text: str) -> Heard:
    """What a public speech states."""
    parts = [part for sentence in sentences(text) if (part := _understand_sentence(sentence)) is not NOTHING_HEARD]
    if len(parts) < 2:
        return parts[0] if parts else NOTHING_HEARD
    accused = frozenset().union(*(part.accused for part in parts))
    return Heard(
        claimed=next((part.claimed for part in parts if part.claimed is not None), None),
        reports=tuple({seat: side for part in parts for seat, side in part.reports}.items()),
        accused=accused,
        followed=next((part.followed for part in parts if part.followed is not None), None),
        trusted=frozenset().union(*(part.trusted for part in parts)) - accused,
        saved=frozenset().union(*(part.saved for part in parts)),
        poisoned=frozenset().union(*(part.poisoned for part in parts)),
        next_checks=next((part.next_checks for part in parts if part.next_checks), ()),
        asked=tuple({seat: whom for part in parts for seat, whom in part.asked}.items()),
    )


@dataclass(slots=True)
class _Reading:
    """What was read of a sentence so far. pending: seats checked whose result a later clause may tell.

    topic: the seat that the clause before was about, such as ``3号``.
    """

    claimed: Role | None = None
    reports: dict[int, Side] = field(default_factory=dict)
    accused: set[int] = field(default_factory=set)
    followed: int | None = None
    trusted: set[int] = field(default_factory=set)
    saved: set[int] = field(default_factory=set)
    poisoned: set[int] = field(default_factory=set)
    next_checks: tuple[int, ...] = ()
    asked: dict[int, int] = field(default_factory=dict)
    pending: tuple[int, ...] = ()
    planning: bool = False
    topic: str = ""


@lru_cache(maxsize=16384)
def _understand_sentence(sentence: str) -> Heard:
    reading = _Reading()
    for clause in clauses(sentence):
        _read(clause, reading)
    heard = Heard(
        reading.claimed,
        tuple(reading.reports.items()),
        frozenset(reading.accused),
        reading.followed,
        frozenset(reading.trusted - reading.accused),
        frozenset(reading.saved),
        frozenset(reading.poisoned),
        reading.next_checks,
        tuple(reading.asked.items()),
    )
    return NOTHING_HEARD if heard == NOTHING_HEARD else heard


def _read(clause: Clause, reading: _Reading) -> None:
    words, topic = clause.words, reading.topic
    reading.topic = words[seat.start() : seat.end()] if (seat := _ONE_SEAT.search(words)) else topic
    if not clause.stated:
        reading.pending = ()
        return
    if reading.claimed is None:
        reading.claimed = _claim_in(words)
    if _read_plan(words, reading) or _read_checks(words, reading):
        return
    reading.pending = ()
    if topic and _OF_THE_SAME.match(words):
        words = topic + words
    if "号" not in words or _read_potions(words, reading):
        return
    follows = _follows_in(words)
    if follows is not None:
        reading.followed = reading.followed or follows
        return
    if not _NOT_TRUSTED.search(words):
        for found in _TRUSTED.finditer(words):
            reading.trusted.update(_seats_of(found))
    words = _read_asked(words, reading)
    reading.accused.update(_accused_in(words))


def _claim_in(words: str) -> Role | None:
    for pattern in _CLAIMS:
        found = pattern.search(words)
        if found is None:
            continue
        role = found["role"]
        if _NEVER_CLAIMS.search(words[: found.start("role")]):
            continue
        if role == "民" and words[found.end("role") :][:1] not in ("", "牌"):
            continue
        return _ROLES[role]
    return Role.GUARD if _GUARDED.search(words) and not _NOT_USED.search(words) else None


def _read_plan(words: str, reading: _Reading) -> bool:
    """Whom the speaker will check next."""
    named = _PLAN.search(words)
    if named or (reading.planning and _PLAN_GOES_ON.match(words)):
        reading.planning = True
        if not _DENIES.search(words):
            new = seats_in(words[named.end() :] if named else words)
            reading.next_checks = tuple(dict.fromkeys((*reading.next_checks, *new)))
        return bool(seats_in(words)) or named is not None
    reading.planning = False
    found = _CHECKS_NEXT.search(words)
    if found is None or _DENIES.search(words[: found.end()]):
        return False
    reading.next_checks = tuple(dict.fromkeys((*reading.next_checks, *seats_in(found["seats"]))))
    return True


def _read_checks(words: str, reading: _Reading) -> bool:
    """Checks that the speaker tells of, their results in the same clause or the next."""
    if reading.pending:
        found = _VERDICT.match(words)
        if found is not None:
            reading.reports.update(dict.fromkeys(reading.pending, _side_of(found)))
            reading.pending = ()
            return True
    if "号" not in words:
        return False
    found = _CHECK.search(words) or _CHECKED.search(words)
    if found is not None:
        before = words[: found.start("probe")]
        if _TO_COME.search(before) or _WANTS.search(before) or _DENIES.search(before):
            return True
        if found["verdict"] is not None:
            reading.reports.update(dict.fromkeys(seats_in(found["seats"]), _side_of(found)))
        else:
            reading.pending = seats_in(found["seats"])
        reading.claimed = reading.claimed or Role.SEER
        return True
    found = _BY_NIGHT.match(words)
    if found is not None and (found["verdict"] is not None or reading.claimed is Role.SEER):
        if found["verdict"] is not None:
            reading.reports.update(dict.fromkeys(seats_in(found["seats"]), _side_of(found)))
        else:
            reading.pending = seats_in(found["seats"])
        return True
    if _NOT_GIVEN.search(words):
        return False
    given = [found for pattern in _GIVEN for found in pattern.finditer(words)]
    for found in sorted(given, key=re.Match.start):
        for seat in seats_in(found["seats"]):
            reading.reports.setdefault(seat, _side_of(found))
    return bool(given)


def _side_of(found: re.Match[str]) -> Side:
    wolf = found["wolf"] is not None
    return Side.WOLF if wolf is (found["denied"] is None) else Side.GOOD


def _read_potions(words: str, reading: _Reading) -> bool:
    used = False
    for patterns, told in ((_SAVED, reading.saved), (_POISONED, reading.poisoned)):
        for pattern in patterns:
            for found in pattern.finditer(words):
                if not _NOT_USED.search(words[: found.start()]):
                    told.update(_seats_of(found))
                    used = True
    if used and reading.claimed is None and "我" in words:
        reading.claimed = Role.WITCH
    return used


def _read_asked(words: str, reading: _Reading) -> str:
    """Whom the speaker tells others to vote for; returns the words without that, which is no accusation of its own."""
    if _PAST_VOTE.search(words) or _DENIES.search(words):
        return words
    reading.asked |= {int(found["seat"]): int(found["whom"]) for found in _REQUEST.finditer(words)}
    return _REQUEST.sub("", words)


def _follows_in(words: str) -> int | None:
    for pattern in _FOLLOWS:
        found = pattern.search(words)
        if found is not None and not _NOT_FOLLOWED.search(words[: found.end()]):
            seats = seats_in(found["seats"])
            if len(seats) == 1:
                return seats[0]
    return None


def _accused_in(words: str) -> Iterator[int]:
    if not _PAST_VOTE.search(words):
        for found in _AGAINST.finditer(words):
            if not _DENIES.search(words[max(0, found.start("seats") - 8) : found.start("seats")]):
                yield from seats_in(found["seats"])
        for found in _AWAY.finditer(words):
            if not _DENIES.search(found[0]):
                yield from _seats_of(found)
    for pattern in (_SUSPECT, _SUSPECT_LAST):
        for found in pattern.finditer(words):
            told = found[0][len(found["seats"]) :] if pattern is _SUSPECT else found[0]
            if not re.search("不像狼|不是狼|没有?狼|不是匪|没有?问题|不带狼|不可疑|不奇怪|不假", told):
                yield from seats_in(found["seats"])


def _seats_of(found: re.Match[str]) -> tuple[int, ...]:
    return seats_in(next(seats for name, seats in found.groupdict().items() if name in ("seats", "also") and seats))


_PREY = re.compile(
    rf"(?:袭击|刀|杀|砍|干掉|弄死|目标|先处理|除掉|解决|冲)(?:掉|的?是|了|死|一?手|选|定|给)*(?P<seats>{SEATS})|(?P<also>{SEATS})(?:吃刀|先死|必须死|今晚[死走])"
)
_POSER = re.compile(
    rf"(?P<seats>{SEATS}|我)(?:来|去|就|要|今天|明天|警上|直接|可以|负责|起)*(?:悍跳|跳预言家|起跳|去跳|跳个?预)"
)
_ALSO_POSES = re.compile(rf"(?:让|由|派|请|安排)(?P<seats>{SEATS})(?:来|去|就|明天|上警)*(?:悍跳|跳|起跳)")


@lru_cache(maxsize=4096)
def understand_wolf(text: str, speaker: int) -> tuple[int | None, int | None]:
    """What a wolf says to the others by night: (whom it proposes to hit, who is to pose as the seer)."""
    prey = poser = None
    for words in re.split("[。!?;,\n]+", uniform(text)):
        found = _PREY.search(words)
        if prey is None and found is not None and not _DENIES.search(words[: found.end()]):
            prey = _seats_of(found)[0]
        found = _ALSO_POSES.search(words) or _POSER.search(words)
        if poser is None and found is not None and not _DENIES.search(words[: found.end()]):
            poser = speaker if found["seats"] == "我" else seats_in(found["seats"])[0]
    return prey, poser
