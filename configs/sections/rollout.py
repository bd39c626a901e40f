"""Settings of rollouts of any workload: batch size, sampling, lag and timeouts."""

from pydantic import Field, model_validator

from configs.section import Section


class RolloutSettings(Section):
    """Rollouts of the trained policy: a game, or an agent's task.

    Fixed within a run, except for ``_MAY_CHANGE`` of ``algo.run.checkpoints``.
    """

    groups_per_step: int = Field(4, ge=1, description="groups per step; a group is one deal of the game, or one task")
    rollouts_per_group: int = Field(
        4, ge=1, description="rollouts per group; group estimators such as grpo need at least two"
    )
    context_tokens: int = Field(4096, ge=16, description="maximal tokens of one call: prompt plus reply")
    reply_tokens: int = Field(64, gt=0, description="maximal tokens of one reply")
    temperature: float = Field(1.0, gt=0, description="sampling temperature of the trained policy")
    thinking: bool = Field(False, description="enable the thinking mode of models that have one (Qwen3)")
    max_policy_lag: int = Field(
        0,
        ge=0,
        description="0: every step waits for its rollouts. Above 0: groups for up to that many further steps are in "
        "flight, the first to finish form a step, and turns may come from weights up to that many updates old",
    )
    max_groups_in_flight: int | None = Field(
        None,
        ge=1,
        description="maximal groups in flight, with max_policy_lag: lower it if vLLM's KV cache does not hold all of "
        "them, or to train on fewer stale turns. null: (max_policy_lag + 1) * groups_per_step",
    )
    timeout_seconds: float = Field(
        600, gt=0, description="timeout of an attempt, after which the hub retries the rollout"
    )
    unresponsive_seconds: float = Field(
        120,
        gt=0,
        description="heartbeat timeout: time without a span or heartbeat after which the hub retries the rollout",
    )
    max_attempts: int = Field(3, ge=1, description="attempts after which a rollout counts as failed")

    @model_validator(mode="after")
    def _reply_fits(self) -> "RolloutSettings":
        if self.reply_tokens >= self.context_tokens:
            raise ValueError(f"reply_tokens ({self.reply_tokens}) must be below context_tokens ({self.context_tokens})")
        most = self.max_groups_in_flight
        if most is not None and most < self.groups_per_step:
            raise ValueError(f"max_groups_in_flight ({most}) must be at least groups_per_step ({self.groups_per_step})")
        return self
