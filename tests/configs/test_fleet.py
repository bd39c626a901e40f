"""The fleet recipes: each command, variable, file, address and reference in them is one that exists."""

import asyncio
import importlib.util
import re
import shutil
import socket
import subprocess
import sys

import httpx
import pytest

from configs.loading import load_config
from store.auth import TOKEN_FILE_VARIABLE, TOKEN_VARIABLE
from tests.support.hub import fleet_recipes as recipes
from tests.support.hub.fleet_recipes import FLEET, HUB_PORT, PLACED, POLICY_PORT, ROOT, VLLM_PORT

PROGRAMS = recipes.every_program()


def commands_of(module):
    """(program, arguments) of every command that runs the module."""
    for program in PROGRAMS:
        for words in program.words():
            if words[1:3] == ["-m", module]:
                yield program, words[3:]


# Commands


def test_each_recipe_starts_hub_runner_and_algorithm():
    for module in ("store", "runners.werewolf", "algo.werewolf_verl"):
        assert [program.recipe for program, _ in commands_of(module)] == ["compose", "kubernetes", "systemd"], module


def test_the_hubs_command_lines():
    from store.__main__ import _serve_parser

    for program, arguments in commands_of("store"):
        options = _serve_parser().parse_args(arguments)
        assert options.port == HUB_PORT and options.db.is_absolute(), program
        assert (options.host == "127.0.0.1") == (program.recipe == "systemd"), program


def test_the_runners_command_lines():
    from runners.werewolf.__main__ import parse_arguments

    for program, arguments in commands_of("runners.werewolf"):
        options = parse_arguments(arguments)
        assert options.worker_id and options.n == 8 and options.store.endswith(f":{HUB_PORT}"), program


def test_the_algorithms_command_lines():
    from algo.werewolf_verl import parse_arguments

    for program, arguments in commands_of("algo.werewolf_verl"):
        options = parse_arguments(arguments)
        assert options.resume == "auto", program
        config = load_config(PLACED[str(options.config)], options.overrides)
        assert config.serving.port == VLLM_PORT and config.run.dir.is_absolute(), program
        if program.recipe != "systemd":  # where nobody else is on the loopback
            assert str(config.serving.public_urls[0]).endswith(f":{POLICY_PORT}"), program


def test_the_health_checks_command_lines():
    health = load_runner_health()
    asked = [
        (program, words[2:])
        for program in PROGRAMS
        for words in program.words()
        if words[1:] and words[1] == "/opt/werewolf/configs/fleet/runner_health.py"
    ]
    assert {program.recipe for program, _ in asked} == {"compose", "kubernetes", "systemd"}
    runners = {program.recipe: arguments for program, arguments in commands_of("runners.werewolf")}
    for program, arguments in asked:
        options = health.parse_arguments(arguments)
        runner = " ".join(runners[program.recipe]).replace("=", " ")
        assert f"--worker-id {options.worker_id}" in runner and f"--store {options.store} " in runner, program


def test_every_variable_is_given_and_has_a_reader():
    read_by_us, read_by_libraries = {TOKEN_VARIABLE, TOKEN_FILE_VARIABLE}, {"HOME"}
    used = set()
    for program in PROGRAMS:
        list(program.words())  # raises KeyError for a variable that nobody gives
        used |= program.used
    for program in PROGRAMS:
        assert set(program.environment) <= used | read_by_us | read_by_libraries, program


def test_no_token_stands_in_a_recipe():
    for program in PROGRAMS:
        assert TOKEN_VARIABLE not in program.used and TOKEN_FILE_VARIABLE not in program.used, program
        assert not program.environment.get(TOKEN_VARIABLE), program
        needs_it = any(words[1:2] == ["-m"] for words in program.words())
        assert needs_it <= bool({TOKEN_VARIABLE, TOKEN_FILE_VARIABLE} & set(program.environment)), program
    assert "configs/fleet/hub_token" in (ROOT / ".gitignore").read_text().split()
    assert "configs/fleet/hub_token" in (FLEET / "Dockerfile.dockerignore").read_text().split()


def test_every_file_of_ours_that_a_command_names_exists():
    for program in PROGRAMS:
        for words in program.words():
            for word in words:
                if word.startswith(recipes.INSTALLED) and ".venv" not in word:
                    assert (ROOT / word.removeprefix(recipes.INSTALLED)).is_file(), word
                path = re.sub(r"^--config=", "", word)
                if path.startswith("/etc/"):
                    assert PLACED[path].is_file(), word


@pytest.mark.parametrize("recipe", ["compose", "kubernetes", "systemd"])
def test_a_runner_has_the_time_to_finish_its_games(recipe):
    if recipe == "compose":
        grace = recipes.compose()["services"]["runner"]["stop_grace_period"]
        units = {"h": 3600, "m": 60, "s": 1}
        drain = killed = sum(int(number) * units[unit] for number, unit in re.findall(r"(\d+)([hms])", grace))
    elif recipe == "kubernetes":
        runner = recipes.pods()["werewolf-runner"]["spec"]
        stop, killed = runner["containers"][0]["lifecycle"]["preStop"], runner["terminationGracePeriodSeconds"] - 1
        drain = int(re.search(r"timeout (\d+)", stop["exec"]["command"][2])[1])
    else:
        stop = recipes.units()["werewolf-runner@.service"]["Service"]
        drain = int(re.search(r"timeout (\d+)", stop["ExecStop"][0])[1])
        killed = int(stop["TimeoutStopSec"][0]) - 1
    assert recipes.longest_game() <= drain <= killed


# Health


def addresses():
    """(program, port, path) of everything that a health check asks."""
    for program in PROGRAMS:
        for words in program.words():
            for _, port, path in re.findall(r"http://([\w.-]+):(\d+)(/\w[\w/]*)", " ".join(words)):
                yield program, int(port), path
    for pod in recipes.pods().values():
        for container in recipes.containers(pod):
            ports = {port["name"]: port["containerPort"] for port in container.get("ports", [])}
            for probe in recipes.probes(container).values():
                if "httpGet" in probe:
                    yield container["name"], ports[probe["httpGet"]["port"]], probe["httpGet"]["path"]


async def test_every_health_check_asks_for_what_is_served(tmp_path):
    asked = {(port, path) for _, port, path in addresses()}
    assert {port for port, _ in asked} == {HUB_PORT, POLICY_PORT, VLLM_PORT}
    async with httpx.AsyncClient(transport=httpx.ASGITransport(hub_app(tmp_path)), base_url="http://localhost") as hub:
        for port, path in asked:
            if port == HUB_PORT:  # without the token, which health checks by others do not have
                assert (await hub.get(path)).status_code == 200, path
            elif port == POLICY_PORT:
                assert f"= {path}" in recipes.proxy_locations() or path.startswith("/v1/"), path
            else:
                assert path in {"/health"}, path  # what algo.serving.server asks vLLM


def hub_app(folder):
    from store.hub.database.lightning_store import SqlLightningStore
    from store.hub.database.sqlite import SqliteDatabase
    from store.hub.server import Hub, HubSettings

    settings = HubSettings("127.0.0.1", 1, folder / "hub.sqlite3", token="long-and-secret")
    return Hub(SqlLightningStore(SqliteDatabase(settings.database)), settings, 1).app


def load_runner_health():
    spec = importlib.util.spec_from_file_location("runner_health", FLEET / "runner_health.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


async def test_a_runner_is_alive_while_the_hub_hears_of_it(hub, client, capsys):
    health = load_runner_health()

    async def status(name, *options):
        command = [sys.executable, FLEET / "runner_health.py", "--store", hub.url, *options, name]
        return (await run_beside(command)).returncode

    assert await status("pod/1") == 1  # never heard of
    await client.update_worker("machine-1", {"playing": 1})
    assert await status("machine-1") == 0
    assert await status("machine-1", "--within", "-10") == 1  # silent for longer than that
    for numbered in ("machine-2-1", "machine-2-2"):  # --processes 2
        await client.update_worker(numbered, {"playing": 1})
    assert await status("machine-2") == 0
    assert await status("machine-2", "--within", "-10") == 1
    for nobody in ("mach", "achine-1", "machine-2-", "machine.1"):  # though others' names look like it
        assert await status(nobody) == 1, nobody
    await hub.stop()
    assert health.main(["--store", hub.url, "machine-1"]) == 0
    assert "no hub answers" in capsys.readouterr().out


async def test_runner_health_sends_the_token(tmp_path, monkeypatch):
    from store.client import connect
    from tests.support.hub.hub_process import HubProcess

    token = tmp_path / "token"
    token.write_text("long-and-secret\n")
    token.chmod(0o600)
    for name in (TOKEN_VARIABLE, TOKEN_FILE_VARIABLE):
        monkeypatch.delenv(name, raising=False)
    hub = await HubProcess(tmp_path, "--token-file", str(token)).start()
    try:
        ask = [sys.executable, str(FLEET / "runner_health.py"), "--store", hub.url, "machine-1"]
        refused = await run_beside(ask)
        assert refused.returncode == 1 and "401" in refused.stdout
        monkeypatch.setenv(TOKEN_FILE_VARIABLE, str(token))
        client = connect(hub.url, 20)
        await client.update_worker("machine-1", {})
        await client.close()
        heard = await run_beside(ask)
        assert heard.returncode == 0 and "heard of machine-1" in heard.stdout
    finally:
        hub.kill()


async def run_beside(command):
    """Run a program while this process goes on, in which a hub may answer it."""
    return await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, timeout=60, check=False)


# The proxy before vLLM


def test_the_proxy_forwards_what_runners_need_and_nothing_else():
    from runners.policy.chat_tokens import INFO_ROUTE
    from runners.policy.codecs import DETOKENIZE_ROUTE, TOKENIZE_ROUTE

    locations = recipes.proxy_locations()
    assert locations.pop("/") == ("return", "404")
    assert locations.pop("= /proxy_health")[0] == "return"
    open_paths = {"/v1/": "/v1/"} | {f"= {route}": route for route in (INFO_ROUTE, TOKENIZE_ROUTE, DETOKENIZE_ROUTE)}
    assert locations == {
        place: ("proxy_pass", f"http://127.0.0.1:{VLLM_PORT}{path}") for place, path in open_paths.items()
    }
    configuration = (FLEET / "policy_proxy.conf").read_text()
    assert f"listen {POLICY_PORT};" in configuration
    assert "error_log stderr " in configuration, "under systemd /dev/stderr is a socket, which cannot be opened"


@pytest.mark.skipif(shutil.which("nginx") is None, reason="no nginx on this machine")
def test_nginx_takes_the_proxys_configuration():
    ours, its = socket.socketpair()  # under systemd its stderr is a socket, too
    with ours, its:
        tested = subprocess.run(
            ["nginx", "-e", "stderr", "-t", "-c", FLEET / "policy_proxy.conf"], stderr=its, check=False
        )
        assert tested.returncode == 0, ours.recv(65536).decode()
