"""Items of agentlightning as JSON text that can be read again."""

import math
from types import NoneType
from typing import Any

from pydantic import BaseModel
from pydantic_core import to_json

_DEEPEST = 100
_UNCHANGED = frozenset({str, int, bool, NoneType})
_SCALARS = _UNCHANGED | {float}


def encode_document(item: BaseModel) -> str:
    """A model as JSON text.

    ValueError for NaN, infinities, nesting over 100 levels, and types that JSON does not have: pydantic writes some of
    them as something else, or as text that no reader accepts, and every answer with that text fails.
    """
    if not _is_json(item, _DEEPEST):
        raise ValueError(
            f"a {type(item).__name__} cannot be stored: it has NaN, an infinity, a type that JSON lacks, or more than "
            f"{_DEEPEST} levels"
        )
    return to_json(item).decode()


def _is_json(value: Any, levels: int) -> bool:
    """Called for every stored value: it avoids calls of its own where it can."""
    kind = type(value)
    if kind is dict:
        for key in value:
            if type(key) is not str:
                return False
        values = value.values()
    elif kind is list or kind is tuple:
        values = value
        kinds = set(map(type, value))
        if kinds <= _SCALARS:  # such as token ids and log-probs
            return levels > 0 and all(map(math.isfinite, [one for one in value if type(one) is float]))
    elif isinstance(value, BaseModel):
        values = vars(value).values()
        if value.__pydantic_extra__:
            values = [*values, *value.__pydantic_extra__.values()]
    else:
        return kind in _UNCHANGED or (kind is float and math.isfinite(value))
    if levels <= 0:
        return False
    for inner in values:
        kind = type(inner)
        if kind is float:
            if not math.isfinite(inner):
                return False
        elif kind not in _UNCHANGED and not _is_json(inner, levels - 1):
            return False
    return True
