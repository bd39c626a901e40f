"""Loads a model folder's tokenizer and chat template as transformers does, without importing it.

transformers takes seconds to import, and imports torch where it is installed. It renders chat templates in jinja2's
sandbox with a few names (``transformers.utils.chat_template_utils``, 5.10), and reads ``tokenizer.json`` with
``tokenizers``.
"""

import json
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from jinja2 import Template, TemplateError, nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment
from tokenizers import Tokenizer

_SPECIAL = tuple(f"{name}_token" for name in ("bos", "eos", "unk", "sep", "pad", "cls", "mask"))


def read_tokenizer(folder: Path) -> Tokenizer:
    """The tokenizer. Raises ValueError if there is none that can be read."""
    file = folder / "tokenizer.json"
    if not file.is_file():
        raise ValueError(
            f"{folder} has no tokenizer.json; AutoTokenizer.from_pretrained(...).save_pretrained(...) of transformers "
            f"writes one"
        )
    try:
        tokenizer = Tokenizer.from_file(str(file))
    except Exception as error:  # tokenizers has no exception class
        raise ValueError(f"{file}: {error}") from error
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


class ChatTemplates:
    """The chat templates of a folder. Raises OSError or ValueError if there is none that can be used."""

    def __init__(self, folder: Path):
        config = json.loads((folder / "tokenizer_config.json").read_text(encoding="utf-8"))
        files = {file.stem: file for file in (folder / "additional_chat_templates").glob("*.jinja")}
        if (single := folder / "chat_template.jinja").is_file():
            files["default"] = single
        templates = {name: file.read_text(encoding="utf-8") for name, file in files.items()}
        templates = templates or _by_name(config.get("chat_template") or {})
        if "default" not in templates:
            raise ValueError(f"the tokenizer in {folder} has no chat template; use an instruction-tuned model's folder")
        self._variables = {name: _text_of(config[name]) for name in _SPECIAL if config.get(name) is not None}
        try:
            self._templates = {name: _environment().from_string(text) for name, text in templates.items()}
        except TemplateError as error:
            raise ValueError(f"the chat template in {folder}: {error}") from error

    def render(self, messages: list[Mapping[str, Any]], tools: list[Any] | None, **variables: Any) -> str:
        """The conversation as text. Raises errors of the template's code: TemplateError, TypeError, ValueError, …"""
        template: Template = self._templates["default"]
        if tools is not None:
            template = self._templates.get("tool_use", template)
        return template.render(messages=messages, tools=tools, documents=None, **self._variables, **variables)


class _Generation(Extension):
    """``{% generation %}`` marks replies for trainers; its content is rendered unchanged."""

    tags = {"generation"}  # noqa: RUF012

    def parse(self, parser: Parser) -> nodes.Node:
        line = next(parser.stream).lineno
        return nodes.Scope(parser.parse_statements(("name:endgeneration",), drop_needle=True), lineno=line)


def _environment() -> ImmutableSandboxedEnvironment:
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, loopcontrols]
    )
    environment.filters["tojson"] = _to_json
    environment.globals |= {"raise_exception": _refuse, "strftime_now": lambda form: datetime.now().strftime(form)}
    return environment


def _to_json(
    value: Any, ensure_ascii: bool = False, indent: Any = None, separators: Any = None, sort_keys: bool = False
) -> str:
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _refuse(message: str) -> None:
    raise TemplateError(message)


def _by_name(found: Any) -> dict[str, str]:
    """Templates by name, from ``tokenizer_config.json``: one, or a list of named ones."""
    if isinstance(found, str):
        return {"default": found}
    return found if isinstance(found, dict) else {one["name"]: one["template"] for one in found}


def _text_of(token: Any) -> str:
    return token["content"] if isinstance(token, dict) else token
