"""All Chinese text of the game: what the referee says, asks and accepts, and what scripted players say.

The referee's lines begin with ``REFEREE``. Whatever a player said is quoted through ``quote_speech``,
which keeps it on its own line and takes the referee's brackets out of it, so no speech can pass for a
referee's line. ``fill`` inserts values in one pass: braces inside a value stay what they are.
"""

import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from itertools import groupby
from types import MappingProxyType
from typing import TYPE_CHECKING

from runners.werewolf.game import (
    Decision,
    Event,
    EventKind,
    Observation,
    Phase,
    Preset,
    Request,
    Result,
    Role,
    Side,
    WinRule,
    choices,
)

if TYPE_CHECKING:
    from runners.werewolf.replies import ReplyError

MAX_SPEECH_CHARS = 120
"""Longest speech that is heard; the rest is cut."""

RECAP_SPEECH_CHARS = 40
"""Longest quotation of a speech in a recap."""

REFEREE = "【裁判】"

SIDE_NAMES: Mapping[Side, str] = {Side.WOLF: "狼人阵营", Side.GOOD: "好人阵营"}
CHECK_NAMES: Mapping[Side, str] = {Side.WOLF: "狼人", Side.GOOD: "好人"}
"""What a seer's check calls each side."""

ROLE_NAMES: Mapping[Role, str] = {
    Role.WOLF: "狼人",
    Role.WOLF_KING: "狼王",
    Role.VILLAGER: "村民",
    Role.SEER: "预言家",
    Role.WITCH: "女巫",
    Role.HUNTER: "猎人",
    Role.GUARD: "守卫",
}
PHASE_NAMES: Mapping[Phase, str] = {
    Phase.WOLF_TALK: "狼人商议",
    Phase.NIGHT_ACTIONS: "夜间行动",
    Phase.DISCUSSION: "白天发言",
    Phase.EXILE_VOTE: "放逐投票",
    Phase.PK_SPEECH: "PK发言",
    Phase.PK_VOTE: "PK投票",
    Phase.LAST_WORDS: "遗言",
    Phase.GAME_OVER: "游戏结束",
}
RESULT_NAMES: Mapping[Result, str] = {
    Result.WOLF: "狼人阵营胜利",
    Result.GOOD: "好人阵营胜利",
    Result.DRAW: "平局",
}

# --- answers: what replies.py looks for -----------------------------------------------------------------------------

DECISION_MARKER = "决定"
SPEECH_MARKER = "发言"
SILENCE = "过"
PASS_WORDS: Mapping[Decision, str] = {
    Decision.WOLF_KILL: "空刀",
    Decision.SEER_CHECK: "不查验",
    Decision.EXILE_VOTE: "弃票",
    Decision.PK_VOTE: "弃票",
}
NEGATION = re.compile(r"不|没|勿|未|莫|甭|否|(?<![特区分级])别|非(?!常)")
LIST_GAP = re.compile(r"\s*[、,或和与跟及/~-]\s*")
"""What stands between the numbers of a list, as in ``3、4号`` (after NFKC)."""
CHINESE_NUMBERED_SEAT = re.compile(r"[一二三四五六七八九十]\s*号")

REPLY_ERRORS: Mapping[str, str] = {
    "empty": "回复是空的",
    "no_choice": "没有找到明确的选择",
    "ambiguous": "出现了不止一个选择",
    "negated": "选择带有否定，看不出要选谁",
    "illegal_target": "所选不在可选范围内",
}


def seat_name(seat: int) -> str:
    """``3`` -> ``3号``."""
    return f"{seat}号"


def choice_name(target: int | None, decision: Decision) -> str:
    """How a choice is written: ``3号``, or the decision's word for choosing nobody."""
    return PASS_WORDS[decision] if target is None else seat_name(target)


# --- plumbing -------------------------------------------------------------------------------------------------------


def fill(template: str, /, **values: object) -> str:
    """``template`` with each ``{name}`` replaced, in one pass; other braces stay. ValueError for an unknown name."""

    def value_of(match: re.Match[str]) -> str:
        if match[1] not in values:
            raise ValueError(f"template uses unknown {match[0]}; known: {', '.join(sorted(values))}")
        return str(values[match[1]])

    return re.sub(r"\{([a-z_]+)\}", value_of, template)


def one_line(text: str) -> str:
    """``text`` on one line: whitespace collapsed; control, invisible and unencodable characters removed."""
    visible = (" " if c.isspace() else "" if unicodedata.category(c) in ("Cc", "Cf", "Cs") else c for c in text)
    return " ".join("".join(visible).split())


_LOOKALIKES = str.maketrans({"【": "〔", "】": "〕", "<": "＜", ">": "＞"})


def disarm(text: str) -> str:
    """``text`` without the referee's brackets, and without those that spell tags and special tokens."""
    return text.translate(_LOOKALIKES)


def quote_speech(text: str, limit: int = MAX_SPEECH_CHARS) -> str:
    """A player's words, safe to show: one line of at most ``limit`` characters that cannot pass for the referee's."""
    words = disarm(one_line(text))
    if not words:
        return f"（{SILENCE}）"
    return words if len(words) <= limit else words[: limit - 1] + "…"


def _names(seats: Iterable[int]) -> str:
    return "、".join(seat_name(seat) for seat in seats)


def _names_in(event: Event) -> str:
    return _names(int(seat) for seat in event.data["seats"].split(",") if seat)


# --- rules and system prompt ----------------------------------------------------------------------------------------


def rules_prompt(preset: Preset) -> str:
    """The rules of ``preset``, written from the same fields that the referee reads."""
    counts = Counter(preset.deck)
    deck = "、".join(f"{ROLE_NAMES[role]}{counts[role]}名" for role in Role if counts[role])
    abstain = "（可弃票）" if preset.may_abstain else "（不可弃票）"
    nobody = "再平票、全员平票" + ("或全员弃票" if preset.may_abstain else "") + "则无人出局"
    return "\n".join(
        (
            f"{len(preset.deck)}人狼人杀：{deck}。狼人属狼人阵营，其余属好人阵营。出局者不公布身份。",
            f"每夜（同时进行）：{'；'.join(_night_rules(preset, counts))}。",
            "白天：公布死者，首夜死者留遗言；存活者依裁判的顺序各说一句话；"
            f"然后同时投票放逐一人{abstain}，得票最多者出局并留遗言；平票者再发言，其余人重投，{nobody}。",
            f"胜负：狼人全部出局则好人阵营胜；{_wolves_win_when(preset, counts)}则狼人阵营胜；"
            f"第{preset.round_limit}天结束仍未分胜负为平局。",
        )
    )


def _night_rules(preset: Preset, counts: Counter[Role]) -> Iterable[str]:
    limits = ("可空刀" if preset.wolves_may_pass else "不可空刀") + (
        "，可自刀" if preset.wolves_may_hit_wolves else "，不可袭击狼人"
    )
    if counts[Role.WOLF] > 1:
        talk = f"先各说{preset.wolf_talk_rounds}句，" if preset.wolf_talk_rounds else ""
        yield f"狼人彼此知晓身份，{talk}再各选一人，票多者被袭击（{limits}）"
    else:
        yield f"狼人袭击一人（{limits}）"
    if counts[Role.SEER]:
        yield "预言家查验一人是好人还是狼人（可不查验）"


def _wolves_win_when(preset: Preset, counts: Counter[Role]) -> str:
    if preset.win_rule is WinRule.PARITY:
        return "存活狼人不少于存活好人"
    kinds = [("神职", any(role.is_god for role in counts)), ("村民", counts[Role.VILLAGER] > 0)]
    return "或".join(f"{name}全部出局" for name, dealt in kinds if dealt)


REPLY_FORMAT = (
    f"回答方式：要你选择时，最后一行写“{DECISION_MARKER}：X号”（X为座位号）或题中给出的其他选项；"
    f"要你发言时，直接写要说的话，一句话，不超过{MAX_SPEECH_CHARS}字。"
)

SYSTEM_TEMPLATES: Mapping[str, str] = MappingProxyType(
    {
        "system": "你在玩狼人杀。\n{rules}\n你是{seat}，身份是{role}，属{side}。{guidance}\n{reply_format}",
        "guidance_wolf": "隐藏身份，装作好人，夜里先除掉预言家，白天让好人互相怀疑。",
        "guidance_seer": "夜里查验可疑的人，白天公布查验结果，带领好人投出狼人。",
        "guidance_villager": "你没有夜间能力，请听发言、找矛盾，跟随可信的预言家投出狼人。",
    }
)
"""The parts of the system prompt that a run may replace by name. Rules and reply format are not among them:
they must agree with the referee and the parser."""

NO_OVERRIDES: Mapping[str, str] = MappingProxyType({})


def system_prompt(preset: Preset, seat: int, role: Role, templates: Mapping[str, str] = NO_OVERRIDES) -> str:
    """What a seat is told once, before its first turn.

    templates: replacements for ``SYSTEM_TEMPLATES`` by name; ValueError for a name or ``{value}`` not known.
    """
    unknown = sorted(templates.keys() - SYSTEM_TEMPLATES.keys())
    if unknown:
        raise ValueError(f"unknown prompt templates {unknown}; valid names: {', '.join(SYSTEM_TEMPLATES)}")
    texts = {**SYSTEM_TEMPLATES, **templates}
    return fill(
        texts["system"],
        rules=rules_prompt(preset),
        seat=seat_name(seat),
        role=ROLE_NAMES[role],
        side=SIDE_NAMES[role.side],
        guidance=texts[f"guidance_{role.value}"],
        reply_format=REPLY_FORMAT,
    )


# --- events ---------------------------------------------------------------------------------------------------------

_EVENT_TEXTS: Mapping[EventKind, Callable[[Event], str]] = {
    EventKind.GAME_START: lambda e: f"游戏开始，座位是1号到{e.data['seats']}号。",
    EventKind.ROLE_DEALT: lambda e: f"{seat_name(e.seat)}的身份是{ROLE_NAMES[Role(e.data['role'])]}。",
    EventKind.WOLF_TEAM: lambda e: f"狼人是{_names_in(e)}。",
    EventKind.NIGHT_FALLS: lambda e: f"第{e.day}夜，天黑请闭眼。",
    EventKind.WOLF_VOTE: lambda e: f"{seat_name(e.seat)}选择{_prey_name(e)}。",
    EventKind.WOLF_TARGET: lambda e: f"狼人今夜{_prey_name(e)}。",
    EventKind.SEER_RESULT: lambda e: f"查验结果：{seat_name(e.target)}是{CHECK_NAMES[Side(e.data['side'])]}。",
    EventKind.DAY_BREAKS: lambda e: f"第{e.day}天，天亮了。",
    EventKind.DEATHS_ANNOUNCED: lambda e: (
        f"昨夜{_names_in(e)}死亡。" if e.data["seats"] else "昨夜是平安夜，无人死亡。"
    ),
    EventKind.VOTE: lambda e: f"投票：{_vote_name(e)}。",
    EventKind.VOTE_TIED: lambda e: f"{_names_in(e)}平票。",
    EventKind.EXILED: lambda e: f"{seat_name(e.target)}被放逐出局。",
    EventKind.NOBODY_EXILED: lambda e: "今天是平安日，无人被放逐。",
    EventKind.GAME_OVER: lambda e: f"游戏结束，{RESULT_NAMES[Result(e.data['result'])]}。",
}
_SPEECH_HEADS: Mapping[EventKind, str] = {
    EventKind.WOLF_SAYS: "对狼人说",
    EventKind.SPEECH: SPEECH_MARKER,
    EventKind.PK_SPEECH: f"PK{SPEECH_MARKER}",
    EventKind.LAST_WORDS: "遗言",
}


def _prey_name(event: Event) -> str:
    return PASS_WORDS[Decision.WOLF_KILL] if event.target is None else f"袭击{seat_name(event.target)}"


def _vote_name(event: Event) -> str:
    voter = seat_name(event.seat)
    return f"{voter}弃票" if event.target is None else f"{voter}投{seat_name(event.target)}"


def render_event(event: Event, speech_chars: int = MAX_SPEECH_CHARS) -> str:
    """One Chinese sentence on one line; speeches are cut to ``speech_chars`` characters."""
    head = _SPEECH_HEADS.get(event.kind)
    if head is not None:
        return f"{seat_name(event.seat)}{head}：{quote_speech(event.text, speech_chars)}"
    return REFEREE + _EVENT_TEXTS[event.kind](event)


def render_events(events: Iterable[Event], speech_chars: int = MAX_SPEECH_CHARS) -> str:
    """One line for each event, oldest first, with the votes of one ballot on one line; empty for no events."""
    lines: list[str] = []
    for is_ballot, group in groupby(events, key=lambda event: event.kind is EventKind.VOTE):
        if is_ballot:
            lines.append(f"{REFEREE}投票：{'，'.join(_vote_name(event) for event in group)}。")
        else:
            lines.extend(render_event(event, speech_chars) for event in group)
    return "\n".join(lines)


def render_recap(events: Iterable[Event], seat: int, speech_chars: int = RECAP_SPEECH_CHARS) -> str:
    """The game so far for one seat: what it may know among ``events``, with short quotations."""
    known = [event for event in events if event.visible_to(seat)]
    return f"{REFEREE}前情回顾（你是{seat_name(seat)}）：\n{render_events(known, speech_chars)}"


# --- questions ------------------------------------------------------------------------------------------------------

_QUESTIONS: Mapping[Decision, str] = {
    Decision.WOLF_TALK: "请对同伴说一句今夜的打算",
    Decision.WOLF_KILL: "请选择今夜袭击谁",
    Decision.SEER_CHECK: "请选择今夜查验谁",
    Decision.SPEECH: "轮到你发言",
    Decision.EXILE_VOTE: "请投票放逐一人",
    Decision.PK_SPEECH: "你在PK台上，请为自己发言",
    Decision.PK_VOTE: "请在PK台上的人中投票放逐一人",
    Decision.LAST_WORDS: "请留遗言",
}


def render_question(request: Request) -> str:
    """The question, everything that is legal, and the exact form of the answer."""
    opening = f"{REFEREE}{seat_name(request.seat)}，{_QUESTIONS[request.decision]}"
    if request.speaks:
        return f"{opening}，直接写要说的话，不超过{MAX_SPEECH_CHARS}字；无话可说就写“{SILENCE}”。"
    options = "、".join(choice_name(target, request.decision) for target in choices(request))
    form = f"“{DECISION_MARKER}：X号”"
    if request.may_pass:
        form += f"或“{DECISION_MARKER}：{PASS_WORDS[request.decision]}”"
    return f"{opening}，可选：{options}。最后一行写{form}。"


def render_observation(observation: Observation) -> str:
    """What a seat is shown at its turn: what is new to it, then the question, if it is asked one."""
    parts = [render_events(observation.events)]
    if observation.request is not None:
        parts.append(render_question(observation.request))
    return "\n".join(part for part in parts if part)


def render_reply_error(error: "ReplyError", request: Request) -> str:
    """The one re-ask after a reply that could not be used: what was wrong, and the question again."""
    return f"{REFEREE}刚才的回答无效：{error.message}。\n{render_question(request)}"


# --- what scripted players say, and how they understand each other ----------------------------------------------------

SEER_CLAIM = "我是预言家"
CHECK_CLAIM = re.compile(r"第([0-9]{1,2})夜查验([0-9]{1,2})号，是(狼人|好人)")
ACCUSATION = re.compile(r"我怀疑([0-9]{1,2})号")
KILL_PROPOSAL = re.compile(r"建议袭击([0-9]{1,2})号")

SMALL_TALK = ("我是好人，先听大家的。", "我没有线索，请预言家说话。", "我是村民，大家好好分析。")


def say_seer_claim(checks: Iterable[tuple[int, int, Side]]) -> str:
    """A seer's claim with its checks (day, target, side found); ``CHECK_CLAIM`` reads them back."""
    reports = [f"第{day}夜查验{target}号，是{CHECK_NAMES[side]}。" for day, target, side in checks]
    return f"{SEER_CLAIM}。{''.join(reports) or '昨夜没有查验。'}"


def say_accusation(target: int) -> str:
    """``ACCUSATION`` reads the target back."""
    return f"我是村民，我怀疑{target}号。"


def say_following(seer: int, target: int) -> str:
    """An accusation that rests on a seer's check; ``ACCUSATION`` reads the target back."""
    return f"我相信{seer}号是预言家，我怀疑{target}号。"


def say_kill_proposal(target: int) -> str:
    """A wolf's proposal to the others; ``KILL_PROPOSAL`` reads the target back."""
    return f"建议袭击{target}号。"
