"""A written transcript, back as events: the inverse of ``Transcript.as_text`` and ``Transcript.as_data``.

Runs, evaluations and the hub keep games as text that a person can read. The referee's lines follow fixed forms and no
speech can forge one (``prompts_zh.record``), so the text gives the events back. A line of a form that is not known
here, as a later version may write, becomes a ``NOTE`` instead of being lost.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from runners.werewolf.game import Event, EventKind, Option, Result, Role, Side
from runners.werewolf.prompts_zh.names import CHECK_NAMES, OPTION_WORDS, REFEREE, RESULT_NAMES, ROLE_NAMES, SILENCE
from runners.werewolf.prompts_zh.record import BADGE_LOST_REASONS

NOTE = "note"
"""Kind of an event that is known by its line alone."""

_LONGEST = 8 * 1024 * 1024
_ROLES = {name: role for role, name in ROLE_NAMES.items()}
_RESULTS = {name: result for result, name in RESULT_NAMES.items()}
_CHECKS = {name: side for side, name in CHECK_NAMES.items()}
_OPTIONS = {word: option for option, word in OPTION_WORDS.items()}
_LOSSES = {text: reason for reason, text in BADGE_LOST_REASONS.items()}


class UnreadableGame(ValueError):
    """What was given is no game; the message says why."""


@dataclass(frozen=True)
class ShownEvent:
    """An event as pages have it: ``Event``, with a kind that may be unknown here, and its line in Chinese."""

    kind: str
    day: int
    audience: frozenset[int] | None = None
    seat: int | None = None
    target: int | None = None
    text: str = ""
    data: Mapping[str, str] | None = None
    line: str = ""

    def visible_to(self, seat: int) -> bool:
        """Whether the seat may know of it."""
        return self.audience is None or seat in self.audience


@dataclass(frozen=True)
class ReadTranscript:
    """What a transcript tells. viewer: the seat whose view it is; None with every secret.

    roles: those it tells. seed: None where it does not say.
    """

    preset: str
    seed: int | None
    viewer: int | None
    roles: Mapping[int, str]
    events: tuple[ShownEvent, ...]
    result: str | None


def read_text(text: str) -> ReadTranscript:
    """A game from ``Transcript.as_text``. Raises UnreadableGame."""
    if len(text) > _LONGEST:
        raise UnreadableGame(f"a transcript of {len(text)} characters is longer than any game ({_LONGEST})")
    lines = text.split("\n")
    head = re.fullmatch(r"# (?P<preset>\S+)，种子(?P<seed>-?\d+)，(?:上帝|(?P<viewer>\d+)号)视角", lines[0].strip())
    if head is None:
        raise UnreadableGame("the text does not begin as a transcript of `play` does: # preset，种子N，上帝视角")
    viewer = None if head["viewer"] is None else int(head["viewer"])
    reader = _Reader(viewer)
    for line in lines[1:]:
        reader.take(line)
    result = reader.result
    return ReadTranscript(head["preset"], int(head["seed"]), viewer, reader.roles, tuple(reader.whole()), result)


def read_data(data: Any) -> ReadTranscript:
    """A game from ``Transcript.as_data``, as ``play --format json`` writes it. Raises UnreadableGame."""
    if not isinstance(data, dict) or not isinstance(data.get("events"), list):
        raise UnreadableGame("no game: expected what `play --format json` writes, an object with `preset` and `events`")
    events = tuple(_event_of(number, entry) for number, entry in enumerate(data["events"]))
    roles = {event.seat: event.data["role"] for event in events if _deals(event)}
    result = data.get("result")
    seed, viewer = data.get("seed"), data.get("viewer")
    return ReadTranscript(
        preset=str(data.get("preset", "")),
        seed=seed if isinstance(seed, int) else None,
        viewer=viewer if isinstance(viewer, int) else None,
        roles=roles,
        events=events,
        result=result if result in list(Result) else None,
    )


def _deals(event: ShownEvent) -> bool:
    return event.kind == EventKind.ROLE_DEALT and event.seat is not None and event.data.get("role") in list(Role)


def _event_of(number: int, entry: Any) -> ShownEvent:
    def wrong(what: str) -> UnreadableGame:
        return UnreadableGame(f"event {number}: {what}")

    if not isinstance(entry, dict):
        raise wrong("not an object")
    kind, day, text, facts = entry.get("kind"), entry.get("day", 1), entry.get("text", ""), entry.get("data") or {}
    if not isinstance(kind, str) or type(day) is not int or not isinstance(text, str):
        raise wrong("kind and text must be text, day a number")
    if not isinstance(facts, dict) or not all(isinstance(value, str) for value in facts.values()):
        raise wrong("data must hold texts by name")
    seats = {name: entry.get(name) for name in ("seat", "target")}
    if any(seat is not None and (type(seat) is not int or not 1 <= seat <= 99) for seat in seats.values()):
        raise wrong("seat and target must be seats' numbers or null")
    audience = entry.get("audience")
    if audience is not None and not (isinstance(audience, list) and all(type(seat) is int for seat in audience)):
        raise wrong("audience must be a list of seats or null")
    heard_by = None if audience is None else frozenset(audience)
    return ShownEvent(kind, day, heard_by, text=text, data={str(k): v for k, v in facts.items()}, **seats)


# --- text -----------------------------------------------------------------------------------------------------------

_HEADING = re.compile(r"## 第(?P<day>\d+)(?P<part>[夜天])")
_ROLE_LINE = re.compile(r"(?P<seat>\d+)号　(?P<role>\S+?)（\S+）")
_AUDIENCE = re.compile(r"　（仅(?P<seats>[\d号、]+)知道）$")
_SPEECH = re.compile(
    r"(?P<seat>\d+)号(?P<head>对狼队友说|警上发言|警长PK发言|归票发言|PK发言|发言|遗言)(?:（(?P<named>[^（）：]*)）)?：(?P<text>.*)",
    re.DOTALL,
)
_SPEECHES = {
    "对狼队友说": EventKind.WOLF_SAYS,
    "警上发言": EventKind.CAMPAIGN_SPEECH,
    "警长PK发言": EventKind.SHERIFF_PK_SPEECH,
    "发言": EventKind.SPEECH,
    "归票发言": EventKind.CLOSING_SPEECH,
    "PK发言": EventKind.PK_SPEECH,
    "遗言": EventKind.LAST_WORDS,
}
_SEAT = r"(\d+)号"
_SEATS = r"((?:\d+号、?)+)"
_NUMBER = re.compile(r"\d+")

Found = dict[str, Any]


def _one(name: str) -> Callable[[re.Match[str]], Found]:
    return lambda match: {name: int(match[1])}


def _two(match: re.Match[str]) -> Found:
    return {"seat": int(match[1]), "target": int(match[2])}


def _listed(match: re.Match[str]) -> Found:
    return {"data": {"seats": _seat_list(match[1] if match.lastindex else "")}}


def _seat_list(text: str) -> str:
    return ",".join(_NUMBER.findall(text))


def _order(match: re.Match[str]) -> Found:
    way = "" if match[2] is None else _OPTIONS[match[2]].value
    return {"seat": None if match[1] is None else int(match[1]), "data": {"way": way, "seats": _seat_list(match[3])}}


def _count(match: re.Match[str]) -> Found:
    counted = re.findall(r"(\d+)号([\d.]+)票", match[1])
    return {"data": {"count": ",".join(f"{seat}:{votes}" for seat, votes in counted)}}


_ROLE_WORDS = "|".join(map(re.escape, _ROLES))
_LINES: tuple[tuple[EventKind, str, Callable[[re.Match[str]], Found]], ...] = (
    (EventKind.GAME_START, r"游戏开始，座位是1号到(\d+)号。", lambda m: {"data": {"seats": m[1]}}),
    (
        EventKind.ROLE_DEALT,
        rf"{_SEAT}的身份是({_ROLE_WORDS})。",
        lambda m: {"seat": int(m[1]), "data": {"role": _ROLES[m[2]].value}},
    ),
    (
        EventKind.WOLF_TEAM,
        rf"狼人是{_SEATS}(?:，其中{_SEATS}是{ROLE_NAMES[Role.WOLF_KING]})?。",
        lambda m: {"data": {"seats": _seat_list(m[1]), "kings": _seat_list(m[2] or "")}},
    ),
    (EventKind.WOLF_VOTE, rf"{_SEAT}选择袭击{_SEAT}。", _two),
    (EventKind.WOLF_VOTE, rf"{_SEAT}选择空刀。", _one("seat")),
    (EventKind.WOLF_TARGET, rf"狼人今夜袭击{_SEAT}。", _one("target")),
    (EventKind.WOLF_TARGET, r"狼人今夜空刀。", lambda m: {}),
    (EventKind.GUARDED, rf"{_SEAT}今夜守护{_SEAT}。", _two),
    (EventKind.GUARDED, rf"{_SEAT}今夜空守。", _one("seat")),
    (
        EventKind.SEER_RESULT,
        rf"查验结果：{_SEAT}是({'|'.join(_CHECKS)})。",
        lambda m: {"target": int(m[1]), "data": {"side": _CHECKS[m[2]].value}},
    ),
    (EventKind.WITCH_TOLD, rf"今夜{_SEAT}被袭击。", _one("target")),
    (EventKind.WITCH_TOLD, r"今夜无人被袭击。", lambda m: {}),
    (EventKind.ANTIDOTE_USED, rf"{_SEAT}用解药救了{_SEAT}。", _two),
    (EventKind.POISON_USED, rf"{_SEAT}用毒药毒了{_SEAT}。", _two),
    (
        EventKind.SHOT_STATUS,
        r"你今夜的开枪状态：(不?)可以开枪。",
        lambda m: {"data": {"may_shoot": "no" if m[1] else "yes"}},
    ),
    (EventKind.SIGNED_UP, rf"上警的玩家：{_SEATS}。", _listed),
    (EventKind.SIGNED_UP, r"无人上警。", _listed),
    (EventKind.WITHDREW, rf"{_SEAT}{OPTION_WORDS[Option.WITHDRAW]}。", _one("seat")),
    (EventKind.SHERIFF_ELECTED, rf"{_SEAT}当选警长。", _one("target")),
    (EventKind.ELECTION_PUT_OFF, r"警长竞选推迟到明天，届时直接投票。", lambda m: {}),
    (
        EventKind.BADGE_LOST,
        rf"警徽流失：({'|'.join(_LOSSES)})，本局没有警长。",
        lambda m: {"data": {"reason": _LOSSES[m[1]].value}},
    ),
    (EventKind.DEATHS_ANNOUNCED, rf"昨夜{_SEATS}死亡。", _listed),
    (EventKind.DEATHS_ANNOUNCED, r"昨夜是平安夜，无人死亡。", _listed),
    (EventKind.SHOT, rf"{_SEAT}开枪带走{_SEAT}。", _two),
    (EventKind.BADGE_PASSED, rf"{_SEAT}把警徽移交给{_SEAT}。", _two),
    (EventKind.BADGE_TORN, rf"{_SEAT}撕毁警徽。", _one("seat")),
    (EventKind.SPEAKING_ORDER, rf"(?:警长{_SEAT}选择({'|'.join(_OPTIONS)})，)?发言顺序：{_SEATS}。", _order),
    (EventKind.VOTE_COUNT, r"计票：(.*)。", _count),
    (EventKind.VOTE_TIED, rf"{_SEATS}平票。", _listed),
    (EventKind.EXILED, rf"{_SEAT}被放逐出局。", _one("target")),
    (EventKind.NOBODY_EXILED, r"今天是平安日，无人被放逐。", lambda m: {}),
    (EventKind.EXPLODED, rf"{_SEAT}自爆出局，白天结束。", _one("seat")),
)
_FORMS = tuple((kind, re.compile(form), read) for kind, form, read in _LINES)
_BALLOT = re.compile(r"(警长)?投票：(.*)。")
_OF_THE_ONE_WHO_KNOWS = (EventKind.SEER_RESULT, EventKind.SHOT_STATUS, EventKind.WITCH_TOLD)
"""Events whose line does not say whose they are: the only seat that learned of them."""


class _Reader:
    """Takes a transcript line by line."""

    def __init__(self, viewer: int | None):
        self._viewer = viewer
        self._day = 1
        self.roles: dict[int, str] = {}
        self.result: str | None = None
        self._events: list[ShownEvent] = []
        self._team: ShownEvent | None = None

    def take(self, line: str) -> None:
        if (heading := _HEADING.fullmatch(line)) is not None:
            self._day = int(heading["day"])
            self._add(EventKind.NIGHT_FALLS if heading["part"] == "夜" else EventKind.DAY_BREAKS)
        elif (role := _ROLE_LINE.fullmatch(line)) is not None and role["role"] in _ROLES:
            self.roles[int(role["seat"])] = _ROLES[role["role"]].value
        elif line.startswith("## 结果："):
            found = _RESULTS.get(line.removeprefix("## 结果："))
            self.result = None if found is None else found.value
        elif line and not line.startswith("## "):
            self._take_event(line)

    def whole(self) -> Iterator[ShownEvent]:
        """The events, with those that the headings stand for."""
        seats = len(self.roles) if self._viewer is None else 0
        yield _plain(EventKind.GAME_START, 1, data={"seats": str(seats)} if seats else {})
        for seat, role in sorted(self.roles.items()):
            yield _plain(EventKind.ROLE_DEALT, 1, frozenset({seat}), seat=seat, data={"role": role})
        yield from self._wolf_team()
        yield from self._events
        if self.result is not None:
            yield _plain(EventKind.GAME_OVER, self._day, data={"result": self.result})

    def _wolf_team(self) -> Iterator[ShownEvent]:
        if self._team is not None:
            yield self._team
        elif self._viewer is None:
            wolves = sorted(seat for seat, role in self.roles.items() if Role(role).side is Side.WOLF)
            kings = [seat for seat in wolves if self.roles[seat] == Role.WOLF_KING]
            lists = {"seats": ",".join(map(str, wolves)), "kings": ",".join(map(str, kings))}
            yield _plain(EventKind.WOLF_TEAM, 1, frozenset(wolves), data=lists)

    def _add(self, kind: str, audience: frozenset[int] | None = None, **fields: Any) -> None:
        self._events.append(_plain(kind, self._day, audience, **fields))

    def _take_event(self, line: str) -> None:
        known_by = _AUDIENCE.search(line)
        audience = None
        if known_by is not None:
            line = line[: known_by.start()]
            audience = frozenset(map(int, _NUMBER.findall(known_by["seats"])))
        speech = None if line.startswith(REFEREE) else _SPEECH.fullmatch(line)
        if speech is not None:
            named = _NUMBER.search(speech["named"] or "")
            words = "" if speech["text"] == f"（{SILENCE}）" else speech["text"]
            target = None if named is None else int(named[0])
            self._add(_SPEECHES[speech["head"]], audience, seat=int(speech["seat"]), target=target, text=words)
            return
        told = line.removeprefix(REFEREE)
        if (ballot := _BALLOT.fullmatch(told)) is not None:
            kind = EventKind.SHERIFF_VOTE if ballot[1] else EventKind.VOTE
            for vote in ballot[2].split("，"):
                seats = [int(number) for number in _NUMBER.findall(vote)]
                if seats:
                    self._add(kind, audience, seat=seats[0], target=seats[1] if len(seats) > 1 else None)
            return
        for kind, form, read in _FORMS:
            if (match := form.fullmatch(told)) is not None:
                found = read(match)
                if kind in _OF_THE_ONE_WHO_KNOWS:
                    found["seat"] = next(iter(audience), None) if audience else self._viewer
                if kind is EventKind.WOLF_TEAM:  # of a seat's own view, before the first night
                    self._team = _plain(kind, 1, audience, **found)
                else:
                    self._add(kind, audience, **found)
                return
        self._add(NOTE, audience, text=line)


def _plain(kind: str, day: int, audience: frozenset[int] | None = None, **fields: Any) -> ShownEvent:
    fields.setdefault("data", {})
    return ShownEvent(str(kind), day, audience, **fields)


def of_event(event: Event) -> ShownEvent:
    """An event of the referee."""
    return ShownEvent(
        event.kind.value, event.day, event.audience, event.seat, event.target, event.text, dict(event.data)
    )
