"""Sentences of scripted players, each in several wordings; the slots define their statements.

``{accused}`` is a seat to be exiled, ``{followed}`` the seat that the speaker calls the seer, ``{seat}`` one without a
statement; ``speech`` parses sentences by the same names. Both sides draw from the same sentences, which
``brains.speech`` selects by the record of the game. Short speeches use the first ``PLAIN`` wordings, so that a very
small model can learn the language of the smallest table.
"""

from collections.abc import Iterable, Sequence
from random import Random

from runners.werewolf.game import Side

PLAIN = 3
"""Number of wordings in short speeches."""
SHORT_SPEECH_CHARS = 120
"""Greatest length of a short speech."""

CLAIMS_GOOD = (
    "我是好人。",
    "我好人牌。",
    "我是一张好人牌。",
    "我这里是好人牌，没什么可报的。",
    "好人一张，简单说几句。",
)
"""Claims without information: every player makes them."""
CLAIMS = ("我是{role}。", "我底牌{role}。", "我身份是{role}。", "我这张牌是{role}。", "我是一张{role}牌。")
CLAIMS_TO_BE_SEER = ("我是{role}。", "我跳{role}。", "我就是{role}。", "我是真{role}，听我报验人。", "我起跳{role}。")
CLAIMS_AGAIN = ("我还是{role}。", "我的身份没变，{role}。", "身份报过了，{role}。")
COUNTERCLAIMS = (
    "我才是{role}，{accused}号是假的。",
    "我就是{role}，{accused}号是狼。",
    "我才是{role}，{accused}号是悍跳。",
    "我是真{role}，{accused}号在骗你们。",
)
CHECKS = ("第{night}夜查验{checked}号，是{side}。",)
LATEST_CHECKS = (
    "第{night}夜查验{checked}号，是{side}。",
    "昨晚验{checked}号，{verdict}。",
    "昨晚验了{checked}号，是{side}。",
    "昨晚摸的{checked}号，{verdict}。",
    "{checked}号是我昨晚验的，{verdict}。",
)
VERDICTS = {Side.WOLF: "查杀", Side.GOOD: "金水"}
NEXT_CHECKS = ("警徽流{first}号。",)
NEXT_TWO_CHECKS = (
    "警徽流{first}号、{second}号。",
    "警徽流先{first}号后{second}号。",
    "警徽流先验{first}号，再验{second}号。",
    "警徽流第一验{first}号，第二验{second}号。",
)
SAVINGS = (
    "我救了{saved}号，是银水。",
    "{saved}号是我的银水。",
    "我救的是{saved}号。",
    "首夜解药给了{saved}号，银水放这里。",
)
POISONINGS = (
    "我毒了{poisoned}号。",
    "{poisoned}号是我毒的。",
    "毒药给了{poisoned}号。",
    "{poisoned}号吃了我的毒，毒错算我的。",
)

FOLLOWINGS = (
    "我相信{followed}号是预言家。",
    "我站边{followed}号，跟着走。",
    "我认{followed}号是预言家。",
    "只有{followed}号跳了预言家，我认下。",
)
FOLLOWINGS_OF_RIVALS = (
    *FOLLOWINGS[:PLAIN],
    "对跳里我站边{followed}号。",
    "{followed}号和{seat}号对跳，我站边{followed}号。",
    "两边都听了，{followed}号预言家面更大。",
    "{followed}号比{seat}号更像预言家，我跟{followed}号走。",
)
FOLLOWINGS_OF_DEAD = (
    *FOLLOWINGS[:PLAIN],
    "我认倒牌的{followed}号是预言家。",
    "{followed}号走了，他是预言家，我认。",
)
FOLLOWINGS_AGAIN = (
    "我还是站边{followed}号。",
    "我还是认{followed}号是预言家。",
    "预言家我还是认{followed}号。",
    "站边没变，我还跟{followed}号走。",
)
CALLS_FOR_SEER = (
    "我没有线索，请预言家说话。",
    "预言家请报查验。",
    "等预言家报验人。",
    "场上还没有预言家，有验人的站出来。",
    "有没有预言家，带一下队。",
    "预言家别藏了，出来报一下验人。",
)
NO_SEER = ("没有人报验人，只能看发言。", "没有预言家带队，我自己判断。", "预言家没有站出来，大家各自判断。")

BESIDE_CHECKS = ("查验之外，", "验人之外，", "除了验人，")
"""From a seer's checks to another suspect."""
BESIDE_FOLLOWED = ("另外，", "其他人里，")
"""From the followed seer to the speaker's own suspect."""
BESIDE_DEAD_FINDS = ("查杀的牌已经倒了，", "验出来的狼走了，")
"""From a seer's dead wolves to another suspect."""
LEADS = BESIDE_CHECKS + BESIDE_FOLLOWED + BESIDE_DEAD_FINDS
ACCUSATIONS = (
    "我怀疑{accused}号，视角不像好人。",
    "{accused}号发言有问题，前后对不上。",
    "我听{accused}号的发言不像好人。",
    "我今天想投{accused}号，他的逻辑我没听懂。",
    "{accused}号狼面比较大，心态不像好人。",
    "我怀疑{accused}号，发言太虚。",
)
"""Against a seat that has spoken."""
ACCUSATIONS_OF_LOUD = (
    "我怀疑{accused}号，发言像在带节奏。",
    "{accused}号打人没有理由，我想出{accused}号。",
    "我要踩{accused}号，踩人踩得太随意。",
    "{accused}号像在找人抗推，我先把他标成狼。",
)
"""Against a seat that has accused another today."""
ACCUSATIONS_OF_QUIET = (
    "我要踩{accused}号，一直在划水。",
    "我怀疑{accused}号，谁也不踩，像在躲。",
    "我想出{accused}号，没有自己的判断。",
    "我点{accused}号，聊了半天没有一句自己的判断。",
)
ACCUSATIONS_OF_UNHEARD = (
    "我直觉{accused}号是狼，大家多听听他。",
    "我凭感觉怀疑{accused}号，没有别的线索。",
    "我有个直觉，{accused}号像狼。",
    "我先点{accused}号，一会儿请他多聊几句。",
    "{accused}号我先打个问号，等他发言。",
    "{accused}号一会儿好好聊，聊不好我就投他。",
    "一会儿我重点听{accused}号，聊不好就出他。",
)
ACCUSATIONS_OF_NAMED = (
    "查杀先出，我投{accused}号。",
    "有查杀就走查杀，今天出{accused}号。",
    "{accused}号是查杀，我想出{accused}号。",
    "验人信息摆在这里，今天出{accused}号。",
    "{seat}号的查杀我认，今天先走{accused}号。",
    "{seat}号的查杀我认，{accused}号是狼。",
    "{accused}号吃了查杀，不能放过。",
)
ACCUSATIONS_OF_FINDS = (
    "查杀先出，我投{accused}号。",
    "今天出{accused}号，不用多想。",
    "{accused}号是狼，今天全票出{accused}号。",
    "查杀在手，请大家投{accused}号。",
    "{accused}号是我验的狼，别放过他。",
    "{accused}号是铁狼，大家记住。",
)
"""By the claimed seer that reported them."""
FINDS_FOR_LATER = (
    "{seat}号的查杀明天再走，今天先打{accused}号。",
    "今天先打{accused}号，{seat}号的查杀留到明天。",
    "{seat}号是查杀，跑不掉，今天先看{accused}号。",
)
"""By the claimed seer that reported ``seat`` and accuses another first."""
ACCUSATIONS_OF_CLAIMANTS = (
    "我想出{accused}号，更像悍跳。",
    "我怀疑{accused}号，是跳出来骗票的。",
    "我要踩{accused}号，报的查验说不通。",
    "{accused}号像悍跳狼，心路历程讲不清。",
    "{accused}号报验人的状态不对，我想出{accused}号。",
)
ACCUSATIONS_OF_ACCUSERS = (
    "{accused}号查杀我，那{accused}号就是悍跳狼。",
    "我没做过狼，{accused}号给我发查杀，我要踩{accused}号。",
    "我要踩{accused}号，查杀发到我头上就是骗。",
    "{accused}号是悍跳狼，拿我开刀，今天出{accused}号。",
)
ACCUSATIONS_OF_FOLLOWERS = (
    "{accused}号跟{seat}号走，站错边了，我怀疑{accused}号。",
    "{accused}号还站边{seat}号，我想出{accused}号。",
    "我要踩{accused}号，站边{seat}号像在冲锋。",
)
"""Against a seat that follows another seer than the speaker."""
ACCUSATIONS_OF_VOTERS = (
    "{accused}号投过{seat}号，这一票我不认，我想出{accused}号。",
    "我怀疑{accused}号，他投过{seat}号。",
    "我要踩{accused}号，票型上他投过{seat}号。",
    "{accused}号投过{seat}号，票投到好人头上，我怀疑{accused}号。",
)
ACCUSATIONS_OF_ATTACKERS = (
    "{accused}号踩我没有道理，我反踩{accused}号。",
    "{accused}号打我打得太急，我怀疑{accused}号。",
    "{accused}号踩到好人头上，我看{accused}号像狼。",
)
"""Against a seat that accused the speaker today."""
SPLITS = (
    "我投{accused}号，请{mate}号投{other}号。",
    "请{mate}号投{other}号，我投{accused}号。",
    "今天分票，请{mate}号投{other}号，我投{accused}号。",
    "我投{accused}号，请{mate}号投{other}号，打平了我再验一夜。",
)
"""By a seat that splits a vote: its own target and another seat's."""
RALLIES = (
    "我归票{accused}号，大家一起投。",
    "我归票{accused}号，不要分票。",
    "今天归票{accused}号。",
    "归{accused}号，好人跟我上票。",
    "今天全票出{accused}号，别分票。",
)
TRUSTS = (
    "{seat}号像好人。",
    "{seat}号发言不错。",
    "我保{seat}号，像好人。",
    "{seat}号听着像好人，先放一放。",
    "{seat}号我觉得不像狼。",
)
TRUSTS_OF_CLEARED = (
    "{seat}号是金水，我保{seat}号。",
    "{seat}号有金水，我认他是好人。",
    "金水{seat}号像好人，先放下。",
)

DEFENCES = (
    "踩我的人请想清楚，不要投错。",
    "投我出局就是帮狼，请再想想。",
    "我问心无愧，请不要投我。",
    "我不是狼，把我投出去今晚狼人要笑醒。",
    "好人别冲动，回头看看刚才的票型再说。",
)
SMALL_TALK = (
    "希望好人能赢。",
    "大家好好分析，不要乱投。",
    "好人要想清楚。",
    "大家加油，别被带偏。",
    "先这样，过。",
)
MORE_TO_COME = (
    "希望好人能赢。",
    "大家好好分析，不要乱投。",
    "我先说这些，听后面怎么聊。",
    "后面的人多聊几句，别光报身份。",
    "先这样，过。",
    "请后面的人多给点信息。",
)
"""By a seat that is not the last to speak today."""
FAREWELLS = (
    "希望好人能赢。",
    "大家好好分析，不要乱投。",
    "好人要想清楚。",
    "大家加油，别被带偏。",
)
"""For last words; the living use them, too, since otherwise they would mark the dead, most of them good."""
CAMPAIGN_LINES = (
    "我想拿警徽带队。",
    "上警是为了多听信息。",
    "警徽给我，我会好好归票。",
    "警徽别落到狼手里就行。",
    "上来抢个发言位置。",
)
WITHDRAWALS = (
    "警徽应该给预言家，我退水。",
    "我没有信息，我退水。",
    "我退水，警徽给预言家。",
    "听到验人了，我退水，不挡路。",
)

PROPOSALS = (
    "建议袭击{prey}号。",
    "建议袭击{prey}号，先削弱好人。",
    "建议袭击{prey}号，不给他们机会。",
    "今晚刀{prey}号，他最像有身份的。",
    "先刀{prey}号，留着麻烦。",
)
AGREEMENTS = ("同意，建议袭击{prey}号。", "可以，建议袭击{prey}号。", "行，刀{prey}号。", "跟，今晚刀{prey}号。")
SELF_PROPOSALS = ("今晚刀{prey}号，骗女巫一瓶药。", "自刀{prey}号，做个银水。")
POSING_PLANS = ("{poser}号悍跳预言家。", "{poser}号悍跳，我们跟。", "明天{poser}号去跳预言家。")

TEMPLATES: frozenset[str] = frozenset(
    template for name, templates in list(vars().items()) if name.isupper() and type(templates) is tuple
    for template in templates
)  # fmt: skip
"""All sentences and their lead-ins."""


def fit_together(sentences: Iterable[str], limit: int) -> str:
    """The sentences as one speech of at most ``limit`` characters, without those that do not fit."""
    speech = ""
    for sentence in sentences:
        if len(speech) + len(sentence) <= limit:
            speech += sentence
    return speech


def say(chance: Random, templates: Sequence[str], limit: int, **about: object) -> str:
    """One of ``templates``, filled in, for a speech of at most ``limit`` characters."""
    return chance.choice(templates[:PLAIN] if limit <= SHORT_SPEECH_CHARS else templates).format(**about)
