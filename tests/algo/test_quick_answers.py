"""What is asked or refused before anything starts is answered without waiting for verl, vLLM's client or the hub's."""

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
      ("werewolf_verl", "werewolf_sft", "evaluate", "recipe", "tiny_model", "agent_verl", "find_best_prompt")),
    *((program, ["--print-config"], 0) for program in ("werewolf_verl", "werewolf_sft", "evaluate")),
    *((program, WRONG_KEY, 2) for program in ("werewolf_verl", "werewolf_sft", "evaluate")),
    *(("recipe", [f"configs/recipes/{name}.yaml", *WRONG_KEY], 2) for name in ("demo", "learn_good", "agents")),
    *((program, NO_MODEL, 2) for program in ("werewolf_verl", "werewolf_sft")),
    ("agent_verl", [*AGENT, "--print-config"], 0),
    ("agent_verl", [*AGENT, *WRONG_KEY], 2),
    ("agent_verl", [*AGENT, *NO_MODEL], 2),
    ("recipe", ["configs/recipes/exploit.yaml"], 2),
    ("evaluate", [], 2),
    ("evaluate", ["--set", "evaluation.deals=1", "--set", "evaluation.opponents=[random, random]"], 2),
    ("evaluate", [*NO_MODEL, "--set", "evaluation.deals=1"], 2),
    ("recipe", ["configs/recipes/demo.yaml", "--directory", "tests"], 2),
    ("recipe", ["--resume", "--directory", "tests"], 2),
    ("recipe", ["configs/recipes/demo.yaml", "--resume", "--runs-dir", "tests"], 2),
    ("find_best_prompt", [*SEARCH, "--budget", "20"], 2),
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
    assert asked.stderr.count("did you mean 'steps'") == 7 and asked.stderr.count("no/such/folder does not exist") == 4
