"""From reply text to an Action, or a ReplyError that says in Chinese what was wrong.

A choice is read from the line after the last ``决定：``; without that marker, only a reply that mentions a
single option counts. Anything negated, listed or otherwise in doubt is an error: a guess would credit
the model with a decision that it did not make.
"""

import re
import unicodedata

from runners.werewolf.game import Action, Request
from runners.werewolf.prompts_zh import (
    CHINESE_NUMBERED_SEAT,
    DECISION_MARKER,
    LIST_GAP,
    MAX_SPEECH_CHARS,
    NEGATION,
    PASS_WORDS,
    REPLY_ERRORS,
    SILENCE,
    SPEECH_MARKER,
    choice_name,
    disarm,
    one_line,
)

_THINK, _END_THINK = "<think>", "</think>"
_MARKER = re.compile(rf"{DECISION_MARKER}[\s*_`”\"】\]]*[:：]")
_SPEECH_HEAD = re.compile(rf"^(?:(?:[0-9]{{1,2}}号)?{SPEECH_MARKER}\s*[:：]\s*)+")
_CLAUSE_END = re.compile(r"[,，.。;；:：!！?？\n]")
_NUMBER = re.compile(r"[0-9]+")
_SEAT_SUFFIX = re.compile(r"\s*号")
_DECORATION = " *_`#~。.!！,，;；:：\"'“”‘’「」『』【】[]()（）<>《》"
"""What may surround an answer without meaning anything."""


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
        return Action(text=_read_speech(reply))
    return Action(target=_read_choice(reply, request))


def render_reply(action: Action, request: Request) -> str:
    """The reply that states ``action``. ``parse_reply`` gives the action back, a speech as ``clean_speech`` has it."""
    if request.speaks:
        return action.text or SILENCE
    return f"{DECISION_MARKER}：{choice_name(action.target, request.decision)}"


def clean_speech(text: str) -> str:
    """A speech as the table hears it: one harmless line, no markers, at most MAX_SPEECH_CHARS characters."""
    speech = disarm(one_line(text))[: 4 * MAX_SPEECH_CHARS]
    while _MARKER.search(speech):  # Taking one out can make another of what stood around it.
        speech = one_line(_MARKER.sub(" ", speech))
    return _SPEECH_HEAD.sub("", speech)[:MAX_SPEECH_CHARS].strip()


def _read_speech(reply: str) -> str:
    speech = clean_speech(reply)
    if not speech.strip(_DECORATION):
        raise ReplyError("empty")
    return "" if speech.strip(_DECORATION) == SILENCE else speech


def _read_choice(reply: str, request: Request) -> int | None:
    lines = (one_line(line) for line in unicodedata.normalize("NFKC", reply).splitlines())
    answer = "\n".join(line for line in lines if line)
    markers = list(_MARKER.finditer(answer))
    if markers:
        rest = (line.strip(_DECORATION) for line in answer[markers[-1].end() :].splitlines())
        answer = next((line for line in rest if line), "")
    seats = _mentioned_seats(answer, every_number=bool(markers))
    pass_word = PASS_WORDS[request.decision]
    passes = pass_word in answer if markers else answer.strip(_DECORATION) == pass_word
    if not seats and not passes:
        raise ReplyError("no_choice")
    if len(seats) + (pass_word in answer) > 1 or CHINESE_NUMBERED_SEAT.search(answer):
        raise ReplyError("ambiguous")
    mention = pass_word if passes else seats[0]
    for clause in _CLAUSE_END.split(answer):
        if mention in clause and NEGATION.search(clause.replace(pass_word, "")):
            raise ReplyError("negated")
    if passes:
        if not request.may_pass:
            raise ReplyError("illegal_target")
        return None
    targets = {str(target): target for target in request.targets}
    if mention not in targets:
        raise ReplyError("illegal_target")
    return targets[mention]


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
