"""The vocabulary of the game: what crosses the wall between the rules and the table.

Everything here is immutable and built from the standard library only. Seats are numbered from 1,
days from 1 (night N comes before day N). No text that a player reads is written here: events and
requests are data, and ``runners.werewolf.prompts_zh`` turns them into Chinese.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum


class Side(StrEnum):
    """The two sides of the game: 狼人阵营 and 好人阵营."""

    WOLF = "wolf"
    GOOD = "good"


class Role(StrEnum):
    """Every role that a preset may deal."""

    WOLF = "wolf"  # 狼人
    WOLF_KING = "wolf_king"  # 狼王
    VILLAGER = "villager"  # 村民
    SEER = "seer"  # 预言家
    WITCH = "witch"  # 女巫
    HUNTER = "hunter"  # 猎人
    GUARD = "guard"  # 守卫

    @property
    def side(self) -> Side:
        """The side this role wins with."""
        return Side.WOLF if self in (Role.WOLF, Role.WOLF_KING) else Side.GOOD

    @property
    def is_god(self) -> bool:
        """Whether the role counts as 神职 under 屠边."""
        return self.side is Side.GOOD and self is not Role.VILLAGER


class Result(StrEnum):
    """How a game ended. A draw is a game that reached its preset's round limit."""

    WOLF = "wolf"
    GOOD = "good"
    DRAW = "draw"


class Phase(StrEnum):
    """Where the game stands: which table of rules is in force."""

    WOLF_TALK = "wolf_talk"  # 狼人商议
    NIGHT_ACTIONS = "night_actions"  # 狼人袭击, 预言家查验
    DISCUSSION = "discussion"  # 白天发言
    EXILE_VOTE = "exile_vote"  # 放逐投票
    PK_SPEECH = "pk_speech"  # PK 发言
    PK_VOTE = "pk_vote"  # PK 投票
    LAST_WORDS = "last_words"  # 遗言
    GAME_OVER = "game_over"  # 游戏结束


class Decision(StrEnum):
    """The kind of question that a request asks of a seat."""

    WOLF_TALK = "wolf_talk"
    WOLF_KILL = "wolf_kill"
    SEER_CHECK = "seer_check"
    SPEECH = "speech"
    EXILE_VOTE = "exile_vote"
    PK_SPEECH = "pk_speech"
    PK_VOTE = "pk_vote"
    LAST_WORDS = "last_words"


@dataclass(frozen=True, slots=True)
class Action:
    """A seat's answer to one request.

    target: the seat chosen; None means none (弃票, 空刀, 不查验) or that the decision is speech only.
    text: what the seat says aloud; empty for a decision without speech, or for silence (过).
    """

    target: int | None = None
    text: str = ""


@dataclass(frozen=True, slots=True)
class Request:
    """One question to one seat, with everything that is legal as an answer.

    targets: seats that may be chosen, ascending; empty for a decision that is speech only.
    may_pass: whether choosing nobody is legal (always true for speech-only decisions).
    speaks: whether the answer's text is heard (by the table, or by the wolves for WOLF_TALK).
    default: the declared action for a seat whose answer cannot be used; always legal.
    """

    seat: int
    decision: Decision
    day: int
    phase: Phase
    targets: tuple[int, ...]
    may_pass: bool
    speaks: bool
    default: Action


class EventKind(StrEnum):
    """What happened. The comment says what ``seat``, ``target``, ``text`` and ``data`` hold."""

    GAME_START = "game_start"  # data: seats (number of seats); public
    ROLE_DEALT = "role_dealt"  # seat; data: role; only that seat
    WOLF_TEAM = "wolf_team"  # data: seats (comma-separated numbers); only the wolves
    NIGHT_FALLS = "night_falls"  # public
    WOLF_SAYS = "wolf_says"  # seat, text; only the wolves
    WOLF_VOTE = "wolf_vote"  # seat, target or None (空刀); only the wolves, once all have voted
    WOLF_TARGET = "wolf_target"  # target or None: the wolves' victim after ties; only the wolves
    SEER_RESULT = "seer_result"  # seat, target; data: side; only the seer
    DAY_BREAKS = "day_breaks"  # public
    DEATHS_ANNOUNCED = "deaths_announced"  # data: seats (comma-separated, "" for 平安夜); public
    SPEECH = "speech"  # seat, text; public
    PK_SPEECH = "pk_speech"  # seat, text; public
    LAST_WORDS = "last_words"  # seat, text; public
    VOTE = "vote"  # seat, target or None (弃票); public, revealed together
    VOTE_TIED = "vote_tied"  # data: seats (comma-separated); public
    EXILED = "exiled"  # target; public
    NOBODY_EXILED = "nobody_exiled"  # 平安日; public
    GAME_OVER = "game_over"  # data: result; public


@dataclass(frozen=True, slots=True)
class Event:
    """One thing that happened, and who may know it.

    audience: the seats that learn of it; None means everybody (the public record).
    data: further facts by name, as strings; see EventKind.
    """

    kind: EventKind
    day: int
    audience: frozenset[int] | None = None
    seat: int | None = None
    target: int | None = None
    text: str = ""
    data: Mapping[str, str] = field(default_factory=dict)

    def visible_to(self, seat: int) -> bool:
        """Whether ``seat`` may know of this event."""
        return self.audience is None or seat in self.audience


@dataclass(frozen=True, slots=True)
class Observation:
    """What one seat may know now: a function of (state, seat), never the state itself.

    events: what this seat may know and has not yet been told at one of its own turns, oldest first.
    request: the question now put to the seat; None when the seat is not asked anything.
    living: seats publicly alive, ascending.
    """

    seat: int
    role: Role
    side: Side
    day: int
    phase: Phase
    living: tuple[int, ...]
    events: tuple[Event, ...]
    request: Request | None


class IllegalAction(ValueError):
    """An action that the rules do not allow; the message names the seat, the action and what is legal."""
