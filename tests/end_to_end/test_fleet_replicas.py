"""The fleet's recipe for PostgreSQL as it stands in configs/fleet, as far as it goes without containers.

HAProxy with the recipe's own file, two hubs over one database, a real runner and an algorithm's client, who know only
the proxy. Each hub is killed once, and nobody notices.
"""

import asyncio
import os
import random
import shutil
import struct
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from algo.machine.ports import free_port
from algo.rollouts.queue import RolloutQueue
from algo.werewolf.tasks import step_tasks
from store.client import connect
from store.schema import PolicyResources
from store.werewolf import GAME, ResultSpan
from tests.support.hub.fleet import RUN, SlowVllm, alive, exit_of, runner
from tests.support.hub.hub_process import HubProcess
from tests.support.settings import werewolf_config

pytest_plugins = ("tests.support.hub.postgres_server",)
pytestmark = pytest.mark.skipif(
    shutil.which("haproxy") is None and not os.environ.get("REQUIRE_POSTGRES"),
    reason="no HAProxy here: `apt-get install haproxy`",
)

CONFIGURATION = Path(__file__).parents[2] / "configs" / "fleet" / "hub_proxy.cfg"
REPLICAS = ("127.0.0.2", "127.0.0.3")
GROUPS, GAMES_PER_GROUP = 5, 6
CALLS_BEFORE_KILLS = (25, 50)


class Replica(HubProcess):
    """One of the hubs, at an address of its own."""

    def __init__(self, folder, address, port, database):
        folder.mkdir()
        super().__init__(folder, "--host", address, "--port", str(port), "--db", database)
        self.url = f"http://{address}:{port}"


class FakeDns(asyncio.DatagramProtocol):
    """Answers as Docker's does: all containers of a service have its name."""

    def connection_made(self, transport):
        self._transport = transport

    def datagram_received(self, data, sender):
        name_end = data.index(b"\0", 12) + 1
        question, (kind,) = data[12 : name_end + 4], struct.unpack("!H", data[name_end : name_end + 2])
        found = REPLICAS if kind == 1 else ()  # no addresses of version 6
        answers = [struct.pack("!HHHIH", 0xC00C, 1, 1, 1, 4) + bytes(map(int, address.split("."))) for address in found]
        head = data[:2] + struct.pack("!HHHHH", 0x8580, 1, len(answers), 0, 0)
        self._transport.sendto(head + question + b"".join(answers), sender)


@asynccontextmanager
async def balancer(hubs_port, log):
    """The recipe's, on a free port; its address."""
    port = free_port()
    dns, _ = await asyncio.get_running_loop().create_datagram_endpoint(FakeDns, local_addr=("127.0.0.1", 0))
    environment = {
        **os.environ,
        "HUB_BIND": f"127.0.0.1:{port}",
        "HUBS": f"hub-process:{hubs_port}",
        "HUB_DNS": "127.0.0.1:{}".format(dns.get_extra_info("sockname")[1]),
    }
    with log.open("w") as output:
        command = ("haproxy", "-W", "-db", "-f", CONFIGURATION)
        process = await asyncio.create_subprocess_exec(*command, env=environment, stdout=output, stderr=output)
        try:
            yield f"http://127.0.0.1:{port}"
        finally:
            dns.close()
            if process.returncode is None:
                process.terminate()
            assert await process.wait() in (0, 143), log.read_text()


async def test_a_runner_and_an_algorithm_do_not_notice_that_hubs_die(
    tmp_path, postgres_url, tiny_model, tiny_tokenizer
):
    port, chance = free_port(), random.Random(4)
    hubs = [Replica(tmp_path / address, address, port, postgres_url) for address in REPLICAS]
    await asyncio.gather(*(hub.start() for hub in hubs))
    policy = SlowVllm(tiny_tokenizer, chance, longest_seconds=0.2)
    endpoint = await policy.start()
    config = werewolf_config(
        RUN,
        groups_per_step=GROUPS,
        rollouts_per_group=GAMES_PER_GROUP,
        train_sides=("wolf",),
        opponent="scripted",
        unresponsive_seconds=10,
        max_attempts=5,
    )
    resources = PolicyResources(run_name=RUN, version=0, endpoints=(endpoint,), model="policy")

    async def killed():
        for hub, calls in zip(hubs, CALLS_BEFORE_KILLS, strict=True):
            for _ in range(calls):
                await policy.calls.acquire()
            hub.kill()
            await hub.start()

    async with balancer(port, tmp_path / "haproxy.log") as url:
        arguments = ("--store", url, "--n", "6", "--tokenizer", str(tiny_model))
        process, client = runner(tmp_path / "runner.log", *arguments), connect(url, retry_seconds=60)
        try:
            killing = asyncio.create_task(killed())
            played = await RolloutQueue(client, GAME, config.rollout).play(
                step_tasks(config, 0), resources, alive, lambda progress: None
            )
            await asyncio.wait_for(killing, 10)  # else the games were over too soon
            assert len(played.finished) == GROUPS * GAMES_PER_GROUP
            assert not played.failures and not played.left_out
            # Whoever was being handed a game by a hub that died may not have heard of it; it is handed out again.
            assert played.retried.total() <= len(hubs)
            for rollout in await client.query_rollouts():
                assert rollout.status == "succeeded"
                spans = await client.query_spans(rollout.rollout_id, rollout.attempt.attempt_id)
                assert sum(map(ResultSpan.is_in, spans)) == 1
                assert [span.sequence_id for span in spans] == list(range(1, len(spans) + 1))
            process.terminate()
            await exit_of(process)
            assert process.exitcode == 0
        finally:
            process.kill()
            await client.close()
            await policy.stop()
            for hub in hubs:
                hub.kill()
    said = (tmp_path / "haproxy.log").read_text()
    assert all(f"changed its IP from (none) to {address}" in said for address in REPLICAS), said
