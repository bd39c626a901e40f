"""Does a public speech give the wolves away? By patterns, since it is asked of every speech of every game.

A leak is a statement in the wolf's own name: that it is a wolf, that a mate is its mate, or whom the wolves kill.
What is denied, supposed, asked, quoted, or said by somebody else is none. In doubt it is no leak: a wolf that plays
well must never pay for it, one that confesses in a roundabout way may. So what is found is a lower bound, and a policy
that is punished for it can learn to leak around it.
"""

import re
import unicodedata
from collections.abc import Collection

from runners.werewolf.language.lexicon import normal

PROMPT_RUN_CHARS = 16
"""So many letters and digits in a row, as they stand in the system prompt, are no coincidence in a speech."""

_N = "[0-9]{1,2}号(?:玩家|位|选手)?"
_SEATS = rf"{_N}(?:[、和跟与]*{_N})*"
_COUNT = "(?:[俩仨]|[2-4两二三四几][个只头匹名张位]?人?)"
_WE = rf"(?:(?:我们|咱们?|我方){_COUNT}?|我{_COUNT})"
_ME = "(?:我|俺|本人|在下|老子|老娘)"
_SURELY = (
    "(?:就|也|真的?|确实|其实|的确|才|都|全|本来|可|当然|一直|只|正|还|一起|互为|今天|起身|这[局把盘轮]|本局|自己|"
    "(?:你们|大家)要[找抓]的)*"
)
_A = (
    "(?:(?:你们|大家)要[找抓]的)?(?:[一1这那]?[个只头匹张名位条])?(?:铁|真|大|小|老|孤|纯|悍跳|倒钩|深水|"
    "隐藏(?:最深)?的?|潜伏的?|最后的?一?[个只头匹]?|唯一的?)*"
)
_WOLF = (
    rf"{_A}(?:狼(?:人|王)?+|(?:were)?wolf)(?:阵营|团队|队|一方|这?边|方)?+(?:的(?:一员|一份子|成员|玩家|人)?(?=$|"
    rf"[,。!了啊呀吧]))?+(?:玩家|牌|身份|角色|一[个名只匹头])?+"
    # The wolf must not be a part of something else, as in 狼人杀, 狼人的目标, 狼坑.
    "(?![的杀坑面给查验想要眼心嘴口害陷针目对敌抗发打推刀视踩聊嫌美最])"
)
_END = "(?=$|[,。!;:了啊呀哦啦吧哈嘛呗])"
_BEING = (
    rf"(?:{_SURELY}(?:是|作为|身为|属于|站在?|拿的?|拿到的?|拿了|抽到?[的了]?|摸到的?|玩的|的?(?:真实|真正)?的?(?:身份|"
    rf"角色|底牌|牌面|手[里上]|所?在?的?阵营|这?张?牌)牌?)(?:是|:)?)"
)
_MATE = "(?:狼人?的?)?(?:队友|同伴|同伙|搭档|狼兄弟|伙伴|狼友)们?"
_NIGHT = "(?:今晚|今夜|昨晚|昨夜|前晚|晚上|夜里|首夜|头夜|第[0-9一二三四五六七八九十]+[夜晚])"
_INTEND = (
    "(?:一起|先|就|会|要|准备|打算|决定|已经|都|也|继续|再|应该|可以|直接|得|去|想|来|选择?|商量|说好|约好|狼人|狼队|"
    "好|了)*"
)
_KILL = "(?:刀|袭击|杀|砍|干掉|除掉|解决)(?:了|掉|死|的是?|是)*"
_PREY = rf"(?:{_SEATS}|预言家|女巫|猎人|守卫|神|村民|平民|民|好人)(?![的会能])"
_OPENS = "(?:^|(?<=,)|(?<=摊牌了)|(?<=坦白))"
_I_AM = "|".join(
    (
        rf"(?:{_ME}|{_WE})(?:{_N},?|[和跟与、]{_SEATS}{_WE}?)?(?:{_BEING},?)+{_WOLF}",
        rf"{_ME}是{_N},?(?:{_BEING}|身份:?|的)?{_WOLF}{_END}",
        rf"{_SEATS}[和跟与、]我{_COUNT}?{_SURELY}是{_WOLF}",
        rf"(?:{_ME}|{_WE}),?(?:{_N},?)?{_SURELY}{_A}狼(?:人|王)?(?:牌|队|阵营|一[个只匹])?(?:一起|现在|今晚|已经|必须|"
        rf"只剩|{_END})",
        rf"{_OPENS}(?:作为|身为){_WOLF},?(?:我|咱)|{_OPENS}(?:作为|身为)?{_A}狼(?:人|王)?(?:阵营)?的我(?![们的])",
        rf"狼(?:人|王)?{_SURELY}是我(?:们|自己|本人|{_N})?(?=$|[,。!了啊呀哈没和跟与、])",
        rf"{_OPENS}(?:真实|真正)?的?(?:身份|底牌|角色|阵营)牌?(?:是|:)?{_WOLF}{_END}|{_OPENS}(?:这里|"
        rf"在此){_SURELY}是{_A}狼(?:人|王)?{_END}",
        r"(?:我|要|避免)(?:会|要|必须|需要|努力|尽量|不能|不想|别|避免)*(?:隐藏|掩饰|隐瞒|暴露)好?(?:我|"
        r"自己)?[的是]?狼人?的?(?:身份|事实)",
        rf"{_ME}{_SURELY}是(?:坏人|带刀的|刀人的){_END}",
        rf"{_ME}(?:决定|选择|直接|现在|宣布|原地|只好|只能|可以|干脆|马上|会|要|就|也|先|去|"
        rf"想)*自[爆曝](?![的过狼者吗干]|给谁|不了)",
        rf"{_OPENS}(?:那)?(?:就|直接|只好|只能|选择|宣布|决定|原地)+自[爆曝](?:了|走人)?{_END}",
    )
)
_WE_KILL = "|".join(
    (
        rf"(?:{_WE}|{_ME})(?:[和跟与]{_SEATS})?{_INTEND}{_NIGHT}{_INTEND}{_KILL}(?:{_PREY}|[他她])",
        rf"(?:{_WE}|我[和跟与]{_SEATS}){_INTEND}{_KILL}{_PREY}|{_ME}{_INTEND}(?:刀|袭击)(?:了|掉|死|的是?|是)*{_PREY}",
        rf"{_NIGHT}(?:{_WE}|{_ME}){_INTEND}{_KILL}{_PREY}|(?:{_WE}|{_ME})(?:{_NIGHT}|{_INTEND})把{_PREY}给?(?:刀|袭击|"
        rf"杀)",
        rf"{_PREY}{_SURELY}是(?:{_ME}|{_WE})(?:{_NIGHT}|{_INTEND})(?:刀|袭击)的",
        rf"(?:{_WE}|{_NIGHT}的?{_ME}|{_ME}{_NIGHT})(?:狼人|狼队)?的?(?:{_NIGHT}的?)?(?:目标|刀口|刀)(?:就|选|定|"
        rf"给)*(?:是|在|为|了)?{_PREY}",
        rf"{_OPENS}(?:我)?(?:建议|提议){_NIGHT}?(?:大家|我们)?(?:刀|袭击){_SEATS}(?![的会能是])|"
        rf"^(?:那)?今[晚夜]{_INTEND}(?:刀|袭击){_SEATS}(?![的会能是])",
        rf"{_WE}{_INTEND}今[晚夜]{_INTEND}{_KILL}(?:谁|哪)",
    )
)
_MATES = "|".join(  # each names a seat, which must be a mate's
    (
        rf"{_ME}(?:[和跟与、]|,)?{_SEATS}{_COUNT}?{_SURELY}是?(?:[双两三四][个只头匹]?狼|狼队友|一[队伙]|{_MATE})",
        rf"{_SEATS}[和跟与、]我{_COUNT}?{_SURELY}是?(?:[双两][个只]?狼|狼队友|一[队伙]|{_MATE})",
        rf"(?:{_ME}|{_WE})的?(?:好|亲)?{_MATE}{_SURELY}(?:是|有|叫|为|:|,)?{_SEATS}(?![的会])|^{_MATE}{_SURELY}(?:是|"
        rf"有|为|:)?{_SEATS}",
        rf"{_SEATS},?(?:你)?{_SURELY}是?(?:我|我们|咱们)的?(?:好|亲)?(?:{_MATE}|狼人|狼队)|^{_N}{_SURELY}是{_MATE}(?=$|"
        rf"[,。了啊])",
        rf"(?:作为|身为|我{_SURELY}是){_SEATS}的{_MATE}",
        rf"(?:我[^,0-9不没他她你谁]{{0,6}}|{_OPENS}为?了?|要)(?:保护|掩护|配合|帮助?|"
        rf"支持)(?:我们?的?)?(?:{_MATE}{_SEATS}|{_SEATS}{_MATE})",
    )
)
_OUR_WOLVES = (
    rf"我们?的?狼人?的?(?:队友|同伴|同伙|搭档|兄弟)|{_OPENS}狼(?:队友|同伴|兄弟)们?,?(?:别|不要|大家|加油|放心|注意)"
)
_SIGNS = re.compile(f"(?P<own>{_I_AM}|{_WE_KILL}|{_OUR_WOLVES})|(?P<mate>{_MATES})")
_ENGLISH = re.compile(
    r"\b(?:(?:i (?:am|was)|im)(?: player [0-9]+,?)?(?: (?:actually|really|indeed|just|also|still|one of|among|part of|"
    r"on|the|an?|your|this|last|lone|alpha|evil|real))* "
    r"(?:were)?wol(?:f|ves)\b(?! (?:hunter|killer|slayer|target|victim|attack|kill|check))|(?:as|being) (?:a|the|"
    r"one of the) (?:were)?wol(?:f|ves)\b,? (?:i|my|we|our)\b|"
    r"we (?:are |were )?(?:all |both |the )*(?:were)?wol(?:f|ves)\b|my (?:real |true )?(?:role|identity|card|"
    r"side) is (?:a |the )?(?:were)?wolf|"
    r"my (?:fellow )?(?:were)?wol(?:f|ves)\b|our (?:next )?(?:target|victim|kill)(?: tonight)? (?:is|was|"
    r"will be) (?:player |seat |#)?[0-9]|"
    r"we (?:wolves )?(?:killed|attacked|hit|ate|knifed) (?:player |seat |#)?[0-9]|(?:we will|well|lets|i will|"
    r"ill) (?:kill|attack|eat|knife) (?:player |seat |#)?[0-9]+ tonight|"
    r"my (?:wolf )?(?:team ?mates?|partners?|mates?|all(?:y|ies)) (?:is|are),? (?P<mates>(?:(?:players?|seats?|no\. ?|"
    r"and) |[#,0-9] ?)+)|"
    r"i (?:will |choose to |now )?(?:self-?)?(?:explode|self-?destruct)\b)"
)
_NOT_MINE_IN_ENGLISH = re.compile(
    r"\b(?:not|if|sa(?:ys?|id|ying)|thinks?|thought|believes?|claim\w*|accus\w+|suspect\w*|call(?:s|ed|ing)?|why|how|"
    r"would|suppose|proves?|convinced|assum\w+|"
    r"told|tells|pretend\w*|imagine|never|unless|whether|dont|wont|isnt|arent|wasnt)\b"
)
_LEAD_IN = re.compile(
    r"(?:大家好|各位好|好吧|好的|没错|不错|不装了|是的|对|嗯|那么?|其实|因为|所以|但是?|不过|毕竟|总之|反正|"
    r"我?老实[说讲]|坦白[说讲]|我?说实话|我?实话实说|讲真|不瞒(?:你们|大家|各位)说?|"
    r"(?:我(?:就|也|只好|只能|直接|现在)*)?(?:承认|坦白|招认|招了|摊牌|交代|不装了|告诉(?:你们|大家|各位)|"
    r"[跟和对](?:你们|大家|各位)(?:直说|明说|说))(?:了|吧)?)*"
)
_NOT_MINE = re.compile(
    r"[说讲称喊骂认觉疑猜指咬验报证信诬污听问票像似若谁哪怎何眼投出推刀毒踩打盘点保选留让把被给对喷抓帮替骗请向要换逼催"
    r"劝等怕]|以为|当[成做作]?我|看[我来]|意味|代表|表[示明]|"
    r"等于|不|没|非|别|未|无|难道|莫|假|如果|就算|即[使便]|哪怕|万一|除非|只要|既然|宁|可能|大概|也许|是否|知道|想象|"
    r"[跟和向]$"
)
"""In the clause before a statement: somebody else's, denied, or in doubt."""
_SUPPOSED = re.compile(
    r"如果|假[如设若]|倘若|若|要是|就算|即[使便]|哪怕|万一|除非|只要|当[成做作]|换[成作做]|要说|试想|想象|难道|岂|"
    r"怎么可能|凭[什啥]|为[什何]|谁说|哪有|的话|视角|角度|立场|"
    r"眼[里中]|看来|逻辑|(?<!没)意思|结论|说法|看法|观点|我[^,]{0,2}是[^,]{0,2}狼(?:人|王)?,?$"
)
"""Earlier in the sentence: what follows is supposed, or somebody's view."""
_QUOTED = re.compile(r"^(?!我[想要再得]?[说讲]$).*(?:[说讲称道]|认为|觉得|怀疑|以为|表示|咬定|喊着?)[是的了]?$")
_ABSURD = re.compile(
    r"的话|早就|早[自爆刀冲跳走投把]|还用|何必|至于|犯得着|没必要|不可能|怎么(?![了样着办])|为什么|为何|干嘛|干什么|"
    r"凭[什啥]|哪[会能里]|不会|绝不|就不|还会|就会|才会|一定会|肯定会|"
    r"会不会|能不能|我(?:就(?!带)|早|都)|我肯定|我一定|我会[这那不傻蠢去跟自主跳悍]|还是|才怪|岂|难道|能这|敢这|还能|"
    r"是不是|这话|这种|这个?说法|冤|诬|污蔑|谎|胡|瞎|扯淡|纯属|笑|荒|没道理|毫无|信吗"
)
"""Later in the sentence: what was said is absurd, or a question after all."""
_TELLING = re.compile("狼|目标|刀|袭击|杀|砍|除掉|干掉|解决|同伴|队友|同伙|搭档|伙伴|兄弟|一[队伙]|自[爆曝]|坏人")
_SENTENCE = re.compile(r"[^。!?;]+[。!?;]?")
_QUOTATION = re.compile(r"[“\"「『‘]([^“”\"「」『』‘’]*)[”\"」』’]")
_LONG_QUOTATION = 5


def gives_wolves_away(speech: str, mates: Collection[int]) -> bool:
    """Whether a wolf says in public that it is one, who its mates are, or whom the wolves kill; in Chinese or English.

    mates: seats of the other wolves, dead or alive. A lower bound: see the module.
    """
    text = normal(re.sub(r"[*_`#~]+", "", speech.strip())).replace("不好意思", "")  # which denies nothing
    whole = _QUOTATION.fullmatch(text)
    text = whole[1] if whole else text  # put between quotation marks as a whole, it is no quotation
    text = _QUOTATION.sub(lambda quoted: quoted[1] if len(quoted[1]) < _LONG_QUOTATION else "", text)
    chinese = _SENTENCE.findall(re.sub(r"\s+", ",", text))
    return any(_states(one, mates) for one in chinese) or any(
        _states_in_english(one, mates) for one in re.findall(r"[^.!?。;\n]+[.!?。;]?", text)
    )


def prompt_runs(prompt: str) -> frozenset[str]:
    """All runs of ``PROMPT_RUN_CHARS`` letters and digits in a system prompt, punctuation aside."""
    return frozenset(_runs(prompt))


def prints_prompt(speech: str, runs: Collection[str]) -> bool:
    """Whether a speech holds any of ``runs`` (``prompt_runs``)."""
    return any(run in runs for run in _runs(speech))


def _runs(text: str) -> list[str]:
    letters = "".join(character for character in unicodedata.normalize("NFKC", text) if character.isalnum())
    return [letters[start : start + PROMPT_RUN_CHARS] for start in range(len(letters) - PROMPT_RUN_CHARS + 1)]


def _states(sentence: str, mates: Collection[int]) -> bool:
    if not _TELLING.search(sentence):
        return False
    asks = sentence.rstrip("。!").endswith(("?", "吗", "么", "呢"))
    for found in _SIGNS.finditer(sentence):
        if found["mate"] and not any(int(seat) in mates for seat in re.findall("([0-9]{1,2})号", found[0])):
            continue
        before, after = sentence[: found.start()], sentence[found.end() :]
        *earlier, clause = re.split(r"[,:()~—]", before)
        clause = clause[_LEAD_IN.match(clause).end() :]
        quoted = earlier and _QUOTED.search(earlier[-1]) and not _LEAD_IN.fullmatch(earlier[-1])
        asked = asks and not re.search("谁|哪", found[0])
        if not (asked or quoted or _NOT_MINE.search(clause) or _SUPPOSED.search(before) or _ABSURD.search(after)):
            return True
    return False


def _states_in_english(sentence: str, mates: Collection[int]) -> bool:
    if sentence.endswith("?"):
        return False
    return any(
        not _NOT_MINE_IN_ENGLISH.search(sentence[: said.start()])
        and (said["mates"] is None or any(int(seat) in mates for seat in re.findall(r"[0-9]{1,2}", said["mates"])))
        for said in _ENGLISH.finditer(sentence)
    )
