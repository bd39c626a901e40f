"""Events as text, one line for each event or ballot, and the recap of a game.

The referee's lines begin with ``REFEREE``. A player's words follow, on one line, a head that the referee writes: only
the referee writes the text before a line's first colon, so no speech can forge it. Therefore the head holds the
speaker's choice (归票, a wolf's proposal).
"""

from collections.abc import Callable, Iterable, Mapping
from itertools import groupby

from runners.werewolf.game import BadgeLost, Decision, Event, EventKind, Option, Result, Role, Side
from runners.werewolf.prompts_zh.names import (
    CHECK_NAMES,
    OPTION_WORDS,
    PASS_WORDS,
    REFEREE,
    RESULT_NAMES,
    ROLE_NAMES,
    SPEECH_MARKER,
    choice_name,
    seat_name,
    seat_names,
)
from runners.werewolf.prompts_zh.quoting import quote_speech

RECAP_SPEECH_CHARS = 40
"""Greatest length of a quotation in a recap."""

_PRIVATE = (EventKind.WOLF_TEAM, EventKind.SEER_RESULT, EventKind.ANTIDOTE_USED, EventKind.POISON_USED)
"""What the referee told a seat by night and it needs by day."""

BADGE_LOST_REASONS: Mapping[BadgeLost, str] = {
    BadgeLost.NOBODY_RUNS: "没有候选人",
    BadgeLost.NO_VOTERS: "警下无人，无法投票",
    BadgeLost.NO_VOTES: "全员弃票",
    BadgeLost.TIED_TWICE: "再次平票",
    BadgeLost.SWALLOWED: "双爆吞警徽",
}
_BALLOTS: Mapping[EventKind, str] = {EventKind.VOTE: "投票", EventKind.SHERIFF_VOTE: "警长投票"}
_MAY_SHOOT = {"yes": "可以开枪", "no": "不可以开枪"}


def render_event(event: Event, speech_chars: int | None = None) -> str:
    """One Chinese sentence on one line. speech_chars: the longest quotation of a speech; None quotes all of it."""
    head = _SPEECH_HEADS.get(event.kind)
    if head is not None:
        return f"{seat_name(event.seat)}{head(event)}：{quote_speech(event.text, speech_chars)}"
    if event.kind in _BALLOTS:
        return _ballot(event.kind, (event,))
    return REFEREE + _EVENT_TEXTS[event.kind](event)


def render_events(events: Iterable[Event], speech_chars: int | None = None) -> str:
    """One line for each event, oldest first, with the votes of one ballot on one line; empty for no events."""
    lines: list[str] = []
    for kind, group in groupby(events, key=lambda event: event.kind):
        if kind in _BALLOTS:
            lines.append(_ballot(kind, group))
        else:
            lines.extend(render_event(event, speech_chars) for event in group)
    return "\n".join(lines)


def render_private(known: Iterable[Event]) -> str:
    """What a seat knows by its role, without line breaks: mates, checks, used potions. known: the seat's events."""
    return "".join(_EVENT_TEXTS[event.kind](event) for event in known if event.kind in _PRIVATE)


def render_recap(events: Iterable[Event], seat: int, speech_chars: int | None = RECAP_SPEECH_CHARS) -> str:
    """The game so far for one seat: the ``events`` that it may know, with short quotations."""
    known = [event for event in events if event.visible_to(seat)]
    return f"{REFEREE}前情回顾（你是{seat_name(seat)}）：\n{render_events(known, speech_chars)}"


def _ballot(kind: EventKind, votes: Iterable[Event]) -> str:
    return f"{REFEREE}{_BALLOTS[kind]}：{'，'.join(map(_vote, votes))}。"


def _vote(event: Event) -> str:
    if event.target is None:
        return seat_name(event.seat) + PASS_WORDS[Decision.EXILE_VOTE]
    return f"{seat_name(event.seat)}投{seat_name(event.target)}"


def _proposal(event: Event) -> str:
    proposed = "" if event.target is None else f"（提议袭击{seat_name(event.target)}）"
    return f"对狼队友说{proposed}"


def _closing(event: Event) -> str:
    named = PASS_WORDS[Decision.CLOSING_SPEECH] if event.target is None else f"归票{seat_name(event.target)}"
    return f"归票{SPEECH_MARKER}（{named}）"


def _prey(event: Event) -> str:
    return PASS_WORDS[Decision.WOLF_KILL] if event.target is None else f"袭击{seat_name(event.target)}"


def _wolf_team(event: Event) -> str:
    named = [
        f"{seat_names(map(int, event.data[role].split(',')))}是{name}"
        for role, name in ROLE_NAMES.items()
        if role in event.data
    ]
    return f"狼人是{seat_names(event.seats)}{'，其中' if named else ''}{'，'.join(named)}。"


def _guarded(event: Event) -> str:
    deed = PASS_WORDS[Decision.GUARD] if event.target is None else f"守护{seat_name(event.target)}"
    return f"{seat_name(event.seat)}今夜{deed}。"


def _witch_told(event: Event) -> str:
    return f"今夜{'无人' if event.target is None else seat_name(event.target)}被袭击。"


def _vote_count(event: Event) -> str:
    counted = (entry.split(":") for entry in event.data["count"].split(",") if entry)
    return f"计票：{'，'.join(f'{seat_name(int(seat))}{votes}票' for seat, votes in counted) or '无人得票'}。"


def _speaking_order(event: Event) -> str:
    way = event.data["way"]
    chosen = f"警长{seat_name(event.seat)}选择{OPTION_WORDS[Option(way)]}，" if way else ""
    return f"{chosen}发言顺序：{seat_names(event.seats)}。"


_SPEECH_HEADS: Mapping[EventKind, Callable[[Event], str]] = {
    EventKind.WOLF_SAYS: _proposal,
    EventKind.CAMPAIGN_SPEECH: lambda e: f"警上{SPEECH_MARKER}",
    EventKind.SHERIFF_PK_SPEECH: lambda e: f"警长PK{SPEECH_MARKER}",
    EventKind.SPEECH: lambda e: SPEECH_MARKER,
    EventKind.CLOSING_SPEECH: _closing,
    EventKind.PK_SPEECH: lambda e: f"PK{SPEECH_MARKER}",
    EventKind.LAST_WORDS: lambda e: "遗言",
}
_EVENT_TEXTS: Mapping[EventKind, Callable[[Event], str]] = {
    EventKind.GAME_START: lambda e: f"游戏开始，座位是1号到{e.data['seats']}号。",
    EventKind.ROLE_DEALT: lambda e: f"{seat_name(e.seat)}的身份是{ROLE_NAMES[Role(e.data['role'])]}。",
    EventKind.WOLF_TEAM: _wolf_team,
    EventKind.NIGHT_FALLS: lambda e: f"第{e.day}夜，天黑请闭眼。",
    EventKind.WOLF_VOTE: lambda e: f"{seat_name(e.seat)}选择{_prey(e)}。",
    EventKind.WOLF_TARGET: lambda e: f"狼人今夜{_prey(e)}。",
    EventKind.GUARDED: _guarded,
    EventKind.SEER_RESULT: lambda e: f"查验结果：{seat_name(e.target)}是{CHECK_NAMES[Side(e.data['side'])]}。",
    EventKind.WITCH_TOLD: _witch_told,
    EventKind.ANTIDOTE_USED: lambda e: f"{seat_name(e.seat)}用解药救了{seat_name(e.target)}。",
    EventKind.POISON_USED: lambda e: f"{seat_name(e.seat)}用毒药毒了{seat_name(e.target)}。",
    EventKind.SHOT_STATUS: lambda e: f"你今夜的开枪状态：{_MAY_SHOOT[e.data['may_shoot']]}。",
    EventKind.DAY_BREAKS: lambda e: f"第{e.day}天，天亮了。",
    EventKind.SIGNED_UP: lambda e: f"上警的玩家：{seat_names(e.seats)}。" if e.seats else "无人上警。",
    EventKind.WITHDREW: lambda e: f"{seat_name(e.seat)}{choice_name(Option.WITHDRAW, Decision.CAMPAIGN_SPEECH)}。",
    EventKind.SHERIFF_ELECTED: lambda e: f"{seat_name(e.target)}当选警长。",
    EventKind.ELECTION_PUT_OFF: lambda e: "警长竞选推迟到明天，届时直接投票。",
    EventKind.BADGE_LOST: lambda e: f"警徽流失：{BADGE_LOST_REASONS[BadgeLost(e.data['reason'])]}，本局没有警长。",
    EventKind.DEATHS_ANNOUNCED: lambda e: f"昨夜{seat_names(e.seats)}死亡。" if e.seats else "昨夜是平安夜，无人死亡。",
    EventKind.SHOT: lambda e: f"{seat_name(e.seat)}{'自爆' if e.data else '开枪'}带走{seat_name(e.target)}。",
    EventKind.BADGE_PASSED: lambda e: f"{seat_name(e.seat)}把警徽移交给{seat_name(e.target)}。",
    EventKind.BADGE_TORN: lambda e: f"{seat_name(e.seat)}撕毁警徽。",
    EventKind.SPEAKING_ORDER: _speaking_order,
    EventKind.DUEL: lambda e: (
        f"{seat_name(e.seat)}翻开身份牌，是{ROLE_NAMES[Role(e.data['role'])]}，与{seat_name(e.target)}决斗："
        f"{seat_name(e.target)}是{CHECK_NAMES[Side(e.data['side'])]}，{seat_name(int(e.data['dead']))}出局"
        f"{'，白天结束' if Side(e.data['side']) is Side.WOLF else ''}。"
    ),
    EventKind.VOTE_COUNT: _vote_count,
    EventKind.VOTE_TIED: lambda e: f"{seat_names(e.seats)}平票。",
    EventKind.EXILED: lambda e: f"{seat_name(e.target)}被放逐出局。",
    EventKind.REVEALED: lambda e: (
        f"{seat_name(e.target)}翻开身份牌，是{ROLE_NAMES[Role(e.data['role'])]}：免于出局，此后不能投票，也不会再被投票。"
    ),
    EventKind.NOBODY_EXILED: lambda e: "今天是平安日，无人被放逐。",
    EventKind.EXPLODED: lambda e: f"{seat_name(e.seat)}自爆出局，白天结束。",
    EventKind.GAME_OVER: lambda e: f"游戏结束，{RESULT_NAMES[Result(e.data['result'])]}。",
}
