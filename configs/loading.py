"""A YAML file and ``section.key=value`` overrides -> ``Config``, or an error that names the key at fault."""

import json
import math
import os
import re
from collections.abc import Callable, Iterable
from copy import deepcopy
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, TypeVar, get_args, get_origin

import yaml
from pydantic import BaseModel, ValidationError

from configs.agents import AgentConfig
from configs.schema import Config
from configs.section import ConfigError, Section, nearest_name
from configs.werewolf import WerewolfConfig

CONFIG_DIR = Path(__file__).parent
DEFAULT_CONFIG = CONFIG_DIR / "tiny_cpu.yaml"
AnyConfig = TypeVar("AnyConfig", bound=Config)

_NEVER_SHOWN = ("api_key_env", "endpoint", "url", "urls", "public_urls")
"""Settings that may hold a secret by mistake; errors do not show their values."""
_LONGEST_CHAIN = 5
"""Of files that extend each other."""


def find_config(path: Path | str) -> Path:
    """The file at ``path``, else the shipped configuration named ``demo``, ``demo.yaml`` or ``configs/demo.yaml``."""
    path = Path(path)
    if path.is_file() or path.is_absolute() or path.suffix not in ("", ".yaml"):
        return path
    shipped = CONFIG_DIR.joinpath(*path.parts[path.parts[:1] == ("configs",) :]).with_suffix(".yaml")
    return shipped if shipped.is_file() else path


def load_config(
    path: Path | str | None = None, overrides: Iterable[str] = (), schema: type[AnyConfig] = WerewolfConfig
) -> AnyConfig:
    """Read a configuration file (the tiny CPU one by default) and apply ``section.key=value`` overrides.

    path: see ``find_config``. schema: the settings of the workload.

    Values of overrides are read as YAML, so ``run.steps=5`` is a number and ``judge=null`` removes a section.
    Input files in the file are relative to it or to the package; in overrides, to the working folder.
    Raises ConfigError for a file that cannot be read, an unknown key or a value that does not fit.
    """
    path = find_config(path or DEFAULT_CONFIG)
    document = read_document(path, partial(find_input_files, schema=schema))
    return config_of(document, overrides, schema, f"configuration {path}")


def read_document(
    path: Path,
    resolve: Callable[[dict[str, Any], Path], None] | None = None,
    find: Callable[[Path], Path] = find_config,
    depth: int = 0,
) -> dict[str, Any]:
    """The mapping in a YAML file, merged over that of the file in its key ``extends``: beside it, or found by ``find``.

    resolve: called with the mapping of each file and its folder, makes relative paths absolute in place.
    Raises ConfigError for a file that cannot be read or is not a mapping.
    """
    if depth >= _LONGEST_CHAIN:
        raise ConfigError(f"{path} extends itself, or a chain of more than {_LONGEST_CHAIN} files")
    document = _read_mapping(path)
    if resolve is not None:
        resolve(document, path.parent)
    if (other := document.pop("extends", None)) is None:
        return document
    beside = path.parent / str(other)
    extended = beside if beside.is_file() else find(Path(str(other)))
    return merged(read_document(extended, resolve, find, depth + 1), document)


def _read_mapping(path: Path) -> dict[str, Any]:
    try:
        document = yaml.load(path.read_text(encoding="utf-8"), _Loader)
    except (OSError, UnicodeDecodeError) as error:
        shipped = ", ".join(sorted(file.name for file in CONFIG_DIR.glob("*.yaml")))
        raise ConfigError(
            f"cannot read configuration {path}: {getattr(error, 'strerror', error)}. Shipped in configs/: {shipped}"
        ) from error
    except yaml.YAMLError as error:
        raise ConfigError(f"configuration {path} is not valid YAML: {error}") from error
    if document is None:
        document = {}
    if not isinstance(document, dict):
        raise ConfigError(f"configuration {path} must be a mapping of sections, got {type(document).__name__}")
    return document


def schema_of(path: Path | None) -> type[Config]:
    """The settings of a file's workload. Raises ConfigError for a file that cannot be read."""
    return AgentConfig if path is not None and "agents" in read_document(path) else WerewolfConfig


def config_of(document: dict[str, Any], overrides: Iterable[str], schema: type[AnyConfig], where: str) -> AnyConfig:
    """A configuration from a mapping of sections, which is modified in place. Raises ConfigError.

    overrides, schema: as in ``load_config``. where: the configuration's name in errors.
    """
    for override in overrides:
        _apply_override(document, override)
    find_input_files(document, Path(), schema)  # those of overrides
    try:
        return schema.model_validate(document)
    except ValidationError as error:
        problems = "\n".join(f"  {explain(problem, schema)}" for problem in error.errors())
        raise ConfigError(f"{where} cannot be used:\n{problems}") from error


def merged(*documents: dict[str, Any]) -> dict[str, Any]:
    """Mappings merged recursively; later values replace earlier ones."""
    found: dict[str, Any] = {}
    for document in documents:
        for key, value in document.items():
            both = isinstance(value, dict) and isinstance(found.get(key), dict)
            found[key] = merged(found[key], value) if both else deepcopy(value)
    return found


def as_yaml(config: Config) -> str:
    """The configuration as the text of a YAML file."""
    return yaml.safe_dump(config.model_dump(mode="json"), sort_keys=False, allow_unicode=True)


def as_override(setting: str, value: object) -> str:
    """An override with a value as it is: a path may hold what YAML takes for a comment, and a name for a number."""
    return f"{setting}={json.dumps(value, ensure_ascii=False, default=str)}"


def settings_in(override: str) -> list[str]:
    """The settings, as ``section.key``, that an override sets: one, or those of a whole section. Raises ConfigError."""
    document: dict[str, Any] = {}
    _apply_override(document, override)
    return [f"{section}.{key}" for section, keys in document.items() if isinstance(keys, dict) for key in keys]


def find_input_files(document: dict[str, Any], folder: Path, schema: type[Config]) -> None:
    """Make paths of input files absolute, in place, if the file exists in the folder or in the package."""

    def found(path: Any) -> Any:
        if not isinstance(path, str):
            return path
        path = os.path.expanduser(path)
        places = folder / path, CONFIG_DIR.parent / path
        return next((str(place.resolve()) for place in places if place.is_file()), path)

    for section, key in (name.split(".") for name in schema.input_files):
        settings = document.get(section)
        if isinstance(settings, dict) and key in settings:
            value = settings[key]
            is_map = isinstance(value, dict)
            settings[key] = {name: found(path) for name, path in value.items()} if is_map else found(value)


def _apply_override(document: dict[str, Any], override: str) -> None:
    key, separator, value = override.partition("=")
    *sections, name = key.strip().split(".")
    try:
        parsed = yaml.load(value, _Loader)
    except yaml.YAMLError as error:
        raise ConfigError(f"override {override!r}: the value is not valid YAML: {error}") from error
    whole_section = isinstance(parsed, dict) or parsed is None  # judge=null, players={...}
    if not separator or not all([*sections, name]) or not (sections or whole_section):
        raise ConfigError(f"override {override!r} is not of the form section.key=value, e.g. run.steps=5")
    target = document
    for section in sections:
        inner = {} if target.get(section) is None else target[section]  # absent or empty
        if not isinstance(inner, dict):
            raise ConfigError(f"override {override!r}: {section!r} is not a section but {inner!r}")
        target[section] = dict(inner)  # a copy, since a YAML alias may stand for the same mapping elsewhere
        target = target[section]
    target[name] = parsed


class _Loader(yaml.SafeLoader):
    """Rejects duplicate keys, of which YAML takes the last, and takes 010, 1:30 and 0.5_5 as text, not as 8, 90 and
    0.55."""

    yaml_implicit_resolvers: ClassVar = {
        first: [(tag, pattern) for tag, pattern in found if not tag.endswith((":int", ":float"))]
        for first, found in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }

    def compose_mapping_node(self, anchor: dict[Any, yaml.Node]) -> yaml.MappingNode:
        node = super().compose_mapping_node(anchor)  # before merge keys (<<), whose values may be overridden
        keys = [key.value for key, _ in node.value]
        for key in keys:
            if keys.count(key) > 1:
                raise yaml.constructor.ConstructorError(None, None, f"the key {key!r} occurs twice", node.start_mark)
        return node


_Loader.add_implicit_resolver("tag:yaml.org,2002:int", re.compile(r"[-+]?(0|[1-9][0-9]*)$"), list("-+0123456789"))
_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(r"[-+]?([0-9]+\.[0-9]*|\.[0-9]+)([eE][-+]?[0-9]+)?$|[-+]?\.(inf|Inf|INF)$|\.(nan|NaN|NAN)$"),
    list("-+0123456789."),
)


def explain(problem: Any, schema: type[Section]) -> str:
    """One of pydantic's errors in a line. schema: of the whole document."""
    location = ".".join(str(part) for part in problem["loc"])
    *parents, name = problem["loc"] or ("",)
    if problem["type"] == "extra_forbidden":
        return f"unknown key {location!r}: {nearest_name(str(name), _keys_in(parents, schema), 'keys here')}"
    shown = problem["input"]
    if isinstance(shown, float) and math.isnan(shown):
        shown = "NaN"
    # A section's value is long, and may hold secrets.
    got = "" if name in _NEVER_SHOWN or isinstance(shown, dict | BaseModel) else f" (got {shown!r})"
    return f"{location}{': ' if location else ''}{problem['msg'].removeprefix('Value error, ')}{got}"


def _keys_in(path: Iterable[str | int], schema: type[Section]) -> list[str]:
    """The valid keys of the section at ``path``, which may lead through mappings and lists of sections."""
    annotation: Any = schema
    for part in path:
        if get_origin(annotation) in (dict, tuple):  # ``part`` is a key or an index
            annotation = next(inner for inner in reversed(get_args(annotation)) if inner is not Ellipsis)
        else:
            annotation = _section_in(annotation).model_fields[str(part)].annotation
    return list(_section_in(annotation).model_fields)


def _section_in(annotation: Any) -> type[BaseModel]:
    """The section class of an annotation that may allow None."""
    return next(inner for inner in (annotation, *get_args(annotation)) if isinstance(inner, type))
