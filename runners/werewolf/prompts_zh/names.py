"""Chinese names of roles, sides, results and choices, and the words of a decision line.

Questions list these words and ``replies`` parses them, so that every offered word is understood.
"""

from collections.abc import Iterable, Mapping

from runners.werewolf.game import Choice, Decision, Option, Result, Role, Side
from runners.werewolf.game.roles import CARDS

REFEREE = "【法官】"
"""Beginning of every line of the referee, and of no other."""

SIDE_NAMES: Mapping[Side, str] = {Side.WOLF: "狼人阵营", Side.GOOD: "好人阵营"}
CHECK_NAMES: Mapping[Side, str] = {Side.WOLF: "狼人", Side.GOOD: "好人"}
"""Names of the sides in a seer's check."""

ROLE_NAMES: Mapping[Role, str] = {role: card.name for role, card in CARDS.items()}
RESULT_NAMES: Mapping[Result, str] = {
    Result.WOLF: "狼人阵营胜利",
    Result.GOOD: "好人阵营胜利",
    Result.DRAW: "平局",
}

# --- choices --------------------------------------------------------------------------------------------------------

DECISION_MARKER = "决定"
SPEECH_MARKER = "发言"
SILENCE = "过"
POISON = "毒"
"""Precedes the seat that the witch poisons, as in ``毒3号``."""

OPTION_WORDS: Mapping[Option, str] = {
    Option.SAVE: "救",
    Option.RUN: "上警",
    Option.WITHDRAW: "退水",
    Option.EXPLODE: "自爆",
    Option.SHERIFF_LEFT: "警左",
    Option.SHERIFF_RIGHT: "警右",
    Option.DEAD_LEFT: "死左",
    Option.DEAD_RIGHT: "死右",
}
PASS_WORDS: Mapping[Decision, str] = {
    Decision.SIGN_UP: "不上警",
    Decision.CAMPAIGN_SPEECH: SILENCE,
    Decision.WITHDRAWAL: "不退水",
    Decision.SHERIFF_VOTE: "弃票",
    Decision.SHERIFF_PK_SPEECH: SILENCE,
    Decision.SHERIFF_PK_VOTE: "弃票",
    Decision.LAST_WORDS: SILENCE,
    Decision.SHOT: "不开枪",
    Decision.BADGE: "撕毁",
    Decision.SPEECH: SILENCE,
    Decision.CLOSING_SPEECH: "不归票",
    Decision.EXILE_VOTE: "弃票",
    Decision.PK_SPEECH: SILENCE,
    Decision.PK_VOTE: "弃票",
    Decision.EXPLOSION: "不自爆",
    **{decision: nobody for card in CARDS.values() for decision, (_, nobody) in card.questions.items()},
}
"""The word for choosing nobody; SPEAKING_ORDER may not be passed."""


def seat_name(seat: int) -> str:
    """``3`` -> ``3号``."""
    return f"{seat}号"


def seat_names(seats: Iterable[int]) -> str:
    """``3, 5`` -> ``3号、5号``."""
    return "、".join(map(seat_name, seats))


def choice_name(choice: Choice, decision: Decision) -> str:
    """The exact word of a choice: ``3号``, ``毒3号``, an option's word, or the decision's word for nobody."""
    if choice is None:
        return PASS_WORDS[decision]
    if isinstance(choice, Option):
        return OPTION_WORDS[choice]
    return (POISON if decision is Decision.WITCH else "") + seat_name(choice)


REPLY_ERRORS: Mapping[str, str] = {
    "empty": "回复是空的",
    "no_choice": "没有找到明确的选择",
    "ambiguous": "看不出选的是哪一个",
    "negated": "选择带有否定，看不出要选什么",
    "illegal_target": "所选不在可选范围内",
    "cut": "回复太长，没说出选择就被截断了，请简短回答",
    "no_speech": "没有发言内容，请直接写要说的话",
    "only_thought": "只有思考，没有发言，请不要写思考，直接写要说的话",
}
"""Code of a ``replies.ReplyError`` -> reason shown in a re-ask."""
