"""The hub as a process: clean ends, one line for what cannot work. Kills: tests/end_to_end/test_fleet_faults.py."""

import asyncio
import re
import socket

import aiohttp
import pytest

from store.client import connect
from store.hub import server
from store.hub.workers import run_workers
from tests.support.hub.asking import enqueue_one, look_up
from tests.support.hub.hub_process import HubProcess, run_command


@pytest.fixture
async def hub(tmp_path):
    hub = HubProcess(tmp_path)
    await hub.start()
    yield hub
    hub.kill()


async def test_it_ends_in_good_order_although_a_request_hangs(hub, client):
    rollout, sent = await enqueue_one(client, 1), asyncio.Event()

    async def on_sent(*_):
        sent.set()

    async def wait_for_ever():
        tracing = aiohttp.TraceConfig()
        tracing.on_request_chunk_sent.append(on_sent)
        async with aiohttp.ClientSession(trace_configs=[tracing]) as session:
            waits = session.post(f"{hub.url}/v1/agl/waits/rollouts", json={"rollout_ids": [rollout.rollout_id]})
            async with waits as response:
                return response.status

    hanging = asyncio.create_task(wait_for_ever())
    await sent.wait()
    await client.get_latest_resources()  # sent later, answered: the other one has arrived
    assert await asyncio.to_thread(hub.stop) == 0
    assert await hanging == 503
    files = sorted(file.name for file in hub.database.parent.iterdir())
    assert files == ["hub.log", "hub.sqlite3", "hub.sqlite3.lock"]
    log = hub.log.read_text()
    assert "Traceback" not in log and "the hub has stopped" in log


def test_localhost_is_where_clients_look_for_it(monkeypatch):
    found = socket.getaddrinfo("::1", 0, type=socket.SOCK_STREAM) + socket.getaddrinfo(
        "127.0.0.1", 0, type=socket.SOCK_STREAM
    )
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found)  # as of a machine with ::1 first
    with server.listen("localhost", 0) as listener:
        assert listener.getsockname()[0] == "127.0.0.1"


def test_an_address_of_ipv6_is_announced_as_a_url(caplog):
    caplog.set_level("INFO")
    server._announce(server.HubSettings("::1", 4747, None), 4747)
    assert "http://[::1]:4747" in caplog.text


async def test_a_second_hub_on_the_same_file_or_port_says_so_in_one_line(hub, tmp_path):
    status, said = run_command("--port", str(hub.port), "--db", str(tmp_path / "other.sqlite3"))
    assert status == 1 and re.search(rf"^python -m store: .*port {hub.port}: the port is in use.*--port\n$", said)
    assert not (tmp_path / "other.sqlite3").exists()
    status, said = run_command("--port", str(hub.port), "--db", str(hub.database), "--backend", "memory")
    assert status == 2 and "--backend memory excludes --db" in said
    (tmp_path / "link.sqlite3").symlink_to(hub.database)
    for name in (hub.database, tmp_path / "link.sqlite3"):
        status, said = run_command("--port", "0", "--db", str(name))
        assert status == 1 and re.search(r"^python -m store: another hub has locked .*hub.sqlite3.*\n$", said)


@pytest.mark.parametrize("workers", [None, 2])
def test_a_certificate_that_cannot_be_used_is_named_before_a_worker_starts(tmp_path, workers, monkeypatch):
    (tmp_path / "bad.pem").write_text("no certificate")
    settings = server.HubSettings("127.0.0.1", 0, None, certificate=tmp_path / "bad.pem", key=tmp_path / "bad.pem")
    monkeypatch.setattr("store.hub.workers._Workers.run", lambda _: pytest.fail("workers were started"))
    with pytest.raises(server.CannotServe, match=r"certificate .*bad\.pem"):
        run_workers(settings) if workers else asyncio.run(server.run(settings))


async def test_the_memory_backend_forgets_and_a_killed_hub_s_port_is_free(tmp_path):
    hub = await HubProcess(tmp_path, "--backend", "memory").start()
    client = connect(hub.url, retry_seconds=60)
    rollout = await enqueue_one(client, 1)
    assert (await look_up(client, rollout.rollout_id)).input == 1
    hub.kill()
    await hub.start()
    assert (await client.query_rollouts()).total == 0
    await client.close()
    hub.kill()
