"""Presets: decks and rules as frozen data.

The referee (``rules``) and the players' rules text (``runners.werewolf.prompts_zh``) both read these
fields, so they cannot differ.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from enum import StrEnum
from types import MappingProxyType

from configs.roles_and_decks import DECKS, Role, Side
from runners.werewolf.game.roles import CARDS


class WinRule(StrEnum):
    """The wolves' condition; the good side wins when no wolf lives."""

    WIPE_A_KIND = "wipe_a_kind"  # 屠边: all 神职 dead, or all villagers dead
    PARITY = "parity"  # at least as many wolves as others live


@dataclass(frozen=True, slots=True)
class Preset:
    """One set of rules. Raises ValueError for invalid values."""

    name: str  # its name in tasks and configurations
    deck: tuple[Role, ...]  # the roles dealt, one for each seat; the order means nothing
    win_rule: WinRule = WinRule.WIPE_A_KIND
    round_limit: int = 10  # days, each after its night; a game without a winner after the last is a draw
    speech_chars: int = 200  # length at which speeches are truncated
    sheriff: bool = False  # whether a sheriff is elected on day 1
    # Greatest number of rounds of the wolves' talk, with two or more living wolves; a round in which all propose one
    # victim ends the talk and settles the victim.
    wolf_talk_rounds: int = 2
    wolves_may_pass: bool = True  # 空刀
    wolves_may_hit_wolves: bool = True  # 自刀
    wolves_may_explode: bool = False  # 自爆
    wolf_king_may_explode: bool = False  # without effect unless wolves may explode
    witch_self_save: bool = False
    may_abstain: bool = True  # 弃票, in an exile or PK vote, or for a sheriff

    def __post_init__(self) -> None:
        sides = {role.side for role in self.deck}
        doubled = [role.value for role, card in CARDS.items() if card.unique and Counter(self.deck)[role] > 1]
        problems = [
            problem
            for problem, holds in (
                ("the deck needs wolves and others", sides != set(Side)),
                (f"at most one of each: {', '.join(doubled)}", bool(doubled)),
                ("round_limit must be at least 1", self.round_limit < 1),
                ("speech_chars must be at least 1", self.speech_chars < 1),
                ("wolf_talk_rounds must not be negative", self.wolf_talk_rounds < 0),
            )
            if holds
        ]
        if problems:
            raise ValueError(f"preset {self.name!r}: {'; '.join(problems)}")

    @property
    def seats(self) -> tuple[int, ...]:
        """All seat numbers, ascending from 1."""
        return tuple(range(1, len(self.deck) + 1))

    def may_explode(self, role: Role) -> bool:
        """Whether a seat of this role may explode (自爆)."""
        return self.wolves_may_explode and (
            CARDS[role].explodes or (role is Role.WOLF_KING and self.wolf_king_may_explode)
        )


PRESETS: Mapping[str, Preset] = MappingProxyType(
    {
        preset.name: preset
        for preset in (
            *(
                Preset(name=name, deck=DECKS[name], speech_chars=300, sheriff=True, wolves_may_explode=True)
                for name in ("12p_sheriff", "12p_idiot", "12p_white_wolf_king", "12p_guard", "12p_knight")
            ),
            Preset(name="10p", deck=DECKS["10p"]),
            Preset(name="9p", deck=DECKS["9p"]),
            Preset(name="7p", deck=DECKS["7p"], witch_self_save=True),
            # Balanced: neither side wins nearly always with random or scripted players.
            Preset(
                name="5p_tiny",
                deck=DECKS["5p_tiny"],
                win_rule=WinRule.PARITY,
                round_limit=3,
                speech_chars=120,
                wolf_talk_rounds=1,
                wolves_may_hit_wolves=False,
            ),
        )
    }
)

OPTIONS: tuple[str, ...] = tuple(field.name for field in fields(Preset) if field.name not in ("name", "deck"))
"""The fields of a preset that a task may override."""


def get_preset(name: str, options: Mapping[str, object] = MappingProxyType({})) -> Preset:
    """The preset ``name`` with overrides. Raises ValueError, naming the valid presets, options or values."""
    preset = PRESETS.get(name)
    if preset is None:
        raise ValueError(f"unknown preset {name!r}; valid presets: {', '.join(PRESETS)}")
    unknown = sorted(set(options) - set(OPTIONS))
    if unknown:
        raise ValueError(f"unknown rule options {unknown} for preset {name!r}; valid options: {', '.join(OPTIONS)}")
    changes = {name: _as_type_of(getattr(preset, name), name, value) for name, value in options.items()}
    return replace(preset, **changes)


def _as_type_of(present: object, option: str, value: object) -> object:
    if isinstance(present, WinRule):
        valid = [rule.value for rule in WinRule]
        if value not in valid:
            raise ValueError(f"rule option {option} must be one of {', '.join(valid)}, got {value!r}")
        return WinRule(value)
    # `type`, since a bool is an int: round_limit=True is an error.
    if type(value) is not type(present):
        raise ValueError(f"rule option {option} must be {type(present).__name__}, got {value!r}")
    return value
