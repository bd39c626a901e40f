"""Parses reply text into an Action, or raises a ReplyError with the reason in Chinese.

A clause that states exactly one choice counts, after the last ``决定：``; without that label, after another such as
``投票：``, in a box or in JSON; without any label, in the reply's own words, if they state one choice in the first
person or consist of it. Negations, suppositions, questions, quotations and retracted choices do not count. A doubtful
reply is invalid, which leads to a re-ask: a guess would credit the model with a decision that it did not make. Of a
reply cut at the token limit only complete parts count. Lines in the referee's form are no choice, and a reply that
decides and then continues as the referee is read up to them.

A speech is the text outside thoughts and decisions. An option (自爆, 退水) stated in a speech is taken; one that is
nearly stated makes the reply invalid, since the speech would reveal the seat's role.
"""

import re
import unicodedata
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

from runners.werewolf.game import Action, Choice, Decision, Option, Request
from runners.werewolf.language import lexicon
from runners.werewolf.language.lexicon import NUMBER, SEAT, WORDS, Words, in_digits, normal, simplified
from runners.werewolf.language.sections import COLON, Kind, Section, sections_of
from runners.werewolf.prompts_zh.names import (
    DECISION_MARKER,
    OPTION_WORDS,
    PASS_WORDS,
    REFEREE,
    REPLY_ERRORS,
    SILENCE,
    SPEECH_MARKER,
    choice_name,
)
from runners.werewolf.prompts_zh.quoting import disarm, one_line

_SPEECH_HEAD = re.compile(rf"^(?:{SPEECH_MARKER}\s*[:：]\s*|```\w*\s*|[\[{{]+\s*(?=[\"'“{{]|\Z))+")
"""A beginning of a speech that would be parsed as a label or as JSON in a reply."""
_OWN_MARKER = re.compile(rf"{DECISION_MARKER}[\s*_`”\"】\]]*{COLON}")
_CORRECTED = re.compile(rf"(?<![号“\"「『]){DECISION_MARKER}[是为]?[\s*_`”\"】\]]*{COLON}")
"""In the lines after a decision, another of the writer: （修正）决定：; not of another seat, and no quotation."""
_CUT_MARKER = re.compile(
    rf"(?:^|(?<=[\n。！？!?.]))[\s#【\[*]*(?:我的|最终)*(?:{DECISION_MARKER[0]}|{DECISION_MARKER})[*】\s]*$"
)
_QUESTION = re.compile(rf"^ ?[【\[〔]{REFEREE[1:-1]}[】\]〕] ?([0-9]{{1,2}})号[，,]", re.MULTILINE)
"""The begin of the referee's questions; no other line of the referee begins like this."""
_REFEREE_LINES = re.compile(rf"(?:^ ?[【\[〔]{REFEREE[1:-1]}[】\]〕].*\n*)+", re.MULTILINE)
_MOST_ANSWERS = 8
"""A reply with more labelled answers is no answer."""
_LONGEST_CLAUSE = 60
"""In characters; a longer clause states no choice."""
_LONGEST_READ = 20_000
"""In characters; more than any token limit allows. Of a longer reply the end is read."""
_NO_WORDS = re.compile("[\u2500-\u25ff\ufffd]")
"""Frames and shapes, and the sign of broken bytes: symbols as emoji are, but no words."""
_DECORATION = " *_`#~。.!！,，;；:：\"'“”‘’「」『』【】[]()（）<>《》"
"""Characters around an answer that have no meaning."""
_ONLY_ITEM = re.compile(r"\A(?:[-–•]|1[.)]) +(?=\S)(?!.*\n *(?:[-–•*]|[0-9]{1,2}[.)]) )", re.DOTALL)
"""The sign of a list's only item: - 3号; not -3号."""


class ReplyError(ValueError):
    """An invalid reply.

    code: ``empty``, ``no_choice``, ``ambiguous``, ``negated``, ``illegal_target``, ``cut`` (no choice before
        the cut), ``only_thought`` (no speech outside an unclosed thought) or ``no_speech``.
    message: the reason in Chinese, shown to the model in the re-ask.
    """

    def __init__(self, code: str) -> None:
        self.code = code
        self.message = REPLY_ERRORS[code]
        super().__init__(f"{code}: {self.message}")


def split_thought(text: str) -> tuple[str, str]:
    """(thought, reply): the text before the last ``</think>`` and after an unclosed ``<think>`` is thought."""
    before, closed, reply = text.rpartition("</think>")
    reply, _, unfinished = reply.partition("<think>")
    thought = "\n".join(part for part in (before.replace("<think>", "") if closed else "", unfinished) if part)
    return thought.strip(), reply.strip()


def parse_reply(text: str, request: Request, *, cut: bool = False) -> Action:
    """The action that ``text`` (with or without a thought) states, always legal; else raises ReplyError.

    cut: whether the text was truncated at the token limit (finish reason "length").
    """
    _, reply = split_thought(text)
    reply = "\n".join(one_line(line) for line in reply[-_LONGEST_READ:].splitlines())
    if not reply.strip():
        raise ReplyError("empty")
    asked = next((found for found in _QUESTION.finditer(simplified(reply)) if int(found[1]) != request.seat), None)
    if asked is not None:  # what follows answers for another seat
        reply, cut = reply[: asked.start()], False
        if not reply.strip():
            raise ReplyError("no_choice")
    own, rest = _own_part(reply)
    if request.speaks:
        sections = sections_of(reply, request)
        own_sections = (sections_of(own, request) if rest else None) or []
        if any(section.kind is Kind.DECISION for section in own_sections):
            sections = [*own_sections, Section(Kind.PLAIN, rest)]
        if sections is None:
            raise ReplyError("cut" if cut else "no_choice")
        return _read_speech(sections, request, cut)
    if rest:
        try:
            return Action(_read_choice(own, request, cut=False))
        except ReplyError as error:
            if error.code != "no_choice":
                raise
    return Action(_read_choice(_REFEREE_LINES.sub("", reply), request, cut))


def render_reply(action: Action, request: Request) -> str:
    """The reply that states ``action``; an explosion has no text.

    ``parse_reply`` inverts it for a text that ``clean_speech`` does not change and that neither begins like a label nor
    takes an option.
    """
    if request.speaks and action.choice is None:
        return action.text or SILENCE
    decision = f"{DECISION_MARKER}：{choice_name(action.choice, request.decision)}"
    return decision if action.choice is Option.EXPLODE or not action.text else f"{action.text}\n{decision}"


def clean_speech(text: str, speech_chars: int) -> str:
    """A speech as others hear it: one disarmed line without markers; empty for silence, or without a letter, digit or
    emoji."""
    speech = _harmless(text, speech_chars)
    return "" if _said(speech) in ("", SILENCE) else speech


def _said(speech: str) -> str:
    """Its letters, digits and emoji."""
    speech = _NO_WORDS.sub("", speech)
    categories = map(unicodedata.category, speech)
    return "".join(letter for letter, kind in zip(speech, categories, strict=True) if kind[0] in "LN" or kind == "So")


def _harmless(text: str, speech_chars: int) -> str:
    speech = disarm(one_line(text))[: 4 * speech_chars]
    while _OWN_MARKER.search(speech):  # the removal of one can form another
        speech = one_line(_OWN_MARKER.sub(" ", speech))
    # Once more at the end: the limit can leave only such a head.
    return _SPEECH_HEAD.sub("", _whole_sentences(_SPEECH_HEAD.sub("", speech), speech_chars)).strip()


def _whole_sentences(speech: str, limit: int) -> str:
    """The longest prefix of at most ``limit`` characters that ends a sentence, else a clause, else anywhere."""
    if len(speech) <= limit:
        return speech
    ends = (end for stop in (_SENTENCE_STOP, _CLAUSE_STOP) if (end := _last_end(stop, speech, limit)))
    return speech[: next(ends, limit)]


def _last_end(stop: re.Pattern[str], speech: str, limit: int) -> int:
    return max((match.end() for match in stop.finditer(speech) if match.end() <= limit), default=0)


# --- clauses --------------------------------------------------------------------------------------------------------

_SENTENCE_STOP = re.compile(r"(?:[。！？!?…；;]|\.(?=\s))[”’」』）)\"']*")
_CLAUSE_STOP = re.compile("[，,：:、]")
_SENTENCE = re.compile(r"[^。!?;\n]+[。!?;]?")
_CLAUSE_END = re.compile(r"[,:()|—→…]|->| - ")
_SIGNS = re.compile(r"[*_`#~$【】\[\]《》<>{}]+|<\|[^|<>\n]{1,30}\|>")
_QUOTES = str.maketrans(dict.fromkeys("“”「」『』‘’'", '"'))
_STOP = re.compile(r"(?<!no)(?<!^[0-9])(?<! [0-9])\.(?![0-9])|(?<=[0-9])\.$", re.MULTILINE)
"""A full stop, except of \"No. 3\" and of the numbers of a list."""
_GAP = re.compile(r"(?<=[^\x00-\xff]|[^\S\n])[^\S\n]+|(?<![^\S\n])[^\S\n]++(?=[^\x00-\xff])")
_ASIDE = re.compile(
    r"(?:(?<=[毒解]药)(?<!不用.药)(?<!不使用.药)(?<!留.药)(?<!留着.药)[,:]"
    r"(?=(?:目标|对象|毒|杀|救|给)?[是为:]?(?:[他她第0-9]|玩家|座位|选手|player|seat|no|#))|"
    r"(?<=(?<!不)翻牌)[,:])|"
    r"(?:^|(?<=[。!?;]))我?(?:同意|赞成)(?:[0-9]+号的(?!人))?[^0-9,。!?;\n]{0,16},",
    re.MULTILINE,
)
"""毒药，8号; 解药：救5号; 翻牌，决斗3号; 同意队友的提议，刀8号."""
_POISONS = re.compile("(?!.*[不别没留]).*(?:毒.*[0-9]号|[0-9]号.*毒|(?:使用|用|开)毒药)")
_OF_ANOTHER = re.compile("[0-9]号|[你他她]")
_NO_POTION = re.compile("(?<![解毒])药")
_LATER = re.compile(
    "稍后|待会|等会|一会|听完|发完言|(?<!我)报完|[的到]时候?$|后置位[^了]*[报跳]|(?:起?跳|发言|出来)(?:之?后|就|$)"
)
"""听完发言，我就退水."""
_THEN, _SINCE = re.compile("我?就(?:会|马上|立刻)?(?:自[爆曝]|退水)$"), re.compile("我|既然|因为|[没不被]")
"""他当选，我就自爆; but 没有信息，我就退水."""
_CHANGES = re.compile("[改转换](?:为|成)?[投刀杀验查守毒救带归]")
_SAID_BY = re.compile(r"(?:号|[他她]|player [0-9]+ )(?:是?这[么样])?(?:说|讲|said|says)的?[。!\"]*$")
_WRITER = ("我", "本人", "俺", "老子")
_PROPOSES = re.compile(
    "(?:^|(?<=[,。!?;]))(?:建议|提议|我?也?(?:同意|赞[成同])(?=[刀袭杀砍]))(?!第?[0-9])", re.MULTILINE
)
_SUBJECT = re.compile(
    "|".join(_WRITER)
    + "|(?<![被是给持])(?:([0-9]+)号|[他她你]|(?<!我)(?<!我[这一]只)狼(?!人杀|坑|面)|悍跳的|好人|平民|村民|"
    "其他人|别人|没有?身份的|不是[^,我]{1,4}的(?=,)|警[上下]的[^,我]{0,3}牌)"
)
_NUMBERS, _LEAD_IN = re.compile(NUMBER), re.compile(lexicon.LEAD_IN)
_NAMED_SEAT = rf"(?:第?{NUMBER}号(?:位|座)?(?:玩家|选手|同学)?|(?:玩家|座位|选手|player ?|seat ?|no\. ?|#){NUMBER}号?)"
_OPTION_FORMS = {option: re.compile(rf"(?:{form}){lexicon.LEAD_OUT}") for option, form in lexicon.OPTIONS.items()}


@dataclass(frozen=True, slots=True)
class _Stated:
    """choice: a seat's number as digits of any length, an option, or None for nobody.

    bare: a seat without a verb. led_in: after a lead-in, such as 我选择.
    """

    choice: str | Option | None
    bare: bool = False
    led_in: bool = False


class _Clause(NamedTuple):
    """stated: its choice, if it consists of one. alone: the clause is a whole sentence. last: of the last sentence.

    earnest: whether its sentence, up to its end, is the writer's own, unconditional statement about the present.
    supposed: whether its sentence has a condition, a question or another one's words.
    of_writer: whether the last subject up to it, if there is one, is the writer; else it may tell what another does.
        Of a clause that begins its sentence also the subjects of the line: 8号被查杀。自爆.
    begins: whether it is the first of its sentence.
    """

    text: str
    stated: _Stated | None
    alone: bool
    last: bool
    earnest: bool
    supposed: bool
    of_writer: bool
    begins: bool

    @property
    def changes(self) -> bool:
        """Whether it may replace an earlier choice, also with a reason about the past: 昨天8号更可疑，我改投8号."""
        return self.earnest or (not self.supposed and _CHANGES.search(self.text) is not None)


def _plain(text: str) -> str:
    # A space for an emoji: 1💥2号 is not 12号.
    plain = lexicon.without_emoji(_SIGNS.sub("", normal(text)), " ")
    plain = _GAP.sub("", _STOP.sub("。", plain.translate(_QUOTES)))
    return _ASIDE.sub("", plain)


def _clauses(plain: str, request: Request) -> Iterator[_Clause]:
    sentences: list[tuple[str, bool, bool]] = []
    for line in plain.split("\n"):
        retold = False  # a model that continues the record writes the speeches of others
        for place, sentence in enumerate(filter(str.strip, _SENTENCE.findall(line))):
            head = lexicon.RETOLD.match(sentence.strip())
            retold = retold or (head is not None and int(head[1]) != request.seat)
            sentences.append((sentence, retold, place == 0))
    subject = carried = None
    for number, (sentence, retold, begins_line) in enumerate(sentences, start=1):
        doubtful = retold or lexicon.SUPPOSED.search(sentence) or _SAID_BY.search(sentence)
        of_others, read = lexicon.OF_OTHERS.search(sentence) or lexicon.of_another_day(sentence, request.day), 0
        subject, carried = None, None if begins_line else subject or carried
        later = [(found.end(), found[1] or found[0]) for found in _SUBJECT.finditer(sentence)][::-1]
        parts = [part.strip() for part in _CLAUSE_END.split(sentence.rstrip("。!?; "))]
        # Drops empty parts, too; time grows with the square of a part's length.
        parts = [part for part in parts if len(part) > _LONGEST_CLAUSE or not _LEAD_IN.fullmatch(part)]
        for place, part in enumerate(parts):
            # A reason after the choice may be about others and other days: 决定：3号，他昨天踩人没有道理.
            read = sentence.find(part, read) + len(part)
            earnest = not doubtful and (of_others is None or of_others.end() > read)
            earnest = earnest and not (place and _THEN.match(part) and not _SINCE.match(parts[place - 1]))
            stated = _stated_in(in_digits(part)[: _LONGEST_CLAUSE + 1], request)
            while later and later[-1][0] <= read:
                _, subject = later.pop()
            of_writer = (subject or (None if place else carried)) in (None, *_WRITER, str(request.seat))
            last = number == len(sentences)
            yield _Clause(part, stated, len(parts) == 1, last, earnest, bool(doubtful), of_writer, place == 0)


@lru_cache
def _forms(decision: Decision, saves: bool) -> tuple[re.Pattern[str], re.Pattern[str], re.Pattern[str]]:
    """Patterns of whole clauses after their lead-in: (nobody, a seat with a verb, a seat alone).

    saves: whether a witch may use the antidote, too, so that to poison nobody leaves that open.
    """
    of = WORDS.get(decision, Words())
    word = re.escape(PASS_WORDS[decision]) if decision in PASS_WORDS else r"(?!)"
    chosen = rf"(?:{of.verbs})给?{SEAT}{of.aim}|{lexicon.TOWARDS}{SEAT}(?:{of.after}){of.aim}"
    bare = rf"(?:{_NAMED_SEAT}|{NUMBER}){of.aim}"
    nobody = rf"{word}|{of.nobody}"
    if decision is Decision.WITCH:
        chosen, bare = lexicon.POISON, r"(?!)"
        nobody += "" if saves else f"|{lexicon.NO_POISON}"
    return tuple(re.compile(rf"(?:{form}){lexicon.LEAD_OUT}") for form in (nobody, chosen, bare))


@lru_cache(maxsize=4096)
def _stated_in(clause: str, request: Request) -> _Stated | None:
    if len(clause) > _LONGEST_CLAUSE:
        return None
    text, own = clause.replace('"', "").rstrip("~ "), f"{request.seat}号"
    core = _LEAD_IN.sub("", text, count=1)
    if core.startswith(own) and len(core) > len(own):  # 2号投3号
        core = _LEAD_IN.sub("", core[len(own) :].lstrip(), count=1)
    core = re.sub("我?自己", own, "守自己" if core == "自守" else core)
    nobody, chosen, bare = _forms(request.decision, Option.SAVE in request.options)
    led_in = core != text
    if nobody.fullmatch(core):
        return _Stated(None, led_in=led_in)
    number = "".join(_NUMBERS.findall(core)[:1]).lstrip("0") or "0"
    for option in request.options:
        if _OPTION_FORMS[option].fullmatch(core):
            mistaken = option is Option.SAVE and number not in ("0", str(request.subject))
            return _Stated(f"救{number}" if mistaken else option, led_in=led_in)
    alone = bare.fullmatch(core) is not None
    return _Stated(number, bare=alone, led_in=led_in) if alone or chosen.fullmatch(core) else None


def _refused(clause: str, request: Request) -> str | Option | None:
    """The choice that a clause negates; an empty text if it negates none."""
    core = _LEAD_IN.sub("", clause[: _LONGEST_CLAUSE + 1], count=1)
    negated = lexicon.NEGATED.match(core)
    stated = None if negated is None else _stated_in(core[negated.end() :], request)
    return "" if stated is None else stated.choice


# --- choices --------------------------------------------------------------------------------------------------------


def _own_part(reply: str) -> tuple[str, str]:
    """(the reply up to a referee's line, the rest): a base model continues with the next questions."""
    echo = _REFEREE_LINES.match(reply)  # a repeated question
    begin = echo.end() if echo else 0
    goes_on = _REFEREE_LINES.search(reply, begin)
    end = goes_on.start() if goes_on else len(reply)
    return reply[begin:end], reply[end:]


def _read_choice(reply: str, request: Request, cut: bool) -> Choice:
    try:
        sections = sections_of(reply, request)
        if sections is None:
            raise ReplyError("no_choice")
        return _choice_in(sections, request, cut)
    except ReplyError as error:
        raise (ReplyError("cut") if cut and error.code == "no_choice" else error) from None


def _choice_in(sections: list[Section], request: Request, cut: bool) -> Choice:
    decided = max((place for place, section in enumerate(sections) if section.kind is Kind.DECISION), default=0)
    marked = [section for section in sections[decided:] if section.kind in (Kind.DECISION, Kind.ANSWER)]
    if len(marked) > _MOST_ANSWERS:
        raise ReplyError("ambiguous")
    choices: set[Choice] = set()
    for section in marked:
        answer, rest = _answer_of(section, cut and section is sections[-1] and not section.closed)
        if section.kind is Kind.DECISION and _CORRECTED.search(simplified(rest)):
            raise ReplyError("ambiguous")
        later = sections[sections.index(section) + 1 :]
        rest = "\n".join([rest, *(other.text for other in later if other.kind not in (Kind.REASON, Kind.DECISION))])
        try:
            choices.add(_stated(answer, request, marked=True, rest=rest))
        except ReplyError as error:
            if error.code != "no_choice":
                raise
    if len(choices) > 1:
        raise ReplyError("ambiguous")
    if choices:
        return choices.pop()
    own = [section.text for section in sections if section.kind in (Kind.PLAIN, Kind.SPEECH)]
    return _stated("" if cut or marked else "\n".join(own), request, marked=False)


def _answer_of(section: Section, unfinished: bool) -> tuple[str, str]:
    """(the first line of a section with content, the lines after it).

    unfinished: the reply was cut in this section, so that an incomplete last sentence does not count.
    """
    answer, _, rest = _ONLY_ITEM.sub("", section.text.lstrip(f"{_DECORATION}\n")).partition("\n")
    if unfinished and not rest:
        answer = answer[: max(answer.rfind(end) for end in "。;；!！?？)）") + 1]
    return answer.strip(_DECORATION), rest


def _spares_other(clause: str, found: Collection[str | Option | None]) -> bool:
    """Whether a witch's clause leaves only the other potion: 我用解药救3号，不用毒药."""
    saves, poisons = re.search("[解救]", clause) is not None, "毒" in clause
    return bool(found) and saves != poisons and poisons == (Option.SAVE in found)


def _stated(text: str, request: Request, *, marked: bool, rest: str = "") -> Choice:
    """The only choice that ``text`` states. Raises ReplyError.

    marked: whether ``text`` follows a label. Without one a clause counts if it is in the first person or a sentence
    of its own, and a seat alone only in the last sentence.
    rest: the text after a marked answer, which may retract it.
    """
    text = _plain(text)
    found: dict[str | Option | None, None] = {}
    refused: set[str | Option | None] = set()
    problem = he = ""  # he: the seat that 他 means
    uses_nothing = False
    for clause in _clauses(text, request):
        stated = clause.stated
        if stated is None:
            problem = problem or ("negated" if (marked or found) and lexicon.DOUBT.fullmatch(clause.text) else "")
            words = clause.text[: _LONGEST_CLAUSE + 1]
            refused.add(_refused(re.sub("[他她](?!们)", he, words), request))
            he = "".join(re.findall("[0-9]+号", words)[-1:]) or he
            continue
        he = stated.choice or he
        uses_nothing |= stated.choice is None and _NO_POTION.search(clause.text) is not None
        own = clause.alone and clause.last if stated.bare else stated.led_in or clause.alone
        # 8号被查杀，选择自爆 tells what another does, unless that is what is asked.
        own = own and (clause.of_writer or stated.choice is not Option.EXPLODE or not request.targets)
        # A list of seats and a supposed choice are doubtful.
        in_doubt = marked or (clause.earnest and stated.led_in) or (found and clause.changes and not stated.bare)
        if clause.earnest and (marked or (own and '"' not in clause.text)):
            found[stated.choice] = None
        elif in_doubt and stated.choice not in found:
            spares = request.decision is Decision.WITCH and stated.choice is None and _spares_other(clause.text, found)
            problem = problem or ("" if spares else "ambiguous")
    for clause in _clauses(_plain(rest), request) if found else ():
        other = clause.stated
        changes = clause.changes and other and not other.bare and other.choice not in found
        if changes or lexicon.DOUBT.fullmatch(clause.text):
            problem = problem or "ambiguous"
    if request.decision is Decision.WITCH and len(found) == 2 and not uses_nothing:
        found.pop(None, None)  # 用解药，不用毒药
    if request.decision is Decision.WITCH and found.keys() == {None}:
        unread = (clause.text[:_LONGEST_CLAUSE] for clause in _clauses(text, request) if clause.stated is None)
        problem = problem or ("ambiguous" if any(map(_POISONS.match, unread)) else "")  # 不用解药，而是用毒药毒3号
    if len(found) > 1 or not found.keys().isdisjoint(refused) or problem:
        raise ReplyError("ambiguous" if len(found) > 1 else problem or "negated")
    for choice in found:
        targets = {str(target): target for target in request.targets}  # as text, since int() rejects very long numbers
        if isinstance(choice, Option) or (choice is None and request.may_pass):
            return choice
        if choice in targets:
            return targets[choice]
    unknown = text.strip(_DECORATION) in (*OPTION_WORDS.values(), *PASS_WORDS.values())
    raise ReplyError("illegal_target" if found or unknown else "negated" if refused - {""} else "no_choice")


# --- speeches -------------------------------------------------------------------------------------------------------


def _read_speech(sections: list[Section], request: Request, cut: bool) -> Action:
    spoken, decision = _take_apart(sections, request, cut)
    heard = clean_speech(spoken, request.speech_chars)
    taken = _taken_by_words(spoken, heard, request)
    if decision is None:
        choice, settled = (_proposed(spoken, request) if taken is None else taken), taken is not None
    else:
        # A public refusal to explode would reveal a wolf, so it is no error that leads to a re-ask.
        clauses = [*_clauses(_plain(decision), request)]
        refuses = any(isinstance(_refused(clause.text, request), Option) for clause in clauses)
        refuses = refuses and not any(clause.stated and clause.stated.choice for clause in clauses)
        passes = refuses or decision in (SILENCE, PASS_WORDS.get(request.decision))
        if request.decision is Decision.WOLF_TALK:
            decision = re.sub("^我?提议", "", decision)
        settled = (
            passes or bool(request.targets) or _names_option(decision, request)
        )  # a choice without request is none
        choice = None if passes or not settled else _stated(decision, request, marked=True)
        if taken not in (None, choice):
            raise ReplyError("ambiguous")
    if choice is Option.EXPLODE:
        return Action(choice)
    # Silence needs its own word or a decision.
    if not heard and not settled and _said(_harmless(spoken, request.speech_chars)) != SILENCE:
        asked = request.targets or request.options
        raise ReplyError("empty" if not decision else "no_choice" if asked else "no_speech")
    bare = taken is not None and heard.strip(_DECORATION) == choice_name(taken, request.decision)
    return Action(choice, "" if bare else heard)


def _take_apart(sections: list[Section], request: Request, cut: bool) -> tuple[str, str | None]:
    """(the text said aloud, the line of the decision or None)."""
    decision: str | None = None
    labelled = any(section.kind is Kind.SPEECH for section in sections)
    said: list[str] = []
    for before, section in pairwise([Section(Kind.PLAIN, ""), *sections]):
        answer, rest = _answer_of(section, cut and section is sections[-1] and section.kind is Kind.DECISION)
        is_choice = section.kind is Kind.ANSWER and (section.closed or _names_option(answer, request))
        if section.kind is Kind.DECISION or is_choice:
            decision = None if cut and section is sections[-1] and not answer else answer
            # 我是女巫。我的决定：大家投7号, within a line that is said, is no answer if nothing is asked.
            goes_on = "我" in section.label and "\n" not in f"{before.text[-1:]}{section.label}"
            if goes_on and said[-1:] == [before.text] and not (request.targets or _names_option(answer, request)):
                said.append(section.text)
            elif not labelled:
                said.append(rest)
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
    """The option that a speech states. Raises ReplyError if it nearly states one, since that would reveal the role."""
    taken: set[Option] = set()
    nearly = False
    for text in (spoken, heard) if _names_option(spoken, request) else ():
        told = False  # whether an earlier clause is about another seat
        later = False  # whether an earlier clause of the sentence names what comes first
        for clause in _clauses(_plain(text), request):
            later = _LATER.search(clause.text) is not None or (later and not clause.begins)
            if not _names_option(clause.text, request):
                told = told or not clause.of_writer or _OF_ANOTHER.search(clause.text) is not None
                continue
            states = clause.stated is not None and isinstance(clause.stated.choice, Option)
            if states and told and clause.text.endswith("吧"):
                nearly = True  # 3号别演了！自爆吧！
            elif states and clause.earnest and clause.of_writer and not later:
                taken.add(clause.stated.choice)
            elif len(clause.text) <= _LONGEST_CLAUSE:
                nearly = nearly or lexicon.NEARLY_TAKEN.match(clause.text) is not None
    if (nearly and not taken) or len(taken) > 1:
        raise ReplyError("ambiguous" if taken else "no_choice")
    return next(iter(taken), None)


def _proposed(spoken: str, request: Request) -> Choice:
    """The only target that a speech without a decision states, if the request has targets."""
    plain = _plain(spoken)
    if request.decision is Decision.WOLF_TALK:
        plain = _PROPOSES.sub("", plain.replace("提议:", "我提议"))  # without a subject it is the speaker's own
    elif request.decision is Decision.CLOSING_SPEECH:
        plain = plain.replace("归票:", "归票")
    named = {
        clause.stated.choice
        for clause in (_clauses(plain, request) if request.targets else ())
        if clause.earnest and clause.stated and not clause.stated.bare
        if request.decision is not Decision.CLOSING_SPEECH or "归" in clause.text
    }
    targets = {str(target): target for target in request.targets}
    return targets.get(named.pop()) if len(named) == 1 else None
