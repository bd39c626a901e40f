"""How new weights reach vLLM. From GPU to GPU: what goes over HTTP, with vLLM's own engines and types, without GPUs."""

import asyncio
import base64
import json
import pickle
import shutil
import threading
from dataclasses import asdict
from types import SimpleNamespace

import pytest
import torch
from vllm.distributed.weight_transfer import nccl_engine
from vllm.distributed.weight_transfer.ipc_engine import IPCWeightTransferUpdateInfo

from algo.loop.weight_transfer import policy_folder, push_policy, save_policy
from algo.machine.disk import DiskFull
from algo.serving.gpu_memory import JsonIpcEngine, as_json, from_json
from algo.serving.policies import PolicyServers
from algo.serving.server_group import ServerGroup, ServingError
from algo.training.thread import TrainerThread
from algo.training.weight_sender import PolicySource, WeightSender, WeightUpdateClient
from tests.support.algo.fake_vllm import PUSH, SERVE
from tests.support.waiting import until


class FakeEngine:
    """The trainer's engine: exports the model's folder, sends by ``send``."""

    def __init__(self, config, send=None):
        self._model = config.model.path
        self._send = send
        self.exported = []
        self.updates = 0

    def select(self, policy):
        assert policy == "policy"

    def export(self, folder):
        shutil.copytree(self._model, folder, dirs_exist_ok=True)
        self.exported.append(folder.name)

    def send_weights(self, servers):
        self._send(servers)


NCCL = dict(weight_transfer="nccl", training={"device": "cuda"})


@pytest.mark.parametrize("pushed", [True, False])
async def test_what_is_kept_of_the_policy_is_whole_or_not_there(configure, tmp_path, tiny_model, monkeypatch, pushed):
    config = configure()
    engine, trainer, folder = FakeEngine(config), TrainerThread(), tmp_path / "league" / "past-000003"
    if pushed:  # else it went from GPU to GPU, and the trainer writes it
        shutil.copytree(tiny_model, policy_folder(config, 3))
    await save_policy(config, engine, trainer, 3, folder)
    assert engine.exported == ([] if pushed else ["unfinished-past-000003"])
    assert {path.name for path in folder.iterdir()} == {path.name for path in tiny_model.iterdir()}
    assert [path.name for path in folder.parent.iterdir()] == ["past-000003"]

    def full(path):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("algo.machine.disk.sync", full)
    with pytest.raises(DiskFull, match=r"lower league\.size"):
        await save_policy(config, engine, trainer, 3, folder.with_name("past-000004"))
    assert [path.name for path in folder.parent.iterdir()] == ["past-000003"]


@pytest.mark.parametrize("lag", [0, 2])
async def test_folders_are_kept_for_replies_under_way_and_those_that_a_crash_undid_are_not(attach, vllms, lag):
    config = attach(rollout={"max_policy_lag": lag})
    engine, trainer = FakeEngine(config), TrainerThread()
    policies = policy_folder(config, 0).parent
    async with await ServerGroup.open(config) as servers:
        serving = PolicyServers(config, {"policy": servers})
        for version in (1, 2, 3, 4):
            await push_policy(config, serving, engine, trainer, version)
        kept = sorted(folder.name for folder in policies.iterdir())
        assert kept == [f"version-00000{version}" for version in range(4 - max(1, lag), 5)]
        await push_policy(config, serving, engine, trainer, 2)  # resumed from before version 3
        assert [folder.name for folder in policies.iterdir()] == ["version-000002"]
        assert vllms[0].bodies["/collective_rpc"]["kwargs"]["weights_path"] == str(policies / "version-000002")
    assert engine.exported == [f"version-00000{version}" for version in (1, 2, 3, 4, 2)]


async def test_weights_are_sent_to_paused_servers_and_then_served(attach, vllms):
    config = attach(**NCCL)
    sent = []

    def send(servers):
        sent.append(servers)
        assert [vllm.calls for vllm in vllms] == [PUSH[:1]] * 2

    stale = policy_folder(config, 1)
    stale.mkdir(parents=True)
    async with await ServerGroup.open(config) as servers:
        serving = PolicyServers(config, {"policy": servers})
        for vllm in vllms:
            vllm.calls.clear()
        await push_policy(config, serving, FakeEngine(config, send), TrainerThread(), 1)
    assert sent == [[(vllm.url, 0) for vllm in vllms]]
    assert [vllm.calls for vllm in vllms] == [[*PUSH[:1], *SERVE]] * 2
    assert not stale.exists()  # a checkpoint would take it for what was pushed


async def test_a_server_that_comes_back_after_a_transfer_reads_the_weights_from_a_folder(
    attach, vllms, watched_closely
):
    config = attach(**NCCL)
    engine = FakeEngine(config, lambda servers: None)
    async with await ServerGroup.open(config) as servers:
        serving = PolicyServers(config, {"policy": servers})
        await push_policy(config, serving, engine, TrainerThread(), 4)
        assert engine.exported == []
        vllms[1].health = 503
        await until(serving.check_alive)
        vllms[1].health = 200
        vllms[1].calls.clear()
        await until(serving.check_alive)
    # It is looked at as at the beginning (one completion) before it gets the weights.
    assert engine.exported == ["version-000004"] and vllms[1].calls == ["/v1/completions", *PUSH]
    assert vllms[1].bodies["/update_weight_version"] == {"new_version": "4"}


async def test_a_server_that_comes_back_between_an_update_and_its_push_waits_for_the_new_weights(
    attach, vllms, watched_closely
):
    """The trainer no longer has the weights of the version that is served: with those it has, turns would lie."""
    config = attach(rollout={"max_policy_lag": 2}, **NCCL)
    engine, trainer = FakeEngine(config, lambda servers: None), TrainerThread()
    async with await ServerGroup.open(config) as servers:
        serving = PolicyServers(config, {"policy": servers})
        await push_policy(config, serving, engine, trainer, 4)
        vllms[1].health = 503
        await until(serving.check_alive)
        engine.updates += 1
        vllms[1].calls.clear()
        vllms[1].health = 200
        await until(lambda: "/pause?mode=keep" in vllms[1].calls)
        await push_policy(config, serving, engine, trainer, 5)
        await until(serving.check_alive)
        assert len(servers.servers) == 2
    assert engine.exported == ["version-000005"]
    assert vllms[1].calls[-6:] == ["/pause?mode=keep", "/pause?mode=keep", *PUSH[1:]]
    assert vllms[1].bodies["/update_weight_version"] == {"new_version": "5"}


async def test_a_transfer_that_fails_or_never_ends_stops_the_run(attach, vllms, monkeypatch):
    config = attach(**NCCL)
    released = asyncio.Event()
    loop = asyncio.get_running_loop()

    def fail(servers):
        raise RuntimeError("rank 0 died")

    def wait_for_ever(servers):
        asyncio.run_coroutine_threadsafe(released.wait(), loop).result()

    async with await ServerGroup.open(config) as servers:
        serving = PolicyServers(config, {"policy": servers})
        with pytest.raises(RuntimeError, match="rank 0 died"):
            await push_policy(config, serving, FakeEngine(config, fail), TrainerThread(), 1)
        monkeypatch.setattr("algo.loop.weight_transfer._TRANSFER_TIMEOUT_SECONDS", 0.1)
        with pytest.raises(ServingError, match=rf"did not reach {vllms[0].url}.*by nccl within 0 s"):
            await push_policy(config, serving, FakeEngine(config, wait_for_ever), TrainerThread(), 1)
        released.set()


# The trainer's side


def weights():
    yield "embedding", torch.arange(6.0).reshape(2, 3)
    yield "steps", torch.tensor([7])


async def test_vllms_engine_introduces_all_workers_once_and_tells_them_what_comes(vllms, monkeypatch):
    """It has neither its communicator nor its broadcasts."""
    groups = []

    def broadcast(self, source, meta):
        for (name, tensor), told in zip(source, meta, strict=True):
            assert (name, tensor.dtype, tuple(tensor.shape)) == (told.name, told.dtype, told.shape)

    monkeypatch.setattr(nccl_engine, "open_trainer_endpoint", lambda told: groups.append(told) or object())
    monkeypatch.setattr(nccl_engine.NCCLTrainerWeightTransferEngine, "_broadcast", broadcast)
    vllms[0].world_size = 2
    source = PolicySource(weights, torch.bfloat16, torch.device("cpu"))
    rank = WeightSender("nccl", 0, source)
    servers = [(vllm.url, 1) for vllm in vllms]
    await asyncio.to_thread(rank.send, servers)
    await asyncio.to_thread(rank.send, servers)
    update = ["/start_weight_update", "/update_weights", "/finish_weight_update"]
    assert [vllm.calls for vllm in vllms] == [["/init_weight_transfer_engine", *update, *update]] * 2
    (group,) = groups
    assert group.world_size == 4  # the trainer, two workers and one
    infos = [
        nccl_engine.NCCLWeightTransferInitInfo(**vllm.bodies["/init_weight_transfer_engine"]["init_info"])
        for vllm in vllms
    ]
    assert [info.rank_offset for info in infos] == [1, 3]
    assert {(info.master_address, info.master_port, info.world_size, info.packed) for info in infos} == {
        (group.master_address, group.master_port, 4, False)
    }
    told = nccl_engine.NCCLWeightTransferUpdateInfo(**vllms[1].bodies["/update_weights"]["update_info"])
    assert asdict(told) == {
        "names": ["embedding", "steps"],
        "dtype_names": ["bfloat16", "int64"],
        "shapes": [[2, 3], [1]],
    }
    await asyncio.to_thread(rank.send, [(vllms[0].url, 1), (vllms[1].url, 2)])  # one was started again
    assert len(groups) == 2


async def test_each_tensor_is_gathered_after_the_one_before_was_sent_and_in_one_order_on_every_rank(vllms, monkeypatch):
    """A gather that overlaps a broadcast on another stream deadlocks as soon as a third rank gathers late."""
    order = []

    class Group:
        def broadcast(self, tensor, src, stream):
            order.append(("sent", tuple(tensor.shape), threading.get_ident()))

    monkeypatch.setattr(nccl_engine, "open_trainer_endpoint", lambda init_info: Group())
    monkeypatch.setattr(torch.cuda, "current_stream", lambda: SimpleNamespace(synchronize=lambda: None))
    by_rank = {}
    for rank in range(3):

        def gathered(rank=rank):
            for name, tensor in weights():
                order.append(("gathered", tuple(tensor.shape), threading.get_ident()))
                yield name, tensor

        sender = WeightSender("nccl", rank, PolicySource(gathered, torch.bfloat16, torch.device("cpu")))
        await asyncio.to_thread(sender.send, [(vllms[0].url, 1)])
        by_rank[rank] = order[2:]  # the first pass over all tensors tells their shapes
        assert len({thread for *_, thread in order}) == 1
        order.clear()
    names = {rank: [(what, shape) for what, shape, *_ in found] for rank, found in by_rank.items()}
    assert names[0] == [(what, shape) for shape in ((2, 3), (1,)) for what in ("gathered", "sent")]
    assert names[1] == names[2] == [("gathered", (2, 3)), ("gathered", (1,))]


def test_the_buffer_for_ipc_holds_the_largest_tensor():
    """vLLM's own is 1 GiB, and the embedding of an 8B model 1.2 GB."""

    def weights_of_8b():
        yield "embedding", torch.empty(151936, 4096, device="meta")
        yield "norm", torch.empty(4096, device="meta")

    buffers = []
    for weights_of in (weights_of_8b, weights):
        sender = WeightSender("ipc", 1, PolicySource(weights_of, torch.bfloat16, torch.device("meta")))
        buffers.append(sender._init_info(None).packed_buffer_size_bytes)
    assert buffers == [151936 * 4096 * 2, 2**30]


HANDLE = (
    *(torch.Tensor, torch.Size([2**30]), (1,), 0, torch.TypedStorage, torch.uint8, 3),
    *(b"\x00memory\xff", 2**30, 0, False, b"counter", 7, b"event", True),
)
"""As torch's ``reduce_tensor`` describes a buffer of bytes on a GPU."""
CHUNK = {"names": ["w"], "dtype_names": ["bfloat16"], "shapes": [[2]], "tensor_sizes": [4]}


async def test_handles_of_gpu_memory_arrive_as_vllm_reads_them(vllms):
    handles = {"GPU-1": HANDLE, "GPU-2": HANDLE}
    client = WeightUpdateClient([vllm.url for vllm in vllms])
    await asyncio.to_thread(client.update_weights, {**CHUNK, "ipc_handles": handles, "ipc_handles_pickled": None})
    for vllm in vllms:
        received = JsonIpcEngine.update_info_cls(**vllm.bodies["/update_weights"]["update_info"])
        assert received.ipc_handles == handles and received.names == ["w"] and received.tensor_sizes == [4]


class Bomb:
    """What a pickle can do to whoever reads it."""

    burst = 0

    def __reduce__(self):
        return Bomb.explode, ()

    @staticmethod
    def explode():
        Bomb.burst += 1
        return {}


def test_no_pickle_is_read_even_where_vllm_may(monkeypatch):
    monkeypatch.setenv("VLLM_ALLOW_INSECURE_SERIALIZATION", "1")
    pickled = base64.b64encode(pickle.dumps(Bomb())).decode()
    IPCWeightTransferUpdateInfo(**CHUNK, ipc_handles_pickled=pickled)
    assert Bomb.burst == 1  # by vLLM's own
    for handles in (None, {"GPU-1": as_json(HANDLE)}):
        with pytest.raises(ValueError, match="pickles are rejected"):
            JsonIpcEngine.update_info_cls(**CHUNK, ipc_handles=handles, ipc_handles_pickled=pickled)
    assert Bomb.burst == 1


@pytest.mark.parametrize("position", range(12))
def test_a_handle_is_numbers_and_bytes_and_nothing_else(position):
    fields = as_json(HANDLE)
    assert from_json(json.loads(json.dumps(fields))) == HANDLE
    for wrong in ({"__reduce__": "os.system"}, None, "%", [1.5], -0.5):
        with pytest.raises((ValueError, TypeError)):
            from_json([*fields[:position], wrong, *fields[position + 1 :]])
    with pytest.raises(ValueError, match="12 parts"):
        from_json([*fields, 0])


def test_only_packed_bytes_are_handed_over():
    with pytest.raises(ValueError, match="packed bytes"):
        as_json((*HANDLE[:5], torch.bfloat16, *HANDLE[6:]))
