"""Dependencies point one way: game <- table and players <- worker -> store <- algo."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
GAME_EVALUATION = {
    f"algo.evaluation.{path.stem}"
    for path in (ROOT / "algo/evaluation").glob("*.py")
    if path.stem not in ("__init__", "statistics", "record", "page", "charts")
}
HEAVY = {"torch", "verl", "vllm", "ray", "tensordict"}

# What only a workload, and what stands above all workloads, may know of the game and of other agents.
OF_A_WORKLOAD = {
    *("algo.werewolf", "algo.agents", "algo.recipes"),
    *GAME_EVALUATION,
    *("runners.werewolf", "runners.agents", "store.werewolf", "store.werewolf_study", "store.agents"),
    *("configs.werewolf", "configs.agents"),
    *(f"configs.sections.{section}" for section in ("game", "rewards", "warm_start")),
}
ROLES_AND_DECKS = "configs.roles_and_decks"  # on which the rules stand, too
GENERIC_ROOMS = (
    "machine",
    "rollouts",
    "sequences",
    "advantages",
    "training",
    "serving",
    "league",
    "run",
    "loop",
)

# room -> top-level modules, or dotted prefixes, that nothing in it may import
FORBIDDEN = {
    "configs": {
        *("algo", "runners", "agentlightning"),
        # Of the store, only types that are light to import: players and addresses.
        *(f"store.{module}" for module in ("hub", "client", "endpoints", "schema", "werewolf", "agents")),
        *HEAVY,
    },
    "store": {"algo", "runners", "configs", "agentscope", *HEAVY},
    "runners": {"algo", "configs", "store.hub", "transformers", *HEAVY},
    "algo": {"runners", "agentscope", "store.hub"},
    "runners/werewolf": {"runners.worker", "runners.uploads", "runners.agents"},
    "runners/agents": {"runners.worker", "runners.uploads", "runners.werewolf", "agentscope"},
    "runners/policy": {"runners.worker", "runners.uploads", *OF_A_WORKLOAD},
    "algo/agents": {
        "algo.werewolf",
        *GAME_EVALUATION,
        "algo.recipes",
        "algo.prompt_search",
        "store.werewolf",
        "configs.werewolf",
    },
    "algo/werewolf": {"algo.agents", *GAME_EVALUATION, "algo.recipes"},
    "algo/evaluation": {"algo.agents", "algo.recipes"},
    **{f"algo/{room}": OF_A_WORKLOAD for room in GENERIC_ROOMS},
    **dict.fromkeys(("runners/*.py", "store/token_spans.py", "store/schema.py"), OF_A_WORKLOAD),
}
for product in ("configs", "store", "runners", "algo"):
    FORBIDDEN[product] |= {"tests", "bench"}


OURS = {
    name
    for names in FORBIDDEN.values()
    for name in names
    if name.split(".")[0] in ("algo", "configs", "runners", "store")
}


def test_what_is_forbidden_exists():
    places = [ROOT / name.replace(".", "/") for name in OURS]
    assert [str(place) for place in places if not place.is_dir() and not place.with_suffix(".py").is_file()] == []


def imports_of(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            yield node.module


def modules_in(room):
    found = sorted(ROOT.glob(room if room.endswith(".py") else f"{room}/**/*.py"))
    assert found, room
    return found


def is_within(module, forbidden):
    return any(module == name or module.startswith(name + ".") for name in forbidden)


@pytest.mark.parametrize("room", FORBIDDEN)
def test_packages_import_only_allowed_packages(room):
    # These put what is played behind a worker, and belong to both.
    entry_points = {ROOT / "runners/werewolf/__main__.py", ROOT / "runners/agents/lightning.py"}
    wrong = [
        f"{path.relative_to(ROOT)} imports {module}"
        for path in modules_in(room)
        for module in imports_of(path)
        if is_within(module, FORBIDDEN[room])
        and not (path in entry_points and module == "runners.worker")
        and not (module == ROLES_AND_DECKS and path.is_relative_to(ROOT / "runners/werewolf/game"))
    ]
    assert wrong == []


def test_no_module_imports_itself_by_way_of_others():
    files = files_by_module("algo", "configs", "runners", "store")
    graph = {name: sorted(_named_by(path) & files.keys()) for name, path in files.items()}
    assert sum(map(len, graph.values())) > 300  # it saw the imports
    done: set[str] = set()

    def walk(name, way):
        assert name not in way, f"circle: {' -> '.join([*way[way.index(name) :], name])}"
        if name not in done:
            for module in graph[name]:
                walk(module, [*way, name])
            done.add(name)

    for name in graph:
        walk(name, [])


def test_agents_are_played_without_agentscope():
    """Not even by way of others: a runner of agents does not have it installed."""
    files = files_by_module("runners", "store")
    reached = reached_from([name for name in files if name.startswith("runners.agents")], files)
    assert {"runners.agents.__main__", "runners.worker", "runners.policy.client"} <= reached
    wrong = [name for name in sorted(reached) if any(is_within(m, {"agentscope"}) for m in imports_of(files[name]))]
    assert wrong == []


def test_agentlightning_is_imported_by_hubs_and_adapters_alone():
    """It takes seconds and 300 MB, and so does its litellm; the rest speaks the protocol with ``store.client``."""
    adapters = {
        *("store/__main__.py", "algo/agents/algorithm.py", "runners/agents/lit.py", "runners/agents/lightning.py"),
        "runners/werewolf/lit_agent.py",
    }
    wrong = [
        name
        for product in ("algo", "configs", "runners", "store")
        for path in modules_in(product)
        if not (name := path.relative_to(ROOT).as_posix()).startswith("store/hub/")
        and "/example" not in name
        and name not in adapters
        and any(is_within(module, {"agentlightning", "litellm"}) for module in imports_of(path))
    ]
    assert wrong == []


def files_by_module(*rooms):
    return {
        ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path
        for room in rooms
        for path in modules_in(room)
    }


def reached_from(modules, files):
    """Those that importing some modules imports."""
    reached, waiting = set(), list(modules)
    while waiting:
        name = waiting.pop()
        if name not in reached:
            reached.add(name)
            waiting += _named_by(files[name]) & files.keys()
    return reached


def _named_by(path):
    """Modules that a file imports; what is taken out of a package is the module, where there is one of that name."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            folder = ROOT / node.module.replace(".", "/")
            inside = {alias.name for alias in node.names if (folder / f"{alias.name}.py").exists()}
            found |= {f"{node.module}.{name}" for name in inside} or {node.module}
    return found


def test_the_rules_need_nothing_but_the_standard_library():
    for path in (*modules_in("runners/werewolf/game"), ROOT / "configs/roles_and_decks.py"):
        for module in imports_of(path):
            own = module.startswith("runners.werewolf.game") or module == ROLES_AND_DECKS
            assert own or module.split(".")[0] in sys.stdlib_module_names, path


def test_the_rules_know_no_clock_no_io_and_no_global_chance():
    for path in modules_in("runners/werewolf/game"):
        assert not {"time", "datetime", "asyncio", "os", "pathlib", "secrets"} & set(imports_of(path)), path
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "random":
                assert node.attr == "Random", f"{path}:{node.lineno} uses random.{node.attr}"


def test_links_of_readmes_lead_somewhere():
    pages = subprocess.run(["git", "ls-files", "*.md"], cwd=ROOT, capture_output=True, text=True, check=True)
    dead = [
        f"{page}: {target}"
        for page in pages.stdout.split()
        for target in re.findall(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)", (ROOT / page).read_text(encoding="utf-8"))
        if not ((ROOT / page).parent / target).exists()
    ]
    assert dead == []
