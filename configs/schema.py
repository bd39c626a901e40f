"""The configuration of a training run of any workload: what may be set, its default, and what each setting means.

``sections/`` has a file for each larger section. What the game adds is in ``werewolf.py``, what agents add in
``agents.py``. ``loading.py`` reads a YAML file and ``section.key=value`` overrides.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

from pydantic import Field, field_validator, model_validator

from configs.section import Section
from configs.sections.league import LeagueConfig
from configs.sections.opponents import check_player_names
from configs.sections.policies import SOLE_LEARNER, LearnerConfig
from configs.sections.rollout import RolloutSettings
from configs.sections.serving import LORA_RANKS, FrozenPolicyConfig, ServingConfig
from configs.sections.training import (
    AdvantageConfig,
    CriticConfig,
    ModelConfig,
    ReferenceConfig,
    SelectionConfig,
    TrainingConfig,
)
from configs.sections.watch import BoundConfig
from store.addresses import leads_to_loopback
from store.players import ChatEndpoint

RUN_NAME = r"^[A-Za-z0-9][A-Za-z0-9_-]*$"


class RunConfig(Section):
    """The run as a whole. Everything it writes lies under ``dir/name``."""

    name: str = Field("werewolf", pattern=RUN_NAME, description="names the run's folder and resources")
    dir: Path = Field(Path("runs"), description="parent of the run's folder")
    steps: int = Field(3, ge=1, description="steps to make: games, then an update, if there is anything to learn from")
    seed: int = Field(1, ge=0, description="deals, sampling and mini-batch order all follow from it")


class StoreConfig(Section):
    """The hub."""

    url: str = Field("http://127.0.0.1:4747", pattern=r"^https?://", description="address of `agl store`")
    retry_seconds: float = Field(120, gt=0, description="how long requests to an unreachable hub are retried")


class EvaluationConfig(Section):
    """When the policy is evaluated, on tasks that are never trained on. What is played says the workload."""

    every_steps: int | None = Field(None, ge=1, description="steps between evaluations; null: only first and last")
    at_start: bool = Field(True, description="also before the first update")
    at_end: bool = Field(True, description="also after the last")
    seed: int = Field(1, ge=0, description="what is played follows from it; never what training plays")
    temperature: float | None = Field(None, gt=0, description="sampling temperature; null: rollout.temperature")

    @property
    def wanted(self) -> bool:
        """Whether there is anything to evaluate."""
        raise NotImplementedError


class CheckpointConfig(Section):
    """What is kept on disk."""

    every_steps: int = Field(
        10, ge=1, description="steps between checkpoints, written beside the next step; the last step always has one"
    )
    keep: int = Field(2, ge=1, description="newest checkpoints kept")
    keep_best: int = Field(0, ge=0, description="besides, the checkpoints with the highest win rate in evaluation")


class LogConfig(Section):
    """What a person can look at afterwards."""

    backends: tuple[str, ...] = Field(
        ("file", "tensorboard"),
        description="backends of verl's Tracking: file, tensorboard, console; and, each after `pip install` of its "
        "name, swanlab (SWANLAB_MODE=offline keeps it in the run's folder, SWANLAB_API_KEY sends it), trackio, mlflow "
        "(MLFLOW_TRACKING_URI names a server) and wandb (WANDB_MODE=offline)",
    )
    transcripts_per_step: int = Field(2, ge=0, description="games per step written out as readable text")
    save_batches: bool = Field(
        False, description="also write each step's training batch, token by token, as JSON Lines"
    )


class Config(Section):
    """Everything that a run of any workload can be told; a workload adds sections of its own.

    project: under which trackers file the run.
    fixed: settings that may not change within a run, by dotted name, and why.
    input_files: settings that name files, or map to them: relative to the configuration's file, or to the package.
    """

    project: ClassVar[str] = "werewolf"
    fixed: ClassVar[Mapping[str, str]] = {
        "run.seed": "what is played follows from it",
        "rollout": "what is in flight was enqueued with it",
        "model": "the checkpoint holds the weights of that model",
        "training.ranks": "each rank has a file of its own",
        "training.optimizer": "the checkpoint holds what that optimizer has gathered",
    }

    input_files: ClassVar[tuple[str, ...]] = ()

    run: RunConfig = RunConfig()
    store: StoreConfig = StoreConfig()
    rollout: RolloutSettings = RolloutSettings()
    frozen: dict[str, FrozenPolicyConfig] = Field(
        {}, description="policies that are not trained, by name, played token by token"
    )
    selection: SelectionConfig = SelectionConfig()
    advantage: AdvantageConfig = AdvantageConfig()
    reference: ReferenceConfig = ReferenceConfig()
    critic: CriticConfig = CriticConfig()
    model: ModelConfig = ModelConfig()
    training: TrainingConfig = TrainingConfig()
    serving: ServingConfig = ServingConfig()
    evaluation: EvaluationConfig = EvaluationConfig()
    checkpoint: CheckpointConfig = CheckpointConfig()
    log: LogConfig = LogConfig()
    watch: dict[str, BoundConfig] = Field(
        {"turns/valid_share": BoundConfig(below=0.5)},
        description="numbers of the log, by name, and the bounds beyond which a run says so or ends; what is set "
        "replaces these",
    )

    @field_validator("frozen")
    @classmethod
    def _names_are_free(cls, frozen: dict[str, FrozenPolicyConfig]) -> dict[str, FrozenPolicyConfig]:
        check_player_names(frozen)
        return frozen

    @model_validator(mode="after")
    def _endpoints_answer_or_fail_in_time(self) -> "Config":
        # Else a rollout would be taken from its runner as unresponsive, and its failure would lose its reason.
        for where, endpoint in self.endpoints().items():
            if endpoint.total_timeout_seconds >= self.rollout.unresponsive_seconds:
                raise ValueError(
                    f"{where}: {endpoint.tries} tries of {endpoint.timeout_seconds:g} s each must take less than "
                    f"rollout.unresponsive_seconds ({self.rollout.unresponsive_seconds:g}); raise that, or lower tries "
                    f"or timeout_seconds"
                )
        return self

    @model_validator(mode="after")
    def _what_is_played_can_be_used(self) -> "Config":
        if self.rollout.context_tokens > self.training.max_sequence_tokens:
            raise ValueError(
                f"training.max_sequence_tokens ({self.training.max_sequence_tokens}) must not be below "
                f"rollout.context_tokens ({self.rollout.context_tokens}): long rollouts would be left out"
            )
        if self.checkpoint.keep_best and not self.evaluation.wanted:
            raise ValueError(
                "checkpoint.keep_best needs evaluations: set evaluation.deals (of agents evaluation.tasks), and "
                "evaluation.every_steps for a choice"
            )
        return self

    @model_validator(mode="after")
    def _devices_fit(self) -> "Config":
        if self.serving.share_gpus and self.rollout.max_policy_lag:
            raise ValueError(
                "serving.share_gpus stops rollouts while the policy is updated: set rollout.max_policy_lag to 0, or "
                "give serving GPUs of its own"
            )
        if self.training.device == "cpu":
            for name, value, only in (
                ("serving.weight_transfer", self.serving.weight_transfer, "folder"),
                ("serving.share_gpus", self.serving.share_gpus, False),
                ("serving.tensor_parallel", self.serving.tensor_parallel, 1),
                ("serving.kv_offload_gb", self.serving.kv_offload_gb, 0),
                ("training.sequence_parallel", self.training.sequence_parallel, 1),
                ("training.param_offload", self.training.param_offload, False),
                ("training.optimizer_offload", self.training.optimizer_offload, False),
            ):
                if value != only:
                    raise ValueError(f"{name}={value} needs GPUs; with training.device=cpu it must be {only}")
        self._check_weight_transfer()
        if self.model.lora_rank > LORA_RANKS[-1]:
            raise ValueError(f"model.lora_rank={self.model.lora_rank}: vLLM serves adapters of rank {LORA_RANKS[-1]}")
        return self

    def _check_weight_transfer(self) -> None:
        way, serving = self.serving.weight_transfer, self.serving
        if way != "folder" and self.model.lora_rank:
            raise ValueError(f"serving.weight_transfer={way} carries whole weights; adapters travel by folder")
        if way == "nccl" and serving.share_gpus:
            raise ValueError(
                "serving.weight_transfer=nccl does not go with serving.share_gpus: NCCL does not connect two processes "
                "on one GPU; use ipc or folder"
            )
        if way == "ipc":
            if not serving.share_gpus:
                raise ValueError("serving.weight_transfer=ipc needs serving.share_gpus: IPC does not leave a GPU")
            if self.training.nodes > 1 or not all(map(leads_to_loopback, serving.urls)):
                raise ValueError(
                    "serving.weight_transfer=ipc stays on one machine: set training.nodes to 1 and serving.urls to "
                    "loopback addresses, or use folder"
                )

    def endpoints(self) -> dict[str, ChatEndpoint]:
        """The models behind an API, by where they are configured, of a workload whose runners call such models."""
        return {}

    @property
    def pool(self) -> LeagueConfig | None:
        """The pool of past selves, of a workload that has one."""
        return None

    @property
    def team(self) -> Mapping[str, LearnerConfig]:
        """The policies that learn side by side, by name, the first of them that matches a seat before the others, of a
        workload that has several; empty where one policy learns."""
        return {}

    @property
    def learners(self) -> Mapping[str, LearnerConfig]:
        """The policies that learn, by name: those of ``policies``, or the only one."""
        return self.team or {SOLE_LEARNER: LearnerConfig()}

    def folder_of(self, learner: str, folder: Path) -> Path:
        """Where in a folder a policy that learns has its files: directly in it, if it has no name in ``policies``."""
        return folder if learner == SOLE_LEARNER else folder / learner

    def metrics_of(self, learner: str, metrics: Mapping[str, float]) -> dict[str, float]:
        """Numbers of a policy that learns for the log: under its name, if it has one in ``policies``."""
        prefix = "" if learner == SOLE_LEARNER else f"{learner}/"
        return {f"{prefix}{name}": value for name, value in metrics.items()}

    @property
    def fixed_files(self) -> Mapping[str, Path]:
        """Files whose content may not change within a run, by dotted setting: prompts, tasks."""
        return {}

    @property
    def logprob_tolerance(self) -> float:
        """``serving.logprob_tolerance``, or its default for the model's precision."""
        default = 1e-4 if self.model.dtype == "float32" else 0.05
        return self.serving.logprob_tolerance or default

    @property
    def run_dir(self) -> Path:
        return self.run.dir / self.run.name
