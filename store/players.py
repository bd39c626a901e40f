"""Who may sit at a table, and where: names of players, models behind a chat API, rules of seating.

Configurations use these types, too, so they import nothing heavy.
"""

import math
from typing import Literal
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, field_validator

TRAINED_POLICY = "policy"
"""Name of the trained policy: the resource that serves it, and a player's name where players are seated."""
SCRIPTED_PLAYER = "scripted"
EXPERT_PLAYER = "expert"
PATIENT_PLAYER = "patient"
TIMID_PLAYER = "timid"
RANDOM_PLAYER = "random"
PLAYERS_WITHOUT_A_MODEL = (EXPERT_PLAYER, PATIENT_PLAYER, SCRIPTED_PLAYER, TIMID_PLAYER, RANDOM_PLAYER)
"""Players that every runner has, by the names that tasks use."""
PAST_SELVES = "past"
"""In a task: a past self of the trained policy, drawn by the runner among the ``ServedPolicy`` with a share; the
same in all such seats of a game."""

SideName = Literal["wolf", "good"]


class SeatingRule(BaseModel):
    """Who plays the seats of this side, role and number; what is not set matches any.

    players: a name is ``TRAINED_POLICY``, one of ``PLAYERS_WITHOUT_A_MODEL``, of ``PolicyResources.players`` or of its
        policies, or ``PAST_SELVES``. The draws follow from the task's ``seed``, so that all games of a group seat the
        same players.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    side: SideName | None = Field(None, description="seats of this side")
    role: str | None = Field(None, description="seats that are dealt this role")
    seat: int | None = Field(None, ge=1, description="the seat with this number")
    players: dict[str, float] = Field(
        min_length=1,
        description="name -> share, drawn for each deal: policy, expert, patient, scripted, timid, random, past "
        "(section league), or a name of the sections players and frozen",
    )
    together: bool = Field(False, description="one draw for all the seats of a game, instead of one for each")

    @field_validator("players")
    @classmethod
    def _shares_are_positive(cls, players: dict[str, float]) -> dict[str, float]:
        wrong = {name: share for name, share in players.items() if not 0 < share < math.inf}
        if wrong:
            raise ValueError(f"shares must be positive numbers, got {wrong}")
        return players

    def matches(self, seat: int, role: str, side: str) -> bool:
        """Whether the rule says who plays this seat."""
        return self.seat in (None, seat) and self.role in (None, role) and self.side in (None, side)


class ChatEndpoint(BaseModel):
    """A model behind an API, called by the runners through AgentScope's chat models: an opponent, or the judge.

    Its key is an environment variable of the runners': keys never enter the store or a configuration.
    """

    # What was refused may be a key that was put in the wrong place.
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, hide_input_in_errors=True)

    provider: Literal["openai", "dashscope"] = Field(
        "openai",
        description="openai for any OpenAI-compatible endpoint, dashscope for Alibaba Cloud's, whose base URLs end in "
        "/compatible-mode/v1",
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
    def _holds_no_secret(cls, endpoint: str) -> str:
        parts = urlsplit(endpoint)
        if endpoint and (parts.scheme not in ("http", "https") or not parts.hostname):
            raise ValueError("must be a URL that begins with http:// or https://, or empty for the provider's own")
        if parts.username or parts.password or parts.query:
            raise ValueError("must have no user, password or query: a key is read from the variable in api_key_env")
        return endpoint

    @property
    def total_timeout_seconds(self) -> float:
        """How long one answer may take, all tries together, without the pauses between them."""
        return self.tries * self.timeout_seconds
