"""The words that state a choice, question by question: verbs before and after a seat, and what means nobody.

All patterns match a clause as ``clauses`` makes it: NFKC, lower case, simplified characters, no spaces around Chinese
ones, digits for the numbers of seats. None has a quantifier inside a quantifier that could match one text in two ways.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

from runners.werewolf.game import Decision, Option

NUMBER = r"-?[0-9]+(?:\.[0-9]+)?"
SEAT = rf"(?:第|玩家|座位|选手|player ?|seat ?|no\.|#)?{NUMBER}号?(?:位|座)?(?:玩家|选手|同学)?"
NAMED_SEAT = rf"(?:第?{NUMBER}号(?:位|座)?(?:玩家|选手|同学)?|(?:玩家|座位|选手|player ?|seat ?|no\.|#){NUMBER}号?)"
"""A seat that nobody would take for another number."""
SEAT_EN = rf"(?:player|seat|number|no\.?|#)? ?{NUMBER}号?"


@dataclass(frozen=True, slots=True)
class Words:
    """How one kind of question is answered.

    before: verbs before the seat (投3号); after: verbs after it (把3号投出去), behind 把, 给, 对 and the like.
    whole: what stands before the seat in a clause without a verb of its own (警徽 in 警徽给3号).
    nobody: what states that nobody is chosen. labels: what a line with the answer is called, as in 投票：3号.
    english: verbs before the seat. english_nobody: what states nobody. aim: what the seat is in the end (当警长).
    """

    before: str
    after: str = r"(?!)"
    nobody: str = r"(?!)"
    labels: str = r"(?!)"
    english: str = r"(?!)"
    english_nobody: str = r"(?!)"
    aim: str = ""


_TICKET = (
    r"(?:把|将)?(?:我的|我这个?|这|手里的|自己的)?一?票(?:都)?"
    r"(?:投给|投向|投|给|归给?|挂在?|砸|压|是|为)?(?:到|在)?"
)
_VOTE = Words(
    before=rf"(?:{_TICKET}|投票放逐|投票投?给|投票出|投票|投给|投出|投死|投掉|投向|投|票出|票死|出|归票给?|归|放逐|驱逐|流放|淘汰|处决|推出|推掉|打飞|冲票|冲|挂票?给?|挂|抗推|公投|送走)",
    after=r"(?:投票?|票|放逐|推|打飞|归)(?:出去|出局|出|掉|走|死|一票)?|出局",
    nobody=r"(?:弃票|弃权|弃|不投票?|不投任何人|谁(?:都|也)不投|放弃(?:投票|这一?票|本轮投票)?|投?弃权票|投弃票)",
    labels=r"投票|投给|投|放逐|归票|票|归|vote|voting",
    english=(
        r"(?:vote|voting) (?:to (?:exile|eliminate) |for |out |against )?|exile |eliminate |lynch |"
        r"pick |choose |go with |select "
    ),
    english_nobody=r"abstain|vote (?:for )?(?:nobody|no one|none)|skip|pass|not vote|dont vote",
)
_SHERIFF = replace(
    _VOTE,
    before=rf"(?:(?:把|将)?(?:警长|警徽)票?(?:都)?(?:投给|投|给|选)|支持|推选|选举|推举|{_VOTE.before[3:-1]})",
    labels=rf"{_VOTE.labels}|警长|sheriff(?:_vote)?",
    english=rf"{_VOTE.english}|support |elect ",
    aim=r"(?:(?:来|上)?(?:当|做|为|成为|任|拿)?(?:警长|警徽))?(?: (?:as|for) sheriff)?",
)
_GUARD = Words(
    before=r"(?:守护|守卫|保护|庇护|看护|守住?|守着|护住?|盾)",
    after=r"(?:守护|守卫|保护|守住?)",
    nobody=r"(?:空守|不守护?人?|不守护?(?:任何人|别人)|谁(?:都|也)不守|放弃守护)",
    labels=r"守护|守卫|守|保护|guard|protect",
    english=r"guard |protect |defend |choose ",
    english_nobody=r"(?:guard|protect) (?:nobody|no one|none)|not (?:guard|protect)(?: anyone)?|skip|pass",
)
_KILL = Words(
    before=r"(?:我们|咱们)?(?:今[晚夜])?(?:就|一起)?(?:袭击|击杀|刀杀|刀死|刀掉|刀|杀死|杀掉|杀|攻击|除掉|干掉|做掉|砍|落刀|下刀|暗杀|猎杀|刀口(?:给|定)?|目标(?:定|选)?(?:是|为|在)?)",
    after=r"(?:袭击|击杀|刀|杀|干|除|解决)(?:掉|死|了)?",
    nobody=r"(?:空刀|不刀人?|不杀人?|不袭击(?:任何人)?|谁(?:都|也)不刀|放弃(?:袭击|刀人))",
    labels=r"袭击|击杀|刀人|刀|杀|kill|attack",
    english=r"kill |attack |eliminate |target |choose ",
    english_nobody=r"(?:kill|attack) (?:nobody|no one|none)|not kill(?: anyone)?|skip|pass",
)
_CHECK = Words(
    before=r"(?:查验一下|查验|验一?下|验人|验证|验|检验|检查|探查|查看|看一?看|摸|查一?下|查)",
    after=r"(?:查验|验|查)(?:一下|一验)?",
    nobody=r"(?:不查验?(?:任何人)?|不验人?|谁(?:都|也)不验|放弃查验)",
    labels=r"查验|验人|验|查|check|inspect",
    english=r"check |inspect |verify |investigate |choose ",
    english_nobody=r"(?:check|inspect) (?:nobody|no one|none)|not check(?: anyone)?|skip|pass",
    aim=r"(?:的?(?:身份|底牌|牌))?",
)
_SHOT = Words(
    before=r"(?:开枪(?:带走|打死|打|射杀|射击|击毙|杀死|杀|崩)?|带走|带|打死|打掉|打|射杀|射击|枪杀|枪击|枪打|崩掉?|击毙|枪毙|一枪带走|一枪打|(?:这|我的)?一?枪(?:打|给|带走?)|枪口(?:对准|指向))",
    after=r"(?:开枪|开一枪|带走|打死|打掉|射杀|枪杀|崩掉?|一起?带走)",
    nobody=r"(?:不开枪|不开|放弃(?:开枪)?|不带人?|不带走?任何人|不打人?|谁(?:都|也)不带|空枪|压枪|闷枪)",
    labels=r"开枪|带走|枪|shoot|shot",
    english=r"shoot |take |kill ",
    english_nobody=r"not shoot|dont shoot|do not shoot|shoot (?:nobody|no one|none)|skip|pass",
    aim=r"(?: (?:down|with me))?",
)
_BADGE = Words(
    before=(
        r"(?:(?:把|将)?(?:我的)?警徽)?(?:移?交给|转交给?|移交|传给|交|传|留给|给到?|飞给?|让给|送给|转移给|转让给|托付给|递给)(?:警徽)?(?:给)?|"
        r"(?:移交|传|给)警徽给"
    ),
    after=r"(?:警徽|当警长|做警长|接警徽|拿警徽|继任警长)",
    nobody=r"(?:(?:把|将)?警徽)?(?:撕毁|撕掉|撕了|撕碎|撕|销毁|毁掉)(?:掉|了)?(?:警徽)?|不移?交(?:警徽)?|不给任何人",
    labels=r"警徽|移交|badge|pass",
    english=r"(?:pass|give|hand)(?: over)? (?:the )?badge to |pass to |give (?:it )?to ",
    english_nobody=r"(?:destroy|tear)(?: up)?(?: the)?(?: badge)?",
)
_WITCH = Words(
    before=r"(?!)",
    nobody=(
        r"(?:都|什么药都|两瓶药都|一瓶药?都|今晚)?不(?:使用|用|开)(?:任何|什么)?(?:药|药水|药剂|药物|技能)?|"
        r"不救[也和、]?不毒|不救人?也不毒人?|什么都不[做用]|压药|留药"
    ),
    labels=r"用药|药|毒药|解药|witch|potion",
    english_nobody=r"not use (?:any )?(?:potions?|antidote or poison)|use (?:nothing|no potion)|skip|pass|do nothing",
)
SAVE = (
    rf"用药救人|(?:(?:使用|用|开|撒|选择)?解药(?:去?救[活下起回]?)?(?:给)?|救活|救下|救起|救回|救一下|救人|救|(?:使用|用)解药给)(?:他|她|{SEAT})?|"
    rf"(?:对|给)(?:他|她|{SEAT})(?:使用|用|开|上)?解药|(?:把|将)(?:他|她|{SEAT})救(?:活|下|起来)?"
)
SAVE_EN = (
    rf"(?:use|using) (?:the |my )?antidote(?: (?:on|for|to save) (?:{SEAT_EN}|him|her|them))?|"
    rf"save(?: (?:{SEAT_EN}|him|her))?"
)
POISON_WORD = (
    rf"(?:(?:使用|用|撒|开)毒药?(?:去)?(?:毒杀|毒死|毒掉|毒|杀死|杀|给)?|毒药给?|毒杀|毒死|毒掉|下毒给?|毒){SEAT}|"
    rf"(?:对|给|向)(?:{SEAT})(?:使用|用|下|开|撒|喂)(?:了)?毒药?|(?:把|将)(?:{SEAT})毒(?:死|杀|掉|了)?"
)
POISON_EN = rf"(?:use |using )?(?:the |my )?poison (?:potion )?(?:on )?{SEAT_EN}"
WORDS: Mapping[Decision, Words] = {
    Decision.GUARD: _GUARD,
    Decision.WOLF_KILL: _KILL,
    Decision.WOLF_TALK: replace(
        _KILL,
        before=rf"(?:提议|建议)?(?:今[晚夜])?(?:大家)?{_KILL.before}",
        nobody=r"不提议",
        labels=rf"{_KILL.labels}|提议",
    ),
    Decision.SEER_CHECK: _CHECK,
    Decision.WITCH: _WITCH,
    Decision.SIGN_UP: Words(
        before=r"(?!)",
        nobody=(
            r"(?:不|放弃|拒绝|不要|不会|不去|不想)(?:参与|参加)?(?:上警|竞选|参选|参加|参与|报名)?"
            r"(?:警长)?(?:的?竞选)?(?<!不)|不上|(?:留|待|站)?在?警下|否|不是|不了|no"
        ),
        labels=r"上警|竞选|run|sign_?up",
        english_nobody=r"not (?:to )?run(?: for sheriff)?|wont run(?: for sheriff)?|dont run(?: for sheriff)?|no",
    ),
    Decision.SHERIFF_VOTE: _SHERIFF,
    Decision.SHERIFF_PK_VOTE: _SHERIFF,
    Decision.SHOT: _SHOT,
    Decision.BADGE: _BADGE,
    Decision.SPEAKING_ORDER: Words(before=r"(?!)", labels=r"顺序|发言顺序|order"),
    Decision.CLOSING_SPEECH: replace(_VOTE, nobody=r"不归票?"),
    Decision.EXILE_VOTE: _VOTE,
    Decision.PK_VOTE: _VOTE,
}
"""Of a question that is not listed, the words that it offers are understood and no others."""

_TURN = r"(?:一?侧|一?边|手边?|方向?)?(?:的玩家)?(?:开始|起|先|依次)?(?:先?发言)?(?:顺序)?"
OPTIONS: Mapping[Option, str] = {
    Option.SAVE: SAVE,
    Option.RUN: (
        r"(?:参与|参加|报名|去)?(?:上警|竞选|参选)(?:参与|参加)?(?:竞选)?(?:警长)?(?:竞选)?|(?:参与|参加|报名)警长(?:的?竞选)?|报名|上|是的?|yes"
    ),
    Option.WITHDRAW: r"(?:宣布|申请)?(?:退水|退选|退警|退出(?:警长)?(?:的?竞选))",
    Option.EXPLODE: r"(?:宣布|申请|原地|直接|自己)?(?:自爆|自曝)(?:走人|退场|出局|离场|身份)?",
    Option.SHERIFF_LEFT: rf"(?:从)?警?左{_TURN}",
    Option.SHERIFF_RIGHT: rf"(?:从)?警?右{_TURN}",
    Option.DEAD_LEFT: rf"(?:从)?死?左{_TURN}",
    Option.DEAD_RIGHT: rf"(?:从)?死?右{_TURN}",
}
OPTIONS_EN: Mapping[Option, str] = {
    Option.SAVE: SAVE_EN,
    Option.RUN: r"run(?: for sheriff| for the badge)?|sign up|yes",
    Option.WITHDRAW: r"withdraw",
    Option.EXPLODE: r"(?:self-?)?explode|self-?destruct",
    Option.SHERIFF_LEFT: r"(?:sheriff )?left",
    Option.SHERIFF_RIGHT: r"(?:sheriff )?right",
    Option.DEAD_LEFT: r"(?:dead )?left",
    Option.DEAD_RIGHT: r"(?:dead )?right",
}

# --- around a choice, in its clause ---------------------------------------------------------------------------------

LEAD_IN = (
    r"(?:(?:我)?的?(?:最终|最后)?的?(?:投票|选择|决定|答案|结论|选项|目标|人选|一?票)(?:对象|目标)?(?:就?是|为)|"
    # who
    r"但是?|不过|我(?:自己|个人|这边)?(?![们的])|本人|俺|咱(?!们)|在下|作为[^,0-9他她]{1,8}?我|"
    # how firmly; what hedges (想, 可能, 倾向, 应该) is left out
    r"选择|选定|选|已?决定|打算|准备|就是?|还是|要(?!不|么)|会(?!不)|将|愿意?|必须|必|只能|只好|肯定|一定|坚[决定持](?:地)?|果断地?|直接|干脆|毫不犹豫地?|"
    r"依然|依旧|仍然?|仍旧|继续|再次?|也|同样|先|优先|首选|明确|正式|郑重|宣布|放心|安心|"
    # when
    r"今[天晚夜日]|这[次轮夜天晚]|这一[轮票次夜晚]|[本此当][轮次夜晚日]|首夜|头夜|第[0-9一二三四五六七八九十]{1,2}[轮天夜晚]|现在|目前|白天|夜里|晚上|"
    # why
    r"所以|因此|因而|故而?|于是|那么?|综上(?:所述)?|总之|总的来[说看]|综合(?:来看|考虑|分析|(?:以上|上述)(?:分析)?)?|基于(?:此|以上(?:分析)?)|据此|由此|"
    r"既然如此|根据(?:以上|上述)分析|经过(?:慎重|仔细|综合)?(?:的)?(?:考虑|思考|分析)|权衡(?:之下|再三)|思来想去|最终|最后|然后|而是|"
    # nothing
    r"好[的吧]?(?!人)|嗯|行|收到|明白了?|了解|来|去|请?求?(?=上警)|"
    r"全票|绝对(?!不))*+"
)
"""What may stand before a choice in its clause. 要不上警 proposes to run."""
LEAD_OUT = r"(?:警徽|吧|了|啊|呀|哦|啦|出局|出去|一票|离场|这一票|好了|今晚|今天)*+"
LEAD_IN_EN = (
    r"(?:(?:so|therefore|thus|hence|finally|ok|okay|well|yes|and|then|now|tonight|today|in conclusion|"
    r"please|lets)\b,? ?)*"
    r"(?:(?:i|we) ?(?:will now|will|ll|am going to|m going to|am|m|choose to|"
    r"decide to|have decided to|ve decided to|shall|must|now)? ?|"
    r"(?:my|the) (?:final |last )?(?:vote|choice|decision|answer|target)(?: is| goes)?(?: to| for)? )?(?:to )?"
)
LEAD_OUT_EN = r"(?: (?:tonight|today|now|as sheriff|for sheriff|this round|please))?"

# --- what is not stated, or not so ----------------------------------------------------------------------------------

NEGATION = re.compile(
    r"不(?!然|得不|管|论|过|仅|止)|没|勿|未|莫|甭|否|(?<![特区分级性])别|非(?!常)|拒绝|放弃|除了|以外|\b(?:not|dont|wont|never|no|cannot|cant)\b"
)
NEGATED_VERB = re.compile(
    r"(?:绝|绝对|千万|先|暂|暂时|并|可|才|也|就|都|再)?(?:不(?:能|会|想|要|该|应该?|可以?|愿意?|敢|太想|准备|打算)?|别|勿|没有?|拒绝|甭)(?:去|再)?"
)
BARE_NEGATION = re.compile(
    r"(?:不|否|别|没|才|怎么|绝)[了是行要可对有能成]?(?:可能|的|吧|啊)?|才怪|no|nope|not|骗你们?的|(?:我)?开(?:个)?玩笑的?"
)
"""A clause that takes back what stands in another, as in ``上警？不了``."""
DOUBT = re.compile(
    r"(?:我|让我|但|但我|还|再|先|还是|嗯|哦|啊)*(?:等等|等一?下|不对|不是|算了|再?想一?想|重新(?:想想|考虑|分析)|再?考虑(?:一下|考虑)?|"
    r"再?看看|不(?:太)?(?:确定|肯定|好说|一定|知道)|(?:还)?没(?:有)?(?:完全)?(?:想好|决定|考虑好|确定)|待定|再说|改(?:变)?主意了?|随便|瞎投的?|"
    r"有待观察|看情况|可能|也许|大概|或许|犹豫|先听听|二选一|存疑|暂定|纠结|难说)(?:吧|了|啊|一下|中|再说)*|"
    r"(?:wait|hmm|maybe|perhaps|not sure|im not sure|let me think|actually)"
)
"""A clause that says that nothing is settled."""
CONTRAST = re.compile(r"(?:但是?|不过|可是?(?!能)|然而|只是|却|but|however|although|though)")
CONSEQUENCE = re.compile(
    r"(?:那?就(?:是|会|等于|输|完|亏)|等于|会|只会|可能|恐怕|未必|风险|太|有点|有些|反而|岂|亏|显得|万一|意味|容易|相当于|"
    r"没(?:有)?(?:意义|用|道理|必要|依据)|不(?:太)?(?:合适|合理|划算|好|妥|行|对|值|可取)|对(?:好人|狼|我们)|"
    r"可以|能|虽|好处|坏处|的话|是(?:错|不|好|一|最|个|为|在)|又|岂不|怕|无法|难以)"
)
"""How a clause goes on about a deed that was only spoken of: 投3号，等于帮狼."""
CONDITION = re.compile(
    r"如果|假[如设若使]|倘若|(?<![倘般])若(?!无其事)|要是|万一|除非|只要|一旦|的话|就算|即[使便]|哪怕|要么|要不(?!得)|否则|不如|与其|"
    r"\b(?:if|unless|suppose|assuming|should i|would|whether|either)\b"
)
"""Anywhere in a sentence: what it says is supposed, or one of several possibilities."""
ALTERNATIVE = re.compile(r"(?:或者?(?:是)?|要么|要不|又或者|or )")
ELSEWHEN = re.compile(
    r"(?:我|等到?|到|在|待)*(?:昨[天日晚夜]|前[天晚夜]|上一?[轮次回天夜]|第?[0-9一二三]+[天轮夜]|首[日轮]|明[天日晚夜]|下一?[轮次回]|之前|刚才|"
    r"以[前后]|一?会儿?|晚点|等.{1,12}|当.{1,12}[时候])(?:的时候|时|我)*"
)
"""A clause that puts the next ones at another time."""
REPORTED = re.compile(
    r"^(?!(?:我|本人|所以我|我们)(?:还是)?(?:说|认为|觉得|想|建议|提议|希望)?$).*"
    r"(?:说|喊|叫|让我们?|建议|认为|觉得|要求|号召|希望|表示|提议|劝|讲|道|喊话|带节奏|说法|"
    r"原话|例如|比如|譬如|假装|said?|says|told me|suggests?|claims?)(?:是|了|的|过|着)?$"
)
"""A clause after which somebody else's words stand."""
REPORTER_AFTER = re.compile(r"(?!我)[^,]{1,12}(?:说|喊|叫|讲|道|表示|原话|号召)(?:的|了|过|着|道)?$")
"""A clause that says who said what was quoted before it."""
GOOD_WORD = re.compile(
    r"(?<![不非没])(?<!不是)(?<!不像)(?<!不太像)(?:(?:是|像|做成?|认)(?:真的?|个|铁)?好人|^(?:铁|真)?好人|金水|银水|可信|(?:相?信|跟着?|听|站边?|保|支持)(?:他|她)|"
    r"^跟着?走|不(?:太)?像狼|不是狼|the seer|trust (?:him|her))"
)
BAD_WORD = re.compile(
    r"(?<![不非没])(?<!不是)(?<!不像)(?:(?:是|像)(?:个|只|铁|真)?狼(?!人?刀|人?想)|^狼人?$|查杀$|悍跳)"
)
"""What nobody says of a seat that he votes for, or gives the badge to."""
MAY_NAME_ITSELF = frozenset({Decision.GUARD, Decision.WOLF_KILL, Decision.WOLF_TALK})
"""Where 自己 is a seat."""
HOSTILE = frozenset({Decision.EXILE_VOTE, Decision.PK_VOTE, Decision.SHOT, Decision.WITCH, Decision.CLOSING_SPEECH})
TRUSTING = frozenset({Decision.BADGE, Decision.SHERIFF_VOTE, Decision.SHERIFF_PK_VOTE})
NEARLY_TAKEN = re.compile(
    r"(?:我|本人|老子|俺|那|就|好吧?|还是|直接|准备|打算|想要?|要|会|将|决定|选择|干脆|只能|只好|现在|马上|立刻|原地|必须|再见|申请|宣布|考虑|可能|"
    r"也许|应该|或许|狼人|先|来|去|一个|个|得)*+(?:自爆|自曝|退水|退选)[^的过狼者牌会能吞]{0,5}$"
)
"""Nearly an option that the speaker takes, as far as its words alone tell."""
