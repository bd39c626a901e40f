"""The configuration of a training run: what may be set, its default, and what each setting means.

Sections of their own files: ``game.py``, ``opponents.py``, ``rewards.py``, ``training.py``, ``serving.py``,
``warm_start.py``.
``loading.py`` reads a YAML file and ``section.key=value`` overrides.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path

from pydantic import Field, field_validator, model_validator

from configs.game import GameConfig
from configs.opponents import (
    DEALT,
    INITIAL_POLICY,
    SIDES_OF_ROLES,
    EndpointConfig,
    check_player_names,
    unknown_player,
)
from configs.rewards import RewardConfig
from configs.section import Section
from configs.serving import FrozenPolicyConfig, ServingConfig, is_loopback
from configs.training import (
    AdvantageConfig,
    CriticConfig,
    ModelConfig,
    ReferenceConfig,
    SelectionConfig,
    TrainingConfig,
)
from configs.warm_start import WarmStartConfig


class RunConfig(Section):
    """The run as a whole. Everything it writes lies under ``dir/name``."""

    name: str = Field(
        "werewolf", pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]*$", description="names the run's folder and resources"
    )
    dir: Path = Field(Path("runs"), description="parent of the run's folder")
    steps: int = Field(3, ge=1, description="steps to make: games, then an update, if there is anything to learn from")
    seed: int = Field(1, ge=0, description="deals, sampling and mini-batch order all follow from it")


class StoreConfig(Section):
    """The hub."""

    url: str = Field("http://127.0.0.1:4747", pattern=r"^https?://", description="address of `agl store`")
    patience_seconds: float = Field(120, gt=0, description="how long an unreachable hub is waited for before giving up")


class EvaluationConfig(Section):
    """Games on deals that are never trained on, against opponents that never learn, each deal with sides swapped."""

    every_steps: int | None = Field(None, ge=1, description="steps between evaluations; null: only first and last")
    at_start: bool = Field(True, description="also before the first update")
    at_end: bool = Field(True, description="also after the last")
    deals: int = Field(0, ge=0, description="deals for each opponent; two games of each, one a side; 0: no evaluation")
    opponents: tuple[str, ...] = Field(
        ("scripted", "random"),
        min_length=1,
        description="expert, scripted, timid, random, initial (the weights that the run started from), or names of the "
        "sections players and frozen",
    )
    seed: int = Field(1, ge=0, description="the deals follow from it; other deals than any of training")
    temperature: float | None = Field(None, gt=0, description="sampling temperature; null: game.temperature")

    @field_validator("opponents")
    @classmethod
    def _are_different_players(cls, opponents: tuple[str, ...]) -> tuple[str, ...]:
        if "policy" in opponents:
            raise ValueError("the policy cannot be its own opponent; initial is the policy as the run started")
        if len(set(opponents)) < len(opponents):
            raise ValueError("an opponent is named twice")
        return opponents


class CheckpointConfig(Section):
    """What is kept on disk."""

    every_steps: int = Field(1, ge=1, description="steps between checkpoints; the last step always has one")
    keep: int = Field(2, ge=1, description="newest checkpoints kept")
    keep_best: int = Field(0, ge=0, description="besides, the checkpoints with the highest win rate in evaluation")


class LogConfig(Section):
    """What a person can look at afterwards."""

    backends: tuple[str, ...] = Field(
        ("file", "tensorboard"),
        description="backends of verl's Tracking: file, tensorboard, console, wandb …",
    )
    transcripts_per_step: int = Field(2, ge=0, description="games per step written out as readable text")
    save_batches: bool = Field(
        False, description="also write each step's training batch, token by token, as JSON Lines"
    )


class Config(Section):
    """Everything that a run can be told."""

    run: RunConfig = RunConfig()
    store: StoreConfig = StoreConfig()
    game: GameConfig = GameConfig()
    players: dict[str, EndpointConfig] = Field(
        {}, description="models that may sit at the table, by the names that game.seating and game.opponent use"
    )
    frozen: dict[str, FrozenPolicyConfig] = Field(
        {}, description="policies that are not trained and may sit at the table likewise, played token by token"
    )
    judge: EndpointConfig | None = Field(None, description="the model that judges what trained seats say")
    reward: RewardConfig = RewardConfig()
    selection: SelectionConfig = SelectionConfig()
    advantage: AdvantageConfig = AdvantageConfig()
    reference: ReferenceConfig = ReferenceConfig()
    critic: CriticConfig = CriticConfig()
    model: ModelConfig = ModelConfig()
    training: TrainingConfig = TrainingConfig()
    serving: ServingConfig = ServingConfig()
    warm_start: WarmStartConfig = WarmStartConfig()
    evaluation: EvaluationConfig = EvaluationConfig()
    checkpoint: CheckpointConfig = CheckpointConfig()
    log: LogConfig = LogConfig()

    @field_validator("players", "frozen")
    @classmethod
    def _names_are_free(cls, players: Mapping[str, Section]) -> Mapping[str, Section]:
        check_player_names(players)
        return players

    @model_validator(mode="after")
    def _seated_players_exist(self) -> "Config":
        both = sorted(self.players.keys() & self.frozen.keys())
        if both:
            raise ValueError(f"players and frozen both have {both[0]!r}")
        for where, name in self._named_players():
            if problem := unknown_player(name, [*self.players, *self.frozen]):
                raise ValueError(f"{where}: {problem}")
        return self

    def _named_players(self) -> Iterator[tuple[str, str]]:
        yield "game.opponent", self.game.opponent
        yield "warm_start.demonstrator", self.warm_start.demonstrator
        for number, rule in enumerate(self.game.seating):
            yield from ((f"game.seating.{number}.players", name) for name in rule.players)
        yield from (("evaluation.opponents", name) for name in self.evaluation.opponents if name != INITIAL_POLICY)

    @model_validator(mode="after")
    def _endpoints_answer_or_fail_in_time(self) -> "Config":
        # Else a game would be taken from its runner as unresponsive, and its failure would lose its reason.
        endpoints = {f"players.{name}": endpoint for name, endpoint in self.players.items()}
        for where, endpoint in (endpoints | ({"judge": self.judge} if self.judge else {})).items():
            if endpoint.patience_seconds >= self.game.unresponsive_seconds:
                raise ValueError(
                    f"{where}: {endpoint.tries} tries of {endpoint.timeout_seconds:g} s each must take less than "
                    f"game.unresponsive_seconds ({self.game.unresponsive_seconds:g}); raise that, or lower tries or "
                    f"timeout_seconds"
                )
        return self

    @model_validator(mode="after")
    def _nothing_is_set_in_vain(self) -> "Config":
        for where, selection in (("selection", self.selection), ("warm_start.selection", self.warm_start.selection)):
            for role in selection.roles or ():
                if role not in DEALT[self.game.preset][1]:
                    raise ValueError(f"{where}.roles has {role!r}, which preset {self.game.preset!r} does not deal")
                if SIDES_OF_ROLES[role] not in self.game.train_sides:
                    raise ValueError(f"{where}.roles has {role!r}, whose side game.train_sides leaves out")
        weighed = self.reward.judge_score or self.reward.low_judgement or self.reward.very_low_judgement
        if self.judge is not None and not weighed:
            raise ValueError(
                "the judge would be asked in vain: set reward.judge_score, low_judgement or very_low_judgement"
            )
        if self.game.context_tokens > self.training.max_sequence_tokens:
            raise ValueError(
                f"training.max_sequence_tokens ({self.training.max_sequence_tokens}) must not be below "
                f"game.context_tokens ({self.game.context_tokens}): long games would be played and then left out"
            )
        if self.checkpoint.keep_best and not self.evaluation.deals:
            raise ValueError(
                "checkpoint.keep_best needs evaluations: set evaluation.deals, and evaluation.every_steps for a choice"
            )
        return self

    @model_validator(mode="after")
    def _devices_fit(self) -> "Config":
        if self.serving.share_gpus and self.game.max_policy_lag:
            raise ValueError(
                "serving.share_gpus stops the games while the policy is updated: set game.max_policy_lag to 0, or give "
                "serving GPUs of its own"
            )
        if self.training.device == "cpu":
            for name, value, only in (
                ("serving.weight_transfer", self.serving.weight_transfer, "folder"),
                ("serving.share_gpus", self.serving.share_gpus, False),
                ("serving.tensor_parallel", self.serving.tensor_parallel, 1),
                ("training.sequence_parallel", self.training.sequence_parallel, 1),
                ("training.param_offload", self.training.param_offload, False),
                ("training.optimizer_offload", self.training.optimizer_offload, False),
            ):
                if value != only:
                    raise ValueError(f"{name}={value} needs GPUs; with training.device=cpu it must be {only}")
        self._check_weight_transfer()
        return self

    def _check_weight_transfer(self) -> None:
        way, serving = self.serving.weight_transfer, self.serving
        if way == "nccl" and serving.share_gpus:
            raise ValueError(
                "serving.weight_transfer=nccl does not go with serving.share_gpus: NCCL does not connect two processes "
                "on one GPU; use ipc or folder"
            )
        if way == "ipc":
            if not serving.share_gpus:
                raise ValueError("serving.weight_transfer=ipc needs serving.share_gpus: IPC does not leave a GPU")
            if self.training.nodes > 1 or not all(map(is_loopback, serving.urls)):
                raise ValueError(
                    "serving.weight_transfer=ipc stays on one machine: set training.nodes to 1 and serving.urls to "
                    "loopback addresses, or use folder"
                )

    @property
    def logprob_tolerance(self) -> float:
        """``serving.logprob_tolerance``, or its default for the model's precision."""
        default = 1e-3 if self.model.dtype == "float32" else 1.0
        return self.serving.logprob_tolerance or default

    @property
    def run_dir(self) -> Path:
        """Folder that holds everything this run writes."""
        return self.run.dir / self.run.name
