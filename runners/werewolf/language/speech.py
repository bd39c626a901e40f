"""Parses statements of a speech, for scripted players, turn facts and tables of behaviour.

Sentences of scripted players are looked up in a table of their templates (``saying.TEMPLATES``). Plain equivalents by
models and people are parsed by patterns. Suppositions, questions, denials, quotations, statements of others and
doubtful sentences are ignored, so the result is a lower bound.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from itertools import product, takewhile
from typing import Any

from runners.werewolf.game import Role, Side
from runners.werewolf.language.lexicon import RETOLD, ROLES, SEATS, normal, seats_in, simplified, without_emoji
from runners.werewolf.language.saying import LEADS, TEMPLATES, VERDICTS
from runners.werewolf.prompts_zh.names import CHECK_NAMES, ROLE_NAMES


@dataclass(frozen=True, slots=True)
class Heard:
    """The statements of one speech."""

    claimed: Role | None = None  # first role that the speaker claims
    reports: tuple[tuple[int, Side], ...] = ()  # (seat, side) of each reported check
    accused: frozenset[int] = frozenset()  # seats to be exiled or called wolves
    followed: int | None = None  # the seat that it calls the seer
    saved: frozenset[int] = frozenset()  # claimed targets of a potion
    poisoned: frozenset[int] = frozenset()
    next_checks: tuple[int, ...] = ()  # announced checks (警徽流), in order
    requested_votes: tuple[tuple[int, int], ...] = ()  # (seat, target) of each requested vote (分票)
    # Wolves' talk by night: the proposed victim, and who claims to be the seer.
    prey: int | None = None
    poser: int | None = None


NOTHING_HEARD = Heard()
_NAMES = tuple(field.name for field in fields(Heard))


@lru_cache(maxsize=4096)  # one parse for all listeners
def understand(text: str) -> Heard:
    """The statements of a public speech."""
    return _together(_understand_sentence(sentence) for sentence in _sentences(text))


def understand_wolf(text: str, speaker: int) -> tuple[int | None, int | None]:
    """Wolves' talk by night: (proposed victim, who claims to be the seer)."""
    heard = understand(text)
    return heard.prey, speaker if heard.poser == _SPEAKER else heard.poser


def _together(parts: Iterable[Heard]) -> Heard:
    """Merge statements: of single values the first counts, of reports about one seat the last."""
    whole: dict[str, Any] = {}
    for part in parts:
        if part is NOTHING_HEARD:
            continue
        for name in _NAMES:
            old, new = whole.get(name), getattr(part, name)
            if old is None or old == ():
                whole[name] = new
            elif isinstance(old, frozenset):
                whole[name] = old | new
            elif name in ("reports", "requested_votes"):
                whole[name] = tuple((dict(old) | dict(new)).items())
    if not whole:
        return NOTHING_HEARD
    return Heard(**whole)


# --- sentences of scripted players ----------------------------------------------------------------------------------

_NUMBERS = re.compile("[0-9]{1,2}")
_SLOT = re.compile(r"\{(\w+)\}")
_LEADS = re.compile(f"^(?:{'|'.join(LEADS)})")
_WORDS = frozenset({"role", "side", "verdict"})
"""Slots without a number."""


def _table() -> dict[str, tuple[tuple[str, ...], Role | None, Side | None]]:
    """Sentence with ``#`` for its numbers -> (slots of the numbers, role, side)."""
    table = {}
    for template in TEMPLATES:
        slots = tuple(_SLOT.findall(template))
        numbers = tuple(slot for slot in slots if slot not in _WORDS)
        roles = [role for role in Role if role.side is Side.GOOD] if "role" in slots else [None]
        sides = CHECK_NAMES if _WORDS.intersection(slots) - {"role"} else (None,)
        for role, side in product(roles, sides):
            words = {"role": ROLE_NAMES.get(role), "side": CHECK_NAMES.get(side), "verdict": VERDICTS.get(side)}
            table[template.format(**dict.fromkeys(numbers, "#") | words)] = numbers, role, side
    return table


_TABLE = _table()


def _of_a_template(sentence: str) -> Heard | None:
    sentence = _LEADS.sub("", sentence, count=1)
    found = _TABLE.get(_NUMBERS.sub("#", sentence))
    if found is None:
        return None
    slots, role, side = found
    numbers = dict(zip(slots, map(int, _NUMBERS.findall(sentence)), strict=True))
    stated: dict[str, object] = {} if role is None else {"claimed": role}
    for slot, number in numbers.items():
        match slot:
            case "accused":
                stated[slot] = frozenset({number})
            case "saved" | "poisoned":
                stated |= {"claimed": Role.WITCH, slot: frozenset({number})}
            case "followed" | "prey" | "poser":
                stated[slot] = number
            case "checked":
                stated |= {"claimed": Role.SEER, "reports": ((number, side),)}
            case "first":
                stated["next_checks"] = tuple(numbers.values())
            case "mate":
                stated["requested_votes"] = ((number, numbers["other"]),)
    return Heard(**stated) if stated else NOTHING_HEARD


# --- sentences of models and people ---------------------------------------------------------------------------------

_SENTENCE = re.compile("[^。!?;！？；\n…]+[。!?;！？；\n…]*")
_NOISE = re.compile(
    r"[\s*#_`~|>【】\[\]()（）]+|“[^”]*[,，。！？][^”]*”|「[^」]*[,，。！？][^」]*」|\"[^\"]*[,，。!?][^\"]*\""
)
_SEAT_WORDS = re.compile('(?<=[0-9]号)(?:玩家|位置?(?!的)|牌)(?!是我)|["“”‘’「」『』]')
_VERBS = "出|投|票|验|查验|查杀|金水|银水|踩|归票?|毒|救|站边?|刀|保|信|跟|打|警徽流|怀疑|先|后|再"
_AFTER_VERB = re.compile(rf"((?:{_VERBS})[了给]?)([0-9]{{1,2}})(?![0-9号票个人夜天轮点晚分.:%狼神民张次])")
_LISTED = re.compile("(?<=[0-9]号[、/])([0-9]{1,2})(?=[、/,。!;]|$)")
_BEFORE_VERB = re.compile("(?<![0-9第])([0-9]{1,2})(?=是|查杀|金水|银水|像|发言|狼|踩|悍跳)")
_THAN = re.compile("(?<=[0-9]号)((?:的?[^,号比]{0,4}))比[0-9]{1,2}号")
_QUOTED = re.compile("“[^”]{7,}”|「[^」]{7,}」")
"""Shorter ones stress a word."""
_BETWEEN_SEATS = re.compile("(?<=[0-9]号)(?:[、/&]|和|跟|与|及|还有|以及)(?=[0-9]{1,2}号)")
_FINDS = "法官告诉我|发现|得知|确认|显示|果然"
_JOINED = re.compile(
    "((?:警徽流|验人|查验|结果|金水|查杀|银水|身份|底牌)):|"
    f"((?:验|摸|查)[^,。]{{0,8}}),(?=(?:{_FINDS}|他|她|它|的?结果|:|的?身份|就)*(?:就?是|不是|为)?(?:一?[张个匹])?"
    "(?:狼|查杀|好人|金水))"
)
"""A label with its value, a check with its result."""
_OWN_SEAT = re.compile("(?<![给跟和对说踩投信杀出])我[0-9]{1,2}号(?=就?是(?!狼|好)|预言家|女巫|猎人|守卫|村民)")
"""我9号是预言家: the speaker names its own seat."""
_BADGE_ORDER = re.compile(
    "^(?![^,]*(?:验|摸|昨|投|信))[^,]*警徽(?:就|再)?(?:给|传|飞|移|撕)|"
    "号[^,号]{0,3}(?:金水|查杀|好人|狼人?)(?:(?:就|则|会|我|警徽)*[给传飞移]|撕)"
)
"""警徽流先验3号,3号金水警徽给3号: what the badge will tell, and no check."""
_OF_A_LIST = re.compile(rf"{SEATS}(?:预言家|女巫)?:(?!.*我)")
_CLAUSE_END = re.compile("[,:、—-]+")
_SUPPOSES = re.compile("如果|假如|要是|假设|倘若|万一|就算|即使|哪怕|除非|(?<!判)若(?![干即]|无其事)|的话")
_ASKS = re.compile("(?:吗|么|呢|吧\\?)$|是不是|是否|难道|谁|为什么|凭什么|怎么|哪|有没有|会不会")
_OTHERS = (
    f"{SEATS}|[他她你]们?|有人|大家|别人|对面|对方|狼人们?|狼队友?|真?预言家|真?女巫|警长|玩家们|[前后]置位|"
    "(?:很多|大部分|大?多数|不少|有些?|有的|一些|部分|某些|几个|其[他它]|前面的|场上有)(?:人|玩家)"
)
_TELL = (
    "自?称|声称|宣称|表示|说|讲|喊|报|起?跳|认|觉得|怀疑|质疑|踩|点|打|投|站|给|发(?!言)|查杀(?=了?[0-9我])|验|查(?!杀)|摸|"
    "救|毒|守|保|归|出|想|要|信|相信|跟|支持|以为|猜|把|建议|提[到议出]|指[出认责控]|强调|暗示|坚[持称定]|主张|号召|推(?!理)|冲|"
    "咬?定|断[言定]|攻击(?!性)|判断|分析(?!得|的|很)"
)
_OTHERS_SAY = re.compile(
    rf"(?:但是?|而|因为|所以|昨[天晚]|今天|警上|[前后]面|刚才)*(?:{_OTHERS})"
    "(?:也|就|还|又|都|在|一直|直接|昨[天晚]|今天|刚[才刚]|警[上下]|突然|先|发言|自己|不|明确|反复|普遍|的人|中|会|肯定)*"
    rf"(?:{_TELL})(?!到|轮|我走)"
)
"""Another seat says or does something, so the rest of the clause is not the speaker's own statement."""
_ABOUT_ANOTHER = re.compile(
    "^(?:但是?|而|因为|所以|既然|虽然|昨[天晚]|今天|上一?轮)*"
    "(?:我[^,号]{0,2}(?:觉得|认为|感觉|相信|注意到|看[到见]?|听[到见]?|发现|记得|明白|理解|认同|不同意))?"
    rf"({SEATS})(?!的)(?:(?!悍跳)[^,号我是像]){{0,8}}(?:说|讲|喊|报|认|觉得|怀疑|质疑|踩|点|打|投|站|给|发(?!言)|查杀|验|摸|救|毒|守|"
    rf"保|归|出(?!局)|推|冲|想|信|支持|主张|建议|指|强调|提|暗示|咬)(?!\1)[^,号我]{{0,6}}(?!\1){SEATS}|"
    rf"^(?:从|站?在|按照?|照)(?:{SEATS}|[他她你])的?(?:角度|视角|逻辑|思路|说法|立场|眼)|"
    rf"^{SEATS}的(?:逻辑|意思|结论|观点|看法|说法|想法)就?是[^,]{{0,4}}[0-9]"
)
"""Tells what another seat does or thinks: 我觉得5号踩3号没道理."""
_ME = re.compile("(?<![给跟对说踩投信杀出])(?:我|本人|俺)(?!们)|^(?:那|所以|因此|说明|必|只能)")
_DENIES = re.compile("不|没|别|未|非|勿|甭|否认|取消|撤回|放过|拒绝|假|冒充|像|以为|当时")
_ROLE = "|".join(ROLES)
_NOT_MY_ROLE = (
    "[验查救毒守]的|的|面|团|坑|位|出局|报|说|给|这|阵营|"
    "[^,号]{0,4}(?:[验查救毒守发认杀信]|带走|视角|一?边|阵营)[^,号]{0,3}的(?:好人|金水|银水|人|牌|查杀)?$|"
    "(?:首验|昨晚)?(?:金水|银水)$|[0-9]{1,2}号(?:昨[晚夜]|首夜)?[验救发给]?的(?:金水|银水|查杀|好人|人|$)"
)
"""After a role: 我是预言家验的好人."""
_CLAIM = re.compile(
    r"(?:^|我|本人|俺)(?:也|就|真的|确实|其实|今天|这[局把张]牌?|直接|只能?|在这里?|现在|才|[摊明]牌|手里|得|必须|身份|底牌|"
    rf"牌面?|拿|摸到|的|起?跳|拍|认(?!为|真?(?:{_ROLE})(?:[0-9]|报|说|[毒救]))|是|为|一?[名个张]|普通|作为|身为|可|当然)*+"
    rf"(?:(?<=[跳拍认是为我牌份张名个人俺通])|(?<=是真的))(?:全场)?(?:唯一的?)?真?({_ROLE})(?:牌|身份)?(?!{_NOT_MY_ROLE})|"
    rf"真?({_ROLE})就?(?:是(?:本人|我(?=$|自己|本人|没错|[啊呀]|[0-9]{{1,2}}号$))|在此|在这里?$)"
)
_VERDICT = (
    f"(?:{_FINDS}|就|是|为|一?[张只个]|铁|我?的|他|她|身份|底牌|结果|:)*(?:狼人|狼王|查杀|坏人|狼|好人|金水|好的)"
)
_CHECK = re.compile(
    rf"(?<![测经体])(?:查验|验|摸|查)(?:的是|出来?|了|过|的|到|结果|是|对象|一下)*(?!杀)({SEATS})(?:他|她|结果)?(不是)?{_VERDICT}|"
    rf"({SEATS})(?:就?是)?我?(?:昨[晚夜]|首夜)?(?:查验|验|摸)(?:过|了|出来?|的)*(不是)?{_VERDICT}|"
    rf"(?<![让叫要请])我给({SEATS})发(?:了|一?[个张])*(?:查杀|金水)|"
    rf"(?<![被吃出掉投票归把跟])(?:查杀|金水)(?:的?是|给了?|到|发给)?({SEATS})|"
    rf"({SEATS})[就也]?[是为]?(?:我(?:昨[晚夜])?(?:发|给|验出)?的?|一?[个张])*(?:查杀|金水)"
    "(?!了?我|了$|错|的(?!狼人?$|$)|了?[0-9]{1,2}号(?!我?就?[是为]?(?:查杀|金水|狼|好)))"
)
_OF_ANOTHER = re.compile(
    rf"(?<![0-9])(?<!我)(?<!我是)(?<!我预言家)(?<!我是预言家)(?<!我[和跟与])(?:{SEATS}|[他她你]们?)[^,我号金查狼好]{{0,6}}$|被$|我是$|"
    "(?:^|[^我是跳拍牌份张名人里一真本号为,]真?|[^作身]为真?)预言家[^,我号金查狼好]{0,6}$"
)
"""Before a check: another seat's, as in 根据5号的查验,3号是狼人, or of the speaker, as in 我是7号金水."""
_BEGINS_WITH_A_CHECK = re.compile("(?:昨?[晚夜]|首夜?|第[一二三1-3][晚夜天]?)?(?:查验|验|摸|查杀)")
_OF_A_SEER = re.compile(
    f"^(?![^,]*我)[^,]*(?:{SEATS}(?:真|是|这边|那边|起?跳|对跳|悍跳|真?预言?家?)*(?<=[跳家预])|预言家(?:就?是|跳)?{SEATS})$"
)
"""The clause before another seat's check: 8号对跳,昨晚验1号."""
_OF_ONE_WHO_CLAIMS = re.compile("(?!.*我).*[0-9]{1,2}号.*(?:预言家|起跳|对跳)")
"""The sentence before another seat's check: 7号警上跳了预言家。昨晚查验3号是狼人."""
_OF_THE_SPEAKER = re.compile(
    "我(?!们|是|也?(?:听|看|注意|发现|记得|知道|同意|认可|觉得|认为|感觉|理解|明白|支持))|死|刀|出局|倒牌"
)
"""A clause before the speaker's own check: about what the speaker does, or about a dead seat, which tells nothing."""
_RETELLS = re.compile(f"(?!.*我){_BEGINS_WITH_A_CHECK.pattern}")
_NOT_CHECKED = re.compile(
    rf"(?:预言家|他|她|你|(?<!我给)(?<!我给1){SEATS})(?:给的?|发的?|报的?|的)(?:金水|查杀)|被[^我]*查杀|[吃接]到?|给我|查杀我|认|所谓|[今明][晚夜]|"
    "接下来|之后|想|要(?!么)|准备|打算|应该|建议|可以|请|不如|该|没|别"
)
_PLAN = re.compile(
    "(?<![^我]的)警徽流(?!更|很|有问题|合理|留得|奇怪)|(?:今[晚夜]|接下来)我?(?:会|要|想|准备|打算|去|先|再)*(?:查验|验|查|摸)"
)
_LIKELY = "(?:我(?:觉得|认为|感觉)|应该|就|也|都|才|更|很|比较|大概率|肯定|一定|多半|确实|的?发言|听着|偏|一直|绝对)"
_NOT_AS_SEER = (
    "对跳|说|投|发言|[0-9]|的(?!边)|[都是像]*一?[张个]?好人|不|没|一[样起]|同|当|拿|上警|会|能|做好|认?好|解释|"
    "(?:这?[张个])?(?:女巫|猎人|守卫|银水|金水|村民|平民|民|好人)|[边走投]*的(?:人|都|[0-9])|"
    "是真?的?预言家的|是(?!真?的?预言家|那个)"
)
"""After a seat that the speaker follows: 跟6号一起投8号, 认6号猎人."""
_NO_VOTE = (
    "就(?:是[帮送害]|输)|没意义|等于|[当做]警长|不如|的(?:人|都|玩家|[0-9]|收益|风险|代价|好处|意义)|"
    "不太?(?:合适|好|划算|值|妥|明智|行)|是(?:错|不对)|太(?:亏|急|早)|风险"
)
"""After a vote's target: 出3号的都是狼."""
_NO_WOLF = (
    "面(?:[^,]?[小低]|不)|[^,]{0,4}(?:可能性?|概率|几率)(?:很|比?较|极)?(?:不[大高]|[小低])|人?(?:还是|是好)|刀|"
    "(?:人|队|王)?(?:的(?:目标|刀|对手|敌|猎物|眼|威胁|受害|靶|牺牲|替|首要|攻击|袭击|抗推|对象)|最[想怕]|昨[晚夜])|"
    "[人队](?:想|抗推|要|故意|针对|害怕|怕)"
)
"""After 狼: 3号是狼人的目标."""
_STATES = {
    "saved": rf"(?:救|解药给?)(?:的是|了|的|下)*{SEATS}|(?<!的)银水(?:是|给了?)?{SEATS}|"
    rf"{SEATS}[就也]?[是为]?(?:我的?|一?[张个])*银水|{SEATS}(?:就?是)?我?(?:首夜|昨[晚夜])?救[的了]",
    "poisoned": rf"毒(?:药?给了|的是|了|的|死|掉|杀)+{SEATS}|{SEATS}(?:就?是)?我?(?:昨[晚夜])?毒[的了死]|"
    rf"昨[晚夜]我?毒{SEATS}",
    "followed": rf"(?:更?信|认下?|站边|站队|站|跟着?|支持|力挺|听){SEATS}(?!{_NOT_AS_SEER})|"
    rf"{SEATS}{_LIKELY}*[是像为]?(?:真的?|个|那个|一?张)*预言家(?!的|不|很?假|是假|面[不小低]|还是|或|我不|最|眼|阵营|[0-9])"
    "(?!(?<=预言家)(?:昨[晚夜]|首)?(?:查|验|摸|给|发(?!言)|想))",
    "accused": r"(?:怀疑|质疑|踩|点出?|盯着?|打|(?<![验查退得看跳杀走给突付指提说派])出|投|票|归票?|冲|抗推|放逐|推)"
    rf"(?:掉|死|一下|的是|是|给|到|先)*{SEATS}(?!{_NO_VOTE})|(?:狼坑|怀疑对象|嫌疑人?)(?:里有|是|在|:)*{SEATS}|"
    rf"把{SEATS}[先给]*(?:投|票|出|推|放逐)|"
    rf"{SEATS}(?:今天|必须|应该|先|得|要|就|可以)+(?:(?:出局?|走)(?![不得])|(?<!今天)(?<!先)死)|"
    rf"{SEATS}(?:{_LIKELY}|的?(?:视角|行为|票型|投票|逻辑|状态|站边|表现)|这里|[这那还太最真必像是铁在带有]|有[点些]|一?[张匹只个头]|"
    rf"非常|明显|今天|存在)*+(?:双?狼(?!{_NO_WOLF})|可疑|带节奏|找人抗推|"
    "问题(?!不大)|不对|奇怪|说不通|倒钩|悍跳|划水|不像好人|不是好人|骗|假|漏洞|不好(?!说)|太差|聊爆|爆了|做作)(?!人?杀)",
    "prey": rf"(?:袭击|刀|杀|砍|干掉|目标|除掉)(?:掉|的?是|了|死|一?手|定)*{SEATS}|{SEATS}(?:吃刀|先死|今晚[死走])",
    "poser": rf"(?:{SEATS}|我)(?:来|去|就|要|今天|明天|警上|直接|可以)*(?:悍跳|跳预言家|起跳|去跳|跳个?预)",
}
_DOUBTED = "[不没](?:太|怎么|有|再)?(?:认为|觉得|感觉|同意|认同|相?信)"
_UNPROVEN = (
    "(?:[没无缺](?:有|乏)?(?:什么|任何|足够的?|确凿的?|明确的?|直接的?)?(?:证据|理由|依据|迹象)|"
    "(?:不能|无法|难以|不敢)(?:确定|断定|证明|判断|肯定|说)|不确定|不知道|难说)(?![^,]*但)"
)
_NEVER = {
    **dict.fromkeys(
        ("saved", "poisoned"),
        "想|要|会|准备|打算|应该|建议|可以|没|不|别|能|谁|请|被|我是[0-9](?!号女巫)|(?<![我是跳拍牌份张真])(?<![作身]为)女巫|"
        "是女巫(?![,是])(?<!我是女巫)(?<!就是女巫)|觉得|认为|相信|感觉|猜|估计|怀疑|希望|说|听|记得|同意|我[认信]",
    ),
    "followed": "我是[0-9]|之前|先前|昨天|原[本来]|本来|一开始|刚开始|最初|你们|不|没|别|假|悍跳|对跳|未必|难|怀疑|"
    "自称|质疑|骗|警徽|警长",
    "accused": rf"{_DOUBTED}|反对|宁可|与其|警徽(?:票|投|给)|"
    "之前|先前|原来(?:我|怀疑|觉得|认为)|昨天|上一?轮|前天|投[了过的]|"
    "[不没别勿甭][^,号]{0,4}(?:怀疑|踩|出|投|票|归|打|推|冲|放逐)|放过|"
    rf"[不没别勿甭](?!如|妨|管|犹豫)[^,号]{{0,4}}[把将]{SEATS}[先给]*(?:投|票|出|推|放逐)|{_UNPROVEN}|"
    "没有?问题|不像狼|不是狼|不可疑|没有?狼|(?:不如|没有)[0-9]",
    **dict.fromkeys(("prey", "poser"), "不|没|别"),
}
"""Words that cancel a statement when they stand before its end in the clause."""
_REQUESTED_VOTE = re.compile("(?:请|麻烦)([0-9]{1,2})号(?:你|去|今天)*投给?([0-9]{1,2})号")
_SPEAKER = 0
"""Stands for the seat of a poser that calls itself 我."""


def _sentences(text: str) -> list[str]:
    """Those of the speaker, up to a speech of another seat in the record's form."""
    sentences = (sentence.strip() for sentence in _SENTENCE.findall(_QUOTED.sub("“”", text)))
    own = takewhile(lambda sentence: not RETOLD.match(without_emoji(simplified(sentence))), sentences)
    found: list[str] = []
    for sentence in map(without_emoji, filter(None, own)):
        # Most sentences are scripted players': a lookup costs less than the patterns.
        if (
            _of_a_template(sentence)
            or not found
            or not _RETELLS.match(normal(sentence))
            or not _OF_ONE_WHO_CLAIMS.match(normal(found[-1]))
        ):
            found.append(sentence)
    return found


@lru_cache(maxsize=16384)
def _understand_sentence(sentence: str) -> Heard:
    known = _of_a_template(sentence)
    if known is not None:
        return known
    words = _OWN_SEAT.sub("我", _SEAT_WORDS.sub("", normal(_NOISE.sub("", sentence))))
    words = _JOINED.sub(r"\1\2", words)
    words = _BEFORE_VERB.sub(r"\1号", _AFTER_VERB.sub(r"\1\2号", words)).replace("号号", "号")
    words = _THAN.sub(r"\1", words)
    words = _LISTED.sub(r"\1号", _LISTED.sub(r"\1号", words))
    clauses = [clause for clause in _CLAUSE_END.split(_BETWEEN_SEATS.sub("", words).rstrip("。!?;…")) if clause]
    parts, mine, topic = [], True, ""
    for number, clause in enumerate(clauses):
        if _SUPPOSES.search(clause):
            break
        other = _OTHERS_SAY.match(clause) or ("我" not in clause and _ABOUT_ANOTHER.search(clause))
        mine = not other and (mine or _ME.search(clause) is not None)
        if "警徽" in words and not _PLAN.search(clause) and _BADGE_ORDER.search(clause):
            continue
        last_asks = number == len(clauses) - 1 and words.endswith("?")
        if mine and not last_asks and not _ASKS.search(clause) and not _ABOUT_ANOTHER.search(clause):
            if "号" not in clause and topic and re.match("倒?更?就?像|狼面|心态|视角|逻辑|状态|是", clause):
                clause = topic + clause
            own = any(part.claimed is Role.SEER or part.reports or part.next_checks for part in parts)
            own = own or any(map(_OF_THE_SPEAKER.search, clauses[:number]))
            told = (parts and parts[-1].followed is not None) or (number and _OF_A_SEER.search(clauses[number - 1]))
            told = told or not (own or topic in ("", *re.findall("[0-9]{1,2}号", clause)))
            if told and _BEGINS_WITH_A_CHECK.match(clause) and "我" not in clause:
                continue  # 5号是预言家,查验3号是狼人
            following = clauses[number + 1] if number + 1 < len(clauses) else ""
            parts.append(_understand_clause(clause, "" if _BADGE_ORDER.search(following) else following))
        topic = next(reversed(re.findall("[0-9]{1,2}号", clause)), topic)
    if _OF_A_LIST.match(words):  # 1号:跳预言家,查杀5号
        parts = [
            replace(part, claimed=None, reports=(), next_checks=(), saved=frozenset(), poisoned=frozenset())
            for part in parts
        ]
    heard = _together(parts)
    return NOTHING_HEARD if heard == NOTHING_HEARD else heard


def _understand_clause(words: str, following: str) -> Heard:
    """following: the next clause, which may hold the result of a check or the second planned check."""
    claim = _CLAIM.search(words)
    claimed = None
    if claim and not _DENIES.search(words[: claim.start(claim.lastindex)]):
        claimed = ROLES[claim[claim.lastindex]]
    if plan := _PLAN.search(words):
        more = following if re.match("再|后|然后|第?二|验|查(?!杀)|(?:[0-9]{1,2}号)+$", following) else ""
        planned = words[plan.end() - 1 :] + more
        if order := _BADGE_ORDER.search(planned):
            planned = planned[: order.start() + 1]
        return Heard(claimed, next_checks=() if _DENIES.search(words) else seats_in(planned))
    if "号" not in words and "我" not in words:
        return Heard(claimed)
    # The next clause may be the result: 验了3号,是狼人; but not of another seat: 验了3号和5号,5号是狼人.
    has_result = "验" in words and seats_in(following) in ((), seats_in(words), seats_in(words[words.rfind("验") :]))
    checks = [*_CHECK.finditer(words)] or ([*_CHECK.finditer(words + following)] if has_result else [])
    checks = [check for check in checks if not _OF_ANOTHER.search(words[: check.start()])]
    if checks and not _NOT_CHECKED.search(words[: checks[0].end()]):
        reports = {
            seat: Side.WOLF if bool(re.search("狼|查杀|坏人", check[0])) is ("不是" not in check[0]) else Side.GOOD
            for check in checks
            for seat in seats_in(check[0])
        }
        return Heard(claimed or (Role.SEER if "验" in words or "摸" in words else None), tuple(reports.items()))
    requests = _REQUESTED_VOTE.findall("" if "昨" in words else words)
    votes = {int(seat): int(target) for seat, target in requests}
    words = _REQUESTED_VOTE.sub("", words)
    stated = {
        name: seats
        for name, pattern in _STATES.items()
        if (seats := [seat for said in re.finditer(pattern, words) if not re.search(_NEVER[name], words[: said.end()])
                      for seat in (seats_in(said[0]) or (_SPEAKER,))])
    }  # fmt: skip
    if "saved" in stated or "poisoned" in stated:
        stated = {name: stated[name] for name in ("saved", "poisoned") if name in stated}
        claimed = claimed or (Role.WITCH if "我" in words else None)
    if "followed" in stated and len(stated["followed"]) == 1:
        stated = {name: stated[name] for name in ("followed", "poser") if name in stated}
    found = {
        name: frozenset(seats) if isinstance(getattr(NOTHING_HEARD, name), frozenset) else seats[0]
        for name, seats in stated.items()
    }
    return Heard(claimed, requested_votes=tuple(votes.items()), **found)
