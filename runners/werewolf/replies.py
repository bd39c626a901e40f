"""From reply text to an Action, or a ReplyError that says in Chinese what was wrong.

A choice counts where a clause of the reply states exactly it, and nowhere else: what is negated, supposed, asked,
quoted, compared or put off is no choice, and what stays in doubt is asked again, since a guess would credit the model
with a decision that it did not make. Where the answer belongs is looked at first: behind the last ``决定：``, else
behind another label such as ``投票：``, in a box or as JSON, else in what stands outside labels. Of a reply that was
cut at the token limit, only what was complete before the cut counts.

Where a seat speaks, the speech is what stands outside thoughts and decisions. An option (自爆, 退水) that the seat
says it takes is taken, one that it nearly takes is asked about again: said aloud, it would tell what the seat is.
"""

import re
from dataclasses import replace

from runners.werewolf.game import Action, Choice, Option, Request
from runners.werewolf.prompts_zh.names import (
    DECISION_MARKER,
    PASS_WORDS,
    REPLY_ERRORS,
    SILENCE,
    SPEECH_MARKER,
    choice_name,
)
from runners.werewolf.prompts_zh.quoting import disarm, one_line
from runners.werewolf.reading.choices import (
    Reading,
    Stated,
    names_option,
    options_taken,
    read_choice,
    seats_proposed,
)
from runners.werewolf.reading.clauses import ended_clauses, ended_sentences, plain
from runners.werewolf.reading.data import data_sections, looks_like_data
from runners.werewolf.reading.sections import Kind, Section, sections_of

_THINK, _END_THINK = "<think>", "</think>"
_MARKER = re.compile(rf"{DECISION_MARKER}[\s*_`”\"】\]]*[:：﹕︓]")
_SPEECH_HEAD = re.compile(rf"^(?:{SPEECH_MARKER}\s*[:：]\s*|```\w*\s*|[\[{{]+\s*(?=[\"'“{{]|\Z))+")
"""What would make a speech read as a label or as data (``looks_like_data``), were it a reply."""
_CUT_MARKER = re.compile(
    rf"(?:^|(?<=[\n。！？!?.]))[\s*#【\[]*(?:我的|最终)*(?:{DECISION_MARKER[0]}|{DECISION_MARKER})[*】\s]*$"
)
_MOST_ANSWERS = 8
"""A reply with more labelled answers is no answer."""
_DECORATION = " *_`#~。.!！,，;；:：\"'“”‘’「」『』【】[]()（）<>《》"
"""What may surround an answer without meaning anything."""


_IN_A_SPEECH = {Kind.ANSWER: Kind.DECISION}
"""A field of data is a decision; a line such as 结论：… is a part of the speech."""


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
    reply = "\n".join(one_line(line) for line in reply.splitlines())
    if not reply.strip():
        raise ReplyError("empty")
    if looks_like_data(reply):
        sections = data_sections(reply, request)
        if sections is None:
            raise ReplyError("cut" if cut else "no_choice")
        if request.speaks:
            sections = [replace(section, kind=_IN_A_SPEECH.get(section.kind, section.kind)) for section in sections]
    else:
        sections = sections_of(reply, request)
    if request.speaks:
        return _read_speech(sections, request, cut)
    return Action(_read_choice(sections, request, cut))


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
    while _MARKER.search(speech):  # Taking one out can make another of what stood around it.
        speech = one_line(_MARKER.sub(" ", speech))
    # Once more at the end: the limit can leave nothing but such a head.
    return _SPEECH_HEAD.sub("", _SPEECH_HEAD.sub("", speech)[:speech_chars]).strip()


# --- choices --------------------------------------------------------------------------------------------------------


def _read_choice(sections: list[Section], request: Request, cut: bool) -> Choice:
    reading = _read(sections, request, cut)
    if cut and reading.problem == "no_choice":
        raise ReplyError("cut")
    return _legal(reading, request)


def _read(sections: list[Section], request: Request, cut: bool) -> Reading:
    decisions = [number for number, section in enumerate(sections) if section.kind is Kind.DECISION]
    if decisions:
        return _read_section(sections, decisions[-1], request, cut)
    answers = [number for number, section in enumerate(sections) if section.kind is Kind.ANSWER]
    if len(answers) > _MOST_ANSWERS:
        return Reading((), "ambiguous")
    readings = [_read_section(sections, number, request, cut) for number in answers]
    stating = [reading for reading in readings if reading.stated or reading.problem != "no_choice"]
    if len({(reading.stated, reading.problem) for reading in stating}) > 1:
        return Reading((), "ambiguous")
    if stating:
        return stating[0]
    text = "\n".join(_unlabelled(sections, cut))
    return read_choice(ended_sentences(plain(text)) if cut else plain(text), request, marked=False, first_only=cut)


def _read_section(sections: list[Section], number: int, request: Request, cut: bool) -> Reading:
    answer, *rest = _first_line(sections[number].text)
    later = [section.text for section in sections[number + 1 :] if section.kind is not Kind.REASON]
    following = "\n".join([*rest, *later])
    ends_the_reply = cut and not rest and number == len(sections) - 1 and not sections[number].closed
    return read_choice(
        (ended_clauses(plain(answer)) if ends_the_reply else plain(answer)).strip(_DECORATION),
        request,
        marked=True,
        rest=ended_sentences(plain(following)) if cut else plain(following),
    )


def _first_line(text: str) -> list[str]:
    """The lines of a section from the first that says anything; one empty line for none."""
    lines = text.split("\n")
    begin = next((number for number, line in enumerate(lines) if line.strip(_DECORATION)), len(lines) - 1)
    return lines[begin:]


def _unlabelled(sections: list[Section], cut: bool) -> list[str]:
    """What stands outside labels; of a thought that ends the reply, its last paragraph if it has several."""
    texts = [section.text for section in sections if section.kind in (Kind.PLAIN, Kind.SPEECH)]
    texts += ["\n".join(_first_line(section.text)[1:]) for section in sections if section.kind is Kind.ANSWER]
    if not cut and sections and sections[-1].kind is Kind.THOUGHT and not sections[-1].closed:
        _, several, last = sections[-1].text.strip().rpartition("\n\n")
        texts += [last] if several else []
    return texts


def _legal(reading: Reading, request: Request) -> Choice:
    if reading.problem:
        raise ReplyError(reading.problem)
    return _choice(reading.stated[0], request)


def _choice(stated: Stated, request: Request) -> Choice:
    # By text: a number of any length may stand there.
    targets = {str(target): target for target in request.targets}
    if isinstance(stated, Option):
        return stated
    if stated is None:
        if request.may_pass:
            return None
    elif stated in targets:
        return targets[stated]
    raise ReplyError("illegal_target")


# --- speeches -------------------------------------------------------------------------------------------------------


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
    # Silence must be told by its word, or stand beside a decision.
    if not heard and not settled and _harmless(spoken, request.speech_chars).strip(_DECORATION) != SILENCE:
        raise ReplyError("no_choice" if decision else "empty")
    bare = taken is not None and spoken.strip(_DECORATION) == choice_name(taken, request.decision)
    return Action(choice, "" if bare else heard)


def _take_apart(sections: list[Section], request: Request, cut: bool) -> tuple[str, str | None]:
    """(what is said, the line of the decision in plain text; None without one)."""
    decision: str | None = None
    labelled = any(section.kind is Kind.SPEECH for section in sections)
    said: list[str] = []
    for section in sections:
        answer, *rest = _first_line(section.text)
        if section.kind is Kind.DECISION or (
            section.kind is Kind.ANSWER and any(names_option(plain(answer), option) for option in request.options)
        ):
            unfinished = cut and not rest and section is sections[-1]
            decision = (ended_clauses(plain(answer)) if unfinished else plain(answer)).strip(_DECORATION)
            if unfinished and not decision:
                decision = None
            said += [] if labelled else rest
        elif section.kind is Kind.SPEECH or (section.kind is Kind.PLAIN and not labelled):
            said.append(section.text)
        elif section.kind in (Kind.REASON, Kind.ANSWER) and (not labelled or said):
            said.append(f"{section.label}{section.text}")
        elif section.kind is Kind.THOUGHT and not section.closed and not labelled:
            raise ReplyError("only_thought")
    spoken = "\n".join(said).strip()
    return (_CUT_MARKER.sub("", spoken) if cut else spoken), decision


def _taken_by_words(spoken: str, heard: str, request: Request) -> Option | None:
    """The option that the seat says it takes. ReplyError where it nearly says so: heard, it would give it away."""
    taken: set[Option] = set()
    for text in (spoken, heard):
        if any(names_option(text, option) for option in request.options):
            options, nearly = options_taken(plain(text), request)
            if nearly and not options:
                raise ReplyError("no_choice")
            taken |= options
    if len(taken) > 1:
        raise ReplyError("ambiguous")
    return next(iter(taken), None)


def _proposed(spoken: str, request: Request) -> Choice:
    """Whom a speech without a decision names, where it may name somebody and names one seat in the asked way."""
    named = seats_proposed(plain(spoken), request) if request.targets else set()
    targets = {str(target): target for target in request.targets}
    return targets.get(named.pop()) if len(named) == 1 else None


def _decided(line: str, request: Request) -> tuple[Choice, bool]:
    """(choice, whether the decision line says so). A line that decides nothing the seat was asked is left out."""
    if line in (SILENCE, PASS_WORDS.get(request.decision)):
        return None, True
    reading = read_choice(line, request, marked=True)
    if not reading.stated and reading.rejected and all(isinstance(one, Option) for one in reading.rejected):
        # Heard by all, a refusal to explode would tell who could have.
        return None, True
    if request.targets or any(names_option(line, option) for option in request.options):
        return _legal(reading, request), True
    return None, False
