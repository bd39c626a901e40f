"""Data sets of agents' tasks: JSON Lines, one task's input a line."""

import hashlib
import json
import random
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from pydantic_core import from_json

from algo.machine.atomic_files import write_atomically
from configs.agents import AgentConfig
from configs.section import ConfigError

_LEVELS_ABOVE = 8
"""Of JSON around a task in a request to the hub, at most."""


class AgentData(NamedTuple):
    """train: inputs to learn from. held_out: inputs that are never trained on."""

    train: Sequence[Any]
    held_out: Sequence[Any]


def read_data(config: AgentConfig) -> AgentData:
    """The tasks that a configuration names. Raises ConfigError for missing, broken, too few or duplicate tasks."""
    settings, wanted = config.agents, config.evaluation.tasks
    if settings.train is None:
        raise ConfigError("agents.train must name a file of tasks, one JSON value a line")
    train = read_tasks(settings.train, "agents.train")
    if settings.val is None:
        held_out, train = split_tasks(train, settings.held_out, config.run.seed)
    else:
        held_out, known = read_tasks(settings.val, "agents.val"), set(map(_key, train))
        both = [number for number, task in enumerate(held_out, 1) if _key(task) in known]
        if both:
            raise ConfigError(
                f"agents.val: {len(both)} of {len(held_out)} tasks are in agents.train, too (the first: number "
                f"{both[0]} of {settings.val}); remove them, since an evaluation needs held-out tasks"
            )
    if not train:
        raise ConfigError(f"agents.train {settings.train} has no task to train on; lower agents.held_out or add tasks")
    if len(held_out) < wanted:
        raise ConfigError(
            f"evaluation.tasks is {wanted}, but there are {len(held_out)} held-out tasks: lower it, "
            f"or hold out more (agents.val, agents.held_out)"
        )
    return AgentData(train, held_out)


def read_tasks(path: Path, setting: str) -> list[Any]:
    """A file's tasks, one JSON value a line. setting: names the file in errors. Raises ConfigError."""
    try:
        lines = path.read_text(encoding="utf-8-sig").split("\n")  # Windows' editors begin a file with a mark
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{setting}: cannot read {path}: {error}") from error
    tasks = []
    for number, line in enumerate(lines, 1):
        try:
            if line.strip():
                task = json.loads(line)
                _as_line(task)
                tasks.append(task)
        except (ValueError, RecursionError) as error:  # also a number of too many digits
            raise ConfigError(
                f"{setting}: line {number} of {path} is not JSON that a hub accepts ({error}); write one JSON value "
                f"per line, with text in quotes"
            ) from error
    return tasks


def _as_line(task: Any) -> str:
    """The task as one line of JSON that a hub reads. Raises TypeError, ValueError or RecursionError."""
    line = json.dumps(task, ensure_ascii=False, allow_nan=False)
    from_json(  # Python nests deeper, and takes halves of surrogate pairs for text
        ("[" * _LEVELS_ABOVE + line + "]" * _LEVELS_ABOVE).encode()
    )
    return line + "\n"


def write_tasks(tasks: Iterable[Any], folder: Path, name: str) -> Path:
    """Write tasks as JSON Lines; returns the file, named by a hash of its content. Raises ConfigError."""
    lines = []
    for number, task in enumerate(tasks):
        try:
            lines.append(_as_line(task))
        except (TypeError, ValueError, RecursionError) as error:
            raise ConfigError(f"{name}: task {number} is not JSON-serialisable: {error}") from error
    text = "".join(lines)
    path = folder / f"{name}-{hashlib.blake2b(text.encode(), digest_size=6).hexdigest()}.jsonl"
    write_atomically(path, text)
    return path


def split_tasks(tasks: Sequence[Any], share: float, seed: int) -> tuple[list[Any], list[Any]]:
    """(held out, the others). Equal tasks stay together, so that no held-out task is trained on."""
    different = list(dict.fromkeys(map(_key, tasks)))
    random.Random(f"{seed}/held out").shuffle(different)
    kept_apart = set(different[: round(share * len(different))])
    held_out = [task for task in tasks if _key(task) in kept_apart]
    return held_out, [task for task in tasks if _key(task) not in kept_apart]


def _key(task: Any) -> str:
    return json.dumps(task, sort_keys=True)
