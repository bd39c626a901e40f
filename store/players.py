"""Players and their seats: names, models behind a chat API, seating rules. Light to import, for configurations."""

import math
from typing import Literal
from urllib.parse import urlsplit

from pydantic import ConfigDict, Field, field_validator

from store.strict import Strict

TRAINED_POLICY = "policy"
"""Name of the trained policy, as a resource and as a player."""
AGENT = "agent"
"""Kind of an agent's tasks; also the actor of a call that names none."""
MAIN_LLM = "main_llm"
"""Name of the trained policy's ``LLM``, the first of an agent's resources."""
PLAYERS_WITHOUT_A_MODEL = ("expert", "patient", "scripted", "timid", "random", "poser", "follower")
"""Built-in players of every runner, by their names in tasks."""
NAMES_WITHOUT_A_MODEL = ", ".join(PLAYERS_WITHOUT_A_MODEL)
"""For help texts."""
PAST_SELVES = "past"
"""In a task: a past self, drawn by the runner among the ``ServedPolicy`` with a share, one for all such seats."""

SideName = Literal["wolf", "good"]


class SeatingRule(Strict):
    """The players of the seats with this side, role and number; None matches any.

    players: name -> share. A name is ``TRAINED_POLICY``, one of ``PLAYERS_WITHOUT_A_MODEL``, of
        ``PolicyResources.players`` or of its policies, or ``PAST_SELVES``. The task's ``seed`` determines the draws, so
        that all games of a group have the same players.
    """

    side: SideName | None = Field(None, description="seats of this side")
    role: str | None = Field(None, description="seats that are dealt this role")
    seat: int | None = Field(None, ge=1, description="the seat with this number")
    players: dict[str, float] = Field(
        min_length=1,
        description=f"name -> share of the draws, one per deal: policy, {NAMES_WITHOUT_A_MODEL}, past (section "
        "league), or a name of the sections players and frozen",
    )
    together: bool = Field(False, description="one draw for all seats of a game, instead of one per seat")

    @field_validator("players")
    @classmethod
    def _shares_are_positive(cls, players: dict[str, float]) -> dict[str, float]:
        wrong = {name: share for name, share in players.items() if not 0 < share < math.inf}
        if wrong:
            raise ValueError(f"shares must be positive numbers, got {wrong}")
        return players

    def matches(self, seat: int, role: str, side: str) -> bool:
        return self.seat in (None, seat) and self.role in (None, role) and self.side in (None, side)


_OWN_URLS = {"openai": "https://api.openai.com/v1", "dashscope": "https://dashscope.aliyuncs.com/compatible-mode/v1"}


class ChatEndpoint(Strict):
    """A model behind an API, called by the runners through AgentScope's chat models: an opponent, or the judge.

    Its key is in an environment variable of the runners; keys never enter the hub or a configuration.
    """

    # An invalid value may be a key in the wrong place.
    model_config = ConfigDict(allow_inf_nan=False, hide_input_in_errors=True)

    provider: Literal["openai", "dashscope"] = Field(
        "openai",
        description="openai for any OpenAI-compatible endpoint, dashscope for Alibaba Cloud (base URLs that end in "
        "/compatible-mode/v1)",
    )
    endpoint: str = Field("", description="base URL for runners; empty for the provider's default")
    model: str = Field(min_length=1, description="name of the model at the endpoint")
    api_key_env: str | None = Field(
        None,
        pattern=r"^[A-Za-z_][A-Za-z0-9_]*$",
        description="name of the runners' environment variable with the API key, never the key itself; null for an "
        "endpoint without one",
    )
    temperature: float = Field(1.0, ge=0, description="sampling temperature")
    max_tokens: int = Field(512, gt=0, description="maximum tokens of a reply, thoughts included")
    timeout_seconds: float = Field(30.0, gt=0, description="timeout of one try")
    tries: int = Field(3, ge=1, description="tries before the endpoint counts as unreachable and the game fails")
    max_concurrent: int = Field(8, ge=1, description="maximum concurrent calls of a runner process")
    requests_per_minute: float | None = Field(None, gt=0, description="limit of a runner process; null for none")
    history_chars: int = Field(
        12_000, gt=0, description="characters of the game's history in a prompt; older parts are shortened"
    )

    @field_validator("endpoint")
    @classmethod
    def _holds_no_secret(cls, endpoint: str) -> str:
        parts = urlsplit(endpoint)
        if endpoint and (parts.scheme not in ("http", "https") or not parts.hostname):
            raise ValueError("must be a URL that begins with http:// or https://, or empty for the provider's default")
        if parts.username or parts.password or parts.query:
            raise ValueError("must have no user, password or query: set api_key_env to the variable with the key")
        return endpoint

    @property
    def url(self) -> str:
        """The base URL: ``endpoint``, or the provider's own."""
        return self.endpoint or _OWN_URLS[self.provider]

    @property
    def total_timeout_seconds(self) -> float:
        """Timeout of all tries of a call, without the pauses between them."""
        return self.tries * self.timeout_seconds
