"""What a role's own file holds. Its side and kind stand with ``Role``; what its gifts do, in the phases of the game."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from runners.werewolf.game.types import Decision


@dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    """One role. Rule and guidance are jinja templates over the preset (``prompts_zh.system``)."""

    name: str
    english: str
    mark: str  # one character for the pages
    called: tuple[str, ...] = ()  # in speeches, besides its name
    rule: str = ""  # what the rules of a preset that deals it say of it
    guidance: str  # how to play it
    questions: Mapping[Decision, tuple[str, str]] = field(default_factory=dict)
    """What only this role is asked -> the question, and the word for choosing nobody."""

    by_night: Decision | None = None  # what it is asked while all act at once
    shoots: bool = False  # whether it may take a seat with it when it dies (开枪)
    explodes: bool = False  # whether it may explode wherever wolves may (自爆)
    unique: bool = False  # whether at most one is dealt

    # Of players without a model.
    runs: float = 0.0  # how likely it runs for sheriff
    worth: float = 0.0  # to the wolves, killed by night
    kills_at: float = 0.0  # from which suspicion on it takes another's life by day
    explodes_at_seer: float = 0.0  # how likely it explodes on a day on which a good seat claims to be the seer
