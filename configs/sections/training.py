"""Settings of the model and its update, under verl's names where verl has one."""

import re
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, field_validator, model_validator

from configs.section import Section

_CPU_INFO = Path("/proc/cpuinfo")


def fastest_precision(cpu_info: str) -> Literal["float32", "bfloat16"]:
    """The precision in which a CPU multiplies matrices fastest. cpu_info: text of /proc/cpuinfo."""
    # With AVX2 alone bfloat16 is emulated: 80 times as slow as float32.
    return "bfloat16" if re.search(r"\b(avx512_bf16|amx_bf16|bf16)\b", cpu_info) else "float32"


def of_this_cpu(precision: str | None) -> str | None:
    """A precision; ``auto`` becomes the fastest one of this machine's CPU."""
    if precision != "auto":
        return precision
    return fastest_precision(_CPU_INFO.read_text() if _CPU_INFO.exists() else "")


class SelectionConfig(Section):
    """Which seats are trained on. Seats left out still count in the baselines; the log counts them by reason."""

    roles: tuple[str, ...] | dict[str, Annotated[float, Field(gt=0, le=1)]] | None = Field(
        None,
        min_length=1,
        description="roles to train, or roles with the share of their seats, a seeded sample of whole seats: "
        "{seer: 1, villager: 0.25}; null: all of game.train_sides",
    )
    winners: float = Field(1.0, ge=0, le=1, description="share of the winning seats, a seeded sample of whole seats")
    losers: float = Field(1.0, ge=0, le=1, description="share of the losing seats; 0 trains on winners only")
    draws: float = Field(1.0, ge=0, le=1, description="share of the seats of drawn games")

    @property
    def role_shares(self) -> dict[str, float] | None:
        """Share of the seats of each role; None: all of every role."""
        return self.roles if self.roles is None or isinstance(self.roles, dict) else dict.fromkeys(self.roles, 1.0)

    @model_validator(mode="after")
    def _somebody_is_trained(self) -> "SelectionConfig":
        if not (self.winners or self.losers):
            raise ValueError("winners and losers are both 0, so nearly nothing is trained on; raise one")
        return self


class BranchingConfig(Section):
    """Branches from decisions of a step's games, in place of a share of its groups (advantage.credit=branch)."""

    share: float = Field(0.5, gt=0, lt=1, description="share of a step's groups whose rollouts are branches instead")
    continuations: int = Field(4, ge=1, description="branches of a decision, each of which samples it again")
    decisions: tuple[Literal["vote", "night", "speech", "other"], ...] = Field(
        ("vote", "night", "other"),
        min_length=1,
        description="decisions to branch at: votes; what a role does by night; speeches, the wolves' talk among them; "
        "shots, badges and the like",
    )


class AdvantageConfig(Section):
    """From rewards to advantages: verl's estimators, with a baseline per deal and side, or our own per role."""

    estimator: str = Field(
        "grpo",
        description="one of verl's advantage estimators (grpo, reinforce_plus_plus, gae …), or role_baseline (reward "
        "minus a running mean of the role's rewards)",
    )
    normalize_by_std: bool = Field(
        True, description="divide by the standard deviation of the group or role (GRPO); false: do not (Dr. GRPO)"
    )
    role_baseline_decay: float = Field(0.9, ge=0, lt=1, description="decay of role_baseline's running mean per step")
    credit: Literal["game", "turn", "branch"] = Field(
        "game",
        description="game: a turn's reward counts for the seat's whole game; turn: for that turn alone; branch: as "
        "turn, with the outcome credited by branches (advantage.branching)",
    )
    branching: BranchingConfig = BranchingConfig()
    gamma: float = Field(1.0, gt=0, le=1, description="discount per token, for estimators that discount (gae …)")
    lam: float = Field(1.0, ge=0, le=1, description="lambda of gae")
    weigh: Literal["sequence", "turn"] = Field(
        "sequence",
        description="unit of equal weight in the loss: the sequence, or the turn (by scaling advantages; entropy and "
        "KL losses are not scaled)",
    )


class ReferenceConfig(Section):
    """KL regularization towards a reference model, which is neither served nor trained."""

    kl: Literal["none", "loss", "reward"] = Field(
        "none", description="none; KL as a term of the loss; KL subtracted from the reward, token by token"
    )
    coef: float = Field(0.001, ge=0, description="weight of the KL")
    penalty: Literal["k1", "k2", "k3", "abs", "k1+", "k3+", "kl", "mse", "low_var_kl"] = Field(
        "low_var_kl", description="verl's estimator of the KL"
    )
    path: Path | None = Field(
        None, description="folder of the reference model; null: model.path, which with LoRA costs no second model"
    )

    @model_validator(mode="after")
    def _penalty_has_an_effect(self) -> "ReferenceConfig":
        if self.kl == "reward" and self.penalty.endswith("+"):
            raise ValueError(
                f"penalty {self.penalty} differs from {self.penalty[:-1]} only in its gradient, which a reward lacks: "
                f"set penalty to {self.penalty[:-1]}, or kl to loss"
            )
        if self.kl == "loss" and self.penalty in ("k1", "kl"):
            raise ValueError(
                f"the expected gradient of penalty {self.penalty} is zero: set penalty to k1+ or low_var_kl, or kl to "
                f"reward"
            )
        return self


class CriticConfig(Section):
    """The value model, for advantage estimators that need one (gae)."""

    path: Path | None = Field(None, description="model folder to start from; null: model.path, with a new value head")
    learning_rate: float = Field(1e-5, gt=0, description="learning rate of the critic")


class ModelConfig(Section):
    """The model to train."""

    path: Path = Field(Path("runs/tiny_model"), description="Hugging Face model folder: weights, config, tokenizer")
    attn_implementation: Literal["eager", "sdpa", "flash_attention_2"] = Field(
        "sdpa", description="attention of the trainer; flash_attention_2 on GPUs with flash-attn"
    )
    dtype: Literal["float32", "bfloat16", "auto"] = Field(
        "float32",
        description="precision of serving and of the forward pass; auto, for runs on CPU: bfloat16 if this CPU has "
        "instructions for it, else float32",
    )
    lora_rank: int = Field(0, ge=0, description="rank of LoRA adapters of all linear layers; 0: train all weights")
    lora_alpha: int = Field(32, ge=1, description="LoRA's scale is lora_alpha / lora_rank")

    _dtype = field_validator("dtype")(of_this_cpu)


class RolloutCorrectionConfig(Section):
    """verl's rollout correction: importance weights for samples of older weights or another precision."""

    rollout_is: Literal["token", "sequence"] | None = Field(
        None, description="importance weights, by token or by sequence; null: none"
    )
    rollout_is_threshold: float | str = Field(
        2.0,
        description="largest importance weight; 'lower_upper' ('0.5_5.0', IcePop): tokens (sequences) outside the "
        "range have weight 0",
    )
    rollout_rs: str | None = Field(
        None,
        description="rejection sampling, by verl's names (token_k1, seq_mean_k3, …); null: none",
    )
    rollout_rs_threshold: str | float | None = Field(
        None, description="threshold of rollout_rs in verl's form: '0.5_2.0' for k1, an upper bound for k2 and k3"
    )

    @model_validator(mode="after")
    def _rejection_has_a_threshold(self) -> "RolloutCorrectionConfig":
        if (self.rollout_rs is None) != (self.rollout_rs_threshold is None):
            raise ValueError("set both rollout_rs and rollout_rs_threshold, or neither")
        return self


class TrainingConfig(Section):
    """The update, by verl's TrainingWorkers on Ray."""

    device: Literal["cpu", "cuda"] = Field("cpu", description="where the update runs")
    ranks: int = Field(1, ge=1, description="training workers in total, one per GPU")
    nodes: int = Field(1, ge=1, description="machines, joined by `ray start`; ranks are spread evenly")
    sequence_parallel: int = Field(
        1, ge=1, description="ranks that share each sequence (Ulysses), for long ones; divides ranks; needs flash-attn"
    )
    learning_rate: float = Field(1e-3, gt=0, description="learning rate after the warm-up")
    optimizer: Literal["adamw", "muon"] = Field(
        "adamw",
        description="adamw; muon: hidden matrices by Muon, the rest by AdamW, for training from random weights",
    )
    matrix_rate: float = Field(
        10.0, gt=0, description="muon: learning rate of hidden matrices, as a multiple of learning_rate"
    )
    weight_decay: float = Field(0.01, ge=0, description="decoupled weight decay of the optimizer")
    adam_betas: tuple[float, float] = Field(
        (0.9, 0.999),
        description="AdamW's betas; [0.9, 0.95] for short runs at high learning rates",
    )
    lr_schedule: Literal["constant", "cosine"] = Field("constant", description="schedule after the warm-up")
    lr_warmup_steps: int = Field(
        0,
        ge=0,
        description="updates over which the learning rate rises from zero; the schedule steps once per update, as in "
        "verl",
    )
    grad_clip: float = Field(1.0, gt=0, description="largest norm of the gradient; a larger one is scaled down")
    mini_batch_size: int = Field(32, ge=1, description="sequences per optimizer step, over all ranks")
    micro_batch_size: int = Field(4, ge=1, description="sequences per forward pass, on each rank")
    max_tokens_per_micro_batch: int | None = Field(
        None,
        ge=1,
        description="tokens per forward pass on each rank; without flash attention every sequence counts as the "
        "longest of its mini-batch. null: micro_batch_size sequences",
    )
    epochs: int = Field(1, ge=1, description="passes over a step's batch")
    policy_loss: str = Field("vanilla", description="name of a policy loss that verl registers")
    clip_ratio_low: float = Field(0.2, ge=0, description="PPO's ratio is clipped below 1 - clip_ratio_low")
    clip_ratio_high: float = Field(0.3, ge=0, description="PPO's ratio is clipped above 1 + clip_ratio_high")
    entropy_coeff: float = Field(0.0, ge=0, description="weight of the entropy, which the loss rewards")
    loss_agg_mode: str = Field(
        "seq-mean-token-mean",
        description="verl's aggregation; the default gives every sequence the same weight, whatever its length",
    )
    rollout_correction: RolloutCorrectionConfig = RolloutCorrectionConfig()
    max_sequence_tokens: int = Field(8192, gt=0, description="longer sequences are skipped and counted in the log")
    gradient_checkpointing: bool | None = Field(
        None, description="recompute activations in the backward pass to save memory; null: on GPUs only"
    )
    param_offload: bool = Field(False, description="keep idle weights in CPU memory")
    optimizer_offload: bool = Field(False, description="keep the idle optimizer state in CPU memory")

    @field_validator("adam_betas")
    @classmethod
    def _betas_decay(cls, betas: tuple[float, float]) -> tuple[float, float]:
        if not all(0 <= beta < 1 for beta in betas):
            raise ValueError("both must be at least 0 and below 1")
        return betas

    @model_validator(mode="after")
    def _ranks_divide(self) -> "TrainingConfig":
        for name, divisor in (("nodes", self.nodes), ("sequence_parallel", self.sequence_parallel)):
            if self.ranks % divisor:
                raise ValueError(f"ranks ({self.ranks}) must be a multiple of {name} ({divisor})")
        return self

    @model_validator(mode="after")
    def _every_sequence_fits(self) -> "TrainingConfig":
        room = (self.max_tokens_per_micro_batch or self.max_sequence_tokens) * self.sequence_parallel
        if room < self.max_sequence_tokens:
            raise ValueError(
                f"max_tokens_per_micro_batch ({self.max_tokens_per_micro_batch}) times sequence_parallel "
                f"({self.sequence_parallel}) must be at least max_sequence_tokens ({self.max_sequence_tokens}): a "
                f"sequence is not split over forward passes"
            )
        return self
