"""What is asked or refused before anything starts is answered without waiting for verl, vLLM's client or the hub's."""

import ast
import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
HEAVY = {
    "torch", "verl", "ray", "vllm", "transformers", "tensordict", "agentlightning", "litellm", "plotly", "matplotlib",
    "openskill", "aiohttp",
}  # fmt: skip
WRONG_KEY = ["--set", "run.stps=3"]
AGENT = ["--config", "configs/agent_math.yaml"]
SEARCH = ["--prompts", "algo/prompt_search/example/prompts.txt", "--tasks", "algo/prompt_search/example/tasks.jsonl"]
NO_MODEL = ["--set", "model.path=no/such/folder"]
ASKED = [
    *((program, ["--help"], 0) for program in
      ("werewolf_verl", "werewolf_sft", "evaluate", "cross_table", "learn", "demo", "tiny_model", "learning.report",
       "agent_verl", "learn_agents", "exploit", "find_best_prompt")),
    *((program, ["--print-config"], 0) for program in ("werewolf_verl", "werewolf_sft", "evaluate", "cross_table")),
    *((program, WRONG_KEY, 2) for program in
      ("werewolf_verl", "werewolf_sft", "evaluate", "cross_table", "learn", "demo")),
    *((program, NO_MODEL, 2) for program in ("werewolf_verl", "werewolf_sft")),
    ("agent_verl", [*AGENT, "--print-config"], 0),
    *((program, [*AGENT, *WRONG_KEY], 2) for program in ("agent_verl", "learn_agents")),
    ("agent_verl", [*AGENT, *NO_MODEL], 2),
    ("learn_agents", [*AGENT, "--set", "agents.train=no/such/file"], 2),
    ("exploit", ["--model", "no/such/folder"], 2),
    ("evaluate", [*NO_MODEL, "--set", "evaluation.deals=1"], 2),
    ("cross_table", [*NO_MODEL, "--deals", "1"], 2),
    ("learn", ["--directory", "tests"], 2),
    ("learning.report", ["tests"], 2),
    ("find_best_prompt", [*SEARCH, "--budget", "20"], 2),
    ("learn", ["--resume", "--runs-dir", "tests"], 2),
]  # fmt: skip
ASK = """
import importlib, json, sys
for program, arguments, status in json.loads(sys.argv[1]):
    sys.argv = [program, *arguments]
    try:
        found = importlib.import_module(f"algo.{program}").main()
    except SystemExit as ended:
        found = ended.code or 0
    assert found == status, f"{sys.argv} ended with {found}"
    loaded = sorted({name.split(".")[0] for name in sys.modules} & set(json.loads(HEAVY)))
    assert not loaded, f"{sys.argv} imported {loaded}"
"""


def test_help_configuration_and_refusals_import_nothing_heavy():
    code = f"HEAVY = {json.dumps(sorted(HEAVY))!r}\n{ASK}"
    asked = subprocess.run(
        [sys.executable, "-c", code, json.dumps(ASKED)], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert asked.returncode == 0, asked.stderr
    refusals = [line for line in asked.stderr.splitlines() if line.startswith("error: ")]
    assert len(refusals) == sum(status == 2 for *_, status in ASKED)
    assert asked.stderr.count("did you mean 'steps'") == 8 and asked.stderr.count("no/such/folder does not exist") == 5


def imported_by(path):
    """Modules that a file of ours imports when it is run; what only type checkers read does not count."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for statement in tree.body:
        if isinstance(statement, ast.If) and ast.unparse(statement.test) == "TYPE_CHECKING":
            continue
        for node in ast.walk(statement):
            if isinstance(node, ast.Import):
                yield from (alias.name for alias in node.names)
            elif isinstance(node, ast.ImportFrom):
                yield from (node.module, *(f"{node.module}.{alias.name}" for alias in node.names))


def test_evaluation_needs_neither_torch_nor_verl():
    seen, coming = set(), ["algo.evaluate", "algo.cross_table"]
    while coming:
        module = coming.pop()
        path = ROOT.joinpath(*module.split(".")).with_suffix(".py")
        if module not in seen and path.is_file():
            coming += imported_by(path)
        seen.add(module)
    assert "algo.rollouts.queue" in seen
    assert not {"torch", "verl", "ray", "vllm", "transformers"} & {module.split(".")[0] for module in seen}
