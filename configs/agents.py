"""The configuration of a run that trains an agent: what it adds to that of any workload."""

from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

from pydantic import Field, model_validator

from configs.schema import RUN_NAME, Config, EvaluationConfig, RunConfig
from configs.section import Section
from configs.sections.watch import BoundConfig


class AgentRunConfig(RunConfig):
    """The run as a whole. Everything it writes lies under ``dir/name``."""

    name: str = Field("agent", pattern=RUN_NAME, description="names the run's folder and resources")


class AgentsConfig(Section):
    """The tasks: files with one JSON value a line, each a task's input as the agent gets it."""

    train: Path | None = Field(None, description="tasks to train on; null: they are given from Python (AgentVerl)")
    val: Path | None = Field(None, description="tasks that are never trained on; null: a part of agents.train")
    held_out: float = Field(
        0.2, gt=0, lt=1, description="where there is no agents.val: the share of agents.train that is held out"
    )
    trained_actors: tuple[str, ...] | None = Field(
        None,
        min_length=1,
        description="actors whose calls are trained on, by the names that they call with (policy/NAME as the model); "
        "null: all that the policy answers",
    )
    max_calls: int = Field(64, ge=1, description="model calls of one attempt; more are refused")
    max_seconds: float | None = Field(
        None, gt=0, description="an agent that takes longer is stopped, and has failed; null: rollout.timeout_seconds"
    )


class AgentRewardConfig(Section):
    """What an actor earns: a weighted sum of the rewards that the agent gives by name."""

    weights: dict[str, float] = Field(
        {}, description="name of a reward -> its weight, e.g. {correct: 1, short: 0.1}; empty: the first one alone"
    )
    actors: dict[str, dict[str, float]] = Field(
        {}, description="actors that are rewarded otherwise -> their own weights, e.g. {planner: {correct: 1}}"
    )
    failure: dict[str, float] = Field(
        {}, description="rewards, by name, of an agent that crashes or takes too long; what is not named here is 0"
    )
    invalid_call: float = Field(
        0.0,
        le=0,
        description="a reply whose tool call names no offered tool or has unreadable arguments; with "
        "advantage.credit=turn it counts for that reply alone",
    )

    @model_validator(mode="after")
    def _every_reward_counts_somewhere(self) -> "AgentRewardConfig":
        for where, weights in (
            ("weights", self.weights),
            *((f"actors.{name}", own) for name, own in self.actors.items()),
        ):
            if weights and not any(weights.values()):
                raise ValueError(f"{where}: all weights are 0, so that nothing could be learnt")
        return self

    def weights_of(self, actor: str) -> Mapping[str, float]:
        """The weights of an actor's rewards; empty for the first reward alone."""
        return self.actors.get(actor, self.weights)

    def of_a_failure(self) -> dict[str, float]:
        """All that a failed agent earns, by name, the primary reward first."""
        named = dict.fromkeys([*self.weights, *self.failure, *(name for own in self.actors.values() for name in own)])
        return {name: self.failure.get(name, 0.0) for name in named} or {"reward": 0.0}


class AgentEvaluationConfig(EvaluationConfig):
    """Tasks that are held out; what is told of them is the first reward that the agent gives, whatever the weights."""

    tasks: int = Field(0, ge=0, description="held-out tasks, the first ones of the file; 0: no evaluation")
    attempts: int = Field(1, ge=1, description="attempts at each; intervals are over tasks")

    @property
    def wanted(self) -> bool:
        return self.tasks > 0


class LocalConfig(Section):
    """What a recipe (``python -m algo.recipe``) starts on this machine, beside the hub, vLLM and the algorithm.

    Command lines are split as a shell would, and run from the folder that one is in. In them ``{python}`` is this
    Python, ``{port}`` a free port, ``{model}`` the folder model.path.
    """

    model: str | None = Field(None, description="makes the model where model.path does not exist; null: it must exist")
    service: str | None = Field(None, description="the agent, where it is an HTTP service: what serves it at {port}")
    runner: str = Field(
        "",
        description="options of `python -m runners.agents`, e.g. --agent my.module:agent --n 8, or "
        "--service http://127.0.0.1:{port}/chat --reward my.module:reward",
    )


class AgentConfig(Config):
    """Everything that a run of an agent can be told."""

    project: ClassVar[str] = "agents"
    fixed: ClassVar[Mapping[str, str]] = Config.fixed | {"agents": "the tasks in flight were enqueued with it"}
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

    @property
    def fixed_files(self) -> Mapping[str, Path]:
        """Files whose content may not change within a run, by dotted setting."""
        files = {"agents.train": self.agents.train, "agents.val": self.agents.val}
        return {name: path for name, path in files.items() if path is not None}

    @model_validator(mode="after")
    def _nothing_is_set_in_vain(self) -> "AgentConfig":
        if {self.selection.winners, self.selection.losers, self.selection.draws} != {1.0}:
            raise ValueError("selection.winners, losers and draws are of games: an agent neither wins nor loses")
        if self.agents.max_seconds is not None and self.agents.max_seconds >= self.rollout.timeout_seconds:
            raise ValueError(
                f"agents.max_seconds ({self.agents.max_seconds:g}) must be below rollout.timeout_seconds "
                f"({self.rollout.timeout_seconds:g}), or the task would be tried again instead"
            )
        return self
