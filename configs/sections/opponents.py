"""Settings of players other than the trained policy."""

import re
from collections.abc import Collection

from configs.roles_and_decks import DECKS, Role, SideName
from configs.section import nearest_name
from store.players import PAST_SELVES, PLAYERS_WITHOUT_A_MODEL, TRAINED_POLICY, SeatingRule

BUILT_IN_PLAYERS = (TRAINED_POLICY, *PLAYERS_WITHOUT_A_MODEL)
"""Players without settings."""

_PLAYER_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*")


class SeatingRuleConfig(SeatingRule):
    """A seating rule in a configuration."""

    def problem_with(self, preset: str) -> str | None:
        """Why no seat of ``preset`` can match; None when one can."""
        deck = DECKS[preset]
        if self.seat is not None and self.seat > len(deck):
            return f"preset {preset!r} has seats 1 to {len(deck)}, not {self.seat}"
        if self.role is not None and self.role not in deck:
            return f"preset {preset!r} deals no {self.role!r}: {nearest_name(self.role, dict.fromkeys(deck), 'roles')}"
        if self.role is not None and self.side not in (None, Role(self.role).side):
            return f"role {self.role!r} is never of side {self.side!r}"
        return None

    def covers(self, side: SideName) -> bool:
        """Whether every seat of ``side`` matches, so that later rules do not apply to them."""
        return self.role is None and self.seat is None and self.side in (None, side)

    def may_concern(self, side: SideName) -> bool:
        """Whether a seat of ``side`` can match."""
        of_role = side if self.role is None else Role(self.role).side
        return self.side in (None, side) and of_role == side


INITIAL_POLICY = "initial"
"""Name in ``evaluation.opponents`` of the weights that the run started from."""


def check_player_names(names: Collection[str]) -> None:
    """Raise ValueError unless all names are valid in the sections players and frozen."""
    taken = (*BUILT_IN_PLAYERS, INITIAL_POLICY, PAST_SELVES)
    for name in names:
        if name in taken or name.startswith(f"{PAST_SELVES}-") or not _PLAYER_NAME.fullmatch(name):
            raise ValueError(
                f"{name!r} cannot name a player: use letters, digits, _ and -, but not {', '.join(taken)} or a name "
                f"that begins with {PAST_SELVES}-"
            )


def unknown_player(name: str, configured: Collection[str]) -> str | None:
    """The error for an unknown player in a seating rule; None if the name is known."""
    known = (*BUILT_IN_PLAYERS, *configured)
    if name in known:
        return None
    return f"unknown player {name!r}: {nearest_name(name, known)}; define models in the sections players and frozen"
