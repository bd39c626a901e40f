"""Hand-made questions for scripted players, and the answers of many players with different seeds."""

import random

from runners.werewolf.brains import ScriptedBrain
from runners.werewolf.game import (
    Action,
    Decision,
    Event,
    EventKind,
    Observation,
    Phase,
    Request,
    Role,
    Side,
)
from runners.werewolf.prompts_zh.names import CHECK_NAMES, ROLE_NAMES
from tests.support.game.game_playing import TWELVE

SPEAKING = {
    Decision.WOLF_TALK,
    Decision.CAMPAIGN_SPEECH,
    Decision.SHERIFF_PK_SPEECH,
    Decision.SPEECH,
    Decision.CLOSING_SPEECH,
    Decision.PK_SPEECH,
    Decision.LAST_WORDS,
}
WITHOUT_TARGETS = SPEAKING - {Decision.WOLF_TALK, Decision.CLOSING_SPEECH} | {Decision.SIGN_UP, Decision.SPEAKING_ORDER}
NINE_SEATS = tuple(range(1, 10))


def seen(
    seat: int,
    role: Role,
    decision: Decision,
    *events: Event,
    living=NINE_SEATS,
    targets=None,
    options=(),
    day=1,
    sheriff=None,
    may_pass=True,
    subject=None,
    deck=TWELVE.deck,
) -> Observation:
    """Observation of a seat that gets the question ``decision`` after ``events``."""
    if targets is None:
        targets = () if decision in WITHOUT_TARGETS else tuple(other for other in living if other != seat)
    request = Request(
        seat=seat,
        decision=decision,
        day=day,
        phase=Phase.DISCUSSION,
        targets=targets,
        options=options,
        may_pass=may_pass,
        speech_chars=200 if decision in SPEAKING else 0,
        default=Action(None if may_pass else (*targets, *options)[0]),
        subject=subject,
    )
    return Observation(seat, role, role.side, day, Phase.DISCUSSION, living, sheriff, events, request, deck)


def speech(seat: int, text: str, day: int = 1) -> Event:
    return Event(EventKind.SPEECH, day, seat=seat, text=text)


def role_claim(role: Role) -> str:
    return f"我是{ROLE_NAMES[role]}。"


def claim(seat: int, *reports: tuple[int, int, Side]) -> Event:
    """A seat calls itself the seer; reports: (night, seat, side)."""
    checks = (f"第{night}夜查验{checked}号，是{CHECK_NAMES[side]}。" for night, checked, side in reports)
    return speech(seat, "".join([role_claim(Role.SEER), *checks]))


def accuses(seat: int, accused: int) -> Event:
    return speech(seat, f"我怀疑{accused}号，发言像在带节奏。")


def team(*seats: int) -> Event:
    return Event(EventKind.WOLF_TEAM, 1, frozenset(seats), data={"seats": ",".join(map(str, seats))})


def finding(seer: int, target: int, side: Side, night: int = 1) -> Event:
    return Event(EventKind.SEER_RESULT, night, frozenset({seer}), seat=seer, target=target, data={"side": side.value})


def died_by_night(*seats: int, day: int = 1) -> Event:
    return Event(EventKind.DEATHS_ANNOUNCED, day, data={"seats": ",".join(map(str, seats))})


def exploded(seat: int) -> Event:
    return Event(EventKind.EXPLODED, 1, seat=seat)


def wolf_says(seat: int, text: str, target: int | None = None) -> Event:
    return Event(EventKind.WOLF_SAYS, 1, frozenset({1, 2, 3}), seat=seat, target=target, text=text)


def memory(brain: ScriptedBrain) -> str:
    """State of a player without its random generator."""
    return repr({name: value for name, value in vars(brain).items() if name not in ("_rng", "_believe")})


def each_brain(count: int = 30) -> list[ScriptedBrain]:
    return [ScriptedBrain(random.Random(seed)) for seed in range(count)]


def answers(observation: Observation, count: int = 30) -> set:
    """Choices of ``count`` new players for this observation."""
    return {brain.act(observation).choice for brain in each_brain(count)}
