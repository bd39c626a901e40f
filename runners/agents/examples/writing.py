"""Helpers that write the tasks and lessons of the examples."""

import argparse
import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any


def calculation(expression: str) -> dict[str, Any]:
    """A call of ``calculate`` in an assistant message, in OpenAI's format."""
    text = json.dumps({"expression": expression})
    made_up = hashlib.blake2b(f"calculate{text}".encode(), digest_size=6).hexdigest()
    return {"id": f"call_{made_up}", "type": "function", "function": {"name": "calculate", "arguments": text}}


def calculator(description: str, title: str, **more: Any) -> dict[str, Any]:
    """The tool ``calculate``, in the form in which frameworks send it."""
    parameters = {
        "properties": {"expression": {"title": "Expression", "type": "string"}},
        "required": ["expression"],
        "title": title,
        "type": "object",
    }
    function = {"name": "calculate", "description": description, "parameters": parameters | more}
    return {"type": "function", "function": function}


def split(rows: Iterator[dict[str, str]], train: int, val: int) -> tuple[list[dict[str, str]], list[dict[str, str]]]:
    """(training, held-out) rows, so many of each: the first with different questions."""
    found: dict[str, dict[str, str]] = {}
    while len(found) < train + val:
        row = next(rows)
        found[row["question"]] = row
    distinct = list(found.values())
    return distinct[:train], distinct[train:]


def lesson(
    instructions: str, question: str, tool: dict[str, Any], call: dict[str, Any] | None, output: str, result: object
) -> dict[str, Any]:
    """A conversation in OpenAI's fine-tuning format: a question, optionally a call with ``output``, the result."""
    messages = [{"role": "system", "content": instructions}, {"role": "user", "content": question}]
    if call is not None:
        messages.append({"role": "assistant", "content": "", "tool_calls": [call]})
        messages.append({"role": "tool", "tool_call_id": call["id"], "content": output})
    messages.append({"role": "assistant", "content": f"The answer is\n### {result}"})
    return {"messages": messages, "tools": [tool]}


def write_data(files: Mapping[Path, Iterable[Any]], lessons: Iterable[Any]) -> None:
    """The command line of a module that writes an example's task files, or its lessons."""
    parser = argparse.ArgumentParser(description=f"Write {', '.join(path.name for path in files)}, or the lessons.")
    parser.add_argument("--lessons", type=Path, metavar="FILE", help="write lessons for algo.tiny_agent there")
    only = parser.parse_args().lessons
    for path, rows in ({only: lessons} if only else files).items():
        path.write_text("".join(f"{json.dumps(row, ensure_ascii=False)}\n" for row in rows), encoding="utf-8")
