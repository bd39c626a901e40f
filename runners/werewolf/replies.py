"""From reply text to an Action, or a ReplyError that says in Chinese what was wrong.

A choice is read from the line after the last ``决定：``; without that marker, only a reply that mentions a
single choice counts. Anything negated, listed or otherwise in doubt is an error: a guess would credit
the model with a decision that it did not make.

Where a seat speaks, the speech is what stands outside that line, and without the marker nothing is chosen, unless the
reply is an option's word and nothing else.
If all that may be chosen are options (自爆, 退水), the line counts only where it is exactly an option's
word; any other line is part of the speech. Where a seat may be named (归票, a wolf's proposal), the line
must name what is legal.
"""

import re
import unicodedata
from collections.abc import Collection
from dataclasses import dataclass
from itertools import dropwhile

from runners.werewolf.game import Action, Choice, Decision, Option, Request, choices
from runners.werewolf.prompts_zh.names import (
    BARE_NEGATION,
    CHINESE_NUMBERED_SEAT,
    DECISION_MARKER,
    LEAD_IN,
    LEAD_OUT,
    LIST_GAP,
    NEGATION,
    OPTION_WORDS,
    PASS_WORDS,
    POISON,
    REPLY_ERRORS,
    SILENCE,
    SPEECH_MARKER,
    UNDECIDED,
    choice_name,
)
from runners.werewolf.prompts_zh.quoting import disarm, one_line

_THINK, _END_THINK = "<think>", "</think>"
_MARKER = re.compile(rf"{DECISION_MARKER}[\s*_`”\"】\]]*[:：﹕︓]")
_SPEECH_HEAD = re.compile(rf"^(?:(?:[0-9]{{1,2}}号)?{SPEECH_MARKER}\s*[:：]\s*)+")
_CLAUSE_END = re.compile(r"[,，.。;；:：!！?？\n]")
# A question mark ends no clause here, so that a word with one after it is not taken for a choice.
_STATEMENT_END = re.compile(r"[,，.。;；:：!！\n]")
# As a whole: neither -1 nor 3.5 names a seat. In 1-3 the sign makes a list.
_NUMBER = re.compile(r"(?:(?<![0-9号\s])-)?[0-9]+(?:\.[0-9]+)?")
_SEAT_SUFFIX = re.compile(r"\s*号")
_OPENING = ' *_`#~>-"“‘「『【[(（<《'
"""What may stand before the marker on its line without meaning anything."""
_DECORATION = " *_`#~。.!！,，;；:：\"'“”‘’「」『』【】[]()（）<>《》"
"""What may surround an answer without meaning anything."""
_INNER_DECORATION = str.maketrans("", "", " *_`#~\"'“”‘’「」『』【】[]()（）<>《》")


class ReplyError(ValueError):
    """A reply that cannot be used.

    code: ``empty``, ``no_choice``, ``ambiguous``, ``negated`` or ``illegal_target``.
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


def parse_reply(text: str, request: Request) -> Action:
    """The action that ``text`` (with or without a thought) states, always legal; else raises ReplyError."""
    _, reply = split_thought(text)
    if not one_line(reply):
        raise ReplyError("empty")
    if request.speaks:
        return _read_speech(reply, request)
    return Action(_read_choice(_take_apart(unicodedata.normalize("NFKC", reply)), request))


def render_reply(action: Action, request: Request) -> str:
    """The reply that states ``action``. ``parse_reply`` gives it back if its text is as ``clean_speech`` has it.

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
    while _MARKER.search(speech):  # Taking one out can make another of what stood around it.
        speech = one_line(_MARKER.sub(" ", speech))
    return _SPEECH_HEAD.sub("", speech)[:speech_chars].strip()


@dataclass(frozen=True, slots=True)
class _Parts:
    """A reply taken apart at its last marker.

    decision: the first line after it that says anything, in NFKC without decoration; None without a marker.
    undecided: whether the words before the marker say that nothing is decided.
    spoken: everything else.
    """

    spoken: str
    decision: str | None = None
    undecided: bool = False


def _take_apart(reply: str) -> _Parts:
    lines = (one_line(line) for line in reply.splitlines())
    text = "\n".join(line for line in lines if line)
    markers = list(_MARKER.finditer(text))
    if not markers:
        return _Parts(text)
    above, _, beside = text[: markers[-1].start()].rpartition("\n")
    beside = beside.rstrip(_OPENING)
    rest = dropwhile(lambda line: not line.strip(_DECORATION), text[markers[-1].end() :].split("\n"))
    decision = unicodedata.normalize("NFKC", next(rest, "")).strip(_DECORATION)
    return _Parts("\n".join((above, beside, *rest)), decision, undecided=bool(UNDECIDED.search(beside)))


# --- speeches -------------------------------------------------------------------------------------------------------


def _read_speech(reply: str, request: Request) -> Action:
    parts = _take_apart(reply)
    options = {choice_name(option, request.decision): option for option in request.options}
    known: dict[str, Option | None] = {
        SILENCE: None,
        PASS_WORDS[request.decision]: None,
        # Heard by all, a refusal to explode would tell who could have.
        **{f"不{word}": None for word in options},
        **options,
    }
    if parts.decision in known and not parts.undecided:
        choice = known[parts.decision]
    elif parts.decision is not None and request.targets:
        choice = _read_choice(parts, request)
    elif (
        bare := _harmless(reply, request.speech_chars).strip(_DECORATION)
    ) in options:  # heard is nothing but the word: said aloud, it would expose the seat
        choice = options[bare]
        parts = _Parts("")
    else:
        return Action(None, _said(reply, request.speech_chars))
    if choice is Option.EXPLODE:
        return Action(choice)
    return Action(choice, clean_speech(parts.spoken, request.speech_chars))


def _said(reply: str, speech_chars: int) -> str:
    """What is heard of a reply that is all speech; silence must be told by its word."""
    speech = clean_speech(reply, speech_chars)
    if not speech and _harmless(reply, speech_chars).strip(_DECORATION) != SILENCE:
        raise ReplyError("empty")
    return speech


# --- choices --------------------------------------------------------------------------------------------------------


def _read_choice(parts: _Parts, request: Request) -> Choice:
    if parts.undecided:
        raise ReplyError("negated")
    answer, marked = (parts.spoken, False) if parts.decision is None else (parts.decision, True)
    read = _read_potion if request.decision is Decision.WITCH else _read_seat_or_word
    choice = read(answer, marked, request)
    if choice not in choices(request):
        raise ReplyError("illegal_target")
    return choice


def _read_seat_or_word(answer: str, marked: bool, request: Request) -> Choice:
    words: dict[str, Choice] = {choice_name(option, request.decision): option for option in request.options}
    if request.decision in PASS_WORDS:
        words[PASS_WORDS[request.decision]] = None
    seats = _mentioned_seats(answer, every_number=marked)
    said = _mentioned_words(answer, words)
    if not seats and not (said if marked else answer.strip(_DECORATION) in words):
        not_offered = answer.strip(_DECORATION) in OPTION_WORDS.values()
        raise ReplyError("illegal_target" if not_offered else "no_choice")
    if len(seats) + len(said) > 1 or CHINESE_NUMBERED_SEAT.search(answer):
        raise ReplyError("ambiguous")
    mention = (*seats, *said)[0]
    _refuse_negation(answer, mention)
    if seats:
        return _legal_seat(mention, request)
    if not _states(answer, re.escape(mention), marked):
        raise ReplyError("no_choice")
    return words[mention]


_POTIONS = {
    PASS_WORDS[Decision.WITCH]: PASS_WORDS[Decision.WITCH],
    OPTION_WORDS[Option.SAVE]: rf"{OPTION_WORDS[Option.SAVE]}(?:[0-9]+号?)?",
    POISON: rf"{POISON}[死杀]?[0-9]+号?",
}
"""What the witch may say -> the form that states it. A seat alone would leave open which potion is meant."""


def _read_potion(answer: str, marked: bool, request: Request) -> Choice:
    said = [word for word in _POTIONS if word in answer]
    seats = _mentioned_seats(answer, every_number=True)
    if not said:
        raise ReplyError("ambiguous" if seats else "no_choice")
    word = said[0]
    passes = word == PASS_WORDS[Decision.WITCH]
    if len(said) > 1 or len(seats) > (0 if passes else 1) or CHINESE_NUMBERED_SEAT.search(answer):
        raise ReplyError("ambiguous")
    _refuse_negation(answer, word)
    if not _states(answer, _POTIONS[word], marked):
        raise ReplyError("no_choice")
    if passes:
        return None
    if word == POISON:
        return _legal_seat(seats[0], request)
    if seats and seats[0] != str(request.subject):
        raise ReplyError("illegal_target")
    return Option.SAVE


def _legal_seat(number: str, request: Request) -> int:
    # By text: a number of any length may stand there.
    targets = {str(target): target for target in request.targets}
    if number not in targets:
        raise ReplyError("illegal_target")
    return targets[number]


def _states(answer: str, form: str, marked: bool) -> bool:
    """Whether a clause of a decision line says ``form`` and nothing else; without marker, whether the reply does."""
    if not marked:
        return re.fullmatch(form, answer.translate(_INNER_DECORATION).strip(_DECORATION)) is not None
    clauses = _STATEMENT_END.split(answer.translate(_INNER_DECORATION))
    return any(re.fullmatch(f"{LEAD_IN}{form}{LEAD_OUT}", clause) for clause in clauses)


def _refuse_negation(answer: str, mention: str) -> None:
    declines = mention.startswith("不")
    for clause in _CLAUSE_END.split(answer):
        taken_back = not declines and BARE_NEGATION.fullmatch(clause.strip(_DECORATION))
        if taken_back or (mention in clause and NEGATION.search(clause.replace(mention, ""))):
            raise ReplyError("negated")


def _mentioned_words(answer: str, words: Collection[str]) -> set[str]:
    # The leftmost match wins, so that 不上警 does not mention 上警.
    return set(re.findall("|".join(map(re.escape, words)), answer))


def _mentioned_seats(answer: str, every_number: bool) -> list[str]:
    """Distinct seat numbers in ``answer``, without leading zeros: ``3号``, ``3、4号``, or any number at all."""
    mentioned: set[str] = set()
    counts, next_start = False, len(answer)
    for number in reversed(list(_NUMBER.finditer(answer))):
        gap = answer[number.end() : next_start]
        counts = every_number or bool(_SEAT_SUFFIX.match(gap)) or (counts and bool(LIST_GAP.fullmatch(gap)))
        if counts:
            mentioned.add(number[0].lstrip("0") or "0")
        next_start = number.start()
    return sorted(mentioned)
