"""Types shared by the rules and the table.

Everything here is immutable and uses the standard library only. Seats are numbered from 1, days from 1 (night N
precedes day N). Events and requests are data, which ``runners.werewolf.prompts_zh`` renders in Chinese; texts about one
role are in ``roles``. Roles and decks are in ``configs.roles_and_decks``, since configurations name them, too.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from configs.roles_and_decks import Role, Side


class Result(StrEnum):
    """How a game ended. A draw is a game that reached its preset's round limit."""

    WOLF = "wolf"
    GOOD = "good"
    DRAW = "draw"


class Phase(StrEnum):
    """The phase of the game: a row of ``rules.PHASES``. Phases marked * have no requests."""

    NIGHTFALL = "nightfall"  # * 天黑
    WOLF_TALK = "wolf_talk"  # 狼人商议
    NIGHT_ACTIONS = "night_actions"  # 守护, 袭击, 查验
    WITCH_ACTION = "witch_action"  # 女巫用药
    DAWN = "dawn"  # * 天亮
    SIGN_UP = "sign_up"  # 上警
    CAMPAIGN = "campaign"  # 警上发言
    WITHDRAWAL = "withdrawal"  # 退水
    UNOPPOSED = "unopposed"  # 只剩一名候选人, 当选之前
    SHERIFF_VOTE = "sheriff_vote"  # 警长投票
    SHERIFF_PK_SPEECH = "sheriff_pk_speech"  # 警长PK发言
    SHERIFF_PK_VOTE = "sheriff_pk_vote"  # 警长PK投票
    ANNOUNCEMENT = "announcement"  # * 公布死讯
    AFTERMATH = "aftermath"  # * 死后结算: leads to the next three phases
    LAST_WORDS = "last_words"  # 遗言
    SHOT = "shot"  # 开枪, 带人
    BADGE = "badge"  # 移交或撕毁警徽
    SPEAKING_ORDER = "speaking_order"  # 警长决定发言顺序
    DISCUSSION = "discussion"  # 白天发言
    DUEL = "duel"  # 骑士决斗
    EXILE_VOTE = "exile_vote"  # 放逐投票
    PK_SPEECH = "pk_speech"  # PK发言
    PK_VOTE = "pk_vote"  # PK投票
    GAME_OVER = "game_over"  # 游戏结束


class Decision(StrEnum):
    """The kind of a request."""

    WOLF_TALK = "wolf_talk"  # speech, and a proposed victim
    GUARD = "guard"
    WOLF_KILL = "wolf_kill"
    SEER_CHECK = "seer_check"
    WITCH = "witch"  # a target is poisoned; Option.SAVE is the antidote
    SIGN_UP = "sign_up"
    CAMPAIGN_SPEECH = "campaign_speech"
    WITHDRAWAL = "withdrawal"
    SHERIFF_VOTE = "sheriff_vote"
    SHERIFF_PK_SPEECH = "sheriff_pk_speech"
    SHERIFF_PK_VOTE = "sheriff_pk_vote"
    LAST_WORDS = "last_words"
    SHOT = "shot"
    TAKE = "take"  # the victim of a white wolf king that exploded
    BADGE = "badge"
    SPEAKING_ORDER = "speaking_order"
    SPEECH = "speech"
    CLOSING_SPEECH = "closing_speech"  # 归票: the sheriff's speech and exile target
    DUEL = "duel"
    EXILE_VOTE = "exile_vote"
    PK_SPEECH = "pk_speech"
    PK_VOTE = "pk_vote"
    EXPLOSION = "explosion"  # for wolves without another request that offers an explosion


class Option(StrEnum):
    """A choice other than a seat or nobody."""

    SAVE = "save"  # 救: the antidote for tonight's victim
    RUN = "run"  # 上警
    WITHDRAW = "withdraw"  # 退水, rides with the campaign speech, too
    EXPLODE = "explode"  # 自爆, part of wolves' requests by day in an election or before an exile
    SHERIFF_LEFT = "sheriff_left"  # 警左: from the seat after the sheriff's, numbers rising
    SHERIFF_RIGHT = "sheriff_right"  # 警右: from the seat before the sheriff's, numbers falling
    DEAD_LEFT = "dead_left"  # 死左: from the seat after last night's dead, numbers rising
    DEAD_RIGHT = "dead_right"  # 死右: from the seat before last night's dead, numbers falling


class Unsaved(StrEnum):
    """Reason why the witch may not save."""

    USED = "used"  # her antidote
    NOBODY_HIT = "nobody_hit"
    HERSELF = "herself"  # 不可自救


Choice = int | Option | None
"""A seat, an option, or nobody (弃票, 空刀, 空守, 不上警, 撕警徽, ...)."""


@dataclass(frozen=True, slots=True)
class Action:
    """A seat's answer to one request.

    choice: a seat, an option, or None for nobody and for a speech without a choice.
    text: the speech; empty for a decision without speech and for silence (过).
    """

    choice: Choice = None
    text: str = ""

    @property
    def seat(self) -> int | None:
        """The chosen seat; None for nobody and for an option."""
        return self.choice if isinstance(self.choice, int) else None


@dataclass(frozen=True, slots=True)
class Request:
    """One question to one seat, with all legal answers."""

    seat: int
    decision: Decision
    day: int
    phase: Phase
    targets: tuple[int, ...]  # legal seats, ascending
    options: tuple[Option, ...]  # other legal choices
    may_pass: bool  # whether choosing nobody is legal; always true where the seat speaks
    speech_chars: int  # length at which the speech is truncated; 0 without a speech
    default: Action  # for a seat without a valid answer; always legal: nobody, else drawn by the seed
    # The subject of the question (WITCH: tonight's victim, if she may save it; EXPLOSION: the lone candidate).
    subject: int | None = None
    unsaved: Unsaved | None = None  # WITCH without Option.SAVE
    rounds_left: int = 0  # WOLF_TALK: rounds of talk left tonight, unless all agree
    proposed: tuple[tuple[int, int], ...] = ()  # WOLF_TALK: (mate, its last proposal of tonight)

    @property
    def speaks(self) -> bool:
        """Whether the answer has a speech, heard by the table or, in WOLF_TALK, by the wolves."""
        return self.speech_chars > 0

    @property
    def is_public(self) -> bool:
        """Whether all seats hear the speech."""
        return self.speaks and self.decision is not Decision.WOLF_TALK


class EventKind(StrEnum):
    """Kinds of events. Comments describe ``seat``, ``target``, ``text`` and ``data``, and the audience.

    In the ``data`` of a public event ``role`` belongs to the seat that shows its card (``seat``, else ``target``),
    ``side`` to the target, and ``dead`` lists the deaths that do not follow from the kind.
    Lists of seats in ``data`` are comma-separated numbers, "" for none. Without a note an event is public.
    """

    GAME_START = "game_start"  # data: seats (number of seats)
    ROLE_DEALT = "role_dealt"  # seat; data: role; only that seat
    WOLF_TEAM = "wolf_team"  # data: seats, and by role who is no plain wolf; only the wolves
    NIGHT_FALLS = "night_falls"
    WOLF_SAYS = "wolf_says"  # seat, text, target (proposed victim) or None; only the living wolves
    WOLF_VOTE = "wolf_vote"  # seat, target or None (空刀); only the living wolves, once all have voted
    WOLF_TARGET = "wolf_target"  # target or None: the victim, by agreement or vote; only the living wolves
    GUARDED = "guarded"  # seat, target or None (空守); only the guard
    SEER_RESULT = "seer_result"  # seat, target; data: side; only the seer
    WITCH_TOLD = "witch_told"  # seat, target (tonight's victim) or None; only the witch, while she has the antidote
    ANTIDOTE_USED = "antidote_used"  # seat, target; only the witch
    POISON_USED = "poison_used"  # seat, target; only the witch
    SHOT_STATUS = "shot_status"  # seat; data: may_shoot ("yes", or "no" when poisoned); only that hunter or wolf king
    DAY_BREAKS = "day_breaks"
    SIGNED_UP = "signed_up"  # data: seats that run for sheriff
    CAMPAIGN_SPEECH = "campaign_speech"  # seat, text
    WITHDREW = "withdrew"  # seat
    SHERIFF_VOTE = "sheriff_vote"  # seat, target or None (弃票); revealed together
    SHERIFF_PK_SPEECH = "sheriff_pk_speech"  # seat, text
    SHERIFF_ELECTED = "sheriff_elected"  # target
    ELECTION_PUT_OFF = "election_put_off"  # to the next day, by an explosion
    BADGE_LOST = "badge_lost"  # data: reason (a ``BadgeLost`` value)
    DEATHS_ANNOUNCED = "deaths_announced"  # data: seats, "" for 平安夜
    SHOT = "shot"  # seat (shooter, or exploded wolf: data: exploded), target
    BADGE_PASSED = "badge_passed"  # seat, target
    BADGE_TORN = "badge_torn"  # seat
    SPEAKING_ORDER = "speaking_order"  # seat (the sheriff) or None; data: way (an ``Option`` or ""), seats in order
    SPEECH = "speech"  # seat, text
    CLOSING_SPEECH = "closing_speech"  # seat, text, target (归票) or None
    DUEL = "duel"  # seat (the knight), target; data: role, side, dead
    VOTE = "vote"  # seat, target or None (弃票); an exile or PK vote, revealed together
    VOTE_COUNT = "vote_count"  # data: count ("3:2.5,5:1", most votes first, then by seat; "" for no votes)
    VOTE_TIED = "vote_tied"  # data: seats
    PK_SPEECH = "pk_speech"  # seat, text
    EXILED = "exiled"  # target
    REVEALED = "revealed"  # target (shows its card instead of its exile); data: role
    NOBODY_EXILED = "nobody_exiled"  # 平安日
    LAST_WORDS = "last_words"  # seat, text
    EXPLODED = "exploded"  # seat
    GAME_OVER = "game_over"  # data: result


SPEECHES = frozenset(
    {
        EventKind.CAMPAIGN_SPEECH,
        EventKind.SHERIFF_PK_SPEECH,
        EventKind.SPEECH,
        EventKind.CLOSING_SPEECH,
        EventKind.PK_SPEECH,
        EventKind.LAST_WORDS,
    }
)
"""Public speeches."""


class BadgeLost(StrEnum):
    """Reason why there is no sheriff."""

    NOBODY_RUNS = "nobody_runs"  # nobody signed up, all withdrew, or all candidates died before a put-off vote
    NO_VOTERS = "no_voters"  # every seat signed up
    NO_VOTES = "no_votes"  # all abstained
    TIED_TWICE = "tied_twice"
    SWALLOWED = "swallowed"  # 双爆吞警徽


@dataclass(frozen=True, slots=True)
class Event:
    """An event and its audience.

    audience: the seats that see it; None for all (the public record).
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
        return self.audience is None or seat in self.audience

    @property
    def seats(self) -> tuple[int, ...]:
        return tuple(int(seat) for seat in self.data["seats"].split(",") if seat)

    @property
    def dead(self) -> tuple[int, ...]:
        """Seats that this event shows as dead."""
        match self.kind:
            case EventKind.DEATHS_ANNOUNCED:
                return self.seats
            case EventKind.EXILED | EventKind.SHOT if self.target is not None:
                return (self.target,)
            case EventKind.EXPLODED if self.seat is not None:
                return (self.seat,)
        return (int(self.data["dead"]),) if "dead" in self.data else ()


@dataclass(frozen=True, slots=True)
class Observation:
    """A seat's view: a function of (state, seat)."""

    seat: int
    role: Role
    side: Side
    day: int
    phase: Phase  # of the request; without one the public phase, NIGHTFALL all night
    living: tuple[int, ...]  # as publicly known, ascending: with last night's dead until they are announced
    sheriff: int | None  # holder of the badge
    # Events since this seat's last turn, oldest first (all: ``view.known_events``).
    events: tuple[Event, ...]
    request: Request | None  # the pending request of the seat
    deck: tuple[Role, ...]  # the roles in the game, public; the order means nothing

    @property
    def question(self) -> Request:
        """The request. Raises ValueError without one."""
        if self.request is None:
            raise ValueError(f"seat {self.seat} has no pending request")
        return self.request


class IllegalAction(ValueError):
    """An action that the rules do not allow; the message has the seat, the action and the legal choices."""
