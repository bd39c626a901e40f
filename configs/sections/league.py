"""Settings of the pool of past selves that the policy plays against in training."""

from typing import Literal

from pydantic import Field, model_validator

from configs.section import Section


class LeagueConfig(Section):
    """The pool that the player ``past`` is drawn from, among the members at each update."""

    every_steps: int | None = Field(
        None,
        ge=1,
        description="steps between additions of the policy to the pool, which starts with version 0; null: no pool",
    )
    size: int = Field(
        8,
        ge=2,
        description="maximum number of members; beyond it the member most similar to another leaves, never the "
        "initial or the newest",
    )
    choice: Literal["pfsp", "uniform", "newest"] = Field(
        "pfsp", description="how a member is drawn: pfsp (prefers members that the policy loses to), uniform, newest"
    )
    servers: int = Field(
        1,
        ge=1,
        description="vLLM servers for members if model.lora_rank is 0; each serves one member between updates. With "
        "adapters the policy's servers serve all members",
    )
    kv_cache_gb: float = Field(0.5, gt=0, description="memory of such a server's KV cache on CPU, in GiB")
    gpu_memory_utilization: float = Field(0.2, gt=0, le=1, description="share of a GPU's memory that it may take")
    devices: tuple[int, ...] | None = Field(None, description="GPU of each such server; null: GPU 0 for all")

    @model_validator(mode="after")
    def _servers_can_be_filled(self) -> "LeagueConfig":
        if self.servers > self.size:
            raise ValueError(f"servers ({self.servers}) must not exceed size ({self.size})")
        if self.devices is not None and len(self.devices) != self.servers:
            raise ValueError(f"devices has {len(self.devices)} GPUs for {self.servers} servers: name one for each")
        return self
