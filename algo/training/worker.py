"""One training rank: policy, reference and critic in one process, each a TrainingWorker of verl."""

import gc
import os
import shutil
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import torch
from huggingface_hub import save_torch_state_dict
from peft.tuners.lora import LoraLayer
from safetensors.torch import save_file
from tensordict import TensorDict
from torch.distributed.tensor import DTensor
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer
from verl.single_controller.base import Worker
from verl.single_controller.base.decorator import Dispatch, make_nd_compute_dataproto_dispatch_fn, register
from verl.utils import tensordict_utils
from verl.utils.device import get_device_id, get_device_name, get_torch_device
from verl.utils.transformers_compat import drop_tied_target_keys
from verl.workers.config import TrainingWorkerConfig
from verl.workers.engine_workers import TrainingWorker
from verl.workers.utils.losses import sft_loss, value_loss

from algo.run.export import make_portable
from algo.training import cpu_platform
from algo.training.policy_states import PolicyStates, load_checkpoint
from algo.training.targets_loss import policy_and_targets_loss
from algo.training.verl_configs import PartConfigs

if TYPE_CHECKING:
    from algo.training.weight_sender import WeightSender

PART, LOSS, ENDS_UPDATE = "part", "loss", "ends_update"
"""Keys of a batch: its part; its loss ("reward", "imitation", "values"); and whether it is the last mini-batch of its
update, after which the learning rate's schedule advances."""

_MESH = "ranks"
_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}
_by_rank = register(dispatch_mode=make_nd_compute_dataproto_dispatch_fn(mesh_name=_MESH), blocking=False)
_on_all = register(dispatch_mode=Dispatch.ONE_TO_ALL)


class _Part(TrainingWorker):
    """A TrainingWorker with a learning rate schedule by updates, not by mini-batches."""

    @classmethod
    def load(cls, config: TrainingWorkerConfig) -> "_Part":
        torch.manual_seed(config.engine_config.seed)  # new adapters and a new value head are random
        part = cls(config)
        part.reset()
        return part

    def train_batch(self, data: TensorDict) -> TensorDict | None:
        learning_rate = self.engine.optimizer.param_groups[0]["lr"]
        tensordict_utils.assign_non_tensor(data, update_lr_scheduler=tensordict_utils.get(data, ENDS_UPDATE))
        output = super().train_batch(data)
        if output is not None:
            # verl reports the next step's rate.
            tensordict_utils.get(output, "metrics")["lr"] = learning_rate
        return output


def _release_memory() -> None:
    """Return freed memory to the system, on a GPU to a vLLM that wakes there.

    verl empties its cache when it offloads weights, but not after it has offloaded the optimizer's state.
    """
    if get_device_name() != "cpu":
        gc.collect()
    get_torch_device().empty_cache()


class TrainingRank(Worker):
    """All models of one rank. Methods with a batch get the rank's share of its rows.

    policies: names of the learning ones; the first is active.
    """

    def __init__(self, configs: PartConfigs, policies: Sequence[str]) -> None:
        if os.environ.get("VERL_PLATFORM") == "cpu":
            cpu_platform.prepare_worker()
        super().__init__()
        # Imported late: importing verl's engines selects the platform.
        from algo.training.engines import register_engines

        register_engines()
        loaded = {"policy": configs.policy, "reference": configs.reference, "critic": configs.critic}
        self._parts = {name: _Part.load(part) for name, part in loaded.items() if part is not None}
        self._losses = {
            "reward": partial(policy_and_targets_loss, config=configs.actor_loss),
            "imitation": partial(sft_loss, config=configs.actor_loss),
            "values": partial(value_loss, config=configs.critic_loss),
        }
        self._trained = {name: part for name, part in self._parts.items() if name != "reference"}
        self._states = {
            name: PolicyStates(part.engine, [configs.rates[name][policy] for policy in policies], policies)
            for name, part in self._trained.items()
        }
        self._sender: WeightSender | None = None
        self._register_dispatch_collect_info(
            mesh_name=_MESH,
            dp_rank=self._policy.get_data_parallel_rank(),
            is_collect=self._policy.is_mp_src_rank_with_outputs(),
        )

    @property
    def _policy(self) -> Any:
        return self._parts["policy"].engine

    @_on_all
    def wait_until_loaded(self) -> None:
        """Returns after the constructor."""

    @_by_rank
    def infer(self, data: TensorDict) -> TensorDict | None:
        """Log-probs (and entropies) of the policy or the reference, or the critic's values."""
        part = tensordict_utils.pop(data, PART)
        if part == "reference" and part not in self._parts:
            # The policy with its adapters disabled.
            tensordict_utils.assign_non_tensor(data, no_lora_adapter=True)
            part = "policy"
        output = self._parts[part].infer_batch(data)
        _release_memory()
        return output

    @_by_rank
    def train(self, data: TensorDict) -> TensorDict | None:
        part = self._parts[tensordict_utils.pop(data, PART)]
        part.set_loss_fn(self._losses[tensordict_utils.pop(data, LOSS)])
        output = part.train_mini_batch(data)
        if get_device_name() == "cpu":  # a GPU keeps it for the next mini-batch
            _release_memory()
        return output

    @_on_all
    def move(self, part: str, device: Literal["device", "cpu"]) -> None:
        """Move the offloaded state of a part to the device or to CPU memory."""
        worker = self._parts[part]
        weights, optimizer = worker.engine.is_param_offload_enabled, worker.engine.is_optimizer_offload_enabled
        if weights or optimizer:
            worker.to(device, model=weights, optimizer=optimizer, grad=weights)
        if device == "cpu":
            _release_memory()

    @_on_all
    def select(self, policy: str) -> None:
        for states in self._states.values():
            states.select(policy)

    @_on_all
    def save(self, directory: str, step: int) -> None:
        """Write this rank's shards of the active policy and its critic."""
        for name, part in self._trained.items():
            part.save_checkpoint(str(Path(directory) / name), global_step=step)

    @_on_all
    def load(self, directory: str, rates: dict[str, float]) -> None:
        """Load a checkpoint from the same number of ranks. rates: by part, instead of those in the checkpoint."""
        for name, part in self._trained.items():
            load_checkpoint(part, str(Path(directory) / name), rates[name])
        _release_memory()

    @_on_all
    def export_policy(self, directory: str, source: str, dtype: str) -> None:
        """Gather the weights tensor by tensor; rank 0 writes them to an empty directory.

        source: model folder with config, generation config and tokenizer to copy. dtype: of the weights.
        """
        state: dict[str, torch.Tensor] = {}
        for name, tensor in self.whole_weights():
            # Gathering is a collective; only rank 0 keeps the result.
            if self.rank == 0:
                kept = tensor.detach().to(_DTYPES[dtype]) if tensor.is_floating_point() else tensor.detach()
                # A copy: on CPU with one rank the tensor is the parameter itself.
                state[name] = kept.to("cpu", copy=True)
        _release_memory()
        if self.rank != 0:
            return
        config = AutoConfig.from_pretrained(source)
        config.dtype = _DTYPES[dtype]
        with torch.device("meta"):
            skeleton = AutoModelForCausalLM.from_config(config)
        # Tied weights were gathered under both names; a file with both does not load as tied.
        drop_tied_target_keys(state, skeleton, config)
        save_torch_state_dict(state, directory)
        config.save_pretrained(directory)
        generation = Path(source) / "generation_config.json"
        if generation.is_file():  # as it is: transformers rejects some that others wrote
            shutil.copy(generation, directory)
        AutoTokenizer.from_pretrained(source).save_pretrained(directory)
        make_portable(Path(directory))

    @_on_all
    def export_adapters(self, directory: str) -> None:
        """Gather the adapters tensor by tensor; rank 0 writes them to an empty directory, as PEFT names them."""
        module = self._policy.module
        state: dict[str, torch.Tensor] = {}
        for name, parameter in module.state_dict().items():
            if ".lora_A." in name or ".lora_B." in name:
                weight = _whole(parameter)  # a collective
                if self.rank == 0:
                    state[name.replace(".default.", ".")] = weight.detach().float().to("cpu", copy=True)
        _release_memory()
        if self.rank == 0:
            save_file(state, Path(directory) / "adapter_model.safetensors")
            module.peft_config["default"].save_pretrained(directory)

    @_on_all
    def send_weights(self, backend: str, dtype: str, servers: list[tuple[str, int]]) -> None:
        """See ``algo.training.weight_sender``."""
        if self._sender is None:
            # Imported late: it imports vLLM.
            from algo.training.weight_sender import PolicySource, WeightSender

            device = torch.device(get_device_name(), get_device_id())
            self._sender = WeightSender(backend, self.rank, PolicySource(self.whole_weights, _DTYPES[dtype], device))
        self._sender.send(servers)
        _release_memory()

    def whole_weights(self) -> Iterator[tuple[str, torch.Tensor]]:
        """The policy's weights by Hugging Face name, one gathered tensor at a time, with merged adapters.

        A collective of all ranks. A tensor may be the parameter itself.
        """
        module = self._policy.module
        layers = ((name, layer) for name, layer in module.named_modules() if isinstance(layer, LoraLayer))
        scales = {f"{name}.": layer.scaling["default"] for name, layer in layers}
        if not scales:
            yield from self._policy.get_per_tensor_param()[0]
            return
        # verl's merge rounds to bfloat16 and temporarily changes the live weights.
        state = module.state_dict()
        for name, parameter in state.items():
            if ".lora_A." in name or ".lora_B." in name:
                continue
            weight = _whole(parameter)
            layer, is_adapted, _ = name.partition("base_layer.weight")
            if is_adapted:
                # LoRA (Hu et al., 2021, arXiv:2106.09685): W + alpha / rank * B A.
                down, up = (_whole(state[f"{layer}lora_{each}.default.weight"]) for each in "AB")
                weight = weight + scales[layer] * (up @ down)
            yield name.removeprefix("base_model.model.").replace(".base_layer.", "."), weight


def _whole(parameter: torch.Tensor) -> torch.Tensor:
    # NCCL cannot gather offloaded weights in CPU memory.
    return parameter.to(get_device_id()).full_tensor() if isinstance(parameter, DTensor) else parameter
