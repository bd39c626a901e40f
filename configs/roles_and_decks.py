"""Roles, their sides, and the deck of each preset.

The lowest layer: the configuration validates against it, and the rules deal from it.
Standard library only.
"""

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from enum import StrEnum
from types import MappingProxyType
from typing import Literal

SideName = Literal["wolf", "good"]
"""The sides as values of settings."""


class Side(StrEnum):
    """The two sides of the game: 狼人阵营 and 好人阵营."""

    WOLF = "wolf"
    GOOD = "good"


class Role(StrEnum):
    """Every role that a preset may deal."""

    WOLF = "wolf"  # 狼人
    WOLF_KING = "wolf_king"  # 狼王
    WHITE_WOLF_KING = "white_wolf_king"  # 白狼王
    VILLAGER = "villager"  # 村民
    SEER = "seer"  # 预言家
    WITCH = "witch"  # 女巫
    HUNTER = "hunter"  # 猎人
    GUARD = "guard"  # 守卫
    IDIOT = "idiot"  # 白痴
    KNIGHT = "knight"  # 骑士

    @property
    def side(self) -> Side:
        """The side this role wins with."""
        return Side.WOLF if self in _WOLVES else Side.GOOD

    @property
    def is_god(self) -> bool:
        """Whether the role counts as 神职 under 屠边."""
        return self.side is Side.GOOD and self is not Role.VILLAGER


_WOLVES = frozenset({Role.WOLF, Role.WOLF_KING, Role.WHITE_WOLF_KING})

_GODS_AND_VILLAGERS = {Role.VILLAGER: 4, Role.SEER: 1, Role.WITCH: 1, Role.HUNTER: 1}

DECKS: Mapping[str, tuple[Role, ...]] = MappingProxyType(
    {
        name: tuple(role for role, count in deck.items() for _ in range(count))
        for name, deck in {
            "12p_sheriff": {**_GODS_AND_VILLAGERS, Role.GUARD: 1, Role.WOLF: 3, Role.WOLF_KING: 1},
            "12p_idiot": {**_GODS_AND_VILLAGERS, Role.IDIOT: 1, Role.WOLF: 4},
            "12p_white_wolf_king": {**_GODS_AND_VILLAGERS, Role.GUARD: 1, Role.WOLF: 3, Role.WHITE_WOLF_KING: 1},
            "12p_guard": {**_GODS_AND_VILLAGERS, Role.GUARD: 1, Role.WOLF: 4},
            "12p_knight": {
                **(Counter(_GODS_AND_VILLAGERS) - Counter([Role.HUNTER])),
                Role.GUARD: 1,
                Role.KNIGHT: 1,
                Role.WOLF: 3,
                Role.WHITE_WOLF_KING: 1,
            },
            "10p": {**_GODS_AND_VILLAGERS, Role.WOLF: 3},
            "9p": {Role.VILLAGER: 3, Role.SEER: 1, Role.WITCH: 1, Role.HUNTER: 1, Role.WOLF: 3},
            "7p": {Role.VILLAGER: 3, Role.SEER: 1, Role.WITCH: 1, Role.WOLF: 2},
            "5p_tiny": {Role.WOLF: 1, Role.SEER: 1, Role.VILLAGER: 3},
        }.items()
    }
)
"""Preset -> the role of each card. Seeded deals depend on the order; players do not see it."""


def deal_roles(deck: Sequence[Role], seed: int) -> tuple[Role, ...]:
    """The roles of seats 1..n under ``seed``."""
    roles = list(deck)
    keyed_generator(seed, "deal", 0).shuffle(roles)
    return tuple(roles)


def keyed_generator(seed: int, purpose: str, day: int) -> random.Random:
    """Generator seeded by its key."""
    # Seeding by text hashes it with SHA-512: the same on every machine, and keys never collide.
    return random.Random(f"{seed}/{purpose}/{day}")
