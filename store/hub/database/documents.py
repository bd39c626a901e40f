"""Items of agentlightning as JSON text that can be read again."""

import json
import math
from types import NoneType
from typing import Any

from pydantic import BaseModel
from pydantic_core import to_json

_encode_json = json.JSONEncoder(allow_nan=False, ensure_ascii=False, separators=(",", ":")).encode
_DEEPEST = 100
_UNCHANGED = frozenset({str, int, bool, NoneType})
"""Types whose values are written by pydantic as by the standard library."""

_SCALARS = _UNCHANGED | {float}


def encode_document(item: BaseModel) -> str:
    """A model as JSON text that can be read again.

    ValueError for NaN, infinities and objects, which JSON cannot hold, and for what is nested more deeply than readers
    go (pydantic stops at about 200): stored, it would spoil every answer that it is part of.
    """
    try:
        if _is_plain(item):
            return to_json(item).decode()
    except (ValueError, RecursionError):
        pass  # what is wrong is told by the other, slower way
    try:
        fields = item.model_dump()
        document = _encode_json(fields)
    except (TypeError, ValueError, RecursionError) as error:
        raise ValueError(f"a {type(item).__name__} cannot be stored as JSON: {error}") from error
    if _is_deeper_than(fields, _DEEPEST):
        raise ValueError(f"a {type(item).__name__} cannot be stored: it is nested more than {_DEEPEST} levels deep")
    return document


def _is_plain(value: Any, levels: int = _DEEPEST) -> bool:
    """Whether pydantic writes it as JSON unchanged; NaN it would write as null, a set as a list.

    False, too, for what is nested more than ``levels`` deep. It is called for every value that is kept, so that it
    avoids calls of its own where it can.
    """
    kind = type(value)
    if kind is float:
        return math.isfinite(value)
    if kind is dict:
        for key in value:
            if type(key) is not str:
                return False
        values = value.values()
    elif kind is list:
        values = value
        kinds = set(map(type, value))
        if kinds <= _SCALARS:  # such as token ids and log-probs
            return levels > 0 and all(map(math.isfinite, [one for one in value if type(one) is float]))
    elif isinstance(value, BaseModel) and not value.__pydantic_extra__:
        values = vars(value).values()
    else:
        return kind in _UNCHANGED
    if levels <= 0:
        return False
    for inner in values:  # noqa: SIM110  a generator within all() would cost twice as much
        if type(inner) not in _UNCHANGED and not _is_plain(inner, levels - 1):
            return False
    return True


def _is_deeper_than(value: Any, levels: int) -> bool:
    level = [value]
    for _ in range(levels + 1):
        containers = [inner for inner in level if isinstance(inner, dict | list | tuple)]
        if not containers:
            return False
        level = [inner for outer in containers for inner in (outer.values() if isinstance(outer, dict) else outer)]
    return True
