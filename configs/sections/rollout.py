"""Settings of rollouts, whatever is played: how many make a step, how the policy is sampled, what is waited for."""

from pydantic import Field, model_validator

from configs.section import Section


class RolloutSettings(Section):
    """Rollouts of the trained policy: a game, or an agent's task.

    A run is resumed with the settings that it began with, but for those of ``algo.run.checkpoints``' ``_MAY_CHANGE``.
    """

    groups_per_step: int = Field(4, ge=1, description="groups per step; a group is one deal of the game, or one task")
    rollouts_per_group: int = Field(
        4, ge=1, description="rollouts of each group; group estimators, such as grpo, need at least two"
    )
    context_tokens: int = Field(4096, gt=0, description="most tokens of one call: prompt plus reply")
    reply_tokens: int = Field(64, gt=0, description="most tokens sampled for one reply")
    temperature: float = Field(1.0, gt=0, description="sampling temperature of the trained policy")
    thinking: bool = Field(False, description="whether a model that can think (Qwen3) does, before it answers")
    max_policy_lag: int = Field(
        0,
        ge=0,
        description="0: every step waits for its rollouts. Above: groups are always in flight, up to those of that "
        "many further steps; those that finish first make a step, and a turn may be trained on that was played by "
        "weights up to that many updates old",
    )
    max_groups_in_flight: int | None = Field(
        None,
        ge=1,
        description="most groups in flight, with max_policy_lag: lower it where vLLM's KV cache does not hold the "
        "games of all, or to train on fewer stale turns. null: all that the lag allows, (max_policy_lag + 1) * "
        "groups_per_step",
    )
    timeout_seconds: float = Field(600, gt=0, description="a rollout that takes longer is played again")
    unresponsive_seconds: float = Field(
        120, gt=0, description="a rollout without a new span for this long is played again"
    )
    max_attempts: int = Field(3, ge=1, description="times that a rollout is tried before it counts as failed")

    @model_validator(mode="after")
    def _reply_fits(self) -> "RolloutSettings":
        if self.reply_tokens >= self.context_tokens:
            raise ValueError(f"reply_tokens ({self.reply_tokens}) must be below context_tokens ({self.context_tokens})")
        most = self.max_groups_in_flight
        if most is not None and most < self.groups_per_step:
            raise ValueError(
                f"max_groups_in_flight ({most}) must not be below groups_per_step ({self.groups_per_step})"
            )
        return self
