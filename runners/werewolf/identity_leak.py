"""Does a public speech give the wolves away? By patterns, since it is asked of every speech of every game.

A leak is a statement in the wolf's own name: that it is a wolf, that a mate is its mate, or whom the wolves kill.
What is denied, supposed, asked, quoted, or said by somebody else is none. In doubt it is no leak: a wolf that plays
well must never pay for it, one that confesses in a roundabout way may.
"""

import re
import unicodedata
from collections.abc import Collection
from dataclasses import dataclass

PROMPT_RUN_CHARS = 16
"""So many letters and digits in a row, as they stand in the system prompt, are no coincidence in a speech."""

# --- words ----------------------------------------------------------------------------------------------------------

_SEATS = r"[0-9]{1,2}号(?:玩家|位)?(?:[、和跟与,]*[0-9]{1,2}号(?:玩家|位)?)*"
_COUNT = r"(?:[俩仨]|[2-4两二三四几][个只头匹名张位]?人?)"
_EMPHASIS = r"(?:就|也|真的?|确实|其实|的确|才|都|全|本来|可|当然|一直|只|正|还|一起|互为)*"
_ME = r"(?:我|俺|本人|在下|老子|老娘)(?:[0-9]{1,2}号(?:玩家)?)?"
_US = rf"(?:(?:我们|咱们?|我方){_COUNT}?|我{_COUNT})"
_A_WOLF = (
    r"(?:[一1这那]?[个只头匹张名位条])?(?:铁|真|大|小|老|孤|纯|悍跳|倒钩|深水|冲锋|隐藏的?|潜伏的?|最后的?一?[个只头匹]?|唯一的?)*"
    r"狼(?:人|王)?+(?:阵营|团队|队|一方|这?边|方)?+"
)
_WOLF = (
    rf"{_A_WOLF}(?:的(?:一员|一份子|一分子|成员|玩家|人)?(?=$|[,。!了啊呀哦啦吧]))?+(?:玩家|牌|身份|角色|一[个名只匹头])?+"
    # The wolf must not be a part of something else, as in 狼人杀, 狼人的目标, 狼坑.
    r"(?![的杀坑面给查验想要眼心嘴口害陷针目对敌抗发打推刀视踩聊嫌美最])"
)
_END = r"(?=$|[,。!;:了啊呀哦啦吧哈嘛呗])"
_MATE = r"(?:狼人?的?)?(?:队友|同伴|同伙|搭档|狼兄弟|伙伴)们?"
_THIS_GAME = r"(?:这[局把盘轮次]|本[局轮]|今天|起身|起手|开局|从头到尾|自己|个人)+"
_COVER = r"(?:保护|掩护|配合|帮助?|支持|同意|相信)"
_NIGHT = r"(?:今晚|今夜|昨晚|昨夜|前晚|晚上|夜里|首夜|头夜|第[0-9一二三四五六七八九十]+[夜晚])"
_INTEND = r"(?:一起|先|就|会|要|准备|打算|决定|已经|都|也|继续|再|应该|可以|直接|得|去|想|来|选择?|亲手|亲自)"
_KILL, _KILL_AT_NIGHT = r"(?:刀|袭击)", r"(?:刀|袭击|杀|砍|干掉|除掉|解决)"
_DONE = r"(?:了|掉|死|的)*"
_PREY = rf"(?:{_SEATS}|预言家|女巫|猎人|守卫|神|村民|平民|民|好人)"

# --- what gives away ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Sign:
    """A statement that gives wolves away.

    pattern: what is said. names_mate: it does so only if it names a mate's seat.
    opens_clause: it does so only at a clause's beginning, in a sentence that has spoken of nobody yet.
    asked: it does so as a question, too.
    """

    pattern: re.Pattern[str]
    names_mate: bool = False
    opens_clause: bool = False
    asked: bool = False


def _sign(pattern: str, **kind: bool) -> _Sign:
    return _Sign(re.compile(pattern), **kind)


_SIGNS = (
    # I am a wolf
    _sign(rf"(?:{_ME}|{_US}){_EMPHASIS}是(?:(?:你们|大家)[要想在]?[找抓]的那?)?{_WOLF}"),
    _sign(
        rf"{_ME}(?:是[0-9]{{1,2}}号(?:玩家|位)?,)?的?(?:真实|真正)?的?(?:身份|角色|手[里上]|底牌|这?张?牌)牌?{_EMPHASIS}是?{_WOLF}"
    ),
    _sign(
        rf"我{_INTEND}*(?:必须|需要|努力|尽量|不能|不想|别)?(?:隐藏|掩饰|隐瞒|掩盖|暴露)好?(?:我|自己)?[的是]?狼人?的?(?:身份|事实)"
    ),
    _sign(rf"{_ME}{_EMPHASIS}(?:作为|身为|属于|拿的是?|拿到的?是?|拿了|抽到的?是?|抽了|摸到的?是?|玩的是){_WOLF}"),
    _sign(rf"(?:作为|身为){_WOLF},?(?:我|咱)", opens_clause=True),
    _sign(rf"(?:作为|身为){_A_WOLF}的我"),
    _sign(rf"狼(?:人|王)?{_EMPHASIS}是我(?:们|自己|本人|[0-9]{{1,2}}号(?:玩家)?)?(?=$|[,。!了啊呀哈没和跟与、])"),
    _sign(rf"{_US}(?:都|全)?狼(?:人|王)?+(?:阵营|团队|队)?+(?![的杀坑面给查验眼心嘴口美视])(?!.*(?:是谁|在哪|找|抓))"),
    _sign(rf"我[和跟与、]{_SEATS}(?:{_US}|{_COUNT})?{_EMPHASIS}是{_WOLF}"),
    _sign(rf"{_SEATS}[和跟与、]我(?:{_US}|{_COUNT})?{_EMPHASIS}是{_WOLF}"),
    _sign(
        rf"{_ME}{_EMPHASIS}是[0-9]{{1,2}}号(?:玩家|位|选手)?(?:,?我?{_EMPHASIS}是|,?身份是?:?|,一[名个只匹头张]|的)?{_WOLF}{_END}"
    ),
    _sign(
        rf"{_ME},?(?:[0-9]{{1,2}}号(?:玩家)?,?)?{_EMPHASIS}(?:一?[个只匹头名张条])?{_A_WOLF}(?:牌|一[个只匹头])?{_END}"
    ),
    _sign(
        rf"(?:我的?|本人的?)?(?:真实|真正)?的?(?:身份|底牌|角色|阵营|牌面|牌)牌?{_EMPHASIS}(?:是|:)?{_WOLF}{_END}",
        opens_clause=True,
    ),
    _sign(rf"{_ME}{_EMPHASIS}是[0-9]{{1,2}}号(?:玩家|位|选手)?,狼(?:人|王)?一[个名只匹头]{_END}"),
    _sign(rf"{_ME}{_THIS_GAME}{_EMPHASIS}(?:是|拿的?是?|拿了|抽到?了?){_WOLF}"),
    _sign(rf"{_ME}{_EMPHASIS}是那?一?[个只匹头](?:[^,0-9不被怕找抓投打踩查验给]{{1,6}}的)?狼(?:人|王)?{_END}"),
    _sign(r"我一[个只匹](?:大|小)?狼(?:人|王)?(?=能|还能|可以)"),
    _sign(rf"(?:摊牌|坦白|承认|招)了?,{_A_WOLF}{_END}"),
    _sign(rf"{_ME}(?:的阵营|所在的?阵营){_EMPHASIS}是{_WOLF}"),
    _sign(rf"(?:这里|在此|在这){_EMPHASIS}是{_A_WOLF}{_END}|{_A_WOLF}(?:在此|在这){_END}", opens_clause=True),
    _sign(rf"{_ME}{_EMPHASIS}(?:站在?|站的是){_A_WOLF}(?:这|那)?一?[头边]?{_END}"),
    _sign(rf"{_A_WOLF}的我(?![们的])", opens_clause=True),
    _sign(rf"{_ME}{_EMPHASIS}是,?(?:一?个|a|the)?,?(?i:(?:were)?wolf)(?![a-z])"),
    _sign(rf"{_ME}{_EMPHASIS}是(?:坏人|带刀的|刀人的|夜里杀人的|晚上杀人的){_END}"),
    _sign(
        rf"{_ME}(?:{_INTEND}|决定|选择|直接|现在|宣布|原地|只好|只能|可以|干脆|马上|立刻)*(?:自爆|自曝)(?![的过狼吗干]|给谁|不了)"
    ),
    _sign(rf"(?:那)?(?:就|直接|只好|只能|选择|宣布|决定|原地)+自[爆曝](?:了|走人)?{_END}", opens_clause=True),
    # my mates
    _sign(rf"我[和跟与、]{_SEATS}{_EMPHASIS}是?(?:双狼|两狼|两只狼|狼队友)", names_mate=True),
    _sign(rf"{_ME}(?:的)?(?:狼|好|亲)?(?:队友|同伴|同伙|搭档|伙伴|狼友)[,:]?{_SEATS}(?![的会])", names_mate=True),
    _sign(rf"{_SEATS},你{_EMPHASIS}是我们?的?{_MATE}", names_mate=True),
    _sign(rf"{_SEATS},我们?的?(?:好|亲)?{_MATE}", names_mate=True),
    _sign(rf"我[和跟与]{_SEATS}{_NIGHT}?(?:商量|说好|约好|{_INTEND})*{_NIGHT}?{_KILL_AT_NIGHT}{_DONE}{_PREY}"),
    _sign(rf"我,?(?:[和跟与、加])?{_SEATS}{_EMPHASIS}是?(?:双|三|两|四)[个只匹头]?狼", names_mate=True),
    _sign(rf"(?:作为|身为){_SEATS}的{_MATE}", names_mate=True),
    _sign(rf"{_SEATS}[和跟与]我{_EMPHASIS}(?:是)?(?:双狼|两狼|一个阵营的狼|狼队友)", names_mate=True),
    _sign(r"我们?的?狼人?的?(?:队友|同伴|同伙|搭档|兄弟)"),
    _sign(rf"我们?的?{_MATE}{_EMPHASIS}(?:是|有|叫|为|:)?{_SEATS}", names_mate=True),
    _sign(rf"{_MATE}{_EMPHASIS}(?:是|有|为|:)?{_SEATS}", names_mate=True, opens_clause=True),
    _sign(rf"[0-9]{{1,2}}号(?:玩家)?{_EMPHASIS}是{_MATE}(?=$|[,。了啊])", names_mate=True, opens_clause=True),
    _sign(rf"{_SEATS}{_EMPHASIS}是我们?的?{_MATE}", names_mate=True),
    _sign(rf"{_SEATS}{_EMPHASIS}是(?:我们|咱们?)狼(?:人|队)", names_mate=True),
    _sign(rf"我[和跟与](?:我们?的?)?{_MATE}(?:是|:)?{_SEATS}", names_mate=True),
    _sign(rf"我[^,0-9不没他她你谁]{{0,6}}{_COVER}(?:我们?的?)?{_MATE}{_SEATS}", names_mate=True),
    _sign(rf"为了?{_COVER}(?:我们?的?)?{_MATE}{_SEATS},我", names_mate=True),
    _sign(rf"我[和跟与、]{_SEATS}(?:{_US}|{_COUNT})?{_EMPHASIS}是(?:一[队伙]|{_MATE})", names_mate=True),
    _sign(rf"{_SEATS}[和跟与、]我(?:{_US}|{_COUNT})?{_EMPHASIS}是(?:一[队伙]|{_MATE})", names_mate=True),
    _sign(rf"我{_EMPHASIS}是{_SEATS}的{_MATE}", names_mate=True),
    # whom we kill
    _sign(rf"(?:{_ME}|{_US})(?:狼人|狼队)?(?:{_NIGHT}|{_INTEND})*{_KILL}{_DONE}是?{_PREY}"),
    _sign(rf"{_PREY}{_EMPHASIS}是(?:{_ME}|{_US})(?:{_NIGHT}|{_INTEND})*{_KILL}的"),
    _sign(rf"(?:{_ME}|{_US})(?:狼人|狼队)?(?:{_NIGHT}|{_INTEND})*把{_PREY}给?{_KILL}"),
    _sign(rf"(?:{_US}|{_ME}){_INTEND}*{_NIGHT}{_INTEND}*{_KILL_AT_NIGHT}{_DONE}是?{_PREY}"),
    _sign(rf"{_NIGHT}(?:{_US}|{_ME}){_INTEND}*{_KILL_AT_NIGHT}{_DONE}是?{_PREY}"),
    _sign(rf"{_US}{_INTEND}*{_NIGHT}{_INTEND}*{_KILL_AT_NIGHT}{_DONE}[他她]"),
    _sign(rf"(?:{_US}|{_ME})的?{_NIGHT}的?(?:目标|刀口|刀)(?:就|选|定|给)*(?:是|在|为|了)?{_PREY}"),
    _sign(rf"{_NIGHT}(?:{_US}|{_ME})的?(?:目标|刀口|刀)(?:就|选|定|给)*(?:是|在|为|了)?{_PREY}"),
    _sign(rf"{_US}(?:狼人|狼队)?的?(?:刀口|刀)(?:是|给了?|在|选了?){_PREY}"),
    _sign(
        rf"{_US}(?:商量|商议|说好|约好|约定|讨论|定)(?:好|了|定|过)*(?:{_NIGHT}|{_INTEND})*{_KILL_AT_NIGHT}{_DONE}{_PREY}"
    ),
    _sign(rf"{_US}{_INTEND}*(?:今晚|今夜){_INTEND}*{_KILL_AT_NIGHT}(?:谁|哪)", asked=True),
    _sign(rf"(?:我)?(?:建议|提议){_NIGHT}?(?:大家|我们)?{_KILL}{_SEATS}(?![的会能是])", opens_clause=True),
    _sign(rf"(?:那)?(?:今晚|今夜){_INTEND}*{_KILL}{_SEATS}(?![的会能是])", opens_clause=True),
)

_WOLF_IN_ENGLISH = r"(?:were)?wol(?:f|ves)\b(?! (?:hunter|killer|slayer|target|victim|attack|kill|check))"
_SEATS_IN_ENGLISH = r"(?:players? |seats? |no\. ?)?#?[0-9]{1,2}(?:(?:,| and|, and) (?:players? )?#?[0-9]{1,2})*"
_ENGLISH_SIGN = re.compile(
    r"\b(?:"
    rf"i(?: am|'m|m| was)(?: player [0-9]+,?)?(?: and i am)?(?: actually| really| indeed| just| also| in fact| still"
    r"| one of| among| part of| on)*"
    rf"(?: the| a| an| your| this| last| lone| alpha| evil| real)* {_WOLF_IN_ENGLISH}"
    rf"|(?:as|being) (?:a|the|one of the) {_WOLF_IN_ENGLISH}(?: king)?,? (?:i|my|we|our)\b"
    rf"|(?:we|us)(?: are| were)?(?: all| both| the)* {_WOLF_IN_ENGLISH}"
    rf"|(?:my|our) (?:real |true |secret )?(?:role|identity|card|team|side) is (?:a |the )?{_WOLF_IN_ENGLISH}"
    rf"|(?:player )?#?[0-9]+ and i (?:are|were)(?: both| all| the)* {_WOLF_IN_ENGLISH}"
    r"|our (?:next )?(?:target|victim|kill)(?: tonight| last night| for tonight)?"
    r" (?:is|was|will be) (?:player |seat |#)?[0-9]"
    rf"|my (?:fellow )?{_WOLF_IN_ENGLISH}"
    r"|we (?:wolves )?(?:killed|attacked|hit|ate|knifed|murdered) (?:player |seat |#)?[0-9]"
    r"|(?:we will|we'll|let's|let us|i will|i'll) (?:kill|attack|eat|knife) (?:player |seat |#)?[0-9]+ tonight"
    rf"|my (?:wolf )?(?:team ?mates?|partners?|mates?|all(?:y|ies)) (?:is|are|,)? ?(?P<mates>{_SEATS_IN_ENGLISH})"
    r"|i (?:will |choose to |now )?(?:self-?)?(?:explode|self-?destruct)\b"
    r")"
)
_NOT_MINE_IN_ENGLISH = re.compile(
    r"\b(?:not|if|says?|said|saying|think|thinks|thought|believes?|claims?|claimed|accus\w+|suspect\w*|call(?:s|ed|ing)?|"
    r"why|how|would|suppose|proves?|convinced|assum\w+|told|tells|pretend\w*|imagine|never|unless|whether)\b|n't"
)
_ENGLISH_SENTENCE = re.compile(r"[^.!?。！？;\n]+[.!?。！？;]?")
_ENGLISH_WORD = re.compile(
    r"(?i)wol|kill|mate|partner|all[yi]|attack|ate|eat|hit|kni[fv]|murder|explode|destruct|target"
)

# --- what takes it back ---------------------------------------------------------------------------------------------

_ADMISSION = (
    r"(?:承认|坦白|招认|招了|摊牌|交代|不装了|告诉(?:你们|大家|各位)|"
    r"[跟和对](?:你们|大家|各位)(?:直说|明说|说))(?:了|吧)?"
)
_LEAD_IN = re.compile(
    rf"(?:大家好|各位好|好吧|好的|没错|不错|是的|对|嗯|那么?|其实|因为|所以|但是?|不过|毕竟|总之|反正|我?老实[说讲]|坦白[说讲]|"
    rf"我?说实话|我?实话实说|讲真|不瞒(?:你们|大家|各位)说?|(?:我(?:就|也|只好|只能|直接|现在)*)?{_ADMISSION})*"
)
"""What may stand before a statement in its clause and leaves it one."""
_NOT_MINE = re.compile(
    r"[说讲称喊骂认觉疑猜指咬验报证信诬污听问票像似若谁哪怎何眼]|以为|当[成做作]?我|看[我来]|意味|代表|表[示明]|等于|"
    r"不|没|非|别|未|无|难道|莫|假|如果|要是|就算|即[使便]|哪怕|万一|除非|只要|既然|宁|可能|大概|也许|是否|知道|想象|心想"
)
"""In the clause before a statement: somebody else's, denied, or in doubt."""
_OBJECT = re.compile(r"[投出推刀毒查杀踩打盘聊点保选留让把被给对喷捞抓帮替害骗带请向跟和要换信逼催劝等怕]$")
"""Just before a statement: its 我 belongs to another sentence (投我是…, 要我是…)."""
_SUPPOSED = re.compile(
    r"如果|假[如设若]|倘若|若|要是|就算|即[使便]|哪怕|万一|除非|只要|当[成做作]|换[成作做]|要说|设想|试想|想象|难道|岂|"
    r"怎么可能|凭[什啥]|为[什何]|谁说|哪有|的话|视角|角度|立场|眼[里中]|看来|逻辑|(?<!没)意思|结论|说法|看法|观点"
)
"""Earlier in the sentence: what follows is supposed, or somebody's view."""
_QUOTED = re.compile(r"^(?!我[想要再得]?[说讲]$).*(?:[说讲称道]|认为|觉得|怀疑|以为|表示|咬定|喊着?)[是的了]?$")
"""The clause just before: what follows is what somebody says."""
_ABSURD = re.compile(
    r"的话|早就|早[自爆刀冲跳走投把]|还用|何必|何苦|至于|犯得着|没必要|不可能|怎么(?![了样着办])|为什么|为何|干嘛|干什么|凭[什啥]|"
    r"哪[会能里]|不会|绝不|就不|还会|就会|才会|一定会|肯定会|会不会|能不能|我[就早都]|我肯定|我一定|我会[这那不傻蠢去跟自主跳悍]|"
    r"还是|才怪|岂|难道|能这|敢这|还能|是不是|这话|这种|这个?说法|冤|诬|污蔑|谎|胡|瞎|扯淡|纯属|笑|荒|不成立|没道理|毫无|信吗"
)
"""Later in the sentence: what was said is absurd, or a question after all."""
_WERE_I = re.compile(r"我[^,]{0,2}是[^,]{0,2}狼(?:人|王)?,?$")
"""Just before a statement: it may be what would follow (我是狼人我就刀3号); if not, what stands before is the leak."""
_SPOKEN_OF = re.compile(r"[0-9]号|狼|[他她它你]")

_TELLING = re.compile(
    r"(?i)狼|wolf|目标|刀|袭击|杀|砍|除掉|干掉|解决|同伴|队友|同伙|搭档|伙伴|兄弟|一[队伙]|自[爆曝]|坏人"
)
"""Every sign needs one of these: most sentences have none, and are done with."""
_SENTENCE = re.compile(r"[^。!?;]+[。!?;]?")
_CLAUSE_END = re.compile(r"[,:()~—]")
_QUOTATION = re.compile(r"[“\"「『‘']([^“”\"「」『』‘’']*)[”\"」』’']")
_LONG_QUOTATION = 5
_CHINESE_SEAT = re.compile(r"(十[一二]?|[一二三四五六七八九])(?=号)")
_NUMERALS = {numeral: str(number) for number, numeral in enumerate("一二三四五六七八九十", start=1)}
_NUMERALS |= {"十一": "11", "十二": "12"}
_DECORATION = re.compile(r"[*_`#~]+")
_GAP_BEFORE_SUFFIX = re.compile(r"(?<=[0-9])\s+(?=号)")
_GAP = re.compile(r"\s+")


def gives_wolves_away(speech: str, mates: Collection[int]) -> bool:
    """Whether a wolf says in public that it is one, who its mates are, or whom the wolves kill; in Chinese or English.

    mates: seats of the other wolves, dead or alive.
    """
    return any(_states(sentence, mates) for sentence in _SENTENCE.findall(_plain(speech))) or any(
        _states_in_english(sentence, mates) for sentence in _ENGLISH_SENTENCE.findall(speech)
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


def _plain(speech: str) -> str:
    """The speech without decoration and without what it quotes at length, seats as ``3号``, a space ending a clause."""
    text = _DECORATION.sub("", unicodedata.normalize("NFKC", speech).strip())
    text = text.replace("不好意思", "")  # denies nothing
    text = _GAP.sub(",", _GAP_BEFORE_SUFFIX.sub("", text))
    whole = _QUOTATION.fullmatch(text)
    if whole:
        text = whole[1]  # put between quotation marks as a whole, it is no quotation
    text = _QUOTATION.sub(lambda quoted: quoted[1] if len(quoted[1]) < _LONG_QUOTATION else "", text)
    return _CHINESE_SEAT.sub(lambda numeral: _NUMERALS[numeral[1]], text)


def _states(sentence: str, mates: Collection[int]) -> bool:
    if not _TELLING.search(sentence):
        return False
    is_question = sentence.rstrip("。!").endswith(("?", "吗", "么", "呢"))
    return any(
        (sign.asked or not is_question)
        and (not sign.names_mate or _names(statement[0], mates))
        and _is_own_statement(sentence, statement, sign)
        for sign in _SIGNS
        for statement in sign.pattern.finditer(sentence)
    )


def _states_in_english(sentence: str, mates: Collection[int]) -> bool:
    if not _ENGLISH_WORD.search(sentence):
        return False
    sentence = _QUOTATION.sub("", sentence.lower().replace("’", "'"))
    if sentence.endswith(("?", "？")):
        return False
    return any(
        not _NOT_MINE_IN_ENGLISH.search(sentence[: said.start()])
        and (said["mates"] is None or any(int(seat) in mates for seat in re.findall(r"[0-9]{1,2}", said["mates"])))
        for said in _ENGLISH_SIGN.finditer(sentence)
    )


def _names(statement: str, mates: Collection[int]) -> bool:
    return any(int(seat) in mates for seat in re.findall(r"([0-9]{1,2})号", statement))


def _is_own_statement(sentence: str, statement: re.Match[str], sign: _Sign) -> bool:
    before, after = sentence[: statement.start()], sentence[statement.end() :]
    *earlier_clauses, clause = _CLAUSE_END.split(before)
    clause = clause[_LEAD_IN.match(clause).end() :]
    if sign.opens_clause and (clause or _SPOKEN_OF.search(before)):
        return False
    if _NOT_MINE.search(clause) or _OBJECT.search(clause) or _SUPPOSED.search(before) or _WERE_I.search(before):
        return False
    if earlier_clauses and _QUOTED.search(earlier_clauses[-1]) and not _LEAD_IN.fullmatch(earlier_clauses[-1]):
        return False
    return sign.asked or not _ABSURD.search(after)
