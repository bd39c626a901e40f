"""The model being trained: verl's TrainingWorkers on Ray, one per rank, sharded by FSDP2.

One code path for CPU and GPUs; ``training.device`` only decides what a rank runs on. What verl calls
a mini-batch (one optimizer step) is arranged here, see ``algo.batch``, and handed over one at a time.
"""

import json
import math
import os
import shutil
import tempfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import ray
import torch
from huggingface_hub import save_torch_state_dict
from tensordict import TensorDict
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, GenerationConfig
from verl.single_controller.base.decorator import Dispatch, register
from verl.single_controller.ray import RayClassWithInitArgs, RayResourcePool, RayWorkerGroup
from verl.trainer.config import CheckpointConfig
from verl.trainer.ppo.core_algos import POLICY_LOSS_REGISTRY
from verl.utils import tensordict_utils
from verl.utils.transformers_compat import drop_tied_target_keys
from verl.workers.config import (
    FSDPActorConfig,
    FSDPEngineConfig,
    FSDPOptimizerConfig,
    HFModelConfig,
    PolicyLossConfig,
    TrainingWorkerConfig,
)
from verl.workers.engine_workers import TrainingWorker
from verl.workers.utils.losses import ppo_loss

from algo import platform_cpu
from algo.batch import MiniBatch, mini_batches
from configs.schema import Config
from configs.section import ConfigError
from configs.training import ModelConfig, TrainingConfig

# verl keeps these in branches of agg_loss and lists them nowhere.
LOSS_AGG_MODES = ("seq-mean-token-mean", "seq-mean-token-sum", "seq-mean-token-sum-norm", "token-mean", "token-sum")
_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}
_STATE_FILE = "engine.json"


class PolicyWorker(TrainingWorker):
    """One rank: verl's TrainingWorker, which can also write its model as a Hugging Face folder."""

    def __init__(self, config: TrainingWorkerConfig) -> None:
        if os.environ.get("VERL_PLATFORM") == "cpu":
            platform_cpu.prepare_worker()
        super().__init__(config)

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def export_model(self, directory: str, source: str, dtype: str) -> None:
        """Gather the weights tensor by tensor and let rank 0 write them to an empty directory.

        source: model folder whose config, generation config and tokenizer are copied.
        dtype: of the floating-point weights in the file.
        """
        parameters, _ = self.engine.get_per_tensor_param()
        state: dict[str, torch.Tensor] = {}
        for name, tensor in parameters:
            # Every rank takes part in the gathering, only rank 0 keeps what comes out.
            if self.rank == 0:
                kept = tensor.detach().to(_DTYPES[dtype]) if tensor.is_floating_point() else tensor.detach()
                # A copy: on CPU with one rank the tensor is the parameter itself.
                state[name] = kept.to("cpu", copy=True)
        if self.rank != 0:
            return
        config = AutoConfig.from_pretrained(source)
        config.dtype = _DTYPES[dtype]
        with torch.device("meta"):
            skeleton = AutoModelForCausalLM.from_config(config)
        # Tied weights were gathered once per name; a file with both names does not load as tied.
        drop_tied_target_keys(state, skeleton, config)
        save_torch_state_dict(state, directory)
        config.save_pretrained(directory)
        if (Path(source) / "generation_config.json").is_file():
            GenerationConfig.from_pretrained(source).save_pretrained(directory)
        AutoTokenizer.from_pretrained(source).save_pretrained(directory)


class Engine:
    """The trained model on its ranks. Use as a context manager, or call ``close``."""

    def __init__(self, config: Config) -> None:
        """Load ``config.model.path`` onto ``config.training.ranks`` ranks.

        Uses the Ray cluster that RAY_ADDRESS names or this process is connected to, else starts a
        local one for as long as the engine lives. Raises ConfigError, before Ray starts, for a model
        folder that is none and for names that verl does not know.
        """
        check_model_folder(config.model.path)
        loss = partial(ppo_loss, config=actor_config(config.training))
        self._model, self._training = config.model, config.training
        self._seed = config.run.seed
        self._updates = 0
        if config.training.device == "cpu":
            platform_cpu.select()
        self._pool = RayResourcePool(
            process_on_nodes=[config.training.ranks], use_gpu=config.training.device != "cpu", max_colocate_count=1
        )
        self._ray_directory = _start_ray(config.training)
        try:
            self._workers = RayWorkerGroup(
                resource_pool=self._pool,
                ray_cls_with_init=RayClassWithInitArgs(
                    ray.remote(PolicyWorker), config=_worker_config(config.model, config.training)
                ),
                device_name=config.training.device,
                worker_env=_worker_environment(config.training),
            )
            self._workers.reset()
            self._workers.set_loss_fn(loss)
        except BaseException:
            self.close()
            raise

    def log_probs(self, batch: TensorDict) -> list[torch.Tensor]:
        """Log-probs of every token under the present weights, at the batch's temperature.

        One float32 tensor per row of the batch, aligned with the trajectory's ``token_ids``: entry i
        is log p(token i | tokens before it), natural logarithm, whether sampled or given; entry 0 is
        0.0, since nothing stands before the first token.
        """
        return self._infer(batch, calculate_entropy=False)["log_probs"]

    def log_probs_and_entropies(self, batch: TensorDict) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
        """``log_probs``, and the entropy in nats of the distribution that each token was drawn from.

        Both are aligned alike; a whole softmax per token costs memory on a large vocabulary.
        """
        found = self._infer(batch, calculate_entropy=True)
        return found["log_probs"], found["entropy"]

    def update(self, batch: TensorDict) -> dict[str, float]:
        """Train on a batch with advantages: ``training.epochs`` passes in mini-batches.

        Returns verl's metrics, averaged over the optimizer steps (``actor/pg_loss``, ``actor/ppo_kl``,
        ``actor/pg_clipfrac``, ``actor/grad_norm`` before clipping, ``actor/lr``; ``actor/entropy_loss``
        where there is an entropy coefficient), plus ``actor/optimizer_steps`` and
        ``actor/skipped_steps``: verl leaves out a step whose gradient is not finite.
        """
        if "advantages" not in batch:
            raise ValueError("the batch has no advantages: pass them to build_batch")
        steps: list[dict[str, float]] = []
        for _ in range(self._training.epochs):
            # A new order for each pass, the same in a run that is repeated.
            seed = self._seed + 1_000_003 * self._updates
            self._updates += 1
            for mini_batch in self._arrange(batch, self._training.mini_batch_size, seed):
                data = mini_batch.data
                tensordict_utils.assign_non_tensor(
                    data,
                    calculate_entropy=self._training.entropy_coeff > 0,
                    global_batch_size=mini_batch.real_rows,
                    mini_batch_size=len(data),
                    epochs=1,
                    dataloader_kwargs={"shuffle": False},
                )
                output = self._workers.train_mini_batch(data).get()
                steps.append(_flat_metrics(tensordict_utils.get(output, "metrics")))
        skipped = [step for step in steps if not math.isfinite(step["actor/grad_norm"])]
        metrics = {name: sum(step[name] for step in steps) / len(steps) for name in steps[0]}
        return metrics | {"actor/optimizer_steps": float(len(steps)), "actor/skipped_steps": float(len(skipped))}

    def save(self, directory: Path, step: int) -> None:
        """Write weights, optimizer, schedule and random state, to continue from with as many ranks.

        The directory appears under its name when it is complete; one of that name is replaced.
        """
        partial_directory = _partial(directory)
        self._workers.save_checkpoint(str(partial_directory.absolute()), global_step=step)
        state = {"step": step, "ranks": self._training.ranks, "updates": self._updates}
        (partial_directory / _STATE_FILE).write_text(json.dumps(state), encoding="utf-8")
        _complete(partial_directory, directory)

    def load(self, directory: Path) -> int:
        """Continue from what ``save`` wrote; returns its step.

        Raises ConfigError when there is nothing to load, or when another number of ranks wrote it.
        """
        try:
            state = json.loads((directory / _STATE_FILE).read_text(encoding="utf-8"))
        except FileNotFoundError as error:
            raise ConfigError(f"{directory} holds no checkpoint of the engine: {_STATE_FILE} is missing") from error
        if state["ranks"] != self._training.ranks:
            raise ConfigError(
                f"checkpoint {directory} was written by {state['ranks']} ranks: set training.ranks={state['ranks']}, "
                f"or start a new run from an exported model"
            )
        self._workers.load_checkpoint(str(directory.absolute()))
        self._updates = state["updates"]
        return state["step"]

    def export(self, directory: Path) -> None:
        """Write the present model as a Hugging Face folder, in ``model.dtype``: safetensors, config, tokenizer.

        The directory appears under its name when it is complete; one of that name is replaced.
        """
        partial_directory = _partial(directory)
        partial_directory.mkdir(parents=True)
        source = str(self._model.path.absolute())
        self._workers.export_model(str(partial_directory.absolute()), source=source, dtype=self._model.dtype)
        _complete(partial_directory, directory)

    def close(self) -> None:
        """Stop the workers, and Ray if this engine started it. Closing twice is harmless."""
        # Removing a placement group kills the workers in it.
        for group in self._pool.pgs or []:
            ray.util.remove_placement_group(group)
        self._pool.pgs = None
        if self._ray_directory is not None:
            ray.shutdown()
            shutil.rmtree(self._ray_directory, ignore_errors=True)
            self._ray_directory = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _arrange(self, batch: TensorDict, mini_batch_size: int, seed: int | None) -> list[MiniBatch]:
        arranged = mini_batches(
            batch,
            mini_batch_size=mini_batch_size,
            micro_batch_size=self._training.micro_batch_size,
            ranks=self._training.ranks,
            seed=seed,
        )
        for mini_batch in arranged:
            tensordict_utils.assign_non_tensor(
                mini_batch.data,
                use_dynamic_bsz=False,
                micro_batch_size_per_gpu=mini_batch.micro_batch_size,
                use_remove_padding=_packs_sequences(self._model),
            )
        return arranged

    def _infer(self, batch: TensorDict, calculate_entropy: bool) -> dict[str, list[torch.Tensor]]:
        (whole,) = self._arrange(batch, mini_batch_size=len(batch), seed=None)
        tensordict_utils.assign_non_tensor(whole.data, calculate_entropy=calculate_entropy, compute_loss=False)
        output = self._workers.infer_batch(whole.data).get()
        found: dict[str, list[torch.Tensor]] = {}
        for name in ("log_probs", "entropy") if calculate_entropy else ("log_probs",):
            by_row = dict(zip(whole.rows, output[name].unbind(), strict=True))
            # verl's entry i speaks of token i + 1, and its last one of nothing.
            found[name] = [torch.cat([torch.zeros(1), by_row[row].detach()[:-1].float()]) for row in range(len(batch))]
        return found


def check_model_folder(path: Path) -> None:
    """Raise ConfigError, naming the path and the remedy, if it is no Hugging Face model folder."""
    needed: dict[str, Sequence[str]] = {
        "config.json": ("config.json",),
        "weights (*.safetensors)": ("*.safetensors",),
        "tokenizer (tokenizer.json)": ("tokenizer.json", "tokenizer.model", "vocab.json"),
    }
    missing = [what for what, patterns in needed.items() if not any(any(path.glob(each)) for each in patterns)]
    if missing:
        problem = f"lacks {', '.join(missing)}" if path.is_dir() else "does not exist"
        raise ConfigError(
            f"model.path {path} {problem}: make a tiny model there with `python -m algo.tiny_model {path}` "
            f"(`make model` makes the default one), or set model.path to a Hugging Face model folder"
        )


# Losses that verl registers and that would not train what the configuration says.
_UNUSABLE_LOSSES = {
    "geo_mean": "verl averages it over each micro-batch, padding rows included, so the update would hang on their size",
    "dro": "it needs verl's policy_loss.dro_beta, which this configuration does not have",
}


def actor_config(training: TrainingConfig) -> FSDPActorConfig:
    """What verl's ``ppo_loss`` reads. Raises ConfigError for a name that verl does not know."""
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
            "training.policy_loss 'sapo' always aggregates by seq-mean-token-mean; set training.loss_agg_mode to that"
        )
    return FSDPActorConfig(
        strategy="fsdp2",
        # Read by verl's own trainer only, but its configuration refuses to be without.
        rollout_n=1,
        ppo_micro_batch_size_per_gpu=training.micro_batch_size,
        clip_ratio=training.clip_ratio_low,
        clip_ratio_low=training.clip_ratio_low,
        clip_ratio_high=training.clip_ratio_high,
        entropy_coeff=training.entropy_coeff,
        loss_agg_mode=training.loss_agg_mode,
        # Only seq-mean-token-sum-norm divides by it; left open, verl would divide by the length of
        # the longest response of each micro-batch, so that the loss hung on the arrangement.
        loss_scale_factor=training.max_sequence_tokens if training.loss_agg_mode == "seq-mean-token-sum-norm" else None,
        policy_loss=PolicyLossConfig(loss_mode=training.policy_loss),
    )


def _worker_config(model: ModelConfig, training: TrainingConfig) -> TrainingWorkerConfig:
    on_gpu = training.device != "cpu"
    return TrainingWorkerConfig(
        model_type="language_model",
        model_config=HFModelConfig(
            path=str(model.path.absolute()),
            use_remove_padding=_packs_sequences(model),
            # Recomputing activations buys memory with time; a CPU run is small enough without.
            enable_gradient_checkpointing=on_gpu,
            override_config={"attn_implementation": model.attn_implementation},
        ),
        engine_config=FSDPEngineConfig(
            strategy="fsdp2",
            use_dynamic_bsz=False,
            use_torch_compile=False,
            micro_batch_size_per_gpu=training.micro_batch_size,
            infer_micro_batch_size_per_gpu=training.micro_batch_size,
            # Weights, gradients and optimizer stay in float32; this is the forward pass. Without it
            # verl computes in bfloat16, whatever the field ``dtype`` of this configuration says.
            model_dtype="float32",
            mixed_precision={"param_dtype": model.dtype, "reduce_dtype": "float32", "buffer_dtype": "float32"},
        ),
        optimizer_config=FSDPOptimizerConfig(
            lr=training.learning_rate,
            clip_grad=training.grad_clip,
            # Constant from the first step on.
            lr_scheduler_type="constant",
            lr_warmup_steps=0,
            lr_warmup_steps_ratio=0.0,
        ),
        checkpoint_config=CheckpointConfig(),
    )


def _packs_sequences(model: ModelConfig) -> bool:
    """Whether a micro-batch is laid end to end instead of padded: only flash attention keeps such rows apart."""
    return model.attn_implementation.startswith("flash_attention")


def _start_ray(training: TrainingConfig) -> Path | None:
    """Connect to Ray; returns the folder of a Ray that was started here, None if there was one."""
    if ray.is_initialized():
        return None
    quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": "WARNING"}
    if os.environ.get("RAY_ADDRESS"):
        ray.init(**quiet)
        return None
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    # Ray's sockets lie below this folder, and a socket's path may not exceed 107 characters.
    directory = Path(tempfile.mkdtemp(prefix="ray-", dir="/tmp"))
    ray.init(
        address="local",
        # verl takes one CPU per rank; Ray's CPUs are tickets, and a small machine may have too few.
        num_cpus=max(os.cpu_count() or 1, training.ranks + 1),
        include_dashboard=False,
        _temp_dir=str(directory),
        **quiet,
    )
    return directory


def _worker_environment(training: TrainingConfig) -> dict[str, str]:
    environment = {"TOKENIZERS_PARALLELISM": "false"}
    if training.device == "cpu":
        # Ray would give each worker one thread; the ranks share the machine's cores instead.
        threads = max(1, (os.cpu_count() or 1) // training.ranks)
        # And wait for one another without spinning: on a busy machine, waiting threads that hold a core
        # from the one they wait for made small batches ten times slower.
        environment |= platform_cpu.WORKER_ENV | {"OMP_NUM_THREADS": str(threads), "OMP_WAIT_POLICY": "PASSIVE"}
    return environment


def _flat_metrics(metrics: dict[str, Any]) -> dict[str, float]:
    """verl's metrics of one optimizer step as floats; each is a list with one entry, or a number."""
    flat: dict[str, float] = {}
    for name, value in metrics.items():
        values = [float(each) for each in value] if isinstance(value, list) else [float(value)]
        flat[name if "/" in name else f"actor/{name}"] = sum(values) / len(values)
    return flat


def _partial(directory: Path) -> Path:
    partial_directory = directory.with_name(directory.name + ".partial")
    shutil.rmtree(partial_directory, ignore_errors=True)
    return partial_directory


def _complete(partial_directory: Path, directory: Path) -> None:
    if directory.exists():
        shutil.rmtree(directory)
    partial_directory.rename(directory)
