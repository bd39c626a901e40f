"""From reply text to an Action, or a ReplyError that says in Chinese what was wrong.

A choice counts where a clause states exactly it, and nowhere else. It is looked for behind the last ``决定：``, else
behind another label such as ``投票：``, in a box or in JSON, else in the reply's own words, and there only if they
state one choice in the first person or consist of it. What is negated, supposed, asked, quoted or taken back is no
choice, and what stays in doubt is asked again: a guess would credit the model with a decision that it did not make.
Of a reply that was cut at the token limit, only what was complete before the cut counts.

Where a seat speaks, the speech is what stands outside thoughts and decisions. An option (自爆, 退水) that the seat
says it takes is taken, one that it nearly takes is asked about again: said aloud, it would tell what the seat is.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from runners.werewolf.game import Action, Choice, Decision, Option, Request
from runners.werewolf.language.lexicon import (
    LEAD_IN,
    LEAD_OUT,
    MAY_NAME_ITSELF,
    NUMBER,
    OPTIONS,
    POISON,
    SEAT,
    TOWARDS,
    WORDS,
    Words,
    in_digits,
    normal,
)
from runners.werewolf.language.sections import COLON, Kind, Section, sections_of
from runners.werewolf.prompts_zh.names import (
    DECISION_MARKER,
    OPTION_WORDS,
    PASS_WORDS,
    REPLY_ERRORS,
    SILENCE,
    SPEECH_MARKER,
    choice_name,
)
from runners.werewolf.prompts_zh.quoting import disarm, one_line

_THINK, _END_THINK = "<think>", "</think>"
_SPEECH_HEAD = re.compile(rf"^(?:{SPEECH_MARKER}\s*[:：]\s*|```\w*\s*|[\[{{]+\s*(?=[\"'“{{]|\Z))+")
"""What would make a speech read as a label or as data, were it a reply."""
_OWN_MARKER = re.compile(rf"{DECISION_MARKER}[\s*_`”\"】\]]*{COLON}")
_CUT_MARKER = re.compile(
    rf"(?:^|(?<=[\n。！？!?.]))[\s*#【\[]*(?:我的|最终)*(?:{DECISION_MARKER[0]}|{DECISION_MARKER})[*】\s]*$"
)
_MOST_ANSWERS = 8
"""A reply with more labelled answers, or stated choices, is no answer."""
_LONGEST_CLAUSE = 60
"""In characters: a longer one states no choice."""
_LONGEST_READ = 20_000
"""In characters: no reply within a token limit is longer, and of one that is, the end is read."""
_DECORATION = " *_`#~。.!！,，;；:：\"'“”‘’「」『』【】[]()（）<>《》"
"""What may surround an answer without meaning anything."""


class ReplyError(ValueError):
    """A reply that cannot be used.

    code: ``empty``, ``no_choice``, ``ambiguous``, ``negated``, ``illegal_target``, ``cut`` (no choice before
        the cut) or ``only_thought`` (nothing that may be heard).
    message: the reason in Chinese, shown to the model when it is asked again.
    """

    def __init__(self, code: str) -> None:
        self.code = code
        self.message = REPLY_ERRORS[code]
        super().__init__(f"{code}: {self.message}")


def split_thought(text: str) -> tuple[str, str]:
    """(thought, reply): what stands before the last closing tag, or after an unclosed opening one, is thought."""
    before, closed, reply = text.rpartition(_END_THINK)
    reply, _, unfinished = reply.partition(_THINK)
    thought = "\n".join(part for part in (before.replace(_THINK, "") if closed else "", unfinished) if part)
    return thought.strip(), reply.strip()


def parse_reply(text: str, request: Request, *, cut: bool = False) -> Action:
    """The action that ``text`` (with or without a thought) states, always legal; else raises ReplyError.

    cut: whether the text ends at the token limit (finish reason "length").
    """
    _, reply = split_thought(text)
    reply = "\n".join(one_line(line) for line in reply[-_LONGEST_READ:].splitlines())
    if not reply.strip():
        raise ReplyError("empty")
    sections = sections_of(reply, request)
    if sections is None:
        raise ReplyError("cut" if cut else "no_choice")
    if request.speaks:
        return _read_speech(sections, request, cut)
    try:
        return Action(_read_choice(sections, request, cut))
    except ReplyError as error:
        raise (ReplyError("cut") if cut and error.code == "no_choice" else error) from None


def render_reply(action: Action, request: Request) -> str:
    """The reply that states ``action``. ``parse_reply`` gives it back if its text is as ``clean_speech`` has it, and
    neither begins like a label nor takes an option.

    Nothing is said with an explosion: its text is left out.
    """
    if request.speaks and action.choice is None:
        return action.text or SILENCE
    decision = f"{DECISION_MARKER}：{choice_name(action.choice, request.decision)}"
    return decision if action.choice is Option.EXPLODE or not action.text else f"{action.text}\n{decision}"


def clean_speech(text: str, speech_chars: int) -> str:
    """A speech as it is heard: one harmless line without markers; empty for silence, or for nothing but signs."""
    speech = _harmless(text, speech_chars)
    return "" if speech.strip(_DECORATION) in ("", SILENCE) else speech


def _harmless(text: str, speech_chars: int) -> str:
    speech = disarm(one_line(text))[: 4 * speech_chars]
    while _OWN_MARKER.search(speech):  # Taking one out can make another of what stood around it.
        speech = one_line(_OWN_MARKER.sub(" ", speech))
    # Once more at the end: the limit can leave nothing but such a head.
    return _SPEECH_HEAD.sub("", _SPEECH_HEAD.sub("", speech)[:speech_chars]).strip()


# --- choices --------------------------------------------------------------------------------------------------------


def _read_choice(sections: list[Section], request: Request, cut: bool) -> Choice:
    marked = [section for section in sections if section.kind is Kind.DECISION][-1:]
    marked = marked or [section for section in sections if section.kind is Kind.ANSWER]
    if len(marked) > _MOST_ANSWERS:
        raise ReplyError("ambiguous")
    choices: set[Choice] = set()
    for section in marked:
        answer, rest = _answer_of(section, cut and section is sections[-1] and not section.closed)
        later = sections[sections.index(section) + 1 :]
        rest = "\n".join([rest, *(other.text for other in later if other.kind not in (Kind.REASON, Kind.DECISION))])
        try:
            choices.add(_stated(answer, request, marked=True, rest=rest))
        except ReplyError as error:
            if error.code != "no_choice" or len(marked) == 1:
                raise
    if len(choices) > 1:
        raise ReplyError("ambiguous")
    if choices:
        return choices.pop()
    own = [section.text for section in sections if section.kind in (Kind.PLAIN, Kind.SPEECH)]
    if sections and sections[-1].kind is Kind.THOUGHT and not sections[-1].closed:
        own += [part for part in sections[-1].text.strip().split("\n\n")[1:][-1:]]
    return _stated("" if cut or marked else "\n".join(own), request, marked=False)


def _answer_of(section: Section, unfinished: bool) -> tuple[str, str]:
    """(the first line of a section that says anything, the lines after it).

    unfinished: the reply was cut in this section, so that its last sentence counts only if it has ended.
    """
    lines = section.text.split("\n")
    begin = next((number for number, line in enumerate(lines) if line.strip(_DECORATION)), len(lines) - 1)
    answer, rest = lines[begin], lines[begin + 1 :]
    if unfinished and not rest:
        answer = answer[: max(answer.rfind(end) for end in "。;；!！?？)）") + 1]
    return answer.strip(_DECORATION), "\n".join(rest)


_MARK = r"(?:吧|了|啊|一下|中|再说)*"
_DOUBT = re.compile(
    r"(?:我|让我|但|还|再|先|还是|嗯|哦|啊)*(?:等等|等一?下|不对|不是|算了|再?想一?想|重新(?:想想|考虑|分析)|"
    r"再?考虑(?:一下|考虑)?|再?看看|"
    r"不(?:太)?(?:确定|肯定|好说|一定|知道)|(?:还)?没(?:有)?(?:完全)?(?:想好|决定|考虑好|确定)|待定|再说|"
    r"改(?:变)?主意了?|随便|瞎投的?|有待观察|"
    rf"看情况|可能|也许|大概|或许|犹豫|先听听|二选一|存疑|暂定|纠结|难说|骗你们?的|开(?:个)?玩笑的?){_MARK}|才怪|"
    r"(?:不|否|别|没|才|怎么|绝)[了是行要可对有能成投]?(?:可能|的|吧|啊)?|"
    r"wait|hmm|maybe|perhaps|(?:im )?not sure|let me think|actually|no|nope|not"
)
"""A clause that takes back what stands in another, or says that nothing is settled."""
_CONTRAST = re.compile(
    r"但是?|不过|可是?(?!能)|然而|只是|却|或者?(?:是)?|要么|要不|又或者|but|however|although|though|or "
)
_NEGATED = re.compile(
    r"(?:绝对?|千万|先|暂时?|并|可|才|也|就|都|再)*(?:不(?:能|会|想|要|该|应该?|可以?|愿意?|敢|准备|打算|是)?|别|勿|"
    r"没有?|拒绝|甭|非|除了|"
    r"(?:not|dont|wont|never) )(?:去|再)?"
)
_SUPPOSED = (
    r"如果|假[如设若使]|倘若|(?<![倘般])若(?!无其事)|要是|万一|除非|只要|一旦|的话|就算|即[使便]|哪怕|要么|要不(?!得)|"
    r"否则|不如|与其|或者|"
    r"\b(?:if|unless|suppose|assuming|would|whether|either|should|said?|says|suggests?|claims?|tells?|told)\b|"
    r"(?:吗|么|呢|好不好|行不行|是不是|要不要|该不该)\"?$|\?"
)
_NOT_EARNEST = re.compile(
    rf"{_SUPPOSED}|(?:^|,)等(?!于)|"
    r"昨[天日晚夜]|前[天晚夜]|上一?[轮次回天夜]|首日|明[天日晚夜]|下一?[轮次回]|之前|刚才|以[前后]|晚点|"
    r"(?<![我以别])(?:(?<!来)说(?!话|不清|得)|喊|叫|让|建议|认为|觉得|要求|号召|希望|表示|提议|劝|讲|道|原话|例如|比如|譬如|假装)"
)
"""Anywhere in a sentence: it is supposed, asked, of another time, or somebody else's words."""


def _stated(text: str, request: Request, *, marked: bool, rest: str = "") -> Choice:
    """The one choice that ``text`` states. Raises ReplyError.

    marked: whether it stands where the decision belongs; elsewhere a seat alone counts only in the last sentence.
    rest: what follows a marked answer, which may take it back.
    """
    text = _plain(text).strip().removeprefix(f"{request.seat}号:")
    whole = text.strip("。! ")
    if len(whole) > 1 and whole[0] == whole[-1] == '"' and whole.count('"') == 2:
        text = whole[1:-1]  # put between quotation marks as a whole, it is no quotation
    text = _AFTER_POTION.sub("", text)
    found: dict[str | Option | None, None] = {}
    refused: set[str | Option | None] = set()
    problem, led_in = "", True
    for clause in _clauses(text):
        led_in = (led_in and (marked or clause.place > 0)) or (clause.place == 0 and not marked)
        stated = _statement_of(in_digits(clause.text), request)
        if stated is None:
            doubted = (marked or found) and _DOUBT.fullmatch(clause.text)
            against = clause.place and _CONTRAST.match(clause.text)
            problem = problem or ("negated" if doubted or (found and against) else "")
            refused.add(_refused(clause.text, request))
        elif clause.earnest and (marked or '"' not in clause.text) and _counts(stated, clause, marked, led_in):
            found[stated.choice] = None
        elif stated.choice not in found and (marked or (clause.earnest and stated.mine)):
            problem = problem or "ambiguous"  # a list of seats, or a choice that is only supposed
        led_in = led_in and (stated is not None or _LEADS.fullmatch(clause.text) is not None)
    for clause in _clauses(_plain(rest)) if found else ():
        later = _statement_of(clause.text, request)
        if _DOUBT.fullmatch(clause.text) or (later and clause.earnest and not later.bare and later.choice not in found):
            problem = problem or "ambiguous"
    if request.decision is Decision.WITCH and len(found) == 2:
        found.pop(None, None)  # 用解药，不用毒药
    if len(found) > 1 or not found.keys().isdisjoint(refused) or problem:
        raise ReplyError("ambiguous" if len(found) > 1 else problem or "negated")
    if not found:
        unknown = text.strip(_DECORATION) in (*OPTION_WORDS.values(), *PASS_WORDS.values())
        # The witch may save or poison a seat.
        unknown = unknown or (_ONE_SEAT.fullmatch(text) and ("救" in text or request.decision is not Decision.WITCH))
        raise ReplyError("illegal_target" if unknown else "negated" if refused - {""} else "no_choice")
    return _legal(next(iter(found)), request)


def _counts(stated: "_Stated", clause: "_Clause", marked: bool, led_in: bool) -> bool:
    if marked:
        return led_in or not stated.bare
    if stated.bare:
        return clause.alone and clause.last
    return stated.mine or clause.alone or (led_in and clause.place > 0)


def _refused(clause: str, request: Request) -> str | Option | None:
    """The choice that a clause refuses to make; an empty text where it refuses none."""
    core = _LEAD_IN.sub("", clause[: _LONGEST_CLAUSE + 1], count=1)
    negated = _NEGATED.match(core)
    stated = None if negated is None else _statement_of(core[negated.end() :], request)
    return "" if stated is None else stated.choice


def _legal(choice: str | Option | None, request: Request) -> Choice:
    # By text: a number of any length may stand there.
    targets = {str(target): target for target in request.targets}
    if isinstance(choice, Option) or (choice is None and request.may_pass):
        return choice
    if choice not in targets:
        raise ReplyError("illegal_target")
    return targets[choice]


# --- clauses --------------------------------------------------------------------------------------------------------

_SENTENCE = re.compile(r"[^。!?;\n]+[。!?;]?")
_CLAUSE_END = re.compile(r"[,:()|—→…]|->| - ")
_SIGNS = re.compile(r"[*_`#~$【】\[\]《》<>{}✅☑✔👉➡️🗳]+|<\|[^|<>\n]{1,30}\|>")
_QUOTES = str.maketrans(dict.fromkeys("“”「」『』‘’'", '"'))
_LIST_MARK = re.compile(r"^\s*(?:[-•·](?=\s)|[0-9]{1,2}[.)](?![0-9]))\s*", re.MULTILINE)
_STOP = re.compile(r"(?<!no)\.(?![0-9])")
_GAP = re.compile(r"(?<=[^\x00-\xff])[^\S\n]+|[^\S\n]+(?=[^\x00-\xff])")
_NUMBERS = re.compile(NUMBER)
_AFTER_POTION = re.compile("(?<=毒药)[,:]")
_ONE_SEAT = re.compile("救?[0-9]+号[。!]?")
_LEAD_IN = re.compile(LEAD_IN)
_LEADS = re.compile(rf"{LEAD_IN}(?:(?:同意|赞成|支持|跟随|综合|综上|根据|经过|基于|结论)[^0-9]{{0,16}})?")
_AGREES = re.compile("^(?:我)?(?:同意|赞成)[^0-9,。!?;]{0,16},")
_SETTLES = re.compile(
    r"选|决定|(?:投票|答案|结论|目标|票)(?:对象|目标)?(?:就?是|为)$|(?:vote|choice|decision|answer|target)\b.*$"
)
"""Words before a seat alone that make a choice of it."""
_NAMED_SEAT = rf"(?:第?{NUMBER}号(?:位|座)?(?:玩家|选手|同学)?|(?:玩家|座位|选手|player ?|seat ?|no\. ?|#){NUMBER}号?)"


class _Clause(NamedTuple):
    """place: in its sentence, from 0. alone: it is the whole sentence. last: that sentence is the last.

    earnest: whether its sentence is the writer's own, unconditional statement about now. supposed: whether it is a
    question or a condition.
    """

    text: str
    place: int
    alone: bool
    last: bool
    earnest: bool
    supposed: bool


def _plain(text: str) -> str:
    text = _SIGNS.sub("", normal(text)).translate(_QUOTES)
    return _GAP.sub("", _STOP.sub("。", _LIST_MARK.sub("", text)))


def _clauses(plain: str) -> Iterator[_Clause]:
    sentences = [sentence for sentence in _SENTENCE.findall(plain) if sentence.strip()]
    for number, sentence in enumerate(sentences, start=1):
        sentence = _AGREES.sub("", sentence)
        earnest, supposed = not _NOT_EARNEST.search(sentence), re.search(_SUPPOSED, sentence) is not None
        parts = [part.strip() for part in _CLAUSE_END.split(sentence.rstrip("。!?; ")) if part.strip()]
        for place, part in enumerate(parts):
            yield _Clause(part, place, len(parts) == 1, number == len(sentences), earnest, supposed)


@dataclass(frozen=True, slots=True)
class _Stated:
    """choice: a seat's number as it was written (it may be of any length), an option, or None for nobody.

    bare: a seat alone, without a verb. mine: in the first person, or with other words that lead in.
    """

    choice: str | Option | None
    bare: bool = False
    mine: bool = False


@lru_cache
def _forms(decision: Decision) -> tuple[re.Pattern[str], re.Pattern[str], re.Pattern[str]]:
    """(nobody, a seat with a verb, a seat alone) as whole clauses behind their lead-in."""
    of = WORDS.get(decision, Words())
    word = re.escape(PASS_WORDS[decision]) if decision in PASS_WORDS else r"(?!)"
    chosen = rf"(?:{of.verbs})给?{SEAT}{of.aim}|{TOWARDS}{SEAT}(?:{of.after}){of.aim}"
    bare = rf"(?:{_NAMED_SEAT}|{NUMBER}){of.aim}"
    if decision is Decision.WITCH:
        chosen, bare = POISON, r"(?!)"
    return tuple(re.compile(rf"(?:{form}){LEAD_OUT}") for form in (rf"{word}|{of.nobody}", chosen, bare))


_OPTION_FORMS = {option: re.compile(rf"(?:{form}){LEAD_OUT}") for option, form in OPTIONS.items()}


def _statement_of(clause: str, request: Request) -> _Stated | None:
    """What a clause states, if it states a choice and nothing else."""
    if len(clause) > _LONGEST_CLAUSE:
        return None
    return _read_clause(clause, request.decision, request.seat, frozenset(request.options), request.subject)


@lru_cache(maxsize=4096)
def _read_clause(
    text: str, decision: Decision, me: int, offered: frozenset[Option], subject: int | None
) -> _Stated | None:
    text = text.replace('"', "").rstrip("~ ")
    core = _LEAD_IN.sub("", text, count=1)
    own = f"{me}号"
    if core.startswith(own) and len(core) > len(own):  # 2号投3号
        core = _LEAD_IN.sub("", core[len(own) :].lstrip(), count=1)
    if decision in MAY_NAME_ITSELF:
        core = re.sub("我?自己", own, core)
    nobody, chosen, bare = _forms(decision)
    for candidate in (core, text):  # 我的票是3号 begins like a lead-in
        if nobody.fullmatch(candidate):
            return _Stated(None, mine=core != text)
        for option in offered:
            if _OPTION_FORMS[option].fullmatch(candidate):
                number = _NUMBERS.search(candidate) if option is Option.SAVE else None
                mistaken = number is not None and number[0].lstrip("0") != str(subject)
                return _Stated(f"救{number[0]}" if mistaken else option, mine=core != text)
        if chosen.fullmatch(candidate):
            return _Stated(_NUMBERS.search(candidate)[0].lstrip("0") or "0", mine=core != text)
    if not bare.fullmatch(core):
        return None
    settled = _SETTLES.search(text[: len(text) - len(core)])
    return _Stated(_NUMBERS.search(core)[0].lstrip("0") or "0", bare=not settled, mine=core != text)


# --- speeches -------------------------------------------------------------------------------------------------------

_NEARLY_TAKEN = re.compile(
    r"(?:我|本人|老子|俺|那|就|好吧?|还是|直接|准备|打算|想要?|要|会|将|决定|选择|干脆|只能|只好|现在|马上|立刻|原地|"
    r"必须|再见|申请|宣布|考虑|可能|"
    r"也许|应该|或许|狼人|先|来|去|一个|个|得)*+(?:自爆|自曝|退水|退选)[^的过狼者牌会能吞]{0,5}$"
)
"""Nearly an option that the speaker takes, as far as its words alone tell."""


def _read_speech(sections: list[Section], request: Request, cut: bool) -> Action:
    spoken, decision = _take_apart(sections, request, cut)
    heard = clean_speech(spoken, request.speech_chars)
    taken = _taken_by_words(spoken, heard, request)
    if decision is None:
        choice, settled = (_proposed(spoken, request) if taken is None else taken), taken is not None
    else:
        choice, settled = _decided(decision, request)
        if taken not in (None, choice):
            raise ReplyError("ambiguous")
    if choice is Option.EXPLODE:
        return Action(choice)
    # Silence must be stated by its word, or stand with a decision.
    if not heard and not settled and _harmless(spoken, request.speech_chars).strip(_DECORATION) != SILENCE:
        raise ReplyError("no_choice" if decision else "empty")
    bare = taken is not None and spoken.strip(_DECORATION) == choice_name(taken, request.decision)
    return Action(choice, "" if bare else heard)


def _take_apart(sections: list[Section], request: Request, cut: bool) -> tuple[str, str | None]:
    """(what is said, the line of the decision; None without one)."""
    decision: str | None = None
    labelled = any(section.kind is Kind.SPEECH for section in sections)
    said: list[str] = []
    for section in sections:
        answer, rest = _answer_of(section, cut and section is sections[-1] and section.kind is Kind.DECISION)
        is_choice = section.kind is Kind.ANSWER and (section.closed or _names_option(answer, request))
        if section.kind is Kind.DECISION or is_choice:
            decision = None if cut and section is sections[-1] and not answer else answer
            said += [] if labelled else [rest]
        elif section.kind is Kind.SPEECH or (section.kind is Kind.PLAIN and not labelled):
            said.append(section.text)
        elif section.kind in (Kind.REASON, Kind.ANSWER) and (not labelled or said):
            said.append(f"{section.label}{section.text}")
        elif section.kind is Kind.THOUGHT and not section.closed and not labelled:
            raise ReplyError("only_thought")
    spoken = "\n".join(said).strip()
    return (_CUT_MARKER.sub("", spoken) if cut else spoken), decision


def _names_option(text: str, request: Request) -> bool:
    return any(OPTION_WORDS[option] in text.replace("自曝", "自爆") for option in request.options)


def _taken_by_words(spoken: str, heard: str, request: Request) -> Option | None:
    """The option that the seat says it takes. ReplyError where it nearly says so: heard, it would give it away."""
    taken: set[Option] = set()
    for text in (spoken, heard):
        before, nearly = len(taken), False
        for clause in _clauses(_plain(text)) if _names_option(text, request) else ():
            stated = _statement_of(clause.text, request) if _names_option(clause.text, request) else None
            if stated is not None and isinstance(stated.choice, Option) and clause.earnest:
                taken.add(stated.choice)
                before = -1
            elif len(clause.text) <= _LONGEST_CLAUSE and not clause.supposed:
                nearly = nearly or bool(_NEARLY_TAKEN.match(clause.text) and _names_option(clause.text, request))
        if nearly and before >= 0:
            raise ReplyError("no_choice")
    if len(taken) > 1:
        raise ReplyError("ambiguous")
    return next(iter(taken), None)


def _proposed(spoken: str, request: Request) -> Choice:
    """Whom a speech without a decision names, where it may name somebody, and names one in the way of its question."""
    named = set()
    for clause in _clauses(_plain(spoken)) if request.targets else ():
        if clause.earnest and (request.decision is not Decision.CLOSING_SPEECH or "归" in clause.text):
            stated = _statement_of(clause.text, request)
            named |= {stated.choice} if stated is not None and not stated.bare else set()
    targets = {str(target): target for target in request.targets}
    return targets.get(named.pop()) if len(named) == 1 else None


def _decided(line: str, request: Request) -> tuple[Choice, bool]:
    """(choice, whether the decision line says so). A line that decides nothing the seat was asked is left out."""
    # Heard by all, a refusal to explode would tell who could have.
    if line in (SILENCE, PASS_WORDS.get(request.decision)) or isinstance(_refused(_plain(line), request), Option):
        return None, True
    if request.targets or _names_option(line, request):
        return _stated(line, request, marked=True), True
    return None, False
