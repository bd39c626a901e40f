"""Settings of a pool of the policy's past selves, which it meets in training beside itself and fixed anchors."""

from typing import Literal

from pydantic import Field, model_validator

from configs.section import Section


class LeagueConfig(Section):
    """The pool that the player ``past`` is drawn from. The choice is among the members as they stand at each update."""

    every_steps: int | None = Field(
        None,
        ge=1,
        description="after every so many steps the policy joins the pool, in which it is from the start as version 0; "
        "null: no pool",
    )
    size: int = Field(
        8,
        ge=2,
        description="most members; the initial and the newest stay, of the others the one leaves that is most alike "
        "another one",
    )
    choice: Literal["pfsp", "uniform", "newest"] = Field(
        "pfsp", description="who is met: pfsp (the more often, the less often the policy beats it), uniform, newest"
    )
    servers: int = Field(
        1,
        ge=1,
        description="with model.lora_rank 0: vLLM servers for members, each of one member from update to update. With "
        "adapters the policy's own servers serve all members",
    )
    kv_cache_gb: float = Field(0.5, gt=0, description="memory of such a server's KV cache on CPU, in GiB")
    gpu_memory_utilization: float = Field(0.2, gt=0, le=1, description="share of a GPU's memory that it may take")
    devices: tuple[int, ...] | None = Field(None, description="GPU of each such server; null: GPU 0 for all")

    @model_validator(mode="after")
    def _servers_can_be_filled(self) -> "LeagueConfig":
        if self.servers > self.size:
            raise ValueError(f"servers ({self.servers}) must not be more than members, at most {self.size} (size)")
        if self.devices is not None and len(self.devices) != self.servers:
            raise ValueError(f"devices has {len(self.devices)} GPUs for {self.servers} servers: name one for each")
        return self
