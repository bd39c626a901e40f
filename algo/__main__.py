"""``werewolf COMMAND``, or ``python -m algo COMMAND``: every command of the system by a short name."""

import ast
import importlib.util
import os
import re
import sys
from pathlib import Path

from configs.section import nearest_name
from store.program import run_program

COMMANDS = {
    "hub": "store",
    "runner": "runners.werewolf",
    "train": "algo.werewolf_verl",
    "imitate": "algo.werewolf_sft",
    "evaluate": "algo.evaluate",
    "serve": "algo.serve",
    "plan": "algo.plan",
    "publish": "algo.publish",
    "speech": "algo.speech",
    "doctor": "algo.doctor",
    "recipe": "algo.recipe",
    "find-best-prompt": "algo.find_best_prompt",
    "agent-runner": "runners.agents",
    "train-agent": "algo.agent_verl",
    "tiny-model": "algo.tiny_model",
    "tiny-agent": "algo.tiny_agent",
    "real-model": "algo.real_model",
    "untie-model": "algo.untie_model",
}
"""Command -> the module that it runs, as ``python -m MODULE`` does."""


def main() -> int:
    """Entry point: executes ``python -m MODULE`` with the arguments after the command."""
    command, *arguments = sys.argv[1:] or ["--help"]
    if command in ("-h", "--help"):
        print("usage: werewolf COMMAND [OPTION]...   (see werewolf COMMAND --help)\n")
        for name, module in COMMANDS.items():
            print(f"  {name:<18}python -m {module:<24}{_summary(module)}")
        return 0
    if command not in COMMANDS:
        print(f"error: unknown command {command!r}: {nearest_name(command, COMMANDS, 'commands')}", file=sys.stderr)
        return 2
    os.execv(sys.executable, [sys.executable, "-m", COMMANDS[command], *arguments])


def _summary(module: str) -> str:
    """The first line of a module's docstring without the command, and without importing the module."""
    spec = importlib.util.find_spec(module)
    if spec is not None and spec.submodule_search_locations:
        spec = importlib.util.find_spec(f"{module}.__main__")
    if spec is None or spec.origin is None:
        return "(not installed)"
    docstring = ast.get_docstring(ast.parse(Path(spec.origin).read_text(encoding="utf-8"))) or ""
    return re.sub(r"^``.*?``( \(.*?\))?: ", "", docstring.partition("\n")[0])


if __name__ == "__main__":
    run_program(main)
