"""What the examples' tasks and lessons have in common: how they are written down."""

import argparse
import hashlib
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any


def tool_call(name: str, arguments: dict[str, Any]) -> dict[str, Any]:
    """A tool call of an assistant's message, in OpenAI's form."""
    text = json.dumps(arguments, ensure_ascii=False)
    made_up = hashlib.blake2b(f"{name}{text}".encode(), digest_size=6).hexdigest()
    return {"id": f"call_{made_up}", "type": "function", "function": {"name": name, "arguments": text}}


def write_lines(path: Path, rows: Iterable[Any]) -> None:
    """Write JSON lines, and say so."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [json.dumps(row, ensure_ascii=False) for row in rows]
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    print(f"{len(lines)} lines in {path}")


def writing_arguments(program: str, directory: Path, seed: int) -> argparse.Namespace:
    """The command line of a module that writes an example's data."""
    parser = argparse.ArgumentParser(prog=program, description="Write train.jsonl and val.jsonl, or the lessons.")
    parser.add_argument(
        "--lessons", type=Path, metavar="FILE", help="write conversations to imitate there, for algo.tiny_agent"
    )
    parser.add_argument("--directory", type=Path, default=directory, help="of the tasks (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=seed, help="of all that is drawn (default: %(default)s)")
    return parser.parse_args()
