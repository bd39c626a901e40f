"""The configuration of a run that trains an agent: the settings added to ``configs.schema``."""

from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

from pydantic import Field, model_validator

from configs.schema import RUN_NAME, Config, EvaluationConfig, RunConfig
from configs.section import Section
from configs.sections.watch import BoundConfig
from store.players import AGENT, MAIN_LLM

SECONDS_TO_END = 15
"""Of a runner, to stop an attempt at its timeout, check the servers and store the spans."""


class AgentRunConfig(RunConfig):
    """The run as a whole. Everything it writes lies under ``dir/name``."""

    name: str = Field("agent", pattern=RUN_NAME, description="names the run's folder and resources")


class AgentsConfig(Section):
    """The tasks: JSON Lines files; each line is the input of one task, as the agent receives it."""

    train: Path | None = Field(None, description="training tasks; null: passed from Python (AgentVerl)")
    val: Path | None = Field(None, description="held-out tasks; null: a share of agents.train (agents.held_out)")
    held_out: float = Field(
        0.2, gt=0, lt=1, description="without agents.val: the share of agents.train that is held out"
    )
    trained_actors: tuple[str, ...] | None = Field(
        None,
        min_length=1,
        description="actors to train on, by the name in their model (policy/NAME); null: all calls of the policy",
    )
    max_calls: int = Field(64, ge=1, description="model calls of one attempt; further calls are rejected")
    max_seconds: float | None = Field(
        None,
        gt=0,
        description="timeout of one attempt, after which the agent has failed, at least 15 below "
        "rollout.timeout_seconds; null: none, and the hub repeats an attempt after rollout.timeout_seconds, without a "
        "reward",
    )


class AgentRewardConfig(Section):
    """The reward of an actor: a weighted sum of the named rewards that the agent returns."""

    weights: dict[str, float] = Field(
        {}, description="reward name -> weight, e.g. {correct: 1, short: 0.1}; empty: the first reward alone"
    )
    actors: dict[str, dict[str, float]] = Field(
        {}, description="actor -> its own weights in place of reward.weights, e.g. {planner: {correct: 1}}"
    )
    failure: dict[str, float] = Field(
        {}, description="rewards of an agent that crashes or times out, by name; 0 for names that are missing"
    )
    invalid_call: float = Field(
        0.0,
        le=0,
        description="added for a reply whose tool call names no offered tool or has unreadable arguments, as the "
        "server's parser reports them (hermes returns a call that is not JSON as text); with advantage.credit=turn it "
        "counts for that reply alone",
    )

    @model_validator(mode="after")
    def _every_reward_counts_somewhere(self) -> "AgentRewardConfig":
        for where, weights in (
            ("weights", self.weights),
            *((f"actors.{name}", own) for name, own in self.actors.items()),
        ):
            if weights and not any(weights.values()):
                raise ValueError(f"{where}: all weights are 0, so there is no reward to learn from; make one positive")
        if len(self.failure) > 1 and not (self.weights or self.actors):
            raise ValueError(
                f"failure has several rewards ({', '.join(self.failure)}), of which only the agent's first one would "
                f"count: set weights"
            )
        if self.failure and self.actors and not self.weights:
            raise ValueError(
                "failure and actors are set and weights is not: actors without weights of their own earn the agent's "
                "first reward, which a failed agent does not name; set weights"
            )
        return self

    def weights_of(self, actor: str) -> Mapping[str, float]:
        """The weights of an actor's rewards; empty for the first reward alone."""
        return self.actors.get(actor, self.weights)

    def failure_rewards(self) -> dict[str, float]:
        """The rewards of a failed agent by name, the primary one first."""
        named = dict.fromkeys([*self.weights, *self.failure, *(name for own in self.actors.values() for name in own)])
        return {name: self.failure.get(name, 0.0) for name in named} or {"reward": 0.0}


class AgentEvaluationConfig(EvaluationConfig):
    """Evaluation on held-out tasks. Reports the agent's first reward, whatever the weights."""

    tasks: int = Field(0, ge=0, description="number of held-out tasks, from the top of the file; 0: no evaluation")
    attempts: int = Field(1, ge=1, description="attempts at each task; confidence intervals are over tasks")

    @property
    def enabled(self) -> bool:
        return self.tasks > 0


class LocalConfig(Section):
    """Commands that a recipe (``python -m algo.recipe``) runs in addition to the hub, vLLM and the algorithm.

    Split as a shell does; run in the working folder. ``{python}`` is this Python, ``{port}`` a free port, ``{model}``
    the folder of the initial model.
    """

    model: str | None = Field(
        None, description="command that builds {model}; not run: the error for a missing model.path shows it"
    )
    service: str | None = Field(None, description="command that serves the agent at {port}, if it is an HTTP service")
    runner: str = Field(
        "",
        description="options of `python -m runners.agents`, e.g. --agent my.module:agent --n 8, or "
        "--service http://127.0.0.1:{port}/chat --reward my.module:reward",
    )


class AgentConfig(Config):
    """All settings of a run that trains an agent."""

    project: ClassVar[str] = "agents"
    fixed: ClassVar[Mapping[str, str]] = Config.fixed | {"agents": "tasks in flight were enqueued with it"}
    input_files: ClassVar[tuple[str, ...]] = ("agents.train", "agents.val")

    run: AgentRunConfig = AgentRunConfig()
    agents: AgentsConfig = AgentsConfig()
    reward: AgentRewardConfig = AgentRewardConfig()
    evaluation: AgentEvaluationConfig = AgentEvaluationConfig()
    local: LocalConfig = LocalConfig()
    watch: dict[str, BoundConfig] = Field(
        {
            "turns/valid_share": BoundConfig(below=0.5),
            "agents/failed_share": BoundConfig(above=0.5),
        }
    )

    @model_validator(mode="after")
    def _reject_unused_settings(self) -> "AgentConfig":
        if {self.selection.winners, self.selection.losers, self.selection.draws} != {1.0}:
            raise ValueError("selection.winners, losers and draws apply to games only: leave them at 1.0 for agents")
        if self.advantage.credit == "branch":
            raise ValueError("advantage.credit=branch applies to games only: set it to game or turn for agents")
        for name in sorted(self.frozen.keys() & {AGENT, MAIN_LLM}):
            raise ValueError(f"frozen.{name}: agents use this name for the trained policy; choose another")
        latest = self.rollout.timeout_seconds - SECONDS_TO_END
        if self.agents.max_seconds is not None and self.agents.max_seconds > latest:
            raise ValueError(
                f"agents.max_seconds ({self.agents.max_seconds:g}) must be at most {latest:g}, {SECONDS_TO_END} "
                f"seconds below rollout.timeout_seconds, at which the hub retries the task"
            )
        return self
