"""Content of a role's file. ``Role`` has its side and kind; the phases implement its powers."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from runners.werewolf.game.types import Decision


@dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    """One role. Rule and guidance are jinja templates over the preset (``prompts_zh.system``)."""

    name: str
    english: str
    mark: str  # one character for the pages
    called: tuple[str, ...] = ()  # other names in speeches
    rule: str = ""  # its part in the rules text
    guidance: str  # how to play it
    questions: Mapping[Decision, tuple[str, str]] = field(default_factory=dict)
    """Decision of this role -> (question, word for choosing nobody)."""

    by_night: Decision | None = None  # its request while all roles act at once
    shoots: bool = False  # whether it may take a seat with it when it dies (开枪)
    explodes: bool = False  # whether it may explode wherever wolves may (自爆)
    unique: bool = False  # whether a deck has at most one

    # Of players without a model.
    runs: float = 0.0  # probability of running for sheriff
    worth: float = 0.0  # value of its death for the wolves
    kills_at: float = 0.0  # least suspicion for a kill by day
    explodes_at_seer: float = 0.0  # probability of exploding when a good seat claims to be the seer
