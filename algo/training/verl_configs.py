"""verl's configuration of a training rank from ours: models, losses and optimizers."""

from dataclasses import dataclass, replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from transformers import MODEL_FOR_TOKEN_CLASSIFICATION_MAPPING, AutoConfig
from verl.trainer.config import CheckpointConfig
from verl.trainer.ppo.core_algos import POLICY_LOSS_REGISTRY
from verl.workers.config import (
    CriticConfig,
    FSDPActorConfig,
    FSDPEngineConfig,
    FSDPOptimizerConfig,
    HFModelConfig,
    PolicyLossConfig,
    TrainingWorkerConfig,
)

from algo.advantages.registry import needs_values
from algo.training.muon import MuonAndAdamW
from configs.model_folder import check_model_folders
from configs.schema import Config
from configs.section import ConfigError
from configs.sections.training import ModelConfig, ReferenceConfig, TrainingConfig

# verl has these as branches of agg_loss, without a list.
LOSS_AGG_MODES = ("seq-mean-token-mean", "seq-mean-token-sum", "seq-mean-token-sum-norm", "token-mean", "token-sum")

# Losses in verl's registry that do not work with this configuration.
_UNUSABLE_LOSSES = {
    "geo_mean": "verl averages it over each micro-batch with its padding rows, so the update depends on their size",
    "clip_cov": "it selects tokens within each micro-batch, so the update depends on their size",
    "kl_cov": "it selects tokens within each micro-batch, so the update depends on their size",
    "bypass_mode": "it ignores rollout-correction weights; use the loss itself with training.rollout_correction",
    "dro": "it needs verl's policy_loss.dro_beta, which this configuration does not have",
}


@dataclass(frozen=True)
class PartConfigs:
    """The models of a training rank.

    reference: None without a KL, and with LoRA if the reference is the policy without its adapters.
    critic: None if the estimator needs no values.
    actor_loss, critic_loss: for verl's ``ppo_loss`` and ``value_loss``.
    rates: learning rate of each trained part ("policy", "critic"), by the names of the learning policies.
    """

    policy: TrainingWorkerConfig
    reference: TrainingWorkerConfig | None
    critic: TrainingWorkerConfig | None
    actor_loss: FSDPActorConfig
    critic_loss: CriticConfig
    rates: dict[str, dict[str, float]]


def part_configs(config: Config, optimizer: FSDPOptimizerConfig | None = None) -> PartConfigs:
    """The configurations of all parts. optimizer: of the policy, instead of the configured one."""
    model, training, steps = config.model, config.training, config.run.steps
    has_critic = needs_values(config.advantage.estimator)
    optimizer = optimizer or _policy_optimizer(training, steps)
    policy = TrainingWorkerConfig(
        model_type="language_model",
        model_config=_model_config(config, None, **_adapters(model)),
        engine_config=_engine_config(config, trains_weights=model.lora_rank == 0),
        optimizer_config=optimizer,
        # The base weights are always those of model.path.
        checkpoint_config=CheckpointConfig(save_lora_only=model.lora_rank > 0),
    )
    other = partial(TrainingWorkerConfig, checkpoint_config=CheckpointConfig())
    reference = critic = None
    if config.reference.kl != "none" and not reference_without_adapters(config):
        reference = other(
            model_type="language_model",
            model_config=_model_config(config, config.reference.path),
            # verl's forward-only engines need pinned memory, which a machine without an accelerator lacks; an optimizer
            # without steps costs nothing.
            engine_config=_engine_config(config, forward_only=training.device != "cpu", trains_weights=False),
            optimizer_config=_optimizer_config(training, training.learning_rate, steps),
        )
    if has_critic:
        critic = other(
            model_type="value_model",
            model_config=_model_config(config, config.critic.path),
            engine_config=_engine_config(config),
            optimizer_config=_optimizer_config(training, config.critic.learning_rate, steps),
        )
    rates = {
        "policy": {name: learner.learning_rate or optimizer.lr for name, learner in config.learners.items()},
        "critic": dict.fromkeys(config.learners, config.critic.learning_rate),
    }
    losses = actor_config(training, config.reference), critic_config(config)
    return PartConfigs(policy, reference, critic, *losses, rates)


def reference_without_adapters(config: Config) -> bool:
    """Whether the reference is the trained model with its LoRA adapters disabled, without a second model."""
    return config.model.lora_rank > 0 and config.reference.path in (None, config.model.path)


def check_engine(config: Config) -> None:
    """Raise ConfigError, naming the setting and the remedy, for errors that can be detected before Ray starts."""
    check_model_folders(config)
    actor_config(config.training, config.reference)
    parallel = config.training.sequence_parallel
    if parallel > 1 and not packs_sequences(config.model):
        raise ConfigError(
            f"training.sequence_parallel={parallel} needs model.attn_implementation=flash_attention_2 "
            f"(got {config.model.attn_implementation!r})"
        )
    if packs_sequences(config.model) and (config.training.device == "cpu" or find_spec("flash_attn") is None):
        raise ConfigError(
            "model.attn_implementation=flash_attention_2 needs GPUs and flash-attn (pip install --no-build-isolation "
            "flash-attn==2.8.3.post2); without them set it to sdpa"
        )
    try:
        sizes = AutoConfig.from_pretrained(config.model.path).get_text_config()
    except ValueError as error:  # an architecture that this transformers does not have
        raise ConfigError(f"model.path {config.model.path}: {error}") from error
    if needs_values(config.advantage.estimator):
        critic = AutoConfig.from_pretrained(config.critic.path or config.model.path)
        if type(critic) not in MODEL_FOR_TOKEN_CLASSIFICATION_MAPPING:
            raise ConfigError(
                f"advantage.estimator={config.advantage.estimator} needs a critic, and transformers makes none of "
                f"{critic.model_type}: set critic.path to a model of another family with the same tokenizer, or use an "
                "estimator without a critic, such as role_baseline"
            )
    heads = getattr(sizes, "num_attention_heads", parallel)
    of_keys = getattr(sizes, "num_key_value_heads", heads)
    if parallel > 1 and (heads % parallel or (of_keys % parallel and parallel % of_keys)):
        raise ConfigError(
            f"training.sequence_parallel={parallel} must divide the model's number of attention heads ({heads}), and "
            f"divide its number of key-value heads ({of_keys}) or be a multiple of it"
        )


def actor_config(training: TrainingConfig, reference: ReferenceConfig | None = None) -> FSDPActorConfig:
    """The configuration of verl's ``ppo_loss``. Raises ConfigError for a name unknown to verl."""
    for key, value, known in (
        ("policy_loss", training.policy_loss, sorted(POLICY_LOSS_REGISTRY)),
        ("loss_agg_mode", training.loss_agg_mode, LOSS_AGG_MODES),
    ):
        if value not in known:
            raise ConfigError(f"training.{key} {value!r} is not one of verl's: {', '.join(known)}")
    if reason := _UNUSABLE_LOSSES.get(training.policy_loss):
        raise ConfigError(f"training.policy_loss {training.policy_loss!r} cannot be used: {reason}")
    if training.policy_loss == "sapo" and training.loss_agg_mode != "seq-mean-token-mean":
        raise ConfigError(
            "training.policy_loss 'sapo' always uses seq-mean-token-mean: set training.loss_agg_mode to it"
        )
    reference = reference or ReferenceConfig()
    return FSDPActorConfig(
        rollout_n=1,  # required, but only used by verl's own trainer
        clip_ratio=training.clip_ratio_low,
        clip_ratio_low=training.clip_ratio_low,
        clip_ratio_high=training.clip_ratio_high,
        entropy_coeff=training.entropy_coeff,
        use_kl_loss=reference.kl == "loss",
        kl_loss_coef=reference.coef,
        kl_loss_type=reference.penalty,
        policy_loss=PolicyLossConfig(loss_mode=training.policy_loss),
        **_aggregation(training),
    )


def critic_config(config: Config) -> CriticConfig:
    """The configuration of verl's ``value_loss``, with the policy loss's aggregation as in verl's defaults."""
    return CriticConfig(cliprange_value=0.5, **_aggregation(config.training))


def packs_sequences(model: ModelConfig) -> bool:
    """Whether micro-batches are packed instead of padded: only flash attention separates packed rows."""
    return model.attn_implementation == "flash_attention_2"


def _aggregation(training: TrainingConfig) -> dict[str, Any]:
    return {
        "strategy": "fsdp2",
        "ppo_micro_batch_size_per_gpu": training.micro_batch_size,
        "loss_agg_mode": training.loss_agg_mode,
        # Only used by seq-mean-token-sum-norm. verl's default, the longest response of each micro-batch, would make the
        # loss depend on the arrangement.
        "loss_scale_factor": training.max_sequence_tokens
        if training.loss_agg_mode == "seq-mean-token-sum-norm"
        else None,
    }


def _adapters(model: ModelConfig) -> dict[str, Any]:
    lora = {"lora_rank": model.lora_rank, "lora_alpha": model.lora_alpha, "target_modules": "all-linear"}
    return lora if model.lora_rank else {}


def _model_config(config: Config, path: Path | None, **adapters: Any) -> HFModelConfig:
    checkpointing = config.training.gradient_checkpointing
    return HFModelConfig(
        path=str((path or config.model.path).absolute()),
        use_remove_padding=packs_sequences(config.model),
        # Saves memory at the cost of time, which small CPU runs do not need.
        enable_gradient_checkpointing=config.training.device != "cpu" if checkpointing is None else checkpointing,
        override_config={"attn_implementation": config.model.attn_implementation},
        **adapters,
    )


def _engine_config(config: Config, *, forward_only: bool = False, trains_weights: bool = True) -> FSDPEngineConfig:
    training = config.training
    return FSDPEngineConfig(
        strategy="fsdp2",
        forward_only=forward_only,
        use_torch_compile=False,
        # Else each rank keeps float32 gradients of the whole model until a mini-batch's last forward pass.
        use_no_sync_for_gradient_accumulation=False,
        ulysses_sequence_parallel_size=training.sequence_parallel,
        param_offload=training.param_offload,
        optimizer_offload=training.optimizer_offload,
        seed=config.run.seed,
        # Trained weights, gradients and optimizer are float32; a base under adapters and a reference have the precision
        # of the computation.
        model_dtype="float32" if trains_weights else config.model.dtype,
        # Of the forward pass; verl ignores the field ``dtype`` of this configuration.
        mixed_precision={"param_dtype": config.model.dtype, "reduce_dtype": "float32", "buffer_dtype": "float32"},
    )


def _policy_optimizer(training: TrainingConfig, steps: int) -> FSDPOptimizerConfig:
    config = _optimizer_config(training, training.learning_rate, steps)
    if training.optimizer == "adamw":
        return config
    return replace(
        config,
        optimizer=MuonAndAdamW.__name__,
        optimizer_impl=MuonAndAdamW.__module__,
        override_optimizer_config={"matrix_rate": training.matrix_rate},
    )


def _optimizer_config(training: TrainingConfig, learning_rate: float, steps: int) -> FSDPOptimizerConfig:
    return FSDPOptimizerConfig(
        lr=learning_rate,
        weight_decay=training.weight_decay,
        betas=training.adam_betas,
        clip_grad=training.grad_clip,
        lr_scheduler_type=training.lr_schedule,
        lr_warmup_steps=training.lr_warmup_steps,
        total_training_steps=steps,
    )
