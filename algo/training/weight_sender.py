"""The trainer's side of weight transfers between GPUs. Experimental: not run on GPUs, only its HTTP is tested.

Every training rank runs vLLM's trainer engine (``vllm.distributed.weight_transfer``): rank 0 sends the weights to the
servers, the others participate in the gathering.
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
    """The policy's gathered weights, for vLLM's trainer engines.

    weights: iterates over names and whole tensors; a collective of all ranks.
    dtype: of floating-point weights in the transfer. device: of the sender.
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

    urls: base URLs. Raises RuntimeError, naming the URL, when a request fails.
    """

    def __init__(self, urls: Sequence[str]) -> None:
        self._urls = [url.rstrip("/") for url in urls]
        # Requests must bypass a proxy from the environment.
        headers = control_headers(started_here=False)
        self._http = httpx.Client(trust_env=False, timeout=_TIMEOUT_SECONDS, headers=headers)

    def world_sizes(self) -> list[int]:
        return [int(answer["world_size"]) for answer in self._ask("/get_world_size", None, method="GET")]

    def init_weight_transfer_engine(self, init_info: dict[str, Any]) -> None:
        """Prepare the workers; with NCCL, servers get consecutive rank offsets."""
        infos = [dict(init_info) for _ in self._urls]
        if "rank_offset" in init_info:
            offsets = accumulate(self.world_sizes(), initial=init_info["rank_offset"])
            infos = [{**info, "rank_offset": offset} for info, offset in zip(infos, offsets, strict=False)]
        self._ask("/init_weight_transfer_engine", *({"init_info": info} for info in infos))

    def start_weight_update(self) -> None:
        self._ask("/start_weight_update", None)

    def update_weights(self, update_info: dict[str, Any]) -> None:
        if handles := update_info.get("ipc_handles"):
            # For algo.serving.gpu_memory.
            update_info = {**update_info, "ipc_handles": {gpu: as_json(handle) for gpu, handle in handles.items()}}
        self._ask("/update_weights", {"update_info": update_info})

    def finish_weight_update(self, weight_version: str | None = None) -> None:
        """weight_version: None here, since ``VllmServer.resume`` sets it."""
        self._ask("/finish_weight_update", None if weight_version is None else {"weight_version": weight_version})

    def close(self) -> None:
        self._http.close()

    def _ask(self, path: str, *bodies: dict[str, Any] | None, method: str = "POST") -> list[Any]:
        """The responses of all servers. bodies: one for each server, or one for all."""

        def ask(url: str, body: dict[str, Any] | None) -> Any:
            try:
                answer = self._http.request(method, url + path, json=body)
            except httpx.HTTPError as error:
                raise RuntimeError(
                    f"{method} {url}{path} from the trainer's rank 0 failed: {error!r}. serving.weight_transfer nccl "
                    f"and ipc need a connection from rank 0 to the servers: train on their machine, or use folder"
                ) from error
            if answer.status_code != 200:
                raise RuntimeError(f"{method} {url}{path} returned {answer.status_code}: {answer.text[:1000]}")
            return answer.json()

        # Concurrently, since the workers of all servers join one NCCL group.
        with ThreadPoolExecutor(max_workers=len(self._urls)) as threads:
            return list(threads.map(ask, self._urls, bodies if len(bodies) > 1 else bodies * len(self._urls)))


class WeightSender:
    """One rank's part of a weight transfer; ``send`` is a collective of all ranks."""

    def __init__(self, backend: str, rank: int, source: PolicySource) -> None:
        """backend: "nccl" or "ipc"."""
        self._backend = backend
        self._rank = rank
        self._source = source
        self._servers: Sequence[tuple[str, int]] = ()
        self._client: WeightUpdateClient | None = None
        self._engine: TrainerWeightTransferEngine[Any] | None = None

    def send(self, servers: Sequence[tuple[str, int]]) -> None:
        """Send the weights to paused servers.

        servers: (base URL, number of starts) of each; a change creates a new NCCL group.
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
            # Packed: through a buffer instead of a second copy of all weights. It must hold the largest tensor.
            largest = max(math.prod(each.shape) * each.dtype.itemsize for each in self._source.metadata())
            size = max(DEFAULT_PACKED_BUFFER_SIZE_BYTES, largest)
            return IPCTrainerInitInfo(rank=self._rank, packed=True, packed_buffer_size_bytes=size)
        # Not packed: vLLM's producer would gather a tensor during another one's broadcast, and the two communicators on
        # rank 0 deadlock when a third rank gathers late.
        if self._rank != 0:  # only participates in the gathering
            return NCCLTrainerInitInfo("", 0, 0, rank=self._rank, packed=False)
        return NCCLTrainerInitInfo(
            master_address=ray.util.get_node_ip_address(),
            master_port=free_port(""),
            world_size=1 + sum(client.world_sizes()),
            rank=self._rank,
            packed=False,
        )
