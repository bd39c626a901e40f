"""Dependencies point one way: game <- table and players <- worker -> store <- algo."""

import ast
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
HEAVY = {"torch", "verl", "vllm", "ray", "tensordict"}

# room -> top-level modules, or dotted prefixes, that nothing in it may import
FORBIDDEN = {
    "configs": {"algo", "runners", "store", "agentlightning", *HEAVY},
    "store": {"algo", "runners", "configs", "agentscope", *HEAVY},
    "runners": {"algo", "configs", *HEAVY},
    "algo": {"runners", "agentscope"},
    "runners/werewolf": {"runners.worker", "runners.uploads"},
}


def imports_of(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            yield node.module


def modules_in(room):
    found = sorted((ROOT / room).rglob("*.py"))
    assert found, room
    return found


def is_within(module, forbidden):
    return any(module == name or module.startswith(name + ".") for name in forbidden)


@pytest.mark.parametrize("room", FORBIDDEN)
def test_rooms_import_only_what_their_walls_allow(room):
    entry_point = ROOT / "runners/werewolf/__main__.py"  # puts the game behind a worker; belongs to both
    wrong = [
        f"{path.relative_to(ROOT)} imports {module}"
        for path in modules_in(room)
        for module in imports_of(path)
        if is_within(module, FORBIDDEN[room]) and not (room == "runners/werewolf" and path == entry_point)
    ]
    assert wrong == []


def test_the_rules_need_nothing_but_the_standard_library():
    for path in modules_in("runners/werewolf/game"):
        for module in imports_of(path):
            assert module.split(".")[0] in sys.stdlib_module_names or module.startswith("runners.werewolf.game"), path


def test_the_rules_know_no_clock_no_io_and_no_global_chance():
    for path in modules_in("runners/werewolf/game"):
        assert not {"time", "datetime", "asyncio", "os", "pathlib", "secrets"} & set(imports_of(path)), path
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "random":
                assert node.attr == "Random", f"{path}:{node.lineno} uses random.{node.attr}"
