"""Reads the recipes in configs/fleet: every program they start, with its environment, and every address they ask."""

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import yaml

from configs.loading import load_config

ROOT = Path(__file__).parents[3]
FLEET = ROOT / "configs" / "fleet"
INSTALLED = "/opt/werewolf/"
"""Where systemd units and images have the project."""

HUB_PORT, POLICY_PORT, VLLM_PORT = 4747, 8080, 8000
# Where the recipes put files of ours.
PLACED = {
    "/etc/werewolf/run.yaml": FLEET / "run.yaml",
    "/etc/werewolf/policy_proxy.conf": FLEET / "policy_proxy.conf",
    "/etc/policy_proxy.conf": FLEET / "policy_proxy.conf",
    "/etc/werewolf/fleet.env": FLEET / "systemd" / "fleet.env",
}

# Given by whoever starts a recipe, or by what starts the process.
GIVEN = {"MODEL_DIR": "/srv/models/policy", "HOSTNAME": "0a1b2c3d4e5f", "MAINPID": "4711"}
_SPECIFIERS = {"%H": "machine", "%i": "1"}


@dataclass
class Program:
    """One container or unit: what it runs, in the words that the program sees.

    commands: its own and those of its health checks and hooks. environment: by name, "" for a value from a secret.
    used: the variables that stand in its commands.
    """

    recipe: str
    name: str
    commands: list[list[str]]
    environment: dict[str, str]
    used: set[str] = field(default_factory=set)

    def __str__(self):
        return f"{self.recipe}:{self.name}"

    def words(self) -> Iterator[list[str]]:
        """Every simple command, those inside `sh -c` taken apart; variables have their values."""
        for command in self.commands:
            if command[0].rsplit("/")[-1] == "sh" and command[1] == "-c":
                assert len(command) == 3, command
                yield from _simple_commands(self.expand(command[2]))
            else:
                yield [self.expand(word) for word in command]

    def expand(self, text: str) -> str:
        """The text with $NAME, ${NAME} and $(NAME) replaced."""

        def value(match: re.Match[str]) -> str:
            name = match[1] or match[2] or match[3]
            self.used.add(name)
            return self.environment[name] if name in self.environment else GIVEN[name]

        return re.sub(r"\$\{(\w+)\}|\$\((\w+)\)|\$(\w+)", value, text)


def _simple_commands(script: str) -> Iterator[list[str]]:
    lexer = shlex.shlex(script, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    words: list[str] = []
    for word in [*lexer, ";"]:
        if set(word) <= set("();<>|&{}"):
            if words:
                yield words
            words = []
        elif word != "exec":
            words.append(word)


def every_program() -> list[Program]:
    return [*compose_programs(), *kubernetes_programs(), *systemd_programs()]


def compose() -> dict:
    """compose.yaml with the defaults of its variables."""

    def default(match: re.Match[str]) -> str:
        name, kind, text = match[1], match[2], match[3]
        assert kind == ":-" or name in GIVEN, f"${{{name}}} must be in GIVEN"
        return text if kind == ":-" else GIVEN[name]

    text = (FLEET / "compose.yaml").read_text()
    return yaml.safe_load(re.sub(r"(?<!\$)\$\{(\w+)(:[-?])([^}]*)\}", default, text))


def compose_programs() -> Iterator[Program]:
    for name, service in compose()["services"].items():
        check = service["healthcheck"]["test"]
        checks = [["sh", "-c", check[1]]] if check[0] == "CMD-SHELL" else [check[1:]]
        commands = [[word.replace("$$", "$") for word in command] for command in [service["command"], *checks]]
        yield Program("compose", name, commands, dict(service.get("environment", {})))


def kubernetes() -> list[dict]:
    return list(yaml.safe_load_all((FLEET / "kubernetes.yaml").read_text()))


def pods() -> dict[str, dict]:
    """Pod templates by the name of what makes them."""
    return {
        item["metadata"]["name"]: item["spec"]["template"]
        for item in kubernetes()
        if "template" in item.get("spec", {})
    }


def containers(pod: dict) -> list[dict]:
    return [*pod["spec"].get("initContainers", []), *pod["spec"]["containers"]]


def probes(container: dict) -> dict[str, dict]:
    return {name: probe for name, probe in container.items() if name.endswith("Probe")}


def kubernetes_programs() -> Iterator[Program]:
    for pod in pods().values():
        for container in containers(pod):
            hooks = [*probes(container).values(), *container.get("lifecycle", {}).values()]
            commands = [container.get("args") or container["command"]]
            commands += [hook["exec"]["command"] for hook in hooks if "exec" in hook]
            environment = {entry["name"]: entry.get("value", "") for entry in container.get("env", [])}
            if "POD_NAME" in environment:
                environment["POD_NAME"] = "werewolf-runner-5d4f-x2x9z"
            yield Program("kubernetes", container["name"], commands, environment)


def units() -> dict[str, dict[str, dict[str, list[str]]]]:
    """systemd units: file name -> section -> key -> values in order."""
    found = {}
    for path in sorted((FLEET / "systemd").glob("werewolf-*")):
        section: dict[str, list[str]] = {}
        unit = found[path.name] = {}
        for line in path.read_text().splitlines():
            if re.fullmatch(r"\[\w+\]", line):
                assert line[1:-1] not in unit, f"{path.name}: {line} twice"
                section = unit.setdefault(line[1:-1], {})
            elif line and not line.startswith("#"):
                key, separator, value = line.partition("=")
                assert separator and key.isalnum() and unit, f"{path.name}: {line}"
                section.setdefault(key, []).append(value)
    return found


def fleet_env() -> dict[str, str]:
    lines = (FLEET / "systemd" / "fleet.env").read_text().splitlines()
    return dict(line.split("=", 1) for line in lines if line and not line.startswith("#"))


def systemd_programs() -> Iterator[Program]:
    for name, unit in units().items():
        service = unit.get("Service")
        if service is None:
            continue
        defaults = dict(word.split("=", 1) for line in service.get("Environment", []) for word in shlex.split(line))
        named = {"/etc/werewolf/fleet.env": fleet_env()}
        for file in service.get("EnvironmentFile", []):
            defaults |= named[file]
        lines = [line for key, values in service.items() if key.startswith("Exec") for line in values]
        program = Program("systemd", name, [], defaults)
        for line in lines:
            for specifier, value in _SPECIFIERS.items():
                line = line.replace(specifier, value)
            # A word $NAME of its own is split at blanks, unlike ${NAME}.
            program.commands.append(
                [
                    part
                    for word in shlex.split(line)
                    for part in (program.expand(word).split() if re.fullmatch(r"\$\w+", word) else [word])
                ]
            )
        yield program


def proxy_locations() -> dict[str, tuple[str, str]]:
    """policy_proxy.conf: (directive, its value) by location, as nginx writes locations."""
    text = re.sub(r"#.*", "", (FLEET / "policy_proxy.conf").read_text())
    blocks = re.findall(r"location (= )?(\S+) \{\s*(\w+) ([^;]+);\s*\}", text)
    assert len(blocks) == text.count("location "), "a location with more than one directive"
    return {f"{exactly}{path}": (directive, value) for exactly, path, directive, value in blocks}


def longest_game() -> float:
    """Seconds that a game may take in the run that the recipes start."""
    return load_config(FLEET / "run.yaml").rollout.timeout_seconds
