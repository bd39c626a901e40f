"""The fleet recipes: what watches a runner, what the proxy forwards, and that nginx and systemd take their files."""

import asyncio
import os
import re
import shlex
import shutil
import socket
import string
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import yaml

import algo.werewolf_verl
import runners.werewolf.__main__
from configs.loading import load_config
from store.__main__ import _serve_parser
from store.auth import TOKEN_FILE_VARIABLE, TOKEN_VARIABLE
from store.client import connect
from tests.support.hub.hub_process import HubProcess

ROOT = Path(__file__).parents[2]
FLEET = ROOT / "configs" / "fleet"


# Health


async def runner_health(*arguments):
    """Its exit status and what it says, while this process goes on, in which a hub may answer it."""
    command = [sys.executable, FLEET / "runner_health.py", "--store", *arguments]
    done = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, timeout=60, check=False)
    return done.returncode, done.stdout


async def test_a_runner_is_alive_while_the_hub_hears_of_it(hub, client):
    async def status(*arguments):
        return (await runner_health(hub.url, *arguments))[0]

    assert await status("pod/1") == 1  # no heartbeat yet
    for name in ("machine-1", "machine-2-1", "machine-2-2"):  # the latter: --processes 2
        await client.update_worker(name, {"playing": 1})
    for name in ("machine-1", "machine-2"):
        assert await status(name) == 0
        assert await status(name, "--within", "-10") == 1  # silent for longer than that
    for nobody in ("mach", "achine-1", "machine-2-", "machine.1"):  # though others' names look like it
        assert await status(nobody) == 1, nobody
    await hub.stop()

    async def breaks_off(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{")
        writer.close()

    async def answers_for_the_hub(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\n<html>")
        writer.close()

    others = [await asyncio.start_server(answers, "127.0.0.1", 0) for answers in (breaks_off, answers_for_the_hub)]
    there = "http://{}:{}".format(*others[0].sockets[0].getsockname())

    async def redirects(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        writer.write(f"HTTP/1.1 302 Found\r\nLocation: {there}\r\nContent-Length: 0\r\n\r\n".encode())
        writer.close()

    async with await asyncio.start_server(redirects, "127.0.0.1", 0) as proxy:
        alive, said = await runner_health("http://{}:{}".format(*proxy.sockets[0].getsockname()), "machine-1")
        assert alive == 1 and "302" in said  # it does not follow, with the token
    for url in (hub.url, *("http://{}:{}".format(*other.sockets[0].getsockname()) for other in others)):
        alive, said = await runner_health(url, "machine-1")
        assert alive == 0 and "no hub answers" in said
    for other in others:
        other.close()


async def test_runner_health_sends_the_token(tmp_path, monkeypatch):
    token = tmp_path / "token"
    token.write_text("long-and-secret\n")
    token.chmod(0o600)
    for name in (TOKEN_VARIABLE, TOKEN_FILE_VARIABLE):
        monkeypatch.delenv(name, raising=False)
    hub = await HubProcess(tmp_path, "--token-file", str(token)).start()
    status, said = await runner_health(hub.url, "machine-1")
    assert status == 1 and "401" in said
    monkeypatch.setenv(TOKEN_FILE_VARIABLE, str(token))
    client = connect(hub.url, 20)
    await client.update_worker("machine-1", {})
    await client.close()
    status, said = await runner_health(hub.url, "machine-1")
    assert status == 0 and "last heartbeat of machine-1" in said
    hub.kill()


# Proxies


@pytest.mark.skipif(shutil.which("nginx") is None, reason="no nginx on this machine")
def test_nginx_takes_the_proxys_configuration():
    ours, its = socket.socketpair()  # as under systemd, where /dev/stderr is a socket, which cannot be opened
    with ours, its:
        command = ["nginx", "-e", "stderr", "-t", "-c", FLEET / "policy_proxy.conf"]
        assert subprocess.run(command, stderr=its, check=False).returncode == 0, ours.recv(65536).decode()


# systemd

# A runner that says when it is told to end, and ends when its input does.
RUNNER = """
import signal, sys
signal.signal(signal.SIGTERM, lambda *_: print("told", flush=True))
print("plays", flush=True)
sys.stdin.read()
"""


def test_stopping_a_runner_waits_for_its_end_and_is_no_failure():
    """Nor is it when the runner has left by itself: systemd would start it again."""
    unit = (FLEET / "systemd" / "werewolf-runner@.service").read_text()
    command = shlex.split(re.search(r"^ExecStop=-(.*)$", unit, re.M)[1])  # -: a drain that takes too long is no failure
    assert command[:2] == ["/bin/sh", "-c"]
    assert subprocess.run(command, env={"PATH": os.defpath}, timeout=60, check=False).returncode == 0
    with subprocess.Popen([sys.executable, "-c", RUNNER], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as runner:
        runner.stdout.readline()
        reaper = threading.Thread(target=runner.wait)
        reaper.start()
        with subprocess.Popen(command, env={"PATH": os.defpath, "MAINPID": str(runner.pid)}) as stopping:
            assert runner.stdout.readline() == b"told\n"
            assert stopping.poll() is None, "it does not wait for the games"
            runner.stdin.close()
            assert stopping.wait(60) == 0
        reaper.join()
        assert runner.returncode == 0


def commands():
    """(file, program's module, its arguments) of every Python program that the deployments start."""
    for name in ("compose.yaml", "kubernetes.yaml"):
        for document in yaml.safe_load_all((FLEET / name).read_text()):
            for command in _lists(document):
                if command[:2] == ["sh", "-c"] and command[2].startswith("exec python"):
                    command = shlex.split(command[2].removeprefix("exec "))
                if command[:2] == ["python", "-m"]:
                    values = [re.sub(r"\$\{\w+:-([^}]*)\}|\$[($](\w+)\)?", r"\1\2", part) for part in command]
                    yield name, values[2], values[3:]
    settings = dict(re.findall(r"^(\w+)=(.*)$", (FLEET / "systemd" / "fleet.env").read_text(), re.M))
    for path in (FLEET / "systemd").glob("*.service"):
        text = path.read_text().replace("%H-%i", "machine-1")
        for module, arguments in re.findall(r"^ExecStart=\S+/python -m (\S+) (.*)$", text, re.M):
            known = dict(re.findall(r"(\w+)=(\S*)", " ".join(re.findall("^Environment=(.*)$", text, re.M)))) | settings
            yield path.name, module, shlex.split(string.Template(arguments).substitute(known))


def _lists(document):
    if isinstance(document, list) and all(isinstance(part, str) for part in document):
        yield document
    elif isinstance(document, dict | list):
        for part in document.values() if isinstance(document, dict) else document:
            yield from _lists(part)


PARSERS = {
    "store": _serve_parser().parse_args,
    "runners.werewolf": runners.werewolf.__main__.parse_arguments,
    "algo.werewolf_verl": algo.werewolf_verl.parse_arguments,
}


@pytest.mark.parametrize(("file", "module", "arguments"), commands())
def test_programs_take_the_commands_of_the_deployments(file, module, arguments):
    options = PARSERS[module](arguments)
    if module == "algo.werewolf_verl":
        config = load_config(FLEET / options.config.name, options.overrides)
        assert config.store.url.startswith("http://") and config.run.dir.is_absolute() and options.resume == "auto"


def test_every_deployment_starts_hub_runner_and_algorithm():
    of_file = {name: {module for file, module, _ in commands() if file == name} for name, *_ in commands()}
    systemd = set().union(*(modules for name, modules in of_file.items() if name.endswith(".service")))
    assert of_file["compose.yaml"] == of_file["kubernetes.yaml"] == systemd == PARSERS.keys()


def test_a_unit_with_a_gpu_hides_no_device():
    """ProtectClock restricts devices before systemd 252 (systemd/systemd#18142)."""
    unit = (FLEET / "systemd" / "werewolf-algorithm.service").read_text()
    assert not re.search("^(ProtectClock|PrivateDevices|DevicePolicy)=", unit, re.M)


def test_shared_memory_of_the_container_holds_rays_object_store():
    algorithm = yaml.safe_load((FLEET / "compose.yaml").read_text())["services"]["algorithm"]
    assert int(algorithm["shm_size"].removesuffix("gb")) * 2**30 > 10**10  # ray.ray_constants


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd-analyze on this machine")
def test_systemd_takes_the_units(tmp_path):
    for path in (FLEET / "systemd").glob("werewolf-*"):
        text = path.read_text().replace("/opt/werewolf/.venv/bin/python", sys.executable)
        for program in ("/usr/sbin/nginx", "/usr/bin/curl"):  # which this machine need not have
            text = text.replace(program, "/bin/true")
        (tmp_path / path.name).write_text(text)
    for path in sorted(tmp_path.iterdir()):
        # A template is checked as one of its instances.
        command = ["systemd-analyze", "verify", "--man=no", str(path).replace("@.", "@1.")]
        verified = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        ours = [line for line in verified.stderr.splitlines() if "werewolf" in line]
        assert verified.returncode == 0 and not ours, "\n".join(ours) or verified.stderr
