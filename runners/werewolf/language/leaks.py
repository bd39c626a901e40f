"""Detects public speeches that reveal the wolves, by patterns, since it runs on every speech.

A leak is a wolf's own statement that it is a wolf, that a mate is one, or which seat the wolves kill. Denials,
suppositions, questions, quotations and statements of others are no leaks. A doubtful speech counts as no leak, so that
good play is never penalized: the rate is a lower bound, and a penalized policy may learn to evade it.
"""

import re
import unicodedata
from collections.abc import Set
from itertools import takewhile

from runners.werewolf.language.lexicon import RETOLD, normal, without_emoji

PROMPT_RUN_CHARS = 16
"""Least length, in letters and digits, of a run from the system prompt that is no coincidence in a speech."""

# --- parts of statements --------------------------------------------------------------------------------------------

_N = "[0-9]{1,2}号(?:玩家|位|选手)?"
_SEATS = rf"{_N}(?:[、和跟与]*{_N})*"
_COUNT = "(?:[俩仨]|[2-4两二三四几][个只头匹名张位]?人?)"
_WE = rf"(?:(?:我们|咱们?|我方){_COUNT}?|我{_COUNT})"
_ME = "(?:我|俺|本人|在下|老子|老娘)"
_WITH = rf"(?:[和跟与、]{_SEATS})"
_SURELY = (
    "(?:就|也|真的?|确实|其实|的确|才|都|全|本来|可|当然|一直|只|正|还|一起|互为|今天|起身|这[局把盘轮]|自己|"
    "(?:你们|大家)要[找抓]的)*"
)
_A = "(?:你们要[找抓]的)?(?:[一1这那]?[个只头匹张名位条])?(?:小|铁|真|悍跳|倒钩|隐藏(?:最深)?的?|最后的?一?[个只]?)*"
_WOLF = (
    rf"{_A}狼(?:人|王)?+(?:阵营|队伍?中?)?+(?:的(?:一员|成员)?(?=$|[,。]))?+(?:牌|玩家|一[个名只匹])?+"
    # Not a part of another word, such as 狼人杀, 狼人的目标, 狼坑.
    "(?![的杀坑面给查验想要眼心嘴口害陷针目对敌抗发打推刀视踩聊嫌美最]|不敢刀|攻击|重点|栽赃|故意留)"
)
_OPENS, _END = "(?:^|(?<=,))", "(?=$|[,。!;:了啊呀哦啦吧哈嘛呗])"
_CARD = "(?:的?(?:真实|所在)?的?(?:身份|角色|底牌|牌面|手里|阵营|这?张?牌)牌?)"
_BEING = rf"(?:{_SURELY}(?:是|作为|身为|属于|站|拿到?的?|抽到|{_CARD})(?:是|:)?)"
_MATE = "(?:狼人?的?)?(?:队友|同伴|同伙|搭档|狼兄弟|伙伴|狼友)们?"
_NIGHT = "(?:今晚|今夜|昨晚|昨夜|前晚|晚上|夜里|首夜|第[0-9一二三四五六七八九十]+[夜晚])"
_INTEND = (
    "(?:一起|先|就|会|要|准备|打算|决定|已经|都|也|继续|再|应该|可以|直接|得|去|想|来|选择?|商量|说好|约好|狼人|好|了)*"
)
_HIT, _KILL = (rf"(?:{verbs})(?:了|掉|死|的是?|是)*" for verbs in ("刀|袭击", "刀|袭击|杀|砍|干掉|除掉|解决"))
_ROLES = "预言家|女巫|猎人|守卫|白痴|神|村民|平民|民"
_PREY = rf"(?:{_SEATS}|{_ROLES}|好人)(?![的会能])"

_OWN = "|".join(
    (
        # 我是狼
        rf"(?:{_ME}|{_WE})(?:{_N},?|{_WITH}{_WE}?)?(?:{_BEING},?)+{_WOLF}",
        rf"{_ME}是{_N},?{_BEING}?{_WOLF}{_END}|{_SEATS}[和跟与、]我{_COUNT}?{_SURELY}是{_WOLF}",
        rf"(?:{_ME}|{_WE}),?(?:{_N},?)?{_SURELY}{_WOLF}(?:一起|现在|已经|必须|只剩|{_END})",
        rf"{_OPENS}(?:作为|身为)?(?:{_WOLF},?我|狼(?:人|王)?(?:阵营)?的我(?![们的]))|{_OPENS}身份:?{_WOLF}{_END}",
        rf"狼(?:人|王)?{_SURELY}是我(?:们|自己|本人|{_N})?(?=$|[,。!了啊呀哈没和跟与、])|{_ME}{_SURELY}是坏人{_END}",
        r"(?:我|避免)(?:会|要|必须|需要|努力|避免)*(?:隐藏|暴露)好?(?:自己)?[我的是]*狼人?的?(?:身份|事实)",
        rf"{_ME}(?:决定|选择|直接|现在|宣布|只好|只能|要|想|就|先)*自[爆曝](?![的过狼者吗干]|身份(?![,:]?{_WOLF})|给谁|不了)|{_OPENS}直接自[爆曝]",
        # 我们刀人
        rf"(?:{_ME}|{_WE}){_WITH}?{_INTEND}(?:{_NIGHT}{_INTEND})?{_HIT}(?:{_PREY}|[他她]{_END})",
        rf"(?:(?:{_ME}|{_WE}){_NIGHT}|{_NIGHT}(?:{_ME}|{_WE})|(?<!今天){_WE}){_INTEND}{_KILL}{_PREY}(?!(?:玩家|位|选手)?这[^,。!?]{{0,4}}狼)",
        rf"{_ME}(?:{_NIGHT}|{_INTEND})把{_PREY}给?{_HIT}|{_WE}{_INTEND}{_NIGHT}{_INTEND}(?:把{_PREY}{_HIT}|{_KILL}谁)",
        rf"{_PREY}{_SURELY}是(?:{_ME}|{_WE})(?:{_NIGHT}|{_INTEND}){_HIT}",
        rf"(?<!今天)(?:{_WE}(?:狼人)?的?{_NIGHT}的?(?:目标|刀口)|{_WE}(?:狼人的?(?:目标|刀口)|的?刀口)|{_NIGHT}{_WE}的?目标|"
        rf"{_ME}{_NIGHT}的?(?:目标|刀口))(?:是|在|为)?{_PREY}",
        # A seat may be the target of the day's vote.
        rf"(?<!今天){_WE}(?!的?今天)的?目标(?:是|在|为)?(?:(?:{_ROLES})(?![的会能])|{_SEATS}(?=[^。!?]*(?:今[晚夜]|刀|杀)))",
        rf"{_OPENS}(?:我)?(?:建议|提议){_NIGHT}?(?:大家|我们)?{_HIT}{_SEATS}(?![的会能是])",
        rf"^(?:那)?今[晚夜](?![^,。]*(?:狼|会|应该)){_INTEND}{_HIT}{_SEATS}(?![的会能是])",
        # 我的狼队友
        rf"我们?的?狼人?的?(?:队友|同伴|同伙|搭档|兄弟)|{_OPENS}狼(?:队友|同伴|兄弟)们?,?(?:别|不要|大家|加油|放心)",
        r"\b(?:i (?:am|was)|im|we|as|being) (?:(?:really|just|one of|the|an?|both|all|player [0-9]+|lone|last) )*"
        r"(?:were)?wol(?:f|ves)\b(?! (?:hunter|target|victim|king))",
        r"\bmy (?:(?:role|identity|card|fellow) (?:is )?(?:an? )?)(?:were)?wol",
        r"\b(?:we (?:wolves )?(?:killed|attacked|hit)|our target tonight is) (?:player |seat )?[0-9]|"
        r"\bour target is (?:player |seat )?[0-9]+(?=[^.!?]*(?:tonight|kill))",
        r"\bi (?:will |choose to |now )?(?:self-?)?(?:explode|destruct)\b",
    )
)
_OF_MATES = "|".join(  # each contains a seat, which must be a mate's
    (
        rf"(?:{_ME}{_WITH}|{_ME}{_SEATS}|{_SEATS}[和跟与、]我){_COUNT}?{_SURELY}是?(?:[双两三四][个只]?狼|一[队伙](?![^。!?]*[都全]是好人)|{_MATE})",
        rf"(?:{_ME}|{_WE})的?{_MATE}{_SURELY}(?:是|有|:|,)?{_SEATS}(?![的会])|^{_MATE}{_SURELY}是?{_SEATS}",
        rf"{_SEATS},?{_SURELY}是?我们?的?(?:好|亲)?(?:{_MATE}|狼队)|^{_N}{_SURELY}是{_MATE}(?=$|[,。了啊])",
        rf"(?:作为|身为|我{_SURELY}是){_SEATS}的{_MATE}",
        rf"(?:我[^,0-9不没他她你谁]{{0,6}}|{_OPENS}为了?)(?:保护|掩护|配合)(?:我的)?(?:{_MATE}{_SEATS}|{_SEATS}{_MATE})",
        r"\bmy (?:wolf )?(?:team ?mate|partner|mate|ally)s? (?:is|are) (?:(?:players?|seats?|and) |[0-9]+ ?)+",
    )
)
_SIGNS = re.compile(f"(?:{_OWN})|(?P<mates>{_OF_MATES})")

# --- exceptions: statements of others, denials, suppositions --------------------------------------------------------

_LEAD_IN = re.compile(
    "(?:大家好|各位好|好吧|好的|没错|不错|是的|对(?!你们|大家(?!好)|各位(?!好))|嗯|那么?|其实|因为|所以|但是?|不过|毕竟|总之|反正|讲真|"
    "我?(?:老实|坦白|实话|实话实)[说讲]|(?:我(?:就|也|只好|只能|直接|现在)*)?"
    "(?:承认|坦白|招认|招了|摊牌|交代|不装了|你们|大家|各位|(?:告诉|[跟和对])(?:你们|大家|各位)(?:直说|明说|说)?)(?:了|吧)?)*"
)
_NOT_MINE = re.compile(
    "[说讲称喊骂认觉疑猜指咬验报证信诬污听问票像似若谁哪怎何眼投出推刀毒踩打盘点保选留让把被给对喷抓帮替骗请向要换逼催劝等怕]|"
    "以为|当(?:[成做作]?我|$)|看[我来]|意味|代表|表[示明]|等于|不|没|非|别|未|无|难道|莫|假|如果|就算|即[使便]|万一|除非|只要|"
    r"既然|宁|(?<!我)(?:强调|暗示|断[言定]|主张|坚持|公布)|攻击|标|查|判断|分析|可能|大概|也许|知道|想象|[跟和向]$|\b(?:not|if|sa(?:ys?|id)|think|thought|claim|accus|call|why|how|would|never|"
    "told|dont|isnt|arent|wasnt)"
)
"""In the clause before a statement: it is another speaker's, denied, or doubtful."""
_SUPPOSED = re.compile(
    "如果|假[如设若]|若|要是|就算|即[使便]|哪怕|万一|除非|只要|当[成做作]|换[成作做]|要说|试想|想象|难道|岂|怎么可能|"
    "凭[什啥]|为[什何]|谁说|哪有|的话|视角|角度|立场|眼[里中]|看来|逻辑|(?<!没)意思|结论|说法|看法|观点|"
    "我[^,]{0,2}是[^,]{0,2}狼(?:人|王)?,?$"
)
"""Earlier in the sentence: the statement is a supposition or another seat's view."""
_QUOTED = re.compile("^(?!我[想要再得]?[说讲]$).*(?:[说讲称道]|认为|觉得|怀疑|以为|表示|咬定|喊着?)[是的了]?$")
_ABSURD = re.compile(
    "的话|早[就自爆刀冲跳走投把]|还用|何必|至于|犯得着|没必要|不可能|怎么(?![了样着办])|为[什何]|干[嘛什]|凭[什啥]|"
    "哪[会能里]|不会|绝不|就不|[还就才]会|[一肯]定会|会不会|能不能|我(?:就(?!带)|早|都|肯定|一定)|我会[这那不傻蠢去跟自主跳悍]|"
    "还是|才怪|岂|难道|[能敢]这|还能|是不是|这话|这种|这个?(?:说法|(?:结论|推理|逻辑|判断)(?!没))|这一点(?!我?承认)|冤|诬|污蔑|谎|胡|瞎|扯淡|纯属|笑|荒|没道理|毫无|信吗"
)
"""Later in the sentence: the statement is called absurd, or is a question."""
_TELLING = re.compile(
    "狼|目标|刀|袭击|杀|砍|除掉|干掉|解决|同伴|队友|同伙|搭档|伙伴|兄弟|一[队伙]|自[爆曝]|坏人|[a-z]{3}"
)
"""A word of this list is in every leak, so that most sentences need no second pattern."""
_SENTENCE = re.compile(r"[^.。!?;\n]+[.。!?;]?")
_QUOTATION = re.compile('[“"「『‘]([^“”"「」『』‘’]*)[”"」』’]')
_LONG_QUOTATION = 5


def gives_wolves_away(speech: str, mates: Set[int]) -> bool:
    """Whether a wolf's public speech, Chinese or English, is a leak: see the module.

    mates: seats of the other wolves, dead or alive.
    """
    text = normal(without_emoji(re.sub(r"[*_`#~]+", "", speech.strip()))).replace("不好意思", "")  # its 不 is no denial
    whole = _QUOTATION.fullmatch(text)
    text = whole[1] if whole else text  # quotation marks around a whole speech do not make it a quotation
    text = _QUOTATION.sub(lambda quoted: quoted[1] if len(quoted[1]) < _LONG_QUOTATION else "", text)
    text = re.sub(r"(?<![a-z0-9,])[^\S\n]+|[^\S\n]+(?![a-z0-9])", ",", text)  # not between English words
    own = takewhile(lambda sentence: not RETOLD.match(sentence.lstrip(",")), _SENTENCE.findall(text))
    return any(_states(sentence, mates) for sentence in own if _TELLING.search(sentence))


def _states(sentence: str, mates: Set[int]) -> bool:
    asks = sentence.rstrip("。!.").endswith(("?", "吗", "么", "呢"))
    for found in _SIGNS.finditer(sentence):
        if found["mates"] and mates.isdisjoint(map(int, re.findall("[0-9]{1,2}", found[0]))):
            continue
        before, after = sentence[: found.start()], sentence[found.end() :]
        *earlier, clause = re.split("[,:()~—]", before)
        clause = clause[_LEAD_IN.match(clause).end() :]
        quoted = earlier and _QUOTED.search(earlier[-1]) and not _LEAD_IN.fullmatch(earlier[-1])
        is_question = asks and "谁" not in found[0]
        if not (is_question or quoted or _NOT_MINE.search(clause) or _SUPPOSED.search(before) or _ABSURD.search(after)):
            return True
    return False


def prompt_runs(prompt: str) -> frozenset[str]:
    """All runs of ``PROMPT_RUN_CHARS`` letters and digits in a system prompt, without punctuation."""
    letters = "".join(filter(str.isalnum, unicodedata.normalize("NFKC", prompt)))
    return frozenset(letters[at : at + PROMPT_RUN_CHARS] for at in range(len(letters) - PROMPT_RUN_CHARS + 1))


def prints_prompt(speech: str, runs: Set[str]) -> bool:
    """Whether a speech holds any of ``runs`` (``prompt_runs``)."""
    return not prompt_runs(speech).isdisjoint(runs)
