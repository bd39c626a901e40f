"""What scripted players say: sentences in several wordings each; ``speech`` knows them by ``MEANINGS``.

Both sides draw from the same sentences. A speech is put together from sentences, the most important first
(``fit_together``). Where speeches are short, players keep to the first wordings (``PLAIN``), so that a very small model
with few words can learn the language of the smallest table.
"""

from collections.abc import Iterable, Mapping, Sequence
from random import Random

from runners.werewolf.game import Side

PLAIN = 3
"""How many wordings of each sentence are used where speeches are short."""
SHORT_SPEECH_CHARS = 120
"""Up to here speeches are short."""

ACCUSATIONS = (
    "我怀疑{seat}号，发言像在带节奏。",
    "我要踩{seat}号，一直在划水。",
    "我想出{seat}号，先听这里怎么说。",
    "我怀疑{seat}号，视角不像好人。",
    "我要踩{seat}号，站边太随意。",
    "我想出{seat}号，这个位置最像狼。",
    "{seat}号发言有问题，前后对不上。",
    "我点{seat}号，聊了半天没有一句自己的判断。",
    "{seat}号像在找人抗推，我先把他标成狼。",
    "我今天想投{seat}号，他的逻辑我没听懂。",
    "{seat}号狼面比较大，心态不像好人。",
)
SPLITS = (
    "我投{seat}号，请{mate}号投{other}号。",
    "请{mate}号投{other}号，我投{seat}号。",
    "今天分票，请{mate}号投{other}号，我投{seat}号。",
    "我投{seat}号，请{mate}号投{other}号，打平了我再验一夜。",
)
"""By whoever has a vote tied: whom it votes for, and whom another seat is to vote for."""
ACCUSATIONS_OF_NAMED = (
    "我想出{seat}号，查杀先出。",
    "我怀疑{seat}号，预言家的查杀我认。",
    "我要踩{seat}号，先走查杀。",
    "今天出{seat}号，验人信息摆在这里。",
    "{seat}号吃了查杀还没说清楚，我投{seat}号。",
    "有查杀就走查杀，今天出{seat}号。",
)
ACCUSATIONS_OF_FINDS = (
    "我想出{seat}号，查杀先出。",
    "今天出{seat}号，不用多想。",
    "我归票{seat}号，查杀先走。",
    "{seat}号是狼，今天全票出{seat}号。",
    "{seat}号就是我手里的查杀，请投{seat}号。",
)
"""By whoever says that it found them."""
ACCUSATIONS_OF_CLAIMANTS = (
    "我怀疑{seat}号，是跳出来骗票的。",
    "我要踩{seat}号，报的查验说不通。",
    "我想出{seat}号，更像悍跳。",
    "{seat}号像悍跳狼，心路历程讲不清。",
    "{seat}号报验人的状态不对，我想出{seat}号。",
    "对跳里我打{seat}号，警徽流也留得奇怪。",
)
ACCUSATIONS_OF_ACCUSERS = (
    "{seat}号查杀我，那{seat}号就是悍跳狼。",
    "我没做过狼，{seat}号给我发查杀，我要踩{seat}号。",
    "我要踩{seat}号，查杀发到我头上就是骗。",
    "{seat}号是悍跳狼，拿我开刀，今天出{seat}号。",
)
FOLLOWINGS = (
    "我相信{seat}号是预言家。",
    "我站边{seat}号，跟着走。",
    "我认{seat}号是预言家。",
    "我相信{seat}号是预言家，验人讲得通。",
    "预言家这里我站边{seat}号。",
    "{seat}号更像预言家，我先跟{seat}号走。",
    "我认下{seat}号，今天听他的。",
    "{seat}号预言家面更大。",
)
RALLIES = (
    "我归票{seat}号，大家一起投。",
    "我归票{seat}号，不要分票。",
    "今天归票{seat}号。",
    "归{seat}号，好人跟我上票。",
    "今天全票出{seat}号，别分票。",
)
TRUSTS = (
    "我保{seat}号，像好人。",
    "{seat}号发言不错。",
    "{seat}号像好人。",
    "{seat}号听着像好人，先放一放。",
    "{seat}号我觉得不像狼。",
)
DEFENCES = (
    "踩我的人请想清楚，不要投错。",
    "投我出局就是帮狼，请再听一轮。",
    "我问心无愧，请看我的投票。",
    "我不是狼，把我投出去今晚狼人要笑醒。",
    "好人别冲动，回头看看票型再说。",
    "我聊得不好，但我的票没有跟过狼。",
)
SMALL_TALK = (
    "多看看票型。",
    "希望好人能赢。",
    "信息还不多，多听多想。",
    "大家加油，别被带偏。",
    "大家好好分析，不要乱投。",
    "请大家多给点信息。",
    "后面的人多聊几句，别光报身份。",
    "先这样，过。",
    "我没有太多视角，大家自己盘一盘。",
    "狼人就藏在不说话的人里。",
)
CALLS_FOR_SEER = (
    "我没有线索，请预言家说话。",
    "预言家请报查验。",
    "等预言家报验人。",
    "场上还没有预言家，有验人的站出来。",
    "有没有预言家，带一下队。",
    "预言家别藏了，出来报一下验人。",
)
CAMPAIGN_LINES = (
    "我想拿警徽带队。",
    "上警是为了多听信息。",
    "警徽给我，我会好好归票。",
    "警徽别落到狼手里就行。",
    "上来抢个发言位置，听听对跳。",
)
WITHDRAWALS = (
    "警徽应该给预言家，我退水。",
    "我没有信息，我退水。",
    "我退水，警徽给预言家。",
    "听到验人了，我退水不挡路。",
)
CLAIMS_GOOD = (
    "我是好人。",
    "我好人牌。",
    "我是一张好人牌。",
    "我这里是好人牌，没什么可报的。",
    "好人一张，简单说几句。",
)
"""They say no more than every player would."""
CLAIMS = ("我是{role}。", "我底牌{role}。", "我身份是{role}。", "我这张牌是{role}。", "我是一张{role}牌。")
CLAIMS_TO_BE_SEER = ("我是预言家。", "我跳预言家。", "我就是预言家。", "我是真预言家，听我报验人。", "我起跳预言家。")
COUNTERCLAIMS = (
    "我才是{role}，{seat}号是假的。",
    "我就是{role}，{seat}号是狼。",
    "我才是{role}，我要踩{seat}号。",
    "我才是{role}，{seat}号是悍跳，今天先出{seat}号。",
)
CHECKS = ("第{night}夜查验{seat}号，是{side}。",)
LATEST_CHECKS = (
    "第{night}夜查验{seat}号，是{side}。",
    "昨晚验{seat}号，{verdict}。",
    "昨晚验了{seat}号，是{side}。",
    "昨晚摸的{seat}号，{verdict}。",
    "{seat}号是我昨晚验的，{verdict}。",
)
VERDICTS = {Side.WOLF: "查杀", Side.GOOD: "金水"}
NEXT_CHECKS = ("警徽流{seats}。",)
NEXT_TWO_CHECKS = (
    "警徽流{seats}。",
    "警徽流先{first}号后{second}号。",
    "警徽流先验{first}号，再验{second}号。",
    "警徽流第一验{first}号，第二验{second}号。",
)
SAVINGS = (
    "我救了{seat}号，是银水。",
    "{seat}号是我的银水。",
    "我救的是{seat}号。",
    "首夜解药给了{seat}号，银水放这里。",
)
POISONINGS = ("我毒了{seat}号。", "{seat}号是我毒的。", "毒药给了{seat}号。", "昨晚我毒的{seat}号，毒错算我的。")
PROPOSALS = (
    "建议袭击{seat}号。",
    "建议袭击{seat}号，先削弱好人。",
    "建议袭击{seat}号，不给他们机会。",
    "今晚刀{seat}号，他最像有身份的。",
    "先刀{seat}号，留着麻烦。",
)
AGREEMENTS = ("同意，建议袭击{seat}号。", "可以，建议袭击{seat}号。", "行，刀{seat}号。", "跟，今晚刀{seat}号。")
SELF_PROPOSALS = ("今晚刀{seat}号，骗女巫一瓶药。", "自刀{seat}号，做个银水。")
POSING_PLANS = ("{seat}号悍跳预言家。", "{seat}号悍跳，我们跟。", "明天{seat}号去跳预言家。")


MEANINGS: Mapping[str, tuple[str, ...]] = {
    "accused": (
        *ACCUSATIONS,
        *ACCUSATIONS_OF_NAMED,
        *ACCUSATIONS_OF_FINDS,
        *ACCUSATIONS_OF_CLAIMANTS,
        *ACCUSATIONS_OF_ACCUSERS,
        *RALLIES,
    ),
    "split": SPLITS,
    "followed": FOLLOWINGS,
    "trusted": TRUSTS,
    "seer": CLAIMS_TO_BE_SEER,
    "claim": CLAIMS,
    "counterclaim": COUNTERCLAIMS,
    "check": (*CHECKS, *LATEST_CHECKS),
    "plan": (*NEXT_CHECKS, *NEXT_TWO_CHECKS),
    "saved": SAVINGS,
    "poisoned": POISONINGS,
    "prey": (*PROPOSALS, *AGREEMENTS, *SELF_PROPOSALS),
    "poser": POSING_PLANS,
    "nothing": (*DEFENCES, *SMALL_TALK, *CALLS_FOR_SEER, *CAMPAIGN_LINES, *WITHDRAWALS, *CLAIMS_GOOD),
}
"""What each sentence states (``speech.Heard``), about the seats that it names."""


def fit_together(sentences: Iterable[str], limit: int) -> str:
    """The sentences as one speech of at most ``limit`` characters; one that no longer fits is left out whole."""
    speech = ""
    for sentence in sentences:
        if len(speech) + len(sentence) <= limit:
            speech += sentence
    return speech


def say(chance: Random, templates: Sequence[str], limit: int, **about: object) -> str:
    """One of ``templates``, filled in, for a speech of at most ``limit`` characters."""
    return chance.choice(templates[:PLAIN] if limit <= SHORT_SPEECH_CHARS else templates).format(**about)
