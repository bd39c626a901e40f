"""The models being trained or asked: verl's TrainingWorkers on Ray, one process per rank, sharded by FSDP2.

One code path for CPU and GPUs; ``training.device`` only decides what a rank runs on. What verl calls
a mini-batch (one optimizer step) is arranged here, see ``algo.sequences.batch``, and handed over one at a time.

On several machines, ``run.dir`` must lie on a file system that all of them share: every rank writes
its share of a checkpoint there, and rank 0 the exported model.
"""

import json
import math
import shutil
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

import ray
import torch
from ray.exceptions import RayError
from tensordict import TensorDict
from verl.single_controller.ray import RayClassWithInitArgs, RayResourcePool, RayWorkerGroup
from verl.utils import tensordict_utils
from verl.workers.config import FSDPOptimizerConfig

from algo.advantages.registry import needs_values
from algo.machine.ports import port_range
from algo.sequences.batch import MiniBatch, mini_batches
from algo.training import cpu_platform as platform_cpu
from algo.training import ray_cluster
from algo.training.out_of_memory import is_out_of_memory, remember, with_smaller_passes
from algo.training.targets_loss import TARGET_ROWS, TARGET_WEIGHT
from algo.training.verl_configs import (
    actor_config,
    check_engine,
    critic_config,
    packs_sequences,
    part_configs,
)
from algo.training.worker import ENDS_UPDATE, TrainingRank
from configs.schema import Config
from configs.section import ConfigError

_STATE_FILE = "engine.json"

_Result = TypeVar("_Result")


def as_member(engine: "Engine", member: str | None, call: Callable[..., _Result], *arguments: Any) -> _Result:
    """Make a call that uses the engine, as one policy of the team; as the only one for None."""
    if member is not None:
        engine.select(member)
    return call(*arguments)


class Engine:
    """The policy on its ranks, with its reference and its critic where the configuration has them.

    Where several policies learn (``config.team``), each with a critic of its own, its methods are of the one that
    ``select`` named last, at first the first; ``save`` and ``load`` are of all.

    Use as a context manager, or call ``close``. When a rank dies, the call that finds out raises
    RayError and closes the engine: the other ranks would wait for the dead one.
    """

    def __init__(self, config: Config, optimizer: FSDPOptimizerConfig | None = None) -> None:
        """Load ``config.model.path`` onto ``config.training.ranks`` ranks.

        Uses the Ray cluster that RAY_ADDRESS names or this process is connected to, else starts a
        local one for as long as the engine lives. Raises ConfigError for a model folder that is none
        and for names that verl does not know, before Ray starts, and for a cluster that cannot hold the
        ranks, before they do.

        optimizer: of the policy, in place of the AdamW that the configuration describes.
        """
        check_engine(config)
        self._config, self._model = config, config.model
        self._training = with_smaller_passes(config.run_dir, config.training)
        rate = config.training.learning_rate if optimizer is None else optimizer.lr
        # By policy; None is the one of a run in which one alone learns.
        self._rates = {name: learner.learning_rate or rate for name, learner in config.team.items()} or {None: rate}
        self._team = [*config.team]
        self._updates_of = {member: {"policy": 0, "critic": 0} for member in self._rates}
        self._member = next(iter(self._updates_of))
        self._closing = threading.Lock()
        self._has_critic = needs_values(config.advantage.estimator)
        if config.training.device == "cpu":
            platform_cpu.select()
        parts = part_configs(config, optimizer)
        losses = {"actor": actor_config(config.training, config.reference), "critic": critic_config(config)}
        self._pool: RayResourcePool | None = None
        self._workers: RayWorkerGroup | None = None
        self._ray_directory = ray_cluster.connect(config)
        try:
            self._pool = ray_cluster.resource_pool(config.training)
            self._workers = RayWorkerGroup(
                resource_pool=self._pool,
                ray_cls_with_init=RayClassWithInitArgs(ray.remote(TrainingRank), parts=parts, **losses),
                device_name=config.training.device,
                worker_env=ray_cluster.worker_environment(config.training),
                # By default a port that any connection may take until the workers have started, seconds later.
                master_port_range=list(port_range()),
            )
            self._workers.wait_until_loaded()
            if self._team:
                rates = {"policy": self._rates, "critic": dict.fromkeys(self._team, config.critic.learning_rate)}
                self._workers.enrol(rates)
        except BaseException:
            self.close()
            raise

    def select(self, member: str) -> None:
        """Be this policy of the team until another one is named. Raises KeyError for one that is not of it."""
        if member not in self._team:
            raise KeyError(f"{member!r} is none of the policies that learn: {', '.join(self._team)}")
        if member != self._member:
            self._call(lambda: self._ranks.select(member))
            self._member = member

    def log_probs(self, batch: TensorDict) -> list[torch.Tensor]:
        """Log-probs of every token under the present weights, at the batch's temperature.

        One float32 tensor per row of the batch, aligned with the trajectory's ``token_ids``: entry i
        is log p(token i | tokens before it), natural logarithm, whether sampled or given; entry 0 is
        0.0, since nothing stands before the first token.
        """
        return self._ask(self._ranks.policy_log_probs, batch, "log_probs")["log_probs"]

    def log_probs_and_entropies(self, batch: TensorDict) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
        """``log_probs``, and the entropy in nats of the distribution that each token was drawn from.

        Both are aligned alike; a whole softmax per token costs memory on a large vocabulary.
        """
        found = self._ask(self._ranks.policy_log_probs, batch, "log_probs", "entropy")
        return found["log_probs"], found["entropy"]

    def reference_log_probs(self, batch: TensorDict) -> list[torch.Tensor]:
        """``log_probs`` under the reference policy. Raises ValueError where the configuration has none."""
        if self._config.reference.kl == "none":
            raise ValueError("there is no reference policy: reference.kl is none")
        return self._ask(self._ranks.reference_log_probs, batch, "log_probs")["log_probs"]

    def values(self, batch: TensorDict) -> list[torch.Tensor]:
        """The critic's values, aligned as ``log_probs`` are. Raises ValueError where the estimator needs no critic.

        Entry i is the value, in units of reward, of the state in which token i was chosen: it depends on the
        tokens before i only. Entry 0 is 0.0.
        """
        self._check_critic()
        return self._ask(self._ranks.critic_values, batch, "values")["values"]

    def update(self, batch: TensorDict, target_weight: float = 0.0) -> dict[str, float]:
        """Train the policy on a batch with advantages: ``training.epochs`` passes in mini-batches.

        target_weight: of the batch's target rows beside the policy's loss (``algo.training.targets_loss``).

        Returns verl's metrics, averaged over the optimizer steps (``actor/pg_loss``, ``actor/ppo_kl``,
        ``actor/pg_clipfrac``, ``actor/grad_norm`` before clipping, ``actor/lr``; ``actor/entropy_loss``
        where there is an entropy coefficient, ``actor/kl_loss`` with a KL in the loss, ``actor/target_loss``), plus
        ``actor/optimizer_steps`` and ``actor/skipped_steps``: verl leaves out a step whose gradient is not finite.

        Raises ValueError for a batch that lacks what the loss reads.
        """
        _check_columns(batch, "advantages")
        if self._config.reference.kl == "loss":
            _check_columns(batch, "reference_log_probs")
        settings = {"calculate_entropy": self._training.entropy_coeff > 0, TARGET_WEIGHT: target_weight}
        return self._train("policy", self._ranks.train_policy, batch, "actor", **settings)

    def imitate(self, batch: TensorDict, after_step: Callable[[], None] = lambda: None) -> dict[str, float]:
        """Train the policy to give the batch's replies: ``training.epochs`` passes in mini-batches.

        The loss is the cross entropy of the sampled tokens, in nats, a mean over all tokens of a mini-batch, weighed as
        the batch says (verl's ``sft_loss``). Unlike in ``update`` the learning rate's schedule moves on at every
        optimizer step, and sequences of similar length share a mini-batch: there are many, and no step is one whole.

        after_step: called after each optimizer step.

        Returns verl's metrics, averaged over the optimizer steps (``imitation/loss``, ``imitation/grad_norm`` before
        clipping, ``imitation/lr``), plus ``imitation/optimizer_steps`` and ``imitation/skipped_steps``.
        """
        return self._train(
            "policy",
            self._ranks.imitate,
            batch,
            "imitation",
            similar_lengths=True,
            schedule_by_step=True,
            after_step=after_step,
        )

    def update_critic(self, batch: TensorDict) -> dict[str, float]:
        """Train the critic on a batch with values and returns: ``training.epochs`` passes in mini-batches.

        Returns verl's metrics, averaged over the optimizer steps (``critic/vf_loss``, ``critic/vf_clipfrac``,
        ``critic/vpred_mean``, ``critic/grad_norm`` before clipping, ``critic/lr``), plus ``critic/optimizer_steps``
        and ``critic/skipped_steps``.
        """
        self._check_critic()
        _check_columns(batch, "values", "returns")
        return self._train("critic", self._ranks.train_critic, batch, "critic")

    def save(self, directory: Path, step: int) -> None:
        """Write weights (with LoRA the adapters alone), optimizers, schedules and random state, to continue from.

        The directory appears under its name when it is complete; one of that name is replaced.
        """
        partial_directory = _partial(directory)
        partial_directory.mkdir(parents=True)
        for folder in self._folders_of_members(partial_directory):
            self._call(lambda folder=folder: self._ranks.save(str(folder), step))
        updates = self._updates_of if self._team else self._updates_of[None]
        state = {"step": step, "updates": updates} | self._layout()
        (partial_directory / _STATE_FILE).write_text(json.dumps(state), encoding="utf-8")
        _complete(partial_directory, directory)

    def load(self, directory: Path) -> int:
        """Continue from what ``save`` wrote, at this engine's learning rates; returns its step.

        Raises ConfigError when there is nothing to load, or when a run of another layout wrote it: other ranks,
        other adapters, with or without a critic.
        """
        try:
            state = json.loads((directory / _STATE_FILE).read_text(encoding="utf-8"))
        except FileNotFoundError as error:
            raise ConfigError(f"{directory} holds no checkpoint of the engine: {_STATE_FILE} is missing") from error
        written = {"team": []} | state
        for name, present in ({"team": []} | self._layout()).items():
            if written[name] != present:
                raise ConfigError(
                    f"checkpoint {directory} was written with {_LAYOUT[name]}={written[name]}, and this run has "
                    f"{present}: set it to that, or start a new run from an exported model"
                )
        for folder in self._folders_of_members(directory):
            rates = {"policy": self._rates[self._member], "critic": self._config.critic.learning_rate}
            self._call(lambda folder=folder, rates=rates: self._ranks.load(str(folder), rates))
        self._updates_of = state["updates"] if self._team else {None: state["updates"]}
        return state["step"]

    def export(self, directory: Path, dtype: str | None = None) -> None:
        """Write the present policy as a Hugging Face folder: safetensors, config, tokenizer.

        dtype: of its weights ("float32" or "bfloat16"); None takes ``model.dtype``.
        LoRA adapters are merged into the weights. The directory appears under its name when it is complete; one of
        that name is replaced.
        """
        partial_directory = _partial(directory)
        partial_directory.mkdir(parents=True)
        source, dtype = str(self._model.path.absolute()), dtype or self._model.dtype
        self._call(lambda: self._ranks.export_policy(str(partial_directory.absolute()), source=source, dtype=dtype))
        _complete(partial_directory, directory)

    def export_adapters(self, directory: Path) -> None:
        """Write the present LoRA adapters, in float32, as a folder that vLLM and PEFT read.

        The directory appears under its name when it is complete; one of that name is replaced.
        """
        partial_directory = _partial(directory)
        partial_directory.mkdir(parents=True)
        self._call(lambda: self._ranks.export_adapters(str(partial_directory.absolute())))
        _complete(partial_directory, directory)

    def send_weights(self, servers: list[tuple[str, int]]) -> None:
        """Give the present policy, in ``model.dtype``, to vLLM servers from GPU to GPU (``serving.weight_transfer``).

        servers: base URL and number of starts of each; none may take requests meanwhile. Needs GPUs, and has not been
        run on any yet.
        """
        backend, dtype = self._config.serving.weight_transfer, self._model.dtype
        self._call(lambda: self._ranks.send_weights(backend, dtype, servers))

    def close(self) -> None:
        """Stop the workers, and Ray if this engine started it. Closing twice is harmless.

        A call under way on another thread ends with an error.
        """
        # That call closes the engine, too, when it sees its ranks die; without Ray it would wait for ever to do so.
        with self._closing:
            self._workers = None
            if self._pool is not None:
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

    @property
    def _ranks(self) -> RayWorkerGroup:
        if self._workers is None:
            # Ray would be started anew, without a word.
            raise RuntimeError("the engine is closed: close was called, or a rank died")
        return self._workers

    def _layout(self) -> dict[str, Any]:
        """What a checkpoint's files hang on."""
        layout = {"ranks": self._training.ranks, "lora_rank": self._model.lora_rank, "critic": self._has_critic}
        return layout | ({"team": self._team} if self._team else {})

    def _folders_of_members(self, directory: Path) -> Iterator[Path]:
        """Where in a checkpoint the policy's files are, of a team one after another, each as it is selected."""
        if not self._team:
            yield directory.absolute()
        for member in self._team:
            self.select(member)
            yield directory.absolute() / member

    def _check_critic(self) -> None:
        if not self._has_critic:
            raise ValueError(
                f"there is no critic: advantage.estimator {self._config.advantage.estimator} needs no values"
            )

    def _call(self, call: Callable[[], Any]) -> Any:
        try:
            return call()
        except RayError as error:
            if is_out_of_memory(error):
                remember(self._config.run_dir, self._config.training)
            self.close()
            raise

    def _arrange(
        self, batch: TensorDict, mini_batch_size: int, seed: int | None, similar_lengths: bool = False
    ) -> list[MiniBatch]:
        training, packed = self._training, packs_sequences(self._model)
        tokens = training.max_tokens_per_micro_batch
        arranged = mini_batches(
            batch,
            mini_batch_size=mini_batch_size,
            micro_batch_size=training.micro_batch_size,
            ranks=training.ranks // training.sequence_parallel,
            seed=seed,
            # Ranks that share a sequence hold a part of its tokens each.
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
        train: Callable[[TensorDict], Any],
        batch: TensorDict,
        prefix: str,
        *,
        similar_lengths: bool = False,
        schedule_by_step: bool = False,
        after_step: Callable[[], None] = lambda: None,
        **settings: Any,
    ) -> dict[str, float]:
        # Once for the whole update, not for each of its optimizer steps (where weights are kept in CPU memory at all).
        self._call(lambda: self._ranks.move(part, "device"))
        steps: list[dict[str, float]] = []
        for epoch in range(1, self._training.epochs + 1):
            # A new order for each pass, the same in a run that is repeated.
            seed = self._config.run.seed + 1_000_003 * self._updates_of[self._member][part]
            self._updates_of[self._member][part] += 1
            arranged = self._arrange(batch, self._training.mini_batch_size, seed, similar_lengths)
            for mini_batch in arranged:
                data = mini_batch.data
                is_last = epoch == self._training.epochs and mini_batch is arranged[-1]
                tensordict_utils.assign_non_tensor(
                    data,
                    **settings,
                    **{ENDS_UPDATE: is_last or schedule_by_step, TARGET_ROWS: mini_batch.target_rows},
                    global_batch_size=mini_batch.real_rows,
                    mini_batch_size=len(data),
                    epochs=1,
                    dataloader_kwargs={"shuffle": False},
                    disable_auto_offload=True,
                )
                output = self._call(lambda data=data: train(data).get())
                steps.append(_flat_metrics(tensordict_utils.get(output, "metrics"), prefix))
                after_step()
        self._call(lambda: self._ranks.move(part, "cpu"))
        skipped = [step for step in steps if not math.isfinite(step[f"{prefix}/grad_norm"])]
        metrics = {name: sum(step[name] for step in steps) / len(steps) for name in steps[0]}
        return metrics | {
            f"{prefix}/optimizer_steps": float(len(steps)),
            f"{prefix}/skipped_steps": float(len(skipped)),
        }

    def _ask(self, infer: Callable[[TensorDict], Any], batch: TensorDict, *names: str) -> dict[str, list[torch.Tensor]]:
        (whole,) = self._arrange(batch, mini_batch_size=len(batch), seed=None)
        tensordict_utils.assign_non_tensor(whole.data, calculate_entropy="entropy" in names, compute_loss=False)
        output = self._call(lambda: infer(whole.data).get())
        found: dict[str, list[torch.Tensor]] = {}
        for name in names:
            by_row = dict(zip(whole.rows, output[name].unbind(), strict=True))
            # verl's entry i speaks of token i + 1, and its last one of nothing.
            found[name] = [torch.cat([torch.zeros(1), by_row[row].detach()[:-1].float()]) for row in range(len(batch))]
        return found


_LAYOUT = {
    "ranks": "training.ranks",
    "lora_rank": "model.lora_rank",
    "critic": "a critic (advantage.estimator)",
    "team": "the policies that learn (policies)",
}

_COLUMNS = {"reference_log_probs": "ref_log_prob"}


def _check_columns(batch: TensorDict, *names: str) -> None:
    for name in names:
        if _COLUMNS.get(name, name) not in batch:
            raise ValueError(f"the batch has no {name}: pass them to build_batch")


def _flat_metrics(metrics: dict[str, Any], prefix: str) -> dict[str, float]:
    """verl's metrics of one optimizer step as floats; each is a list with one entry, or a number."""
    flat: dict[str, float] = {}
    for name, value in metrics.items():
        values = [float(each) for each in value] if isinstance(value, list) else [float(value)]
        flat[name if "/" in name else f"{prefix}/{name}"] = sum(values) / len(values)
    return flat


def _partial(directory: Path) -> Path:
    partial_directory = directory.with_name(directory.name + ".partial")
    shutil.rmtree(partial_directory, ignore_errors=True)
    return partial_directory


def _complete(partial_directory: Path, directory: Path) -> None:
    if directory.exists():
        shutil.rmtree(directory)
    partial_directory.rename(directory)
