"""Models that are not trained, as the hub knows them: where they are called, and how."""

from typing import Literal, Self
from urllib.parse import urlsplit

from agentlightning import LLM
from pydantic import BaseModel, ConfigDict, Field, field_validator


class ChatEndpoint(BaseModel):
    """A model that is not trained: an opponent, or the judge. Called through AgentScope's own chat models.

    provider: "openai" for any OpenAI-compatible endpoint, "dashscope" for Alibaba Cloud's.
    endpoint: base URL; empty for the provider's own. Without user, password or query, which may hold secrets.
    api_key_env: name of the environment variable that holds the key on the runner's machine, since keys never
        enter the store; None for an endpoint that needs none.
    timeout_seconds: of one try. tries: before the endpoint counts as unreachable, with back-off and jitter between.
    max_concurrent: calls under way at once, per runner process. requests_per_minute: per runner process; None: any.
    history_chars: a player is told the game so far in at most about this many characters; beyond it the older part
        becomes a recap.
    """

    # What was refused may be a key that was put in the wrong place.
    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    provider: Literal["openai", "dashscope"] = "openai"
    endpoint: str = ""
    model: str = Field(min_length=1)
    api_key_env: str | None = Field(default=None, pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")
    temperature: float = Field(default=1.0, ge=0)
    max_tokens: int = Field(default=512, gt=0)
    timeout_seconds: float = Field(default=30.0, gt=0)
    tries: int = Field(default=3, ge=1)
    max_concurrent: int = Field(default=8, ge=1)
    requests_per_minute: float | None = Field(default=None, gt=0)
    history_chars: int = Field(default=12_000, gt=0)

    @field_validator("endpoint")
    @classmethod
    def _holds_no_secret(cls, endpoint: str) -> str:
        parts = urlsplit(endpoint)
        if endpoint and (parts.scheme not in ("http", "https") or not parts.hostname):
            raise ValueError("must be a URL that begins with http:// or https://, or empty for the provider's own")
        if parts.username or parts.password or parts.query:
            raise ValueError("must have no user, password or query: keys never enter the store, see api_key_env")
        return endpoint

    def encode(self) -> LLM:
        """As an agentlightning resource."""
        return LLM(
            endpoint=self.endpoint,
            model=self.model,
            sampling_parameters=self.model_dump(exclude={"endpoint", "model"}, exclude_none=True),
        )

    @classmethod
    def decode(cls, resource: LLM) -> Self:
        """Read it back. Raises pydantic's ValidationError, naming every wrong field."""
        return cls(endpoint=resource.endpoint, model=resource.model, **resource.sampling_parameters)
