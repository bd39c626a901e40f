"""The fleet recipes: each command, variable, file and address in them is one that exists; tools for them take them."""

import asyncio
import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import yaml

from configs.loading import load_config
from store.auth import TOKEN_FILE_VARIABLE, TOKEN_VARIABLE
from store.client import connect
from tests.support.hub.hub_process import HubProcess

pytest_plugins = ("tests.support.hub.hub_backends",)

ROOT = Path(__file__).parents[2]
FLEET = ROOT / "configs" / "fleet"
HUB_PORT, POLICY_PORT, VLLM_PORT = 4747, 8080, 8000
RECIPES = {"compose": ["compose.yaml"], "kubernetes": ["kubernetes.yaml"], "systemd": ["systemd/*.service"]}
PLACED = {"/etc/policy_proxy.conf", *(f"/etc/werewolf/{one}" for one in ("run.yaml", "policy_proxy.conf", "fleet.env"))}
FLEET_ENV = dict(re.findall(r"^(\w+)=(.*)$", (FLEET / "systemd" / "fleet.env").read_text(), re.M))
GIVEN = {"MODEL_DIR": "/srv/models/policy", "HOSTNAME": "pod-1", "POD_NAME": "pod-1", "MAINPID": "4711", **FLEET_ENV}


def text_of(recipe):
    """Its files without comments, with every variable replaced: KeyError for one that nobody gives."""
    paths = [path for pattern in RECIPES[recipe] for path in sorted(FLEET.glob(pattern))]
    text = "\n".join(re.sub(r"^\s*#.*$", "", path.read_text(), flags=re.M) for path in paths)
    text = re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", text).replace("%H", "machine").replace("%i", "1")
    variable = r"\$\$?(?:\{(\w+)(?::\?[^}]*)?\}|\((\w+)\)|(\w+))"
    return re.sub(variable, lambda match: GIVEN[next(filter(None, match.groups()))], text)


TEXTS = {recipe: text_of(recipe) for recipe in RECIPES}


def command_lines(recipe):
    """Every command as one line."""
    if recipe == "systemd":
        yield from re.findall(r"^Exec\w+=(.*)$", TEXTS[recipe], re.M)
        return
    waiting = list(yaml.safe_load_all(TEXTS[recipe]))
    while waiting:
        node = waiting.pop()
        if isinstance(node, list) and node and all(isinstance(one, str) for one in node):
            yield " ".join(node)
        elif isinstance(node, list | dict):
            waiting += node.values() if isinstance(node, dict) else node


def arguments_of(program):
    """(recipe, arguments) of every command with the program: a module after -m, or a file."""
    for recipe in RECIPES:
        for line in command_lines(recipe):
            for found in re.findall(rf"{re.escape(program)} ([^;&|}}]*)", line):
                yield recipe, shlex.split(found)


# Commands


def hub_is_as_expected(recipe, arguments):
    from store.__main__ import _serve_parser

    options = _serve_parser().parse_args(arguments)
    assert options.port == HUB_PORT and options.db.is_absolute()
    assert (options.host == "127.0.0.1") == (recipe == "systemd")


def runner_is_as_expected(recipe, arguments):
    from runners.werewolf.__main__ import parse_arguments

    options = parse_arguments(arguments)
    assert options.worker_id and options.n == 8 and options.store.endswith(f":{HUB_PORT}")


def algorithm_is_as_expected(recipe, arguments):
    from algo.werewolf_verl import parse_arguments

    options = parse_arguments(arguments)
    assert options.resume == "auto" and str(options.config) in PLACED
    config = load_config(FLEET / options.config.name, options.overrides)
    assert config.serving.port == VLLM_PORT and config.run.dir.is_absolute()
    if recipe != "systemd":  # where nobody else is on the loopback
        assert str(config.serving.public_urls[0]).endswith(f":{POLICY_PORT}")


@pytest.mark.parametrize(
    ("program", "check"),
    [
        ("-m store", hub_is_as_expected),
        ("-m runners.werewolf", runner_is_as_expected),
        ("-m algo.werewolf_verl", algorithm_is_as_expected),
    ],
)
def test_each_recipe_starts_the_program_as_it_takes_it(program, check):
    found = list(arguments_of(program))
    assert {recipe for recipe, _ in found} == set(RECIPES)
    for recipe, arguments in found:
        check(recipe, arguments)


@pytest.mark.parametrize("recipe", RECIPES)
def test_no_token_stands_in_a_recipe_and_every_file_exists(recipe):
    text = TEXTS[recipe] if recipe != "systemd" else (FLEET / "systemd" / "fleet.env").read_text()
    assert TOKEN_VARIABLE in text or TOKEN_FILE_VARIABLE in text
    assert not re.search(rf"\b{TOKEN_VARIABLE}\b(?!\s+valueFrom:)", text)
    for file in re.findall(r"/opt/werewolf/((?!\.venv)[\w/.]+)", TEXTS[recipe]):
        assert (ROOT / file).is_file(), file
    named = set(re.findall(r"/etc/[\w/]+\.(?:yaml|conf|env)", TEXTS[recipe]))
    assert named and named <= PLACED
    for ignored in (ROOT / ".gitignore", FLEET / "Dockerfile.dockerignore"):
        assert "configs/fleet/hub_token" in ignored.read_text().split()


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
    alive, said = await runner_health(hub.url, "machine-1")
    assert alive == 0 and "no hub answers" in said


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


# The proxy before vLLM


def proxy_locations():
    """(directive, its value) by location, as nginx writes locations."""
    text = re.sub(r"#.*", "", (FLEET / "policy_proxy.conf").read_text())
    blocks = re.findall(r"location (= )?(\S+) \{\s*(\w+) ([^;]+);\s*\}", text)
    assert len(blocks) == text.count("location "), "a location with more than one directive"
    return {f"{exactly}{path}": (directive, value) for exactly, path, directive, value in blocks}


def test_the_proxy_forwards_what_runners_need_and_nothing_else():
    from runners.policy.chat_tokens import INFO_ROUTE
    from runners.policy.codecs import DETOKENIZE_ROUTE, TOKENIZE_ROUTE

    locations = proxy_locations()
    assert locations.pop("/") == ("return", "404")
    assert locations.pop("= /proxy_health")[0] == "return"
    open_paths = {"/v1/": "/v1/"} | {f"= {route}": route for route in (INFO_ROUTE, TOKENIZE_ROUTE, DETOKENIZE_ROUTE)}
    assert locations == {
        place: ("proxy_pass", f"http://127.0.0.1:{VLLM_PORT}{path}") for place, path in open_paths.items()
    }
    assert f"listen {POLICY_PORT};" in (FLEET / "policy_proxy.conf").read_text()


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
