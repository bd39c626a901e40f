"""The words of the game in one spelling: numerals, seats, roles, and the answers to each kind of question.

All patterns match ``normal`` text: NFKC, lower case, simplified characters, seats as ``3号``. No pattern nests
quantifiers that match one text in two ways, so that matching takes time linear in the text.
"""

import re
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass, replace

from runners.werewolf.game import Decision, Option, Role, Side
from runners.werewolf.game.roles import CARDS

_SIMPLIFIED = str.maketrans(
    "並亂來倆個們側備傳價儘優兒內兩別則剛劃動勝勢勸卽參員唄問喫單嗎噴圍團堅報場壓壞夠夥學實寧寫將對屬帶幫幹張"
    "強後從復態慮憑應懷戰戲掛換搶擇擊擋據擺敵數斃斷於時暫曆會査條棄極槍標樣機檔檢權歷歸殺毀汙決沒沖況測準為無"
    "煩營爛爲犧狀猶獨獵現畢當癡發盡盤眞確種稱競箇節範簡糾約純細終結絕給絶經綜綫線總繼續纔罵義聲職聽脅膽臺與舉"
    "舊萬藥處虛號虧衛衝裏裝裡複襲見視親覺觀計記設許訴註証詞試話該詳認誣誤說説誰調請論謂謊講證議護變讓豈負責費"
    "質贊贏贓跡蹟較輪輯輸轉辦迴這連進過適選遺還邊邏釋針鈎鉤銀銷鋒錯錶鐵鑿長閉開間閤闆闇隊隨險隱雖雙離難響項順"
    "須預領頭題願顯風飛馬駡騎騙驅驗體髮鬥麼點",
    "并乱来俩个们侧备传价尽优儿内两别则刚划动胜势劝即参员呗问吃单吗喷围团坚报场压坏够伙学实宁写将对属带帮干张"
    "强后从复态虑凭应怀战戏挂换抢择击挡据摆敌数毙断于时暂历会查条弃极枪标样机档检权历归杀毁污决没冲况测准为无"
    "烦营烂为牺状犹独猎现毕当痴发尽盘真确种称竞个节范简纠约纯细终结绝给绝经综线线总继续才骂义声职听胁胆台与举"
    "旧万药处虚号亏卫冲里装里复袭见视亲觉观计记设许诉注证词试话该详认诬误说说谁调请论谓谎讲证议护变让岂负责费"
    "质赞赢赃迹迹较轮辑输转办回这连进过适选遗还边逻释针钩钩银销锋错表铁凿长闭开间合板暗队随险隐虽双离难响项顺"
    "须预领头题愿显风飞马骂骑骗驱验体发斗么点",
)
"""Of the characters that the patterns use, by OpenCC's tables."""
_NUMERALS = {numeral: str(number) for number, numeral in enumerate("一二三四五六七八九十", start=1)}
_NUMERALS |= {"两": "2", "十一": "11", "十二": "12"}
_NUMERAL = r"(?<![一二三四五六七八九十])(?:十[一二]?|[一二三四五六七八九])"
_NUMERAL_SEAT = re.compile(rf"{_NUMERAL}(?=号)")
_NUMERAL_ALONE = re.compile(rf"(?:(?<=[投刀守验毒出归推查杀带救枪])|(?<=归票)){_NUMERAL}$|^{_NUMERAL}$")
_DAY = re.compile("(首|(?<=第)(?:[0-9]{1,2}|十[一二]?|[一二三四五六七八九]))个?[轮天夜晚]")
_GAP_BEFORE_SUFFIX = re.compile(r"(?<=[0-9])[^\S\n]+(?=号)")
_APOSTROPHE = re.compile(r"(?<=[a-z])[’'](?=[a-z])")
_TELLING = frozenset("❌✖✗✘❎🚫⛔🙅❓❔🤔")
"""Emoji that negate or doubt; others have no meaning."""
_EMOJI_PARTS = re.compile("[\ufe0f\u20e3\u200d]")
"""What joins emoji, and what makes an emoji of a digit."""

ROLES: Mapping[str, Role] = {
    word: role for role, card in CARDS.items() if role.side is Side.GOOD for word in (card.name, *card.called)
}
"""Names of good roles in speeches."""
SEATS = "(?:[0-9]{1,2}号)+"
"""One seat or several in a row."""


RETOLD = re.compile(
    r"([0-9]{1,2})号(?:(?:警上|警长pk|pk|归票)?发言|遗言|对狼队友说)(?:[(（][^()（）\n]*[)）])?[:：]", re.IGNORECASE
)
"""The head of a seat's speech, as the record of the game writes it: what follows in the line is said by that seat."""


def simplified(text: str) -> str:
    """``text`` in simplified characters, as far as patterns use them; of the same length."""
    return text.translate(_SIMPLIFIED)


def normal(text: str) -> str:
    """``text`` in one spelling, with its line breaks; English words lose their apostrophes (``im``, ``dont``).

    白狼王 becomes 狼王: the same statements exist about both.
    """
    text = simplified(unicodedata.normalize("NFKC", text).lower()).replace("白狼王", "狼王")
    text = _GAP_BEFORE_SUFFIX.sub("", _APOSTROPHE.sub("", text))
    return _NUMERAL_SEAT.sub(lambda numeral: _NUMERALS[numeral[0]], text)


def without_emoji(text: str, instead: str = "") -> str:
    """``text`` with ``instead`` for each emoji, sign such as ^ and skin color, except ``_TELLING``."""
    return "".join(
        instead if unicodedata.category(sign) in ("So", "Sk") and sign not in _TELLING else sign
        for sign in _EMOJI_PARTS.sub("", text)
    )


def in_digits(clause: str) -> str:
    """``clause`` with the numeral of a seat without 号 in digits."""
    return _NUMERAL_ALONE.sub(lambda numeral: _NUMERALS[numeral[0]], clause)


def of_another_day(sentence: str, day: int) -> re.Match[str] | None:
    """The first words of a normal text that name another day or night than ``day``: 首夜, 第2天."""
    named = ((found, _NUMERALS.get(found[1], found[1]).replace("首", "1")) for found in _DAY.finditer(sentence))
    return next((found for found, number in named if number != str(day)), None)


def seats_in(text: str) -> tuple[int, ...]:
    """The seats in a normal text, in its order."""
    return tuple(map(int, re.findall("([0-9]{1,2})号", text)))


# --- answers to questions -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Words:
    """Patterns of the answers to one kind of question."""

    verbs: str = "(?!)"  # before the seat: 投3号
    after: str = "(?!)"  # after the seat: 把3号投出去
    nobody: str = "(?!)"  # the choice of nobody
    labels: str = "(?!)"  # label of a line with the answer: 投票：3号
    aim: str = ""  # optional, after the seat: 当警长


_TICKET = "(?:[把将]?(?:我的|我这个?|这|自己的)?一?票(?:都)?(?:投给?|给|归给?|挂在?|是|为)?)"
_VOTE = Words(
    verbs=(
        rf"{_TICKET}|投票(?:放逐|投?给|出)?|投(?:给|出|死|掉|向)?|票(?:出|死)?|出|归票?给?|放逐|驱逐|淘汰|推(?:出|掉)?|冲票?|"
        "挂票?给?|抗推|公投|送走|(?:my )?vote (?:to exile |for |out |against |is |goes to )?|voting (?:for )?|"
        "(?:exile|choose|pick) "
    ),
    after="(?:投票?|票|放逐|推|归)(?:出去|出局|出|掉|走|死|一票)?|出局",
    nobody=(
        "弃权?|投?弃权?票|不投票?|不(?:投|放逐|投票给)任何人|谁[都也]不投|放弃(?:投票|这一?票)?|"
        "abstain|skip|pass|(?:dont|not) vote"
    ),
    labels="投票|投给?|放逐|归票|票|vote|voting",
)
_SHERIFF = replace(
    _VOTE,
    verbs=f"[把将]?(?:警长|警徽)票?(?:投给|投|给|选)|支持|推选|选举|support |elect |{_VOTE.verbs}",
    labels=f"{_VOTE.labels}|警长|sheriff",
    aim="(?:[来上]?(?:当|做|为|成为|任|拿)?(?:警长|警徽))?(?: (?:as|for) sheriff)?",
)
_KILL = Words(
    verbs=(
        "(?:[我咱]们)?(?:今[晚夜])?(?:一起)?(?:袭击|击杀|刀(?:杀|死|掉)?|杀(?:死|掉)?|攻击|除掉|干掉|砍|落刀|目标(?:是|为)?)|"
        "(?:kill|attack|target) "
    ),
    after="(?:袭击|击杀|刀|杀|干|除)[掉死了]?",
    nobody="空刀|不刀人?|不杀人?|不袭击(?:任何人)?|谁[都也]不刀|放弃(?:袭击|刀人)|skip|pass",
    labels="袭击|击杀|刀人?|杀|kill|attack",
)
_SHOT = Words(
    "开枪(?:带走|打死|打|射杀|杀)?|带走?|打(?:死|掉)?|射杀|枪杀|枪毙|一枪带走|(?:shoot|take) ",
    "开枪|开一枪|带走|打死|打掉|射杀|枪杀|一起?带走",
    "不开枪?|放弃(?:开枪)?|不带人?|不带走?任何人|谁[都也]不带|空枪|压枪|(?:do not|not|dont) shoot|skip|pass",
    "开枪|带走|枪|shoot|shot",
    "(?: (?:down|with me))?",
)
_NOT = "(?:暂时?|先)?(?:不(?:要|会|想|选择|需要|打算|准备)?|放弃)"
WORDS: Mapping[Decision, Words] = {
    Decision.GUARD: Words(
        "守护|守卫|守[住着]?|保护|护住?|(?:guard|protect) ",
        "守护|守卫|保护|守住?",
        "空守|不守护?(?:人|任何人|别人)?|谁[都也]不守|放弃守护|skip|pass",
        "守护|守卫|守|保护|guard|protect",
    ),
    Decision.WOLF_KILL: _KILL,
    Decision.WOLF_TALK: replace(
        _KILL,
        verbs=f"提议|(?:提议|建议)?(?:今[晚夜])?(?:大家)?(?:{_KILL.verbs})",
        nobody="不提议",
        labels=f"{_KILL.labels}|提议",
    ),
    Decision.SEER_CHECK: Words(
        "查验(?:一下)?|查(?:一下|看)?|验(?:一?下|证|人)?|检查|摸|(?:check|inspect|verify) ",
        "(?:查验|验|查)(?:一下|一验)?",
        "不查验?(?:任何人)?|不验人?|谁[都也]不验|放弃查验|skip|pass",
        "查验|验人|验|查|check|inspect",
        "(?:的?(?:身份|底牌|牌))?",
    ),
    Decision.WITCH: Words(
        nobody=(
            "(?:都|什么药都|两瓶药都|今晚)?不(?:使用|用|开)(?:任何|什么)?(?:药|药水|技能)?|不救人?[也和、,]?不毒人?|不救人?|"
            "不(?:使用|用)?(?:解药)?[也和、]?不(?:使用|用)毒药|不(?:使用|用)[解毒]药|什么都不[做用]|压药|留药|skip|pass"
        ),
        labels="用药|药|witch|potion",  # not 解药 or 毒药: 解药：不用 leaves the poison open
    ),
    Decision.SIGN_UP: Words(
        nobody=(
            "(?:暂时?不|不打算|不准备|不选择|不需要|不|放弃|拒绝|不要|不会|不去|不想)(?:参与|参加)?(?:上警|竞选|参选|参加|参与|报名)(?:警长)?(?:的?竞选)?|不上|"
            "[留待站]?在?警下|否|不是|不了|no|(?:not |wont |dont )(?:to )?run(?: for sheriff)?"
        ),
        labels="上警|竞选|run|sign_?up",
    ),
    Decision.EXPLOSION: Words(nobody=f"{_NOT}自爆|不爆"),
    Decision.WITHDRAWAL: Words(nobody=f"{_NOT}退水|不退"),
    Decision.SHERIFF_VOTE: _SHERIFF,
    Decision.SHERIFF_PK_VOTE: _SHERIFF,
    Decision.SHOT: _SHOT,
    Decision.TAKE: replace(_SHOT, verbs=f"自爆带走|{_SHOT.verbs}"),
    Decision.DUEL: Words(
        "(?:翻牌,?)?(?:(?:发动|使用)(?:技能)?)?(?:决斗(?:目标|对象)?[是为:]?|挑战|[与和跟同找](?=.{1,9}决斗))|"
        "(?:duel|challenge)(?: with)? ",
        "(?:发起|发动|进行|使用)?(?:决斗|挑战)",
        "(?:暂时?|先|放弃)?(?:不|放弃)(?:发起|发动|进行|使用)?(?:决斗|翻牌)(?:任何人)?|不(?:发动|使用)(?:技能)?|谁[都也]不决斗|"
        "skip|pass|(?:do not|not|dont) duel",
        "决斗|翻牌|挑战|duel",
        "(?:(?:进行|发起)?决斗)?",
    ),
    Decision.BADGE: Words(
        "(?:[把将]?(?:我的)?警徽)?(?:移?交给?|转交给?|传给?|留给|给到?|飞给?|让给|送给|转移给)(?:警徽)?给?|"
        "(?:移交|传|给)警徽给|(?:pass|give)(?: over)? (?:(?:the )?badge |it )?to ",
        "警徽|当警长|做警长|接警徽|拿警徽",
        "(?:[把将]?警徽)?(?:撕毁|撕|销毁|毁)[掉了]?(?:警徽)?|不移?交(?:警徽)?|不给任何人|"
        "(?:destroy|tear)(?: up)?(?: the)?(?: badge)?",
        "警徽|移交|badge|pass",
    ),
    Decision.SPEAKING_ORDER: Words(labels="顺序|发言顺序|order"),
    Decision.CLOSING_SPEECH: replace(_VOTE, nobody="不归票?"),
    Decision.EXILE_VOTE: _VOTE,
    Decision.PK_VOTE: _VOTE,
}
"""Answers by decision; a decision without an entry accepts only the words that its question offers."""

NUMBER = r"-?[0-9]+(?:\.[0-9]+)?"
SEAT = rf"(?:第|玩家|座位|选手|player ?|seat ?|no\. ?|#)?{NUMBER}号?[位座]?(?:玩家|选手|同学)?"
"""A chosen seat, with its optional title."""
_TURN = "(?:一?侧|一?边|手边?|方向?)?(?:的玩家)?(?:开始|起|先|依次)?(?:先?发言)?(?:顺序)?"
OPTIONS: Mapping[Option, str] = {
    Option.SAVE: (
        f"用药救人|(?:(?:使用|用|开|选择)?解药(?:去?救[活下起回]?)?|救[活下起回]?|救人)给?(?:他|她|{SEAT})?|"
        "[对给][他她](?:使用|用|开)?解药|save(?: him| her)?|use (?:the |my )?antidote"
    ),
    Option.RUN: (
        "(?:参与|参加|报名|去)?(?:上警|竞选|参选)(?:参与|参加)?(?:竞选)?(?:警长)?(?:竞选)?|(?:参与|参加|报名)警长(?:的?竞选)?|"
        "报名|上|是的?|yes|run(?: for sheriff)?"
    ),
    Option.WITHDRAW: "(?:宣布|申请)?(?:退水|退选|退警|退出(?:警长)?(?:的?竞选))|withdraw",
    Option.EXPLODE: "(?:宣布|申请|原地|直接|自己)?自[爆曝](?:走人|退场|出局|离场)?|(?:self-?)?explode|self-?destruct",
    Option.SHERIFF_LEFT: f"从?警?左{_TURN}|(?:sheriff )?left",
    Option.SHERIFF_RIGHT: f"从?警?右{_TURN}|(?:sheriff )?right",
    Option.DEAD_LEFT: f"从?死?左{_TURN}|(?:dead )?left",
    Option.DEAD_RIGHT: f"从?死?右{_TURN}|(?:dead )?right",
}
POISON = (
    f"(?:(?:使用|用|开)?毒药?|下毒给?)去?(?:毒杀|毒死|毒掉|毒|杀|死|掉|给)?[,:]?(?:目标|对象)?[是为:]?{SEAT}|"
    f"[对给向]{SEAT}(?:使用|用|下|开)了?毒药?|[把将]{SEAT}毒[死杀掉了]?|"
    f"(?:use |using )?(?:the |my )?poison (?:potion )?(?:on )?{SEAT}"
)
NO_POISON = "不(?:使用|用|下|开)?毒人?|毒药?留着|留着?毒药?"
LEAD_IN = (
    "(?:我?的?(?:最[终后])?的?(?:投票|选择|决定|答案|结论|目标|人选|一?票)(?:对象|目标)?(?:就?是|为)|"
    "但是?|不过|我(?:自己|个人|这边)?(?![们的])|本人|俺|选择|选定?|已?决定|打算|准备|就是?|还是|要(?!不|么)|会(?!不)|将|愿意?|"
    "必须|只能|只好|一定|坚[决定持]地?|果断地?|直接|依然|依旧|仍然?|继续|再|也|同样|先|优先|首选|正式|宣布|"
    "后?(?:[改转](?=[投归毒刀守验给出救])|[改更]正?[为成])|同时|另外|并且?(?!非|不|没)|"
    "今[天晚夜日]|这一?[次轮夜天晚票]|[本此当][轮次夜晚日]|首夜|第[0-9一二三四五六七八九十]{1,2}[轮天夜晚]|"
    "现在|目前|所以|因[此而]|故而?|于是|那么?|综上(?:所述)?|总之|综合(?:来看|考虑|分析)?|既然如此|最终|最后|然后|"
    "好[的吧]?(?!人)|嗯|行|收到|明白了?|去|来|请?求?(?=上警)|全票|"
    r"(?:so|therefore|ok|okay|tonight|today|please|lets|then|ill|im|i|we|will|am going to|choose to|"
    r"(?:have )?decided? to|to)\b,? ?|"
    r"(?:my|the) (?:final )?(?:vote|choice|decision|answer|target)(?: is| goes)?(?: to| for)? )*+"
)
"""Words before a choice in its clause; none that hedge (想, 可能, 应该), but 要不上警 proposes to run."""
LEAD_OUT = "(?:警徽|吧|了|啊|呀|哦|啦|出局|出去|一票|离场|这一票|好了|今晚|今天| (?:tonight|today|now))*+"
TOWARDS = r"(?:把|将|让|给|对|向|朝|由)"

# --- no choices -----------------------------------------------------------------------------------------------------

DOUBT = re.compile(
    r"(?:我|让我|但|还|再|先|还是|嗯|哦|啊)*(?:等等|等一?下|不对|不是|算了|再?想一?想|重新(?:想想|考虑|分析)|"
    r"再?考虑(?:一下|考虑)?|再?看看|不(?:太)?(?:确定|肯定|好说|一定|知道)|(?:还)?没(?:有)?(?:完全)?(?:想好|决定|考虑好|确定)|"
    r"待定|再说|改(?:变)?主意了?|[说写]错了?|更正|纠正(?:一下)?|随便|瞎投的?|有待观察|看情况|可能|也许|大概|或许|犹豫|先听听|二选一|存疑|暂定|纠结|难说|"
    r"(?:抱歉|我)*(?:(?:刚才|之前|上面|前面)我?的?(?:分析|判断|结论|决定|选择|回答)有?|(?:刚才|之前|上面|前面)我?[说写]的?|刚才我?[看记选投])(?:错|误|漏|不对)[了的]?|刚才漏看[^0-9]{0,4}|"
    r"骗你们?的|开(?:个)?玩笑的?)(?:吧|了|啊|一下|中|再说)*|才怪|"
    r"(?:不|否|别|没|才|怎么|绝)[了是行要可对有能成投]?(?:可能|的|吧|啊)?|"
    r"wait|hmm|maybe|perhaps|(?:im )?not sure|let me think|actually|no|nope|not"
)
"""A clause that retracts another one, or that leaves the choice open."""
NEGATED = re.compile(
    r"(?:绝对?|千万|先|暂时?|并|可|才|也|就|都|再)*(?:不(?:能|会|想|要|该|应该?|可以?|愿意?|敢|准备|打算|是)?|别|勿|"
    r"没有?|拒绝|甭|非|除了|(?:not|dont|wont|never) )(?:去|再)?"
)
SUPPOSED = re.compile(
    r"如果|假[如设若使]|倘若|(?<![倘般])若(?!无其事)|要是|万一|除非|只要|一旦|的话|就算|即[使便]|哪怕|要么|要不(?!得)|"
    r"否则|不如|与其|或者|必要的?时|\b(?:if|unless|suppose|assuming|would|whether|either|should)\b|"
    r"(?:吗|么|呢|好不好|行不行|是不是|要不要|该不该)\"?$|\?|(?:^|,)(?:等(?!于)|或(?![许多]))"
)
"""Anywhere in a sentence: it is a supposition or a question."""
OF_OTHERS = re.compile(
    r"昨[天日晚夜]|前[天晚夜]|上一?[轮次回天夜]|首日|明[天日晚夜]|下一?[轮次回]|之前|刚才|"
    r"以[前后]|晚点|(?<![我以别])(?:(?<!来)说(?!话|不清|得)|喊|叫|让|建议|认为|觉得|要求|号召|希望|表示|提议|劝|讲|道|原话|"
    r"例如|比如|譬如|假装)|\b(?:said?|says|suggests?|claims?|tells?|told)\b"
)
"""In a sentence up to a choice: it is about another time, or another speaker's words."""
NEARLY_TAKEN = re.compile(
    r"(?:我|本人|老子|俺|那|就|好吧?|还是|直接|准备|打算|想要?|要|会|将|决定|选择|干脆|只能|只好|现在|马上|立刻|原地|必须|再见|"
    r"申请|宣布|考虑|可能|也许|应该|或许|狼人|先|来|去|一个|个|得)*+(?:自爆|自曝|退水|退选)[^的过狼者牌会能吞]{0,5}$"
)
"""A clause that may take an option, but does not state it exactly."""
