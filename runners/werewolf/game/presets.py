"""Presets: what is dealt and which rules are in force, as frozen data.

The referee (``rules``) and the players' rules text (``runners.werewolf.prompts_zh``) both read these
fields, so they cannot disagree.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType

from runners.werewolf.game.types import Role


class WinRule(StrEnum):
    """When the wolves have won; the good side always wins once no wolf lives."""

    WIPE_A_KIND = "wipe_a_kind"  # 屠边: all 神职 dead, or all villagers dead
    PARITY = "parity"  # at least as many wolves as others live


@dataclass(frozen=True, slots=True)
class Preset:
    """One set of rules.

    name: how tasks and configuration refer to it.
    deck: the roles dealt, one for each seat; the order means nothing.
    win_rule: when the wolves have won.
    round_limit: number of days (each after its night); a game without a winner after the last is a draw.
    wolf_talk_rounds: how often each wolf speaks to the others in a night with two or more living wolves.
    wolves_may_pass: whether a wolf may choose nobody (空刀).
    wolves_may_hit_wolves: whether wolves may choose one of their own (自刀).
    may_abstain: whether a seat may cast no vote (弃票) in an exile or PK vote.
    """

    name: str
    deck: tuple[Role, ...]
    win_rule: WinRule
    round_limit: int
    wolf_talk_rounds: int
    wolves_may_pass: bool
    wolves_may_hit_wolves: bool
    may_abstain: bool

    @property
    def seats(self) -> tuple[int, ...]:
        """All seat numbers, ascending from 1."""
        return tuple(range(1, len(self.deck) + 1))


PRESETS: Mapping[str, Preset] = MappingProxyType(
    {
        preset.name: preset
        for preset in (
            Preset(
                name="5p_tiny",
                deck=(Role.WOLF, Role.SEER, Role.VILLAGER, Role.VILLAGER, Role.VILLAGER),
                win_rule=WinRule.PARITY,
                round_limit=3,
                wolf_talk_rounds=1,
                wolves_may_pass=True,
                wolves_may_hit_wolves=False,
                may_abstain=True,
            ),
        )
    }
)


def get_preset(name: str) -> Preset:
    """The preset called ``name``; ValueError names the valid ones."""
    preset = PRESETS.get(name)
    if preset is None:
        raise ValueError(f"unknown preset {name!r}; valid presets: {', '.join(sorted(PRESETS))}")
    return preset
