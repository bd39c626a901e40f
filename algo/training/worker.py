"""One training rank: the policy, its reference and its critic in one process, each a TrainingWorker of verl.

Composed as verl's own ActorRolloutRefWorker is. One process for each rank, so that the parts share its device and
its process group, and end together.
"""

import os
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import torch
from huggingface_hub import save_torch_state_dict
from peft.tuners.lora import Linear, LoraLayer
from safetensors.torch import save_file
from tensordict import TensorDict
from torch.distributed.tensor import DTensor
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, GenerationConfig
from verl.single_controller.base import Worker
from verl.single_controller.base.decorator import Dispatch, make_nd_compute_dataproto_dispatch_fn, register
from verl.utils import tensordict_utils
from verl.utils.device import get_device_id, get_device_name
from verl.utils.transformers_compat import drop_tied_target_keys
from verl.workers.config import CriticConfig, FSDPActorConfig, TrainingWorkerConfig
from verl.workers.engine_workers import TrainingWorker
from verl.workers.utils.losses import sft_loss, value_loss

from algo.run.export import make_portable
from algo.training import cpu_platform as platform_cpu
from algo.training.chunked_head import ChunkedHead
from algo.training.members import Members, set_learning_rate
from algo.training.targets_loss import policy_and_targets_loss
from algo.training.verl_configs import PartConfigs

if TYPE_CHECKING:
    from algo.training.weight_sender import WeightSender

ENDS_UPDATE = "ends_update"
"""Key of a mini-batch: whether it is the last of its update, after which the learning rate moves on."""

_MESH = "ranks"
_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


class _Part(TrainingWorker):
    """A TrainingWorker whose learning rate follows updates, as in verl's trainer, however many mini-batches each has.

    verl's trainer hands an update over in one call; ours hands over one mini-batch at a time, since theirs must be of
    equal size.
    """

    def train_batch(self, data: TensorDict) -> TensorDict | None:
        learning_rate = self.engine.optimizer.param_groups[0]["lr"]
        tensordict_utils.assign_non_tensor(data, update_lr_scheduler=tensordict_utils.get(data, ENDS_UPDATE))
        output = super().train_batch(data)
        if output is not None:
            # That of this step; verl would tell the next one's.
            tensordict_utils.get(output, "metrics")["lr"] = learning_rate
        return output


class TrainingRank(Worker):
    """Everything that one rank trains or asks. Methods that take a batch get the rank's share of its rows."""

    def __init__(self, parts: PartConfigs, actor: FSDPActorConfig, critic: CriticConfig) -> None:
        """Load every part onto this rank's device. actor, critic: settings of the losses."""
        if os.environ.get("VERL_PLATFORM") == "cpu":
            platform_cpu.prepare_worker()
        super().__init__()
        # Imported late: verl looks for the platform when its engines are imported.
        from algo.training.language_engine import register_language_engine

        register_language_engine()
        if parts.critic is not None:
            from algo.training.value_engine import register_value_engine

            register_value_engine()
        self._policy = _start(parts.policy)
        _check_adapters(self._policy.engine.module)
        towards_reward = partial(policy_and_targets_loss, config=actor)
        self._losses = {"reward": towards_reward, "imitation": partial(sft_loss, config=actor)}
        self._reference = None if parts.reference is None else _start(parts.reference)
        self._critic = None if parts.critic is None else _start(parts.critic)
        if self._critic is not None:
            self._critic.set_loss_fn(partial(value_loss, config=critic))
        self._members: dict[str, Members] = {}
        self._sender: WeightSender | None = None
        engine = self._policy.engine
        self._register_dispatch_collect_info(
            mesh_name=_MESH, dp_rank=engine.get_data_parallel_rank(), is_collect=engine.is_mp_src_rank_with_outputs()
        )

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def wait_until_loaded(self) -> None:
        """Return when this rank has loaded its parts, which it does when it is made."""

    @register(dispatch_mode=make_nd_compute_dataproto_dispatch_fn(mesh_name=_MESH), blocking=False)
    def policy_log_probs(self, data: TensorDict) -> TensorDict | None:
        """The policy's log-probs, and its entropies where the batch says so."""
        return self._policy.infer_batch(data)

    @register(dispatch_mode=make_nd_compute_dataproto_dispatch_fn(mesh_name=_MESH), blocking=False)
    def reference_log_probs(self, data: TensorDict) -> TensorDict | None:
        """The reference's log-probs; without a reference of its own, the policy's with its adapters switched off."""
        if self._reference is not None:
            return self._reference.infer_batch(data)
        tensordict_utils.assign_non_tensor(data, no_lora_adapter=True)
        return self._policy.infer_batch(data)

    @register(dispatch_mode=make_nd_compute_dataproto_dispatch_fn(mesh_name=_MESH), blocking=False)
    def critic_values(self, data: TensorDict) -> TensorDict | None:
        """The critic's value after each token."""
        return self._critic.infer_batch(data)

    @register(dispatch_mode=make_nd_compute_dataproto_dispatch_fn(mesh_name=_MESH), blocking=False)
    def train_policy(self, data: TensorDict) -> TensorDict | None:
        """One optimizer step of the policy towards reward."""
        self._policy.set_loss_fn(self._losses["reward"])
        return self._policy.train_mini_batch(data)

    @register(dispatch_mode=make_nd_compute_dataproto_dispatch_fn(mesh_name=_MESH), blocking=False)
    def imitate(self, data: TensorDict) -> TensorDict | None:
        """One optimizer step of the policy towards the tokens that the batch marks as replies."""
        self._policy.set_loss_fn(self._losses["imitation"])
        return self._policy.train_mini_batch(data)

    @register(dispatch_mode=make_nd_compute_dataproto_dispatch_fn(mesh_name=_MESH), blocking=False)
    def train_critic(self, data: TensorDict) -> TensorDict | None:
        """One optimizer step of the critic."""
        return self._critic.train_mini_batch(data)

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def move(self, part: str, device: Literal["device", "cpu"]) -> None:
        """Bring what is offloaded of "policy" or "critic" to the device, or take it back to CPU memory."""
        worker = dict(self._trained())[part]
        with_weights = worker.engine.is_param_offload_enabled
        with_optimizer = worker.engine.is_optimizer_offload_enabled
        if with_weights or with_optimizer:
            worker.to(device, model=with_weights, optimizer=with_optimizer, grad=with_weights)

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def enrol(self, rates: dict[str, dict[str, float]]) -> None:
        """Be several policies from now on, of which the first is at work. rates: of each part, by the policies' names.

        Before the first step.
        """
        self._members = {name: Members(part.engine, rates[name]) for name, part in self._trained()}

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def select(self, member: str) -> None:
        """Be this one of the policies that were enrolled."""
        for members in self._members.values():
            members.select(member)

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def save(self, directory: str, step: int) -> None:
        """Write this rank's shards of what is trained: weights, optimizer, schedule, random state."""
        for name, part in self._trained():
            part.save_checkpoint(str(Path(directory) / name), global_step=step)

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def load(self, directory: str, rates: dict[str, float]) -> None:
        """Read what ``save`` wrote on as many ranks. rates: the learning rate of each part, by name.

        A checkpoint has the rate that it was written with, and a resumed run may be told another one.
        """
        for name, part in self._trained():
            part.load_checkpoint(str(Path(directory) / name))
            set_learning_rate(part.engine, rates[name])

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def export_policy(self, directory: str, source: str, dtype: str) -> None:
        """Gather the weights tensor by tensor and let rank 0 write them to an empty directory.

        source: model folder whose config, generation config and tokenizer are copied.
        dtype: of the floating-point weights in the file.
        """
        state: dict[str, torch.Tensor] = {}
        for name, tensor in self.whole_weights():
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
        make_portable(Path(directory))

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def export_adapters(self, directory: str) -> None:
        """Gather the adapters tensor by tensor and let rank 0 write them to an empty directory, as PEFT names them."""
        module = self._policy.engine.module
        state: dict[str, torch.Tensor] = {}
        for name, parameter in module.state_dict().items():
            if ".lora_A." in name or ".lora_B." in name:
                weight = _whole(parameter)  # a collective
                if self.rank == 0:
                    state[name.replace(".default.", ".")] = weight.detach().float().to("cpu", copy=True)
        if self.rank == 0:
            save_file(state, Path(directory) / "adapter_model.safetensors")
            module.peft_config["default"].save_pretrained(directory)

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def send_weights(self, backend: str, dtype: str, servers: list[tuple[str, int]]) -> None:
        """Give the policy's weights to vLLM servers, from GPU to GPU; see ``algo.training.weight_sender``."""
        if self._sender is None:
            # Imported late: only these transfers need vLLM in the trainer's processes.
            from algo.training.weight_sender import PolicySource, WeightSender

            device = torch.device(get_device_name(), get_device_id())
            self._sender = WeightSender(backend, self.rank, PolicySource(self.whole_weights, _DTYPES[dtype], device))
        self._sender.send(servers)

    def whole_weights(self) -> Iterator[tuple[str, torch.Tensor]]:
        """The policy's weights by their Hugging Face names, one gathered tensor at a time, adapters merged in.

        Every rank must go through all of them, since gathering takes all ranks. A tensor may be the parameter itself.
        """
        module = self._policy.engine.module
        scales = {f"{name}.": layer.scaling["default"] for name, layer in _adapted_layers(module)}
        if not scales:
            yield from self._policy.engine.get_per_tensor_param()[0]
            return
        # verl's own merge rounds to bfloat16 and changes the live weights for as long as it lasts.
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

    def _trained(self) -> list[tuple[str, TrainingWorker]]:
        return [("policy", self._policy)] + ([] if self._critic is None else [("critic", self._critic)])


def _start(config: TrainingWorkerConfig) -> TrainingWorker:
    # New adapters and a new value head begin at random.
    torch.manual_seed(config.engine_config.seed)
    part = _Part(config)
    part.reset()
    return part


def _whole(parameter: torch.Tensor) -> torch.Tensor:
    # Offloaded weights lie in CPU memory, where NCCL gathers nothing.
    return parameter.to(get_device_id()).full_tensor() if isinstance(parameter, DTensor) else parameter


def _adapted_layers(module: Any) -> list[tuple[str, LoraLayer]]:
    return [(name, layer) for name, layer in module.named_modules() if isinstance(layer, LoraLayer)]


def _check_adapters(module: Any) -> None:
    """Raise ValueError for adapters that ``whole_weights`` could not merge into a file that vLLM serves."""
    for name, layer in _adapted_layers(module):
        if not isinstance(layer, Linear) or layer.fan_in_fan_out or isinstance(layer.base_layer, ChunkedHead):
            raise ValueError(
                f"model.lora_modules: {name} cannot have an adapter here, only linear layers before the head can: "
                f" use all-linear, or name modules such as q_proj and v_proj"
            )
