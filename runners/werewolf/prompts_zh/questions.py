"""Questions to seats, with the legal answers and their exact form."""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from runners.werewolf.game import Decision, Event, Option, Phase, Request, Role, Unsaved, choices
from runners.werewolf.game.roles import CARDS
from runners.werewolf.prompts_zh.names import (
    DECISION_MARKER,
    PASS_WORDS,
    POISON,
    REFEREE,
    ROLE_NAMES,
    SILENCE,
    choice_name,
    seat_name,
)
from runners.werewolf.prompts_zh.record import render_events

if TYPE_CHECKING:
    from runners.werewolf.language.replies import ReplyError

_QUESTIONS: Mapping[Decision, str] = {
    Decision.SIGN_UP: "请决定是否上警竞选警长",
    Decision.CAMPAIGN_SPEECH: "轮到你警上发言",
    Decision.WITHDRAWAL: "警上发言结束，请决定是否退水",
    Decision.SHERIFF_VOTE: "请投票选出警长",
    Decision.SHERIFF_PK_SPEECH: "你与他人平票，请在PK台上再次发言，竞选警长",
    Decision.SHERIFF_PK_VOTE: "请在PK台上的人中投票选出警长",
    Decision.LAST_WORDS: "请留遗言，这是你最后一次发言",
    Decision.SHOT: "你已出局，请选择是否开枪带走一人，他会立即出局",
    Decision.BADGE: "你已出局，请选择把警徽移交给谁，或者撕毁警徽",
    Decision.SPEAKING_ORDER: "你是警长，请选择今天的发言顺序，你最后发言",
    Decision.SPEECH: "轮到你发言",
    Decision.CLOSING_SPEECH: "你是警长，请最后发言，可以归票",
    Decision.EXILE_VOTE: "请投票放逐一人",
    Decision.PK_SPEECH: "你在PK台上，请为自己发言",
    Decision.PK_VOTE: "请在PK台上的人中投票放逐一人",
    Decision.EXPLOSION: "请决定是否自爆",
    **{decision: question for card in CARDS.values() for decision, (question, _) in card.questions.items()},
}
_MEANINGS: Mapping[Option, str] = {
    Option.SHERIFF_LEFT: "从警长的下一号起递增",
    Option.SHERIFF_RIGHT: "从警长的上一号起递减",
    Option.DEAD_LEFT: "从昨夜死者的下一号起递增",
    Option.DEAD_RIGHT: "从昨夜死者的上一号起递减",
}
"""Explanations of options."""

_BEFORE: Mapping[Phase, str] = {
    Phase.WITHDRAWAL: "警上发言结束，",
    Phase.UNOPPOSED: "{subject}号即将直接当选警长，",
    Phase.SHERIFF_VOTE: "警长投票即将开始，",
    Phase.SHERIFF_PK_VOTE: "警长PK投票即将开始，",
    Phase.PK_VOTE: "PK投票即将开始，",
}
"""Phase -> introduction of a wolf's question about an explosion."""

_UNSAVED: Mapping[Unsaved, str] = {
    Unsaved.USED: "解药已用，",
    Unsaved.NOBODY_HIT: "今夜无人可救，",
    Unsaved.HERSELF: "今夜你被袭击，不可自救，",
}

_NAMING: Mapping[Decision, str] = {Decision.WOLF_TALK: "提议", Decision.CLOSING_SPEECH: "归票"}
"""Verbs for a seat named at the end of a speech."""


def render_question(request: Request) -> str:
    """The question on one line, with all legal answers and their exact form."""
    question = f"{REFEREE}{seat_name(request.seat)}，{_occasion(request)}{_QUESTIONS[request.decision]}"
    seats = [choice_name(seat, request.decision) for seat in request.targets]
    # Options that come with a speech follow it, each with its own form.
    if offered := seats if request.speaks else _in_order(request, seats):
        question += f"，可选：{'、'.join(offered)}"
    meanings = [f"{choice_name(o, request.decision)}是{_MEANINGS[o]}" for o in request.options if o in _MEANINGS]
    explained = f"{'；'.join(meanings)}。" if meanings else ""
    return f"{question}。{explained}{_speech_form(request) if request.speaks else _choice_form(request)}"


def render_turn(news: Iterable[Event], question: str) -> str:
    """A seat's turn as text: new events, then the question."""
    return "\n".join(filter(None, (render_events(news), question)))


def render_reply_error(error: "ReplyError", request: Request) -> str:
    """The re-ask after an invalid reply: the reason, and the question again."""
    return f"{REFEREE}刚才的回答无效：{error.message}。\n{render_question(request)}"


def render_probe(target: int, roles: Iterable[Role]) -> str:
    """A probe about one seat; the answer is the name of one of ``roles``."""
    names = "、".join(ROLE_NAMES[role] for role in roles)
    return f"{REFEREE}场外提问，不计入游戏：你认为{seat_name(target)}的身份是什么？只回答一个身份：{names}。"


def _occasion(request: Request) -> str:
    """Introduction of the question, if the events before it give none."""
    match request.decision:
        case Decision.EXPLOSION:
            return _BEFORE.get(request.phase, "").format(subject=request.subject)
        case Decision.WITCH:
            hit = f"今夜{seat_name(request.subject)}被袭击，" if request.unsaved is None else _UNSAVED[request.unsaved]
            return hit if request.targets else f"{hit}毒药已用，"
        case Decision.WOLF_TALK:
            left = f"本轮之后还可商议{request.rounds_left}轮，" if request.rounds_left else "这是最后一轮商议，"
            return left + "".join(f"{seat_name(mate)}提议{seat_name(victim)}，" for mate, victim in request.proposed)
    return ""


def _in_order(request: Request, seats: Iterable[str]) -> tuple[str, ...]:
    """Words of the choices: ``seats``, then the others; for the witch 救 comes first."""
    others = [choice_name(choice, request.decision) for choice in choices(request)[len(request.targets) :]]
    first = len(request.options) if request.decision is Decision.WITCH else 0
    return (*others[:first], *seats, *others[first:])


def _choice_form(request: Request) -> str:
    return f"最后一行写{'或'.join(map(_decision_line, _answer_words(request)))}。"


def _speech_form(request: Request) -> str:
    form = (
        f"直接写要说的话，不超过{request.speech_chars}字，超出的部分没人听到，重要的话先说；无话可说就写“{SILENCE}”。"
    )
    if request.targets:
        passing = PASS_WORDS[request.decision]
        naming = _NAMING[request.decision]
        form += f"说完另起一行，要{naming}就写{_decision_line('X号')}，否则写{_decision_line(passing)}。"
    for option in request.options:
        word = choice_name(option, request.decision)
        if option is Option.EXPLODE:  # it ends the day before the seat has spoken
            form += f"如要{word}，就只写{_decision_line(word)}，不能发言。"
        else:
            form += f"如要{word}，说完另起一行写{_decision_line(word)}。"
    return form


def _answer_words(request: Request) -> Iterable[str]:
    """The words of a decision line, with one form for all seats."""
    form = f"{POISON}X号" if request.decision is Decision.WITCH else "X号"
    return _in_order(request, (form,) if request.targets else ())


def _decision_line(word: str) -> str:
    return f"“{DECISION_MARKER}：{word}”"
