"""Settings of who sits at the table beside the trained policy, and of models behind an API.

The configuration is a leaf: what is said of an endpoint repeats ``store.schema.ChatEndpoint``. A test holds them
together.
"""

import re
from collections.abc import Collection
from typing import Literal
from urllib.parse import urlsplit

from pydantic import Field, field_validator

from configs.roles_and_decks import DECKS, Role, SideName
from configs.section import Section, nearest_name

BUILT_IN_PLAYERS = ("policy", "expert", "patient", "scripted", "timid", "random")
"""Players that need no section of their own."""

_PLAYER_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*")


class SeatingRuleConfig(Section):
    """Who plays the seats that are of this side, role and number; what is not set does not matter."""

    side: SideName | None = Field(None, description="seats of this side")
    role: str | None = Field(None, description="seats that are dealt this role")
    seat: int | None = Field(None, ge=1, description="the seat with this number")
    players: dict[str, float] = Field(
        min_length=1,
        description="name -> share, drawn for each deal: policy, expert, patient, scripted, timid, random, past "
        "(section league), or a name of the sections players and frozen",
    )
    together: bool = Field(False, description="one draw for all the seats of a game, instead of one for each")

    @field_validator("role")
    @classmethod
    def _role_exists(cls, role: str | None) -> str | None:
        if role is not None and role not in list(Role):
            raise ValueError(f"unknown role {role!r}: {nearest_name(role, Role, 'roles')}")
        return role

    @field_validator("players")
    @classmethod
    def _shares_are_positive(cls, players: dict[str, float]) -> dict[str, float]:
        wrong = {name: share for name, share in players.items() if share <= 0}
        if wrong:
            raise ValueError(f"shares must be positive numbers, got {wrong}")
        return players

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
        """Whether every seat of ``side`` matches, so that later rules say nothing of them."""
        return self.role is None and self.seat is None and self.side in (None, side)

    def may_concern(self, side: SideName) -> bool:
        """Whether a seat of ``side`` can match."""
        of_role = side if self.role is None else Role(self.role).side
        return self.side in (None, side) and of_role == side


class EndpointConfig(Section):
    """A model behind an API, called by the runners; its key is an environment variable of theirs."""

    provider: Literal["openai", "dashscope"] = Field(
        "openai", description="openai for any OpenAI-compatible endpoint, dashscope for Alibaba Cloud's own"
    )
    endpoint: str = Field("", description="base URL, as runners reach it; empty for the provider's own")
    model: str = Field(min_length=1, description="the model's name there")
    api_key_env: str | None = Field(
        None,
        pattern=r"^[A-Za-z_][A-Za-z0-9_]*$",
        description="name of the environment variable that holds the key where the runners are started, never the "
        "key itself; null for an endpoint that needs none",
    )
    temperature: float = Field(1.0, ge=0, description="sampling temperature")
    max_tokens: int = Field(512, gt=0, description="most tokens of one reply, thoughts included")
    timeout_seconds: float = Field(30.0, gt=0, description="how long one try may take")
    tries: int = Field(3, ge=1, description="tries before the endpoint counts as unreachable and the game as failed")
    max_concurrent: int = Field(8, ge=1, description="calls under way at once, for each runner process")
    requests_per_minute: float | None = Field(None, gt=0, description="for each runner process; null for any number")
    history_chars: int = Field(
        12_000, gt=0, description="characters of the game so far that a player is told; beyond it, older parts in short"
    )

    @field_validator("endpoint")
    @classmethod
    def _endpoint_holds_no_secret(cls, endpoint: str) -> str:
        parts = urlsplit(endpoint)
        if endpoint and (parts.scheme not in ("http", "https") or not parts.hostname):
            raise ValueError("must be a URL that begins with http:// or https://, or empty for the provider's own")
        if parts.username or parts.password or parts.query:
            raise ValueError("must have no user, password or query: a key is read from the variable in api_key_env")
        return endpoint

    @property
    def patience_seconds(self) -> float:
        """How long one answer may take, all tries together, without the pauses between them."""
        return self.tries * self.timeout_seconds


INITIAL_POLICY = "initial"
"""In ``evaluation.opponents``: the weights that the run started from."""

PAST_SELVES = "past"
"""In ``game.opponent`` and ``game.seating``: a member of the pool of past selves (section league), the same in all such
seats of a game."""


def check_player_names(names: Collection[str]) -> None:
    """Raise ValueError unless all of them may name players of the sections players and frozen."""
    taken = (*BUILT_IN_PLAYERS, INITIAL_POLICY, PAST_SELVES)
    for name in names:
        if name in taken or name.startswith(f"{PAST_SELVES}-") or not _PLAYER_NAME.fullmatch(name):
            raise ValueError(
                f"{name!r} cannot name a player: use letters, digits, _ and -, and not {', '.join(taken)}, or what "
                f"begins with {PAST_SELVES}-"
            )


def unknown_player(name: str, configured: Collection[str]) -> str | None:
    """What is wrong with a player's name in a seating rule; None when it is known."""
    known = (*BUILT_IN_PLAYERS, *configured)
    if name in known:
        return None
    return f"unknown player {name!r}: {nearest_name(name, known)}; models stand in the sections players and frozen"
