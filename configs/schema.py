"""The settings that every workload has, with defaults and descriptions.

``sections/`` has a file for each larger section; ``werewolf.py`` and ``agents.py`` add the settings of a workload.
``loading.py`` reads a YAML file and ``section.key=value`` overrides.
"""

from collections.abc import Mapping
from operator import attrgetter
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
from store.addresses import leads_to_loopback, problem_with_base_url
from store.players import ChatEndpoint

RUN_NAME = r"^[A-Za-z0-9][A-Za-z0-9_-]*$"


class RunConfig(Section):
    """The run as a whole. Everything it writes lies under ``dir/name``."""

    name: str = Field("werewolf", pattern=RUN_NAME, description="names the run's folder and resources")
    dir: Path = Field(Path("runs"), description="parent of the run's folder")
    steps: int = Field(
        3, ge=1, description="number of steps: rollouts, then an update, unless no rollout can be learned from"
    )
    seed: int = Field(1, ge=0, description="seeds deals, sampling and mini-batch order")


class StoreConfig(Section):
    """The hub."""

    url: str = Field(
        "http://127.0.0.1:4747",
        description="address of the hub (`agl store` or `python -m store`)",
    )
    retry_seconds: float = Field(120, gt=0, description="how long to retry an unreachable hub")

    @field_validator("url")
    @classmethod
    def _is_a_base_url(cls, url: str) -> str:
        if problem := problem_with_base_url(url):
            raise ValueError(problem)
        return url


class EvaluationConfig(Section):
    """When the policy is evaluated. The workload adds the tasks, which are never trained on."""

    every_steps: int | None = Field(None, ge=1, description="steps between evaluations; null: only first and last")
    at_start: bool = Field(True, description="evaluate before the first update")
    at_end: bool = Field(True, description="evaluate after the last update")
    seed: int = Field(1, ge=0, description="seeds the held-out tasks or deals; never those of training")
    temperature: float | None = Field(None, gt=0, description="sampling temperature; null: rollout.temperature")

    @property
    def enabled(self) -> bool:
        """Whether the run evaluates at all."""
        return False


class CheckpointConfig(Section):
    """Checkpoints on disk."""

    every_steps: int = Field(
        10, ge=1, description="steps between checkpoints, written during the next step; the last step always has one"
    )
    keep: int = Field(2, ge=1, description="newest checkpoints kept")
    keep_best: int = Field(
        0, ge=0, description="in addition, checkpoints with the best evaluation: win rate, for agents mean reward"
    )


class LogConfig(Section):
    """Logs, transcripts and batches for people."""

    backends: tuple[str, ...] = Field(
        ("file", "tensorboard"),
        description="backends of verl's Tracking: file, tensorboard, console; and, each after `pip install` of its "
        "name, swanlab (SWANLAB_MODE=offline keeps it in the run's folder, SWANLAB_API_KEY sends it), trackio, mlflow "
        "(MLFLOW_TRACKING_URI names a server) and wandb (WANDB_MODE=offline)",
    )
    transcripts_per_step: int = Field(2, ge=0, description="rollouts per step written as readable text")
    save_batches: bool = Field(
        False, description="also write each step's training batch, token by token, as JSON Lines"
    )


class Config(Section):
    """The settings of any workload; a workload adds sections of its own.

    project: the project name in trackers.
    fixed: dotted name of a setting that may not change when a run resumes -> the reason.
    input_files: settings whose value is a path or a mapping to paths, relative to the configuration or the package.
    """

    project: ClassVar[str] = "werewolf"
    fixed: ClassVar[Mapping[str, str]] = {
        "run.seed": "deals and sampling depend on it",
        "rollout": "rollouts in flight were enqueued with it",
        "model": "the checkpoint holds the weights of that model",
        "training.ranks": "a checkpoint has a file for each rank",
        "training.optimizer": "the checkpoint holds that optimizer's state",
    }

    input_files: ClassVar[tuple[str, ...]] = ()

    run: RunConfig = RunConfig()
    store: StoreConfig = StoreConfig()
    rollout: RolloutSettings = RolloutSettings()
    frozen: dict[str, FrozenPolicyConfig] = Field(
        {}, description="policies that are not trained, by name; sampled in token ids like the trained one"
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
        description="metric -> bounds; a run that leaves them logs a warning or stops. Replaces the defaults as a "
        "whole",
    )

    @field_validator("frozen")
    @classmethod
    def _names_are_free(cls, frozen: dict[str, FrozenPolicyConfig]) -> dict[str, FrozenPolicyConfig]:
        check_player_names(frozen)
        return frozen

    @model_validator(mode="after")
    def _endpoints_time_out_in_time(self) -> "Config":
        # Else the hub takes the rollout from its runner as unresponsive, and the reason of the failure is lost.
        for where, endpoint in self.endpoints().items():
            if endpoint.total_timeout_seconds >= self.rollout.unresponsive_seconds:
                raise ValueError(
                    f"{where}: {endpoint.tries} tries of {endpoint.timeout_seconds:g} s each must take less than "
                    f"rollout.unresponsive_seconds ({self.rollout.unresponsive_seconds:g}); raise that, or lower tries "
                    f"or timeout_seconds"
                )
        return self

    @model_validator(mode="after")
    def _rollouts_can_be_trained_on(self) -> "Config":
        if self.rollout.context_tokens > self.training.max_sequence_tokens:
            raise ValueError(
                f"training.max_sequence_tokens ({self.training.max_sequence_tokens}) must be at least "
                f"rollout.context_tokens ({self.rollout.context_tokens}): long rollouts would be skipped"
            )
        evaluated, saved = self.evaluation.every_steps, self.checkpoint.every_steps
        if self.checkpoint.keep_best and not (self.evaluation.enabled and evaluated and evaluated % saved == 0):
            raise ValueError(
                "checkpoint.keep_best needs evaluations of checkpoints: set evaluation.deals (agents: evaluation.tasks)"
                f", and evaluation.every_steps to a multiple of checkpoint.every_steps ({saved})"
            )
        return self

    @model_validator(mode="after")
    def _branches_can_be_played(self) -> "Config":
        if self.advantage.credit != "branch":
            return self
        if self.rollout.max_policy_lag:
            raise ValueError(
                f"advantage.credit=branch compares games of the same weights: set rollout.max_policy_lag to 0, not "
                f"{self.rollout.max_policy_lag}"
            )
        if self.reference.kl == "reward":
            raise ValueError("advantage.credit=branch compares outcomes without a KL: set reference.kl to loss or none")
        branching, rollout = self.advantage.branching, self.rollout
        branches = self.branched_groups * rollout.rollouts_per_group
        if branches < branching.continuations:
            raise ValueError(
                f"advantage.branching.share={branching.share} of {rollout.groups_per_step} groups of "
                f"{rollout.rollouts_per_group} are {branches} branches, fewer than advantage.branching.continuations="
                f"{branching.continuations}: raise rollout.groups_per_step or the share"
            )
        return self

    @model_validator(mode="after")
    def _devices_fit(self) -> "Config":
        if self.serving.share_gpus and self.rollout.max_policy_lag:
            raise ValueError(
                "serving.share_gpus stops rollouts while the policy is updated: set rollout.max_policy_lag to 0, or "
                "give serving its own GPUs"
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
        devices, wide = self.serving.devices, self.serving.tensor_parallel
        if devices is not None and len(devices) != self.started_servers * wide:
            raise ValueError(
                f"serving.devices has {len(devices)} GPUs; {self.started_servers} servers need {wide} each"
            )
        if self.serving.kv_offload_gb and self.rollout.max_policy_lag:
            raise ValueError(
                "serving.kv_offload_gb and rollout.max_policy_lag exclude each other: vLLM cannot pause while it loads "
                "blocks from memory; set one of them to 0"
            )
        self._check_weight_transfer()
        if self.model.lora_rank > LORA_RANKS[-1]:
            raise ValueError(
                f"model.lora_rank={self.model.lora_rank}: vLLM serves adapters up to rank {LORA_RANKS[-1]}"
            )
        return self

    def _check_weight_transfer(self) -> None:
        way, serving = self.serving.weight_transfer, self.serving
        if way != "folder" and self.model.lora_rank:
            raise ValueError(f"serving.weight_transfer={way} sends whole weights; use folder for adapters")
        if way == "nccl" and serving.share_gpus:
            raise ValueError(
                "serving.weight_transfer=nccl excludes serving.share_gpus: NCCL does not connect two processes on one "
                "GPU; use ipc or folder"
            )
        if way == "ipc":
            gpus = {*(serving.devices or range(self.started_servers * serving.tensor_parallel))}
            if serving.mode == "start" and self.training.ranks < len(gpus):
                raise ValueError(
                    f"serving.weight_transfer=ipc needs a training rank on each of the {len(gpus)} serving GPUs: set "
                    f"training.ranks to {len(gpus)}, or use folder"
                )
            if not serving.share_gpus:
                raise ValueError("serving.weight_transfer=ipc needs serving.share_gpus: CUDA IPC works within one GPU")
            if self.training.nodes > 1 or not all(map(leads_to_loopback, serving.urls)):
                raise ValueError(
                    "serving.weight_transfer=ipc works within one machine: set training.nodes to 1 and serving.urls to "
                    "loopback addresses, or use folder"
                )

    def endpoints(self) -> dict[str, ChatEndpoint]:
        """Dotted setting -> model behind an API, for a workload whose runners call such models."""
        return {}

    @property
    def pool(self) -> LeagueConfig | None:
        """The pool of past selves, of a workload that has one."""
        return None

    @property
    def team(self) -> Mapping[str, LearnerConfig]:
        """The policies that learn together, by name; the first that matches a seat plays it. Empty for one policy."""
        return {}

    @property
    def branched_groups(self) -> int:
        """Groups of each step whose rollouts are branches of the others' (``advantage.credit=branch``)."""
        share = self.advantage.branching.share if self.advantage.credit == "branch" else 0.0
        return int(share * self.rollout.groups_per_step)

    @property
    def learners(self) -> Mapping[str, LearnerConfig]:
        """The policies that learn, by name: those of ``policies``, else one."""
        return self.team or {SOLE_LEARNER: LearnerConfig()}

    @property
    def started_servers(self) -> int:
        """vLLM servers of all learning policies, with ``serving.mode`` start; adapters share those of one."""
        return self.serving.servers * (1 if self.model.lora_rank else len(self.learners))

    def folder_of(self, learner: str, folder: Path) -> Path:
        """The subfolder of a learner's files; the folder itself for a learner without a name in ``policies``."""
        return folder if learner == SOLE_LEARNER else folder / learner

    def metrics_of(self, learner: str, metrics: Mapping[str, float]) -> dict[str, float]:
        """A learner's metrics, with its name as prefix if it has one in ``policies``."""
        prefix = "" if learner == SOLE_LEARNER else f"{learner}/"
        return {f"{prefix}{name}": value for name, value in metrics.items()}

    @property
    def fixed_files(self) -> Mapping[str, Path]:
        """Dotted setting -> file of ``input_files``, whose content may not change within a run: prompts, tasks."""
        found: dict[str, Path | None] = {}
        for name in self.input_files:
            value = attrgetter(name)(self)
            is_map = isinstance(value, dict)
            found |= {f"{name}.{key}": path for key, path in value.items()} if is_map else {name: value}
        return {name: path for name, path in found.items() if path is not None}

    @property
    def logprob_tolerance(self) -> float:
        """``serving.logprob_tolerance``, or its default for the model's precision."""
        default = 1e-4 if self.model.dtype == "float32" else 0.05
        return self.serving.logprob_tolerance or default

    @property
    def run_dir(self) -> Path:
        return self.run.dir / self.run.name
