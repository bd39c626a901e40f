"""The trainer: verl's TrainingWorkers on Ray, one process per rank, sharded by FSDP2, on CPU or GPUs.

The ranks get one mini-batch (one optimizer step) at a time, arranged by ``algo.sequences.batch``. Several machines need
``run.dir`` on a shared file system: every rank writes its shard of a checkpoint there.
"""

import json
import logging
import math
import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ray
import torch
from ray.exceptions import RayError
from tensordict import TensorDict
from verl.single_controller.ray import RayClassWithInitArgs, RayResourcePool, RayWorkerGroup
from verl.utils import tensordict_utils
from verl.workers.config import FSDPOptimizerConfig

from algo.machine.disk import atomic_folder
from algo.sequences.batch import MiniBatch, mini_batches
from algo.training import cpu_platform, ray_cluster
from algo.training.targets_loss import TARGET_ROWS, TARGET_WEIGHT
from algo.training.verl_configs import check_engine, packs_sequences, part_configs
from algo.training.worker import ENDS_UPDATE, LOSS, PART, TrainingRank
from configs.schema import Config
from configs.section import ConfigError

logger = logging.getLogger(__name__)

_STATE_FILE = "engine.json"


class Engine:
    """The learning policies on the ranks, with reference and critics if configured.

    All methods but ``save`` and ``load`` use the active policy, initially the first of ``config.learners``.
    When a rank dies, a call raises RayError and closes the engine: the other ranks would wait for
    the dead one.
    """

    def __init__(self, config: Config, optimizer: FSDPOptimizerConfig | None = None) -> None:
        """Load ``config.model.path`` onto ``config.training.ranks`` ranks of the cluster of ``ray_cluster.connect``.

        optimizer: of the policy, instead of the configured one.
        Raises ConfigError before Ray starts for a folder without a model and for names unknown to verl, and before the
        ranks start for a cluster without room for them.
        """
        check_engine(config)
        self._config = config
        self._policies = [*config.learners]
        self._active = self._policies[0]
        self._updates = {policy: {"policy": 0, "critic": 0} for policy in self._policies}
        self._closing = threading.Lock()
        if config.training.device == "cpu":
            cpu_platform.select()
        parts = part_configs(config, optimizer)
        self._rates, self._has_critic = parts.rates, parts.critic is not None
        self._pool: RayResourcePool | None = None
        self._workers: RayWorkerGroup | None = None
        self._ray_directory = ray_cluster.connect(config)
        try:
            self._pool = ray_cluster.resource_pool(config.training)
            rank = RayClassWithInitArgs(ray.remote(TrainingRank), configs=parts, policies=self._policies)
            address, port = ray_cluster.meeting_point(self._pool, config.training.device)
            self._workers = RayWorkerGroup(
                resource_pool=self._pool,
                ray_cls_with_init=rank,
                device_name=config.training.device,
                worker_env=ray_cluster.worker_environment(config.training),
                master_addr=address,
                master_port=port,
            )
            self._workers.wait_until_loaded()
        except BaseException:
            self.close()
            raise

    @property
    def updates(self) -> int:
        """Passes over batches of the first policy so far: identifies its weights."""
        return self._updates[self._policies[0]]["policy"]

    def select(self, policy: str | None) -> None:
        """Make this policy the active one, None the first."""
        policy = policy or self._policies[0]
        if policy != self._active:
            self._call("select", policy)
            self._active = policy

    def log_probs(self, batch: TensorDict) -> list[torch.Tensor]:
        """Log-probs of every token under the current weights, at the batch's temperature.

        One float32 tensor per row of the batch, aligned with the trajectory's ``token_ids``: entry i is the natural
        logarithm of p(token i | tokens before it), for sampled and given tokens; entry 0 is 0.0.
        """
        return self._infer("policy", batch, "log_probs")

    def reference_log_probs(self, batch: TensorDict) -> list[torch.Tensor]:
        """``log_probs`` under the reference policy."""
        return self._infer("reference", batch, "log_probs")

    def values(self, batch: TensorDict) -> list[torch.Tensor]:
        """The critic's values, aligned like ``log_probs``.

        Entry i is the value, in units of reward, of the state before token i.
        """
        return self._infer("critic", batch, "values")

    def update(self, batch: TensorDict, target_weight: float = 0.0) -> dict[str, float]:
        """Train the policy on a batch with advantages: ``training.epochs`` passes in mini-batches.

        target_weight: weight of the target rows' loss relative to the policy's (``algo.training.targets_loss``).
        Returns verl's metrics, averaged over the optimizer steps (``actor/pg_loss``, ``actor/grad_norm`` before
        clipping, ``actor/lr``, …), plus ``actor/optimizer_steps`` and ``actor/skipped_steps``: verl skips a step with a
        gradient that is not finite.
        """
        settings = {"calculate_entropy": self._config.training.entropy_coeff > 0, TARGET_WEIGHT: target_weight}
        return self._train("policy", "reward", batch, "actor", **settings)

    def imitate(self, batch: TensorDict, after_step: Callable[[], None] = lambda: None) -> dict[str, float]:
        """Train the policy to imitate the batch's replies: ``training.epochs`` passes in mini-batches.

        The loss is the cross entropy of the sampled tokens, in nats, a mean over all tokens of a mini-batch with the
        batch's weights (verl's ``sft_loss``). Unlike in ``update`` the learning rate's schedule advances at every
        optimizer step, and sequences of similar length share a mini-batch.
        after_step: called after each optimizer step. Returns metrics as ``update``, named ``imitation/…``.
        """
        return self._train("policy", "imitation", batch, "imitation", many=True, after_step=after_step)

    def update_critic(self, batch: TensorDict) -> dict[str, float]:
        """``update`` of the critic, on a batch with values and returns. Returns metrics named ``critic/…``."""
        return self._train("critic", "values", batch, "critic")

    def save(self, directory: Path, step: int) -> None:
        """Write weights (with LoRA the adapters alone), optimizers, schedules and random state of all policies."""
        with atomic_folder(directory) as partial_directory:
            for policy in self._policies:
                self.select(policy)
                self._call("save", str(self._config.folder_of(policy, partial_directory)), step)
            state = {"step": step, "updates": self._updates} | self._layout()
            (partial_directory / _STATE_FILE).write_text(json.dumps(state), encoding="utf-8")

    def load(self, directory: Path) -> int:
        """Load a checkpoint of ``save``, at this engine's learning rates; returns its step.

        Raises ConfigError without a checkpoint, or for one with other ranks, adapters, policies or critics.
        """
        try:
            state = json.loads((directory / _STATE_FILE).read_text(encoding="utf-8"))
        except FileNotFoundError as error:
            raise ConfigError(f"{directory} has no checkpoint of the engine: {_STATE_FILE} is missing") from error
        for name, present in self._layout().items():
            if state[name] != present:
                raise ConfigError(
                    f"checkpoint {directory} was written with {_LAYOUT[name]}={state[name]}, but this run has "
                    f"{present}: restore the setting, or start a new run from an exported model"
                )
        for policy in self._policies:
            self.select(policy)
            rates = {part: rates[policy] for part, rates in self._rates.items()}
            self._call("load", str(self._config.folder_of(policy, directory.absolute())), rates)
        self._updates = state["updates"]
        return state["step"]

    def export(self, directory: Path, dtype: str | None = None) -> None:
        """Write the policy as a Hugging Face folder with safetensors, config and tokenizer; adapters are merged.

        dtype: of its weights ("float32" or "bfloat16"); by default ``model.dtype``.
        """
        model = self._config.model
        with atomic_folder(directory) as into:
            self._call("export_policy", str(into), source=str(model.path.absolute()), dtype=dtype or model.dtype)

    def export_adapters(self, directory: Path) -> None:
        """Write the LoRA adapters, in float32, as a folder for vLLM and PEFT."""
        with atomic_folder(directory) as into:
            self._call("export_adapters", str(into))

    def send_weights(self, servers: list[tuple[str, int]]) -> None:
        """Send the policy, in ``model.dtype``, to vLLM servers from GPU to GPU (``serving.weight_transfer``).

        servers: (base URL, number of starts) of each; all must be paused. Experimental.
        """
        self._call("send_weights", self._config.serving.weight_transfer, self._config.model.dtype, servers)

    def close(self) -> None:
        """Stop the workers, and Ray if this engine started it. A call on another thread raises an error."""
        # That call also closes the engine when its ranks die; after Ray's shutdown it would hang.
        with self._closing:
            self._workers = None
            if self._pool is not None:
                # Removing a placement group kills its workers.
                for group in self._pool.pgs or []:
                    ray.util.remove_placement_group(group)
                self._pool.pgs = None
            if self._ray_directory is not None:
                ray.shutdown()
                shutil.rmtree(self._ray_directory, ignore_errors=True)
                self._ray_directory = None

    def _call(self, method: str, *arguments: Any, **named: Any) -> Any:
        """Call a method of ``TrainingRank`` on all ranks and wait for its result."""
        if self._workers is None:  # Ray would silently restart
            raise RuntimeError("the engine is closed: close was called, or a rank died")
        try:
            result = getattr(self._workers, method)(*arguments, **named)
            return result.get() if hasattr(result, "get") else result
        except RayError:
            self.close()
            raise

    def _layout(self) -> dict[str, Any]:
        """Properties that a checkpoint and this engine must share."""
        return {
            "ranks": self._config.training.ranks,
            "lora_rank": self._config.model.lora_rank,
            "critic": self._has_critic,
            "policies": self._policies,
        }

    def _arrange(
        self, batch: TensorDict, mini_batch_size: int, seed: int | None, similar_lengths: bool = False
    ) -> list[MiniBatch]:
        training, packed = self._config.training, packs_sequences(self._config.model)
        tokens = training.max_tokens_per_micro_batch
        arranged = mini_batches(
            batch,
            mini_batch_size=mini_batch_size,
            micro_batch_size=training.micro_batch_size,
            ranks=training.ranks // training.sequence_parallel,
            seed=seed,
            # With sequence parallelism each rank has a part of a sequence's tokens.
            max_tokens=None if tokens is None else tokens * training.sequence_parallel,
            packed=packed,
            similar_lengths=similar_lengths,
        )
        for mini_batch in arranged:
            tensordict_utils.assign_non_tensor(
                mini_batch.data,
                use_dynamic_bsz=False,
                micro_batch_size_per_gpu=mini_batch.micro_batch_size,
                use_remove_padding=packed,
            )
        return arranged

    def _train(
        self,
        part: str,
        loss: str,
        batch: TensorDict,
        prefix: str,
        *,
        many: bool = False,
        after_step: Callable[[], None] = lambda: None,
        **settings: Any,
    ) -> dict[str, float]:
        """many: the schedule advances at each optimizer step, and rows of similar length share one."""
        training = self._config.training
        # Offloaded weights move once per update, not per optimizer step.
        self._call("move", part, "device")
        steps: list[dict[str, float]] = []
        for epoch in range(1, training.epochs + 1):
            # A new order for each pass, reproducible by the run's seed.
            seed = self._config.run.seed + 1_000_003 * self._updates[self._active][part]
            self._updates[self._active][part] += 1
            arranged = self._arrange(batch, training.mini_batch_size, seed, similar_lengths=many)
            for mini_batch in arranged:
                is_last = epoch == training.epochs and mini_batch is arranged[-1]
                keys = {PART: part, LOSS: loss, ENDS_UPDATE: is_last or many, TARGET_ROWS: mini_batch.target_rows}
                tensordict_utils.assign_non_tensor(
                    mini_batch.data,
                    **settings,
                    **keys,
                    global_batch_size=mini_batch.real_rows,
                    mini_batch_size=len(mini_batch.data),
                    epochs=1,
                    dataloader_kwargs={"shuffle": False},
                    disable_auto_offload=True,
                )
                output = self._call("train", mini_batch.data)
                steps.append(_flat_metrics(tensordict_utils.get(output, "metrics"), prefix))
                after_step()
        self._call("move", part, "cpu")
        metrics = {name: sum(step[name] for step in steps) / len(steps) for name in steps[0]}
        skipped = sum(not math.isfinite(step[f"{prefix}/grad_norm"]) for step in steps)
        if skipped:  # by verl
            logger.warning("%d of %d optimizer steps skipped: the gradient is not finite", skipped, len(steps))
        return metrics | {f"{prefix}/optimizer_steps": float(len(steps)), f"{prefix}/skipped_steps": float(skipped)}

    def _infer(self, part: str, batch: TensorDict, name: str) -> list[torch.Tensor]:
        (whole,) = self._arrange(batch, mini_batch_size=len(batch), seed=None)
        tensordict_utils.assign_non_tensor(
            whole.data, **{PART: part, "calculate_entropy": False, "compute_loss": False}
        )
        output = self._call("infer", whole.data)
        by_row = dict(zip(whole.rows, output[name].unbind(), strict=True))
        # verl's entry i is about token i + 1; its last one is unused.
        return [torch.cat([torch.zeros(1), by_row[row].detach()[:-1].float()]) for row in range(len(batch))]


_LAYOUT = {
    "ranks": "training.ranks",
    "lora_rank": "model.lora_rank",
    "critic": "a critic (advantage.estimator)",
    "policies": "the policies that learn (policies)",
}


def _flat_metrics(metrics: dict[str, Any], prefix: str) -> dict[str, float]:
    """verl's metrics of one optimizer step as floats; each is a list or a number."""
    flat: dict[str, float] = {}
    for name, value in metrics.items():
        values = [float(each) for each in value] if isinstance(value, list) else [float(value)]
        flat[name if "/" in name else f"{prefix}/{name}"] = sum(values) / len(values)
    return flat
