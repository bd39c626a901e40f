"""What the examples' tasks and lessons have in common: how they are written down."""

import argparse
import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any


def tool_call(name: str, arguments: dict[str, Any]) -> dict[str, Any]:
    """A tool call of an assistant's message, in OpenAI's form."""
    text = json.dumps(arguments, ensure_ascii=False)
    made_up = hashlib.blake2b(f"{name}{text}".encode(), digest_size=6).hexdigest()
    return {"id": f"call_{made_up}", "type": "function", "function": {"name": name, "arguments": text}}


def distinct(rows: Iterable[dict[str, str]], count: int) -> list[dict[str, str]]:
    """The first ``count`` rows whose ``question`` differs."""
    found: dict[str, dict[str, str]] = {}
    for row in rows:
        found[row["question"]] = row
        if len(found) == count:
            return list(found.values())
    raise ValueError(f"there are only {len(found)} different questions")


def lesson(
    instructions: str, question: str, tool: dict[str, Any], call: dict[str, Any] | None, output: str, result: object
) -> dict[str, Any]:
    """A conversation as OpenAI's fine-tuning takes it: a question, perhaps a call and its ``output``, the result."""
    messages = [{"role": "system", "content": instructions}, {"role": "user", "content": question}]
    if call is not None:
        messages.append({"role": "assistant", "content": "", "tool_calls": [call]})
        messages.append({"role": "tool", "tool_call_id": call["id"], "content": output})
    messages.append({"role": "assistant", "content": f"The answer is\n### {result}"})
    return {"messages": messages, "tools": [tool]}


Writer = Callable[[int], Iterable[Any]]
"""A seed -> what a file has, one JSON value a line."""


def write_data(module: str, directory: Path, seed: int, files: Mapping[str, Writer], lessons: Writer) -> None:
    """The command line of a module that writes an example's data: its files of tasks, or the lessons elsewhere."""
    parser = argparse.ArgumentParser(
        prog=f"python -m {module}", description=f"Write {', '.join(files)}, or the lessons."
    )
    parser.add_argument(
        "--lessons", type=Path, metavar="FILE", help="write conversations to imitate there, for algo.tiny_agent"
    )
    parser.add_argument("--directory", type=Path, default=directory, help="of the tasks (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=seed, help="of all that is drawn (default: %(default)s)")
    options = parser.parse_args()
    if options.lessons:
        _write_lines(options.lessons, lessons(options.seed))
    else:
        for name, rows in files.items():
            _write_lines(options.directory / name, rows(options.seed))


def _write_lines(path: Path, rows: Iterable[Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [json.dumps(row, ensure_ascii=False) for row in rows]
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    print(f"{len(lines)} lines in {path}")
