"""Servers that die: started ones are restarted, attached ones leave service until they answer."""

import asyncio
import contextlib
import os
import signal
from pathlib import Path

import pytest

from algo.serving.launch import VLLM_PROGRAM, Launch, policy_launches, vllm_command, vllm_environment
from algo.serving.policies import open_frozen
from algo.serving.server_group import ServerGroup, ServingDied, ServingError
from tests.support.algo.fake_vllm import PUSH, FakeVllm, port_of
from tests.support.waiting import until

STARTED_PUSH = ["/pause?mode=wait", "/collective_rpc", "/reset_prefix_cache", "/update_weight_version 7", "/resume"]


@pytest.fixture
def fakes(fakes, watched_closely, monkeypatch):
    """Besides, has servers watched closely."""
    monkeypatch.setattr("algo.serving.vllm_server._HEALTH_TIMEOUT_SECONDS", 1.0)
    return fakes


@pytest.fixture
def group(configure, fakes):
    """Starts fakes with these settings; gives their group and its ports."""

    @contextlib.asynccontextmanager
    async def group(version=0, **settings):
        config = configure(**settings)
        async with await ServerGroup.open(config, version) as serving:
            yield serving, *[launch.port for launch in policy_launches(config)]

    return group


# Started servers


async def test_a_start_of_which_one_fails_leaves_nothing_behind(configure, fakes):
    config = configure(servers=2)
    first, second = (launch.port for launch in policy_launches(config))
    fakes.tell(second, "die /health")
    with pytest.raises(ServingDied, match=rf"exited with code 3 .*{second}"):
        await ServerGroup.open(config)
    assert fakes.ended(first)


@pytest.mark.parametrize("early", [True, False])
async def test_a_second_interrupt_stops_the_servers_and_closes_their_connections(group, fakes, early):
    with contextlib.suppress(asyncio.CancelledError):
        async with group() as (serving, port):
            stopped, (server,) = fakes.pid(port), serving.servers
            stopping = asyncio.create_task(serving.stop())
            await asyncio.sleep(0)
            if not early:
                await until(lambda: all(watcher.done() for watcher in serving._watchers))
            stopping.cancel()
            await asyncio.wait([stopping])
            assert server._http.closed
            await until(lambda: not Path(f"/proc/{stopped}").exists() or fakes.ended(port))


@pytest.mark.parametrize(("version", "told"), [(0, "0"), (None, "none")])
async def test_the_only_server_is_started_again_under_the_same_address(group, fakes, tiny_model, version, told):
    async with group(version) as (serving, port):
        before = serving.endpoints
        fakes.kill(port)
        await until(lambda: not serving.servers)
        assert serving.endpoints == before
        await until(lambda: serving.servers)
        assert not await serving.check_alive()
        assert fakes.notes(port) == [f"start {tiny_model.name} {told}"] * 2  # until a push, as it was first
        assert await serving.scores([7, 8]) == [[-8.0]]


async def test_restarts_are_counted_for_all_servers_together(group, fakes):
    async with group(servers=2, max_restarts=1) as (serving, first, second):
        fakes.kill(first)
        await until(lambda: len(serving.servers) == 1)
        await until(lambda: len(serving.servers) == 2)
        fakes.kill(second)
        await until(lambda: len(serving.servers) == 1)
        fakes.kill(first)
        with pytest.raises(ServingDied, match=rf"exited with code 137 .*{first}"):
            await until(serving.check_alive)
            await until(serving.check_alive)


async def test_a_server_that_hangs_is_killed_and_started_again(group, fakes, monkeypatch):
    monkeypatch.setattr("algo.serving.vllm_server._STOP_GRACE_SECONDS", 1.0)
    async with group() as (serving, port):
        hanging = fakes.pid(port)
        os.kill(hanging, signal.SIGSTOP)
        await until(lambda: not serving.servers)
        os.kill(hanging, signal.SIGCONT)
        await until(lambda: serving.servers)
        assert fakes.pid(port) != hanging and not Path(f"/proc/{hanging}").exists()


@pytest.mark.parametrize("path", ["/pause", "/collective_rpc", "/resume"])
async def test_one_that_dies_in_a_push_does_not_keep_the_others_from_it(group, fakes, tiny_model, path):
    async with group(servers=2) as (serving, first, second):
        fakes.tell(first, f"die {path}")
        await serving.push_weights(tiny_model, 7)
        assert serving.endpoints == (f"http://127.0.0.1:{second}/v1",)
        assert fakes.notes(second)[1:] == STARTED_PUSH
        assert await serving.scores([7, 8]) == [[-8.0]]
        await until(lambda: len(serving.servers) == 2)
        assert fakes.notes(first)[-6:] == [f"start {tiny_model.name} none", *STARTED_PUSH]


@pytest.mark.parametrize("order", ["die", "refuse"])
async def test_a_push_waits_for_the_only_server_to_come_back(group, fakes, tiny_model, order):
    async with group() as (serving, port):
        fakes.tell(port, f"{order} /collective_rpc")
        await serving.push_weights(tiny_model, 7)
        assert fakes.notes(port)[-6:] == [f"start {tiny_model.name} none", *STARTED_PUSH]
        assert await serving.scores([7, 8]) == [[-8.0]]


async def test_scores_that_find_their_server_dead_are_retried_and_restart_it_once(group, fakes, tiny_model):
    async with group(max_restarts=2) as (serving, port):
        await serving.push_weights(tiny_model, 7)
        fakes.tell(port, "die /v1/completions")
        assert await asyncio.gather(serving.scores([7, 8]), serving.scores([7, 8])) == [[[-8.0]]] * 2
        assert (await serving.metrics())["serving/restarts"] == 1


# Attached servers


@pytest.fixture
def attached(attach, fakes, vllms):
    """Two fake servers that run already, and the configuration to attach to them."""
    return vllms, attach()


async def test_a_server_that_refuses_weights_is_lost_and_the_others_serve_them(attached, tiny_model):
    (first, second), config = attached
    second.reload_answer, second.reload_status = {"error": "no such tensor"}, 500
    async with await ServerGroup.open(config) as serving:
        await serving.push_weights(tiny_model, 7)
        assert [server.base_url for server in serving.servers] == [config.serving.urls[0]]
        second.reload_answer, second.reload_status = {"results": [None]}, 200
        await until(lambda: len(serving.servers) == 2)
        assert second.bodies["/update_weight_version"] == {"new_version": "7"}
        # None is left: that is the run's end.
        for vllm in (first, second):
            vllm.reload_answer, vllm.reload_status = {"error": "no such tensor"}, 500
        with pytest.raises(ServingError, match="no such tensor"):
            await serving.push_weights(tiny_model, 8)


# Sleep and wake


@pytest.fixture
def sharing(configure, vllms):
    return vllms[0], configure(training={"device": "cuda"}, mode="attach", urls=(vllms[0].url,), share_gpus=True)


async def test_a_push_wakes_the_weights_before_it_and_the_cache_after_it(sharing, tiny_model):
    fake, config = sharing
    async with await ServerGroup.open(config) as serving:
        fake.calls.clear()
        await serving.sleep()
        assert fake.calls == ["/sleep?level=1&mode=wait"]
        await serving.push_weights(tiny_model, 7)
        assert fake.calls[1:] == [
            "/wake_up?tags=weights",
            "/collective_rpc",
            "/reset_prefix_cache",
            "/update_weight_version",
            "/wake_up?tags=kv_cache",
        ]
        fake.calls.clear()
        await serving.wake()  # it is awake
        await serving.push_weights(tiny_model, 8)
        assert fake.calls == PUSH
        await serving.sleep()
        fake.calls.clear()
        await serving.wake()
        assert fake.calls == ["/wake_up?tags=weights", "/wake_up?tags=kv_cache"]


async def test_what_dies_asleep_is_started_when_the_others_wake(group, fakes, tiny_model):
    async with group(training={"device": "cuda"}, share_gpus=True) as (serving, port):
        await serving.push_weights(tiny_model, 7)
        fakes.tell(port, "die /sleep")
        await serving.sleep()
        assert fakes.notes(port)[-1] == "/resume"  # it is not started yet
        await serving.push_weights(tiny_model, 8)
        assert fakes.notes(port)[-6:-1] == [
            f"start {tiny_model.name} none",
            *STARTED_PUSH[:3],
            "/update_weight_version 8",
        ]


# Numbers


async def test_metrics_are_of_the_time_since_the_last_call(attached):
    (first, second), config = attached

    def counters(queries, hits):
        lines = []
        for name, value in (("prefix_cache_queries_total", queries), ("prefix_cache_hits_total", hits)):
            lines += [
                f"# TYPE vllm:{name} counter",
                *(f'vllm:{name}{{engine="{engine}"}} {value}' for engine in (0, 1)),
            ]
        return "\n".join(lines) + "\n"

    first.metrics, second.metrics = counters(100, 50), counters(50, 0)
    async with await ServerGroup.open(config) as serving:
        found = await serving.metrics()
        assert found["serving/prefix_cache_queries"] == 300 and found["serving/prefix_cache_hits"] == 100
        assert found["serving/prefix_cache_hit_share"] == pytest.approx(1 / 3)
        assert found["serving/servers"] == 2 and found["serving/restarts"] == 0
        assert "serving/prefix_cache_hit_share" not in await serving.metrics()
        first.metrics = counters(110, 60)
        second.metrics = counters(10, 0)  # somebody has started it again: it counts from zero
        found = await serving.metrics()
        assert found["serving/prefix_cache_queries"] == 40 and found["serving/prefix_cache_hits"] == 20
        first.metrics, second.metrics = "no metrics {", counters(15, 0)  # half a page, say
        assert (await serving.metrics())["serving/prefix_cache_queries"] == 10


# Frozen policies


async def test_frozen_policies_are_served_and_kept_alive_until_the_context_ends(configure, fakes, tiny_model, tmp_path):
    (tmp_path / "older").mkdir()
    (tmp_path / "older" / "config.json").write_text('{"tie_word_embeddings": true}')  # never given other weights
    there = FakeVllm()
    there.dev_mode = False  # nor is this one
    there.models = [{"id": "base"}]
    frozen = {
        "older": {"path": tmp_path / "older"},
        "base": {"url": await there.start(), "model": "base"},
        "unused": {"path": tmp_path / "nowhere"},
    }
    config = configure(frozen=frozen)
    async with open_frozen(config, ["older", "base", "initial"]) as served:
        policies = {policy.name: policy for policy in served.policies}
        assert {name: policy.model for name, policy in policies.items()} == {
            "older": "policy",
            "base": "base",
            "initial": "policy",
        }
        assert policies["base"].endpoints == (f"{frozen['base']['url']}/v1",)
        initial, port = (port_of(policies[name].endpoints[0]) for name in ("initial", "older"))
        assert fakes.notes(initial) == [f"start {tiny_model.name} 0"]
        assert fakes.notes(port) == ["start older 0"]
        fakes.kill(port)
        await until(lambda: fakes.notes(port) == ["start older 0"] * 2)
    assert fakes.ended(port) and fakes.ended(initial)
    await there.stop()
    (tmp_path / "older" / "adapter_config.json").write_text("{}")
    with pytest.raises(ServingError, match=r"frozen\.older\.path: .* holds adapters"):
        async with open_frozen(config, ["older"]):
            pass


# Command lines


def test_each_server_sees_its_gpus(configure, monkeypatch):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    gpus = {"servers": 2, "tensor_parallel": 2}
    config = configure(training={"device": "cuda"}, **gpus)

    def visible(config, learner=None):
        launches = policy_launches(config, learner)
        return [vllm_environment(config, launch)["CUDA_VISIBLE_DEVICES"] for launch in launches]

    assert visible(config) == ["0,1", "2,3"]
    assert visible(configure(training={"device": "cuda"}, devices=(7, 6, 5, 4), **gpus)) == ["7,6", "5,4"]
    team = {"wolves": {"side": "wolf"}, "villagers": {"side": "good"}}
    config_of_team = configure(training={"device": "cuda"}, devices=(3, 2, 1, 0), servers=2, policies=team)
    assert [visible(config_of_team, learner) for learner in team] == [["3", "2"], ["1", "0"]]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,5, 6,7")
    assert visible(config) == ["4,5", "6,7"]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,5,6")
    with pytest.raises(ServingError, match=r"needs GPU 3 .* CUDA_VISIBLE_DEVICES=4,5,6 has 3"):
        visible(config)


def test_vllm_itself_knows_every_option_that_we_give_it(configure, monkeypatch):
    from vllm.entrypoints.launchers.cli_args import make_arg_parser, validate_parsed_serve_args
    from vllm.utils.argparse_utils import FlexibleArgumentParser

    from algo.serving import gpu_memory

    monkeypatch.setenv("VLLM_ALLOW_INSECURE_SERIALIZATION", "1")
    parser = make_arg_parser(FlexibleArgumentParser())
    for config in (
        configure(),
        configure(training={"device": "cuda"}, share_gpus=True, weight_transfer="ipc"),
        configure(training={"device": "cuda"}, servers=2, weight_transfer="nccl", tensor_parallel=2),
    ):
        launch: Launch = policy_launches(config)[-1]
        command = vllm_command(config, launch)
        arguments = parser.parse_args(command[command.index(VLLM_PROGRAM) + 1 :])
        validate_parsed_serve_args(arguments)
        assert arguments.port == launch.port == config.serving.port + config.serving.servers - 1
        assert arguments.tensor_parallel_size == config.serving.tensor_parallel
        assert arguments.enable_sleep_mode == config.serving.share_gpus
        extension = f"{gpu_memory.__name__}.{gpu_memory.Registration.__qualname__}"
        assert arguments.worker_extension_cls == (extension if config.serving.weight_transfer == "ipc" else "")
        assert "VLLM_ALLOW_INSECURE_SERIALIZATION" not in vllm_environment(config, launch)
        if config.serving.weight_transfer != "folder":
            backend = gpu_memory.BACKEND if config.serving.weight_transfer == "ipc" else "nccl"
            assert arguments.weight_transfer_config.backend == backend


@pytest.mark.parametrize(("installed", "has"), [("0.29.0", False), ("0.30.0", True), ("1.0.0rc1", True)])
def test_vllm_is_asked_for_the_routes_of_agents_where_it_hides_them(configure, monkeypatch, installed, has):
    monkeypatch.setattr("algo.serving.launch.metadata.version", lambda package: installed)
    assert ("--enable-scale-out" in vllm_command(configure(), policy_launches(configure())[0])) is has
