"""The trainer's side of weight transfers between GPUs. Experimental: not run on GPUs, only its HTTP is tested.

vLLM's trainer engines (``vllm.distributed.weight_transfer``) do the work on every training rank: rank 0 speaks to the
servers and sends, the others take part in gathering the weights.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import accumulate
from typing import Any

import httpx
import ray
import torch
from vllm.distributed.weight_transfer.base import ParamMeta, TrainerInitInfo, TrainerWeightTransferEngine, WeightSource
from vllm.distributed.weight_transfer.factory import WeightTransferTrainerFactory
from vllm.distributed.weight_transfer.ipc_engine import IPCTrainerInitInfo
from vllm.distributed.weight_transfer.nccl_engine import NCCLTrainerInitInfo
from vllm.distributed.weight_transfer.packed_tensor import DEFAULT_PACKED_BUFFER_SIZE_BYTES

from algo.machine.ports import free_port
from algo.serving.control import control_headers
from algo.serving.gpu_memory import as_json

# A push waits for the slowest server to load the whole model.
_TIMEOUT_SECONDS = 600.0


class PolicySource(WeightSource):
    """The policy's gathered weights, as vLLM's trainer engines want them.

    weights: makes a new pass over names and whole tensors; a collective, the same on every rank.
    dtype: of the floating-point weights on their way. device: that they are sent from.
    """

    def __init__(
        self, weights: Callable[[], Iterator[tuple[str, torch.Tensor]]], dtype: torch.dtype, device: torch.device
    ) -> None:
        self._weights = weights
        self._dtype = dtype
        self._device = device
        self._metadata: list[ParamMeta] | None = None

    def metadata(self) -> list[ParamMeta]:
        """Names, types and shapes; the first call gathers every tensor once."""
        if self._metadata is None:
            self._metadata = [ParamMeta(name, tensor.dtype, tuple(tensor.shape)) for name, tensor in self]
        return self._metadata

    def __iter__(self) -> Iterator[tuple[str, torch.Tensor]]:
        for name, tensor in self._weights():
            dtype = self._dtype if tensor.is_floating_point() else tensor.dtype
            yield name, tensor.detach().to(self._device, dtype)


class WeightUpdateClient:
    """vLLM's ``VLLMWeightSyncClient`` for several servers at once.

    urls: base URLs. Raises RuntimeError, naming the URL, when a server does not answer or refuses.
    """

    def __init__(self, urls: Sequence[str]) -> None:
        self._urls = [url.rstrip("/") for url in urls]
        # A proxy from the environment must not come between the trainer and its own servers.
        headers = control_headers(started_here=False)
        self._http = httpx.Client(trust_env=False, timeout=_TIMEOUT_SECONDS, headers=headers)

    def world_sizes(self) -> list[int]:
        return [int(answer["world_size"]) for answer in self._ask("/get_world_size", None, method="GET")]

    def init_weight_transfer_engine(self, init_info: dict[str, Any]) -> None:
        """Prepare the workers; with NCCL each server's come after those of the server before it."""
        infos = [dict(init_info) for _ in self._urls]
        if "rank_offset" in init_info:
            offsets = accumulate(self.world_sizes(), initial=init_info["rank_offset"])
            infos = [{**info, "rank_offset": offset} for info, offset in zip(infos, offsets, strict=False)]
        self._ask("/init_weight_transfer_engine", *({"init_info": info} for info in infos))

    def start_weight_update(self) -> None:
        self._ask("/start_weight_update", None)

    def update_weights(self, update_info: dict[str, Any]) -> None:
        if handles := update_info.get("ipc_handles"):
            # Of memory on this machine's GPUs, for vLLM's engine of algo.serving.gpu_memory.
            update_info = {**update_info, "ipc_handles": {gpu: as_json(handle) for gpu, handle in handles.items()}}
        self._ask("/update_weights", {"update_info": update_info})

    def finish_weight_update(self, weight_version: str | None = None) -> None:
        """weight_version: None, since ``VllmServer.resume`` sets it."""
        self._ask("/finish_weight_update", None if weight_version is None else {"weight_version": weight_version})

    def close(self) -> None:
        self._http.close()

    def _ask(self, path: str, *bodies: dict[str, Any] | None, method: str = "POST") -> list[Any]:
        """The answers of all servers. bodies: one for each server, or one for all."""

        def ask(url: str, body: dict[str, Any] | None) -> Any:
            try:
                answer = self._http.request(method, url + path, json=body)
            except httpx.HTTPError as error:
                raise RuntimeError(
                    f"{method} {url}{path} from the trainer's rank 0 failed: {error!r}. With serving.weight_transfer "
                    f"nccl or ipc, rank 0 must reach the servers: train on their machine, or use folder"
                ) from error
            if answer.status_code != 200:
                raise RuntimeError(f"{method} {url}{path} answered {answer.status_code}: {answer.text[:1000]}")
            return answer.json()

        # All at once: the workers of all servers meet in one NCCL group.
        with ThreadPoolExecutor(max_workers=len(self._urls)) as threads:
            return list(threads.map(ask, self._urls, bodies if len(bodies) > 1 else bodies * len(self._urls)))


class WeightSender:
    """One rank's share in sending the weights; ``send`` is a collective of all ranks."""

    def __init__(self, backend: str, rank: int, source: PolicySource) -> None:
        """backend: "nccl" or "ipc"."""
        self._backend = backend
        self._rank = rank
        self._source = source
        self._servers: Sequence[tuple[str, int]] = ()
        self._client: WeightUpdateClient | None = None
        self._engine: TrainerWeightTransferEngine[Any] | None = None

    def send(self, servers: Sequence[tuple[str, int]]) -> None:
        """Send the weights to servers that take no requests meanwhile.

        servers: base URL and number of starts of each; when they change, the NCCL group is made again.
        """
        if self._engine is None or servers != self._servers:
            self._connect(servers)
        assert self._engine is not None
        self._engine.send_weights()

    def _connect(self, servers: Sequence[tuple[str, int]]) -> None:
        if self._engine is not None and self._client is not None:
            self._engine.shutdown()
            self._client.close()
        self._client = WeightUpdateClient([url for url, _ in servers])
        self._engine = WeightTransferTrainerFactory.trainer_init(
            self._init_info(self._client), client=self._client, source=self._source
        )
        self._servers = servers

    def _init_info(self, client: WeightUpdateClient) -> TrainerInitInfo:
        if self._backend == "ipc":
            # Packed: through a buffer of bounded size, not a second copy of all weights. No tensor may be larger.
            largest = max(math.prod(each.shape) * each.dtype.itemsize for each in self._source.metadata())
            size = max(DEFAULT_PACKED_BUFFER_SIZE_BYTES, largest)
            return IPCTrainerInitInfo(rank=self._rank, packed=True, packed_buffer_size_bytes=size)
        # Packed, vLLM's producer gathers each tensor on a side stream while an earlier one is still being broadcast:
        # two communicators at once on rank 0, which wait for one another as soon as a third rank gathers late.
        if self._rank != 0:  # takes part in gathering only
            return NCCLTrainerInitInfo("", 0, 0, rank=self._rank, packed=False)
        return NCCLTrainerInitInfo(
            master_address=ray.util.get_node_ip_address(),
            master_port=free_port(""),
            world_size=1 + sum(client.world_sizes()),
            rank=self._rank,
            packed=False,
        )
