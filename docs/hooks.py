"""mkdocs hook: the pages of the reference, made from the code when the site is built."""

import ast
import contextlib
import inspect
import io
import os
import re
import runpy
import sys
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic_core import PydanticUndefined

sys.path.insert(0, str(Path(__file__).parents[1]))

from algo.__main__ import COMMANDS
from configs.agents import AgentConfig
from configs.schema import Config
from configs.section import Section
from configs.werewolf import WerewolfConfig
from store.agents import CALL_FACTS, AgentCallSpan, AgentOutcome, AgentTask
from store.schema import PolicyResources, Sampling, TokenLimits
from store.token_spans import CallSpan, OutcomeSpan
from store.werewolf import TURN_FACTS, GameTask, ResultSpan, TurnSpan

SUBCOMMANDS = ("runners.werewolf play", "runners.werewolf web", "store status", "store export")
ROOT = Path(__file__).parents[1]
PACKAGES = ("algo", "configs", "runners", "store")


def on_page_markdown(markdown, page, **_):
    """Make the reference's pages from the code, and replace links out of docs/, which work in the repository only."""
    if page.file.src_uri.startswith("reference/"):
        return _reference(page.file.src_uri)
    outside = r"\.\./(?:(?:algo|configs|runners|store)/(?:\w+/)*)?[A-Z]+(?:_zh)?\.md"
    return re.sub(rf"\[([^\]]+)\]\({outside}[^)]*\)", r"\1", markdown)


@cache
def _reference(page: str) -> str:
    """page: path of its file below docs/."""
    makers = {"settings": _settings, "commands": _commands, "spans": _spans, "errors": _errors}
    return makers[Path(page).stem]()


def _settings() -> str:
    common = Config.model_fields
    parts = ["# Settings", "Of a run: a YAML file, then `--set section.key=value`; `--print-config` shows the result."]
    for title, schema in (("Any workload", Config), ("Werewolf", WerewolfConfig), ("Agents", AgentConfig)):
        parts.append(f"## {title}")
        for name, field in schema.model_fields.items():
            of_all = None if schema is Config else common.get(name)
            if of_all is None or (field.annotation, field.default) != (of_all.annotation, of_all.default):
                meaning = field.description or (
                    _section(field.annotation).__doc__ if _section(field.annotation) else ""
                )
                label = f"{{ #{schema.__name__.lower()}-{name} }}"
                parts += [f"### {name} {label}", _text(inspect.cleandoc(meaning or "")), _table(_rows(field, name))]
    return "\n\n".join(parts) + "\n"


def _rows(field: Any, name: str) -> Iterator[tuple[str, str, str, str]]:
    section, kind = _section(field.annotation), get_origin(field.annotation)
    default = field.get_default(call_default_factory=True)
    if section is None or (kind is dict and default):
        yield f"`{name}`", _type(field.annotation), _default(default), _text(field.description or "")
    inside = {dict: ".NAME", tuple: "[]"}.get(kind, "")
    for key, inner in section.model_fields.items() if section else ():
        yield from _rows(inner, f"{name}{inside}.{key}")


def _section(annotation: Any) -> type[BaseModel] | None:
    """The section class of a setting, or of a list's or mapping's values; None for a plain setting."""
    if get_origin(annotation) is dict:
        return _section(get_args(annotation)[1])
    if get_origin(annotation) is tuple:
        return _section(get_args(annotation)[0])
    kinds = (one for one in (annotation, *get_args(annotation)) if isinstance(one, type))
    return next((one for one in kinds if issubclass(one, BaseModel)), None)


def _type(annotation: Any) -> str:
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Literal:
        return ", ".join(f"`{one}`" for one in arguments)
    if origin in (Union, UnionType):
        return " or ".join("null" if one is NoneType else _type(one) for one in arguments)
    if origin in (tuple, list):
        return f"list of {_type(arguments[0])}"
    if origin is dict:
        return "mapping"
    return {str: "text", bool: "true, false", Path: "path"}.get(annotation, getattr(annotation, "__name__", "value"))


def _default(value: Any) -> str:
    if value is PydanticUndefined:
        return "must be set"
    if isinstance(value, dict):
        value = {
            name: one.model_dump(exclude_defaults=True) if isinstance(one, BaseModel) else one
            for name, one in value.items()
        }
    if isinstance(value, Section):
        value = value.model_dump(mode="json")
    if value is None or isinstance(value, bool):
        value = str(value).lower().replace("none", "null")
    shown = '""' if value == "" else list(value) if isinstance(value, tuple) else value
    return f"`{shown}`".replace("|", "\\|")


def _commands() -> str:
    parts = ["# Commands", "`werewolf NAME` is short for the command in its section; both take the same options."]
    short = {module: name for name, module in COMMANDS.items()}
    for command in (*COMMANDS.values(), *SUBCOMMANDS):
        name = f"`werewolf {short[command]}`\n\n" if command in short else ""
        label = f"{{ #{command.replace('.', '-').replace(' ', '-')} }}"
        parts.append(f"## python -m {command} {label}\n\n{name}```text\n{_help(*command.split())}\n```")
    return "\n\n".join(parts) + "\n"


def _help(module: str, *arguments: str) -> str:
    output, os.environ["COLUMNS"], sys.argv = io.StringIO(), "100", [module, *arguments, "--help"]
    with contextlib.redirect_stdout(output), contextlib.suppress(SystemExit):
        runpy.run_module(module, run_name="__main__")
    if not output.getvalue().strip():
        raise RuntimeError(f"python -m {module} --help prints nothing")
    return output.getvalue().strip().replace(str(Path.cwd()) + "/", "")


def _spans() -> str:
    parts = [
        "# Tasks, resources, spans",
        "What the algorithm and the runners store in the hub. An attribute's name is the span's prefix and the field's "
        "name. Token ids and log-probs are base64 of little-endian uint32 and float32 arrays.",
    ]
    for model in (CallSpan, OutcomeSpan, GameTask, TurnSpan, ResultSpan, AgentTask, AgentCallSpan, AgentOutcome):
        parts += _model(model)
    for model in (PolicyResources, Sampling, TokenLimits):
        parts += _model(model)
    game = [(f"`{name}`", str(one.neutral), _text(one.meaning)) for name, one in TURN_FACTS.items()]
    agents = [(f"`{name}`", "0.0", _text(meaning)) for name, meaning in CALL_FACTS.items()]
    for title, rows in (("Facts of a reply in the game", game), ("Facts of an agent's reply", agents)):
        parts += [f"## {title}", _table(rows, "fact", "neutral", "meaning")]
    return "\n\n".join(parts) + "\n"


def _model(model: type[BaseModel]) -> list[str]:
    """Heading, docstring, and a table of the fields that the parent lacks, with their parts of the docstring."""
    inherited = set().union(*(getattr(base, "model_fields", {}) for base in model.__bases__))
    own = [name for name in model.model_fields if name not in inherited]
    document = re.sub(r"\s+", " ", inspect.cleandoc(model.__doc__ or ""))
    introduction, *described = re.split(rf"(?:^|(?<=[.;] ))({'|'.join(own)}): ", document)
    meanings = dict(zip(described[::2], described[1::2], strict=True))
    rows = []
    for name in own:
        field = model.model_fields[name]
        kind = getattr(field.annotation, "__name__", "") or str(field.annotation).replace("typing.", "")
        default = _default(field.get_default(call_default_factory=True))
        rows.append((f"`{name}`", _text(kind), default, _text(meanings.get(name, "").rstrip(" ;"))))
    prefix = getattr(model, "prefix", None)
    note = [f"Prefix `{prefix}`; span name `{getattr(model, 'span_name', '')}`."] if prefix else []
    return [f"## {model.__name__}", _text(introduction), *note, _table(rows, "field", "type", "default", "meaning")]


def _errors() -> str:
    """A table of every error for users, by folder: the project's own errors, and those of settings."""
    files = sorted(file for package in PACKAGES for file in (ROOT / package).rglob("*.py"))
    nodes = {file: [*ast.walk(ast.parse(file.read_text(encoding="utf-8")))] for file in files}
    classes = {
        one.name for found in nodes.values() for one in found if isinstance(one, ast.ClassDef) and _is_error(one)
    }
    names = {"FileExistsError", "RuntimeError", *(name for name in classes if not name.startswith("_"))}
    rows: dict[Path, list[tuple[str, str]]] = defaultdict(list)
    for file, found in nodes.items():
        for node in found:
            match node:
                case ast.Raise(exc=ast.Call(func=error, args=[message, *_])):
                    name = ast.unparse(error)
                    is_shown = name in names or (name == "ValueError" and file.is_relative_to(ROOT / "configs"))
                    if is_shown and (text := _message(message)):
                        rows[file.parent].append((f"`{name}`", _text(text)))
    parts = [
        "# Errors",
        "Errors that the code raises for users, by folder, not those of options; `…` stands for a name or a number.",
    ]
    for folder in sorted(rows):
        parts += [f"## {folder.relative_to(ROOT).as_posix()}", _table(rows[folder], "error", "message")]
    return "\n\n".join(parts) + "\n"


def _message(node: ast.expr) -> str:
    if isinstance(node, ast.JoinedStr):
        return "".join(str(part.value) if isinstance(part, ast.Constant) else "…" for part in node.values)
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def _is_error(node: ast.ClassDef) -> bool:
    """Whether it derives from an exception, by the names of its bases."""
    return any(
        re.search("Error|Exception|CannotPlay|Unreachable|Refused|NoFinishedRollouts", ast.unparse(base))
        for base in node.bases
    )


def _table(rows: Any, *titles: str) -> str:
    titles = titles or ("setting", "value", "default", "meaning")
    return "\n".join(f"| {' | '.join(row)} |" for row in (titles, ["---"] * len(titles), *rows))


def _text(text: str) -> str:
    """Plain text escaped for Markdown and for a table's cell."""
    return re.sub(r"([|<>*\[\]])", r"\\\1", re.sub(r"\s+", " ", text)).strip()
