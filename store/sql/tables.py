"""How a pydantic model becomes a table: the whole model as JSON, and its scalar fields as columns to search by."""

import functools
import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from types import NoneType, UnionType
from typing import Any, Literal, TypeAlias, Union, get_args, get_origin

from agentlightning.store.collection.base import FilterMap, normalize_filter_options, resolve_sort_options
from agentlightning.types import FilterOptions, SortOptions
from pydantic import BaseModel
from pydantic_core import to_json

from store.sql.dialects import Dialect

Scalar: TypeAlias = type[str] | type[int] | type[float]

_encode_json = json.JSONEncoder(allow_nan=False, ensure_ascii=False, separators=(",", ":")).encode
_PLACE_OF_NULL = {str: "''", int: "0", float: "0"}
_LARGEST_INTEGER = 2**63 - 1
_DEEPEST = 100
_UNCHANGED = frozenset({str, int, bool, NoneType})
"""Types whose values are written by pydantic as by the standard library."""

_SCALARS = _UNCHANGED | {float}


@dataclass(frozen=True)
class Table:
    """A collection's table.

    keys: the fields that together are unique.
    columns: the model's scalar fields with their types; those are what can be filtered and sorted by.
    optional: the columns that may hold None.
    extracted: fields deep in the document that queries look at, with their types and paths.
    """

    name: str
    model: type[BaseModel]
    keys: tuple[str, ...]
    dialect: Dialect
    columns: Mapping[str, Scalar]
    optional: frozenset[str]
    extracted: Mapping[str, tuple[Scalar, Sequence[str]]]

    @classmethod
    def of(
        cls,
        name: str,
        model: type[BaseModel],
        keys: Sequence[str],
        dialect: Dialect,
        extracted: Mapping[str, tuple[Scalar, Sequence[str]]] | None = None,
    ) -> "Table":
        """The table that suits a model."""
        columns, optional = {}, set()
        for field_name, field in model.model_fields.items():
            scalar, may_be_none = _scalar(field.annotation)
            if scalar is not None:
                columns[field_name] = scalar
                if may_be_none:
                    optional.add(field_name)
        return cls(name, model, tuple(keys), dialect, columns, frozenset(optional), extracted or {})

    @property
    def stored(self) -> dict[str, Scalar]:
        """What a row has, in its order, with types: the columns, what is extracted (if it is), and the document."""
        extracted = {name: scalar for name, (scalar, _) in self.extracted.items()}
        return {**self.columns, **(extracted if self.dialect.keeps_extracted else {}), "document": str}

    def creation(self, indexes: Iterable[Sequence[str]] = ()) -> list[str]:
        """Statements that make the table and its indexes if they are not there, and keep the numbers of its rows."""
        columns = [f"{name} {self.dialect.types[scalar]}".strip() for name, scalar in self.stored.items()][:-1]
        return [
            f"CREATE TABLE IF NOT EXISTS {self.name} ({self.dialect.position}, {', '.join(columns)}, "
            f"document TEXT NOT NULL, UNIQUE ({', '.join(self.keys)}))",
            *(
                f"CREATE INDEX IF NOT EXISTS {self.name}_ordered_by_{'_'.join(fields)} "
                f"ON {self.name} ({', '.join(map(self.sort_value, fields))})"
                for fields in indexes
            ),
            *self.dialect.counting(self.name, "status" in self.columns),
        ]

    def extract(self, field: str, row: str) -> str:
        """A field deep in the document of a row, as SQL."""
        return extracted(field, self.extracted, row, self.dialect)

    def only_statuses(self, options: FilterOptions | None) -> list[str] | None:
        """The states that a filter asks for, each once, if it asks for nothing else."""
        filters, must, _ = normalize_filter_options(options)
        if must or not filters or set(filters) != {"status"} or set(filters["status"]) != {"within"}:
            return None
        statuses = filters["status"]["within"]
        return list(dict.fromkeys(statuses)) or None if statuses and None not in statuses else None

    def page_of_statuses(self, number: int, options: SortOptions | None, limit: int, offset: int) -> str:
        """A condition for the items of a page; its parameters are that many states.

        Each state's positions are read from an index in the order of the page, and no further than the page needs.
        """
        value, direction = self._order(options)
        order = f"ORDER BY value {direction}, position"
        each = (
            f"SELECT * FROM (SELECT {value} AS value, position FROM {self.name} WHERE status = ? "
            f"ORDER BY {value} {direction}, position {self.dialect.page(limit + offset, 0)}) AS of_a_state"
        )
        merged = " UNION ALL ".join([each] * number)
        page = f"SELECT position FROM ({merged}) AS merged {order} {self.dialect.page(limit, offset)}"
        return self.dialect.selected("position", page)

    def row(self, item: BaseModel) -> list[Any]:
        """The values of ``stored``. ValueError for what JSON cannot hold."""
        values = self._values_of(item)
        if self.extracted and self.dialect.keeps_extracted:
            values += tuple(_deep(item, scalar, path) for scalar, path in self.extracted.values())
        return [*values, encode_document(item)]

    @functools.cached_property
    def _values_of(self) -> Callable[[BaseModel], tuple[Any, ...]]:
        """Of an item the values of all columns: there are two or more."""
        return attrgetter(*self.columns)

    def key(self, item: BaseModel) -> list[Any]:
        """The item's values of the key fields."""
        return [getattr(item, name) for name in self.keys]

    def describe(self, item: BaseModel) -> str:
        """The item's key, for messages."""
        return ", ".join(f"{name}={getattr(item, name)!r}" for name in self.keys)

    def where(self, options: FilterOptions | None) -> tuple[str, list[Any]]:
        """A filter as an SQL condition and its parameters. ValueError for an unknown field or operator."""
        filters, must, aggregate = normalize_filter_options(options)
        conditions, parameters = self._conditions(filters)
        groups = [f" {aggregate.upper()} ".join(conditions)] if conditions else []
        must_conditions, must_parameters = self._conditions(must)
        groups += must_conditions
        return " AND ".join(f"({group})" for group in groups) or "TRUE", [*parameters, *must_parameters]

    def _conditions(self, filters: FilterMap | None) -> tuple[list[str], list[Any]]:
        conditions: list[str] = []
        parameters: list[Any] = []
        for field, operators in (filters or {}).items():
            self._check_column(field, "filter")
            for operator, expected in operators.items():
                if operator not in _OPERATORS:
                    raise ValueError(
                        f"unknown filter operator {operator!r} for field {field!r}; use {list(_OPERATORS)}"
                    )
                if expected is not None:
                    condition, values = _OPERATORS[operator](self.dialect, field, self.columns[field], expected)
                    conditions.append(condition)
                    parameters += values
        return conditions, parameters

    def order(self, options: SortOptions | None) -> str:
        """A sort order as SQL; equal items keep the order in which they were put in, whichever the direction.

        None counts as the end of time in a field named ``*_time``, else as an empty text or zero.
        """
        value, direction = self._order(options)
        return f"{value} {direction}, position"

    def _order(self, options: SortOptions | None) -> tuple[str, str]:
        field, direction = resolve_sort_options(options)
        if field is None:
            return "position", "ASC"
        self._check_column(field, "sort")
        return self.sort_value(field), direction.upper()

    def sort_value(self, field: str) -> str:
        """What items are sorted by for a field, as SQL."""
        if field not in self.optional:
            return field
        null = self.dialect.infinity if field.endswith("_time") else _PLACE_OF_NULL[self.columns[field]]
        return f"COALESCE({field}, {null})"

    def _check_column(self, field: str, purpose: str) -> None:
        if field not in self.columns:
            raise ValueError(
                f"cannot {purpose} {self.name} by {field!r}; the fields for that are {', '.join(self.columns)}"
            )


def extracted(field: str, paths: Mapping[str, tuple[Scalar, Sequence[str]]], row: str, dialect: Dialect) -> str:
    """A field deep in the document of a row, as SQL."""
    if dialect.keeps_extracted:
        return f"{row}.{field}"
    return f"json_extract({row}.document, '$.{'.'.join(paths[field][1])}')"


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


def _deep(item: Any, scalar: Scalar, path: Sequence[str]) -> Any:
    """A value deep in a model, as a column may hold it."""
    for name in path:
        item = item.get(name) if isinstance(item, dict) else getattr(item, name, None)
    return None if item is None else _comparable(scalar, item)


def _is_deeper_than(value: Any, levels: int) -> bool:
    level = [value]
    for _ in range(levels + 1):
        containers = [inner for inner in level if isinstance(inner, dict | list | tuple)]
        if not containers:
            return False
        level = [inner for outer in containers for inner in (outer.values() if isinstance(outer, dict) else outer)]
    return True


def check_page(limit: int, offset: int) -> None:
    """ValueError unless limit is -1 (all) or a count, and offset a count."""
    if not (-1 <= limit <= _LARGEST_INTEGER and 0 <= offset <= _LARGEST_INTEGER):
        raise ValueError(f"limit must be -1 or a count and offset a count, got {limit} and {offset}")


def _comparable(scalar: Scalar, value: Any) -> Any:
    """The value as a column of that type may hold it; None for one that it never holds."""
    if scalar is str:
        return value if isinstance(value, str) else None
    if not isinstance(value, int | float):
        return None
    if scalar is int and isinstance(value, float):
        return int(value) if value.is_integer() else None
    return value


def _exact(dialect: Dialect, field: str, scalar: Scalar, expected: Any) -> tuple[str, list[Any]]:
    value = _comparable(scalar, expected)
    return ("FALSE", []) if value is None else (f"{field} = ?", [value])


def _within(dialect: Dialect, field: str, scalar: Scalar, expected: Any) -> tuple[str, list[Any]]:
    values = list(expected)
    comparable = [value for value in (_comparable(scalar, value) for value in values) if value is not None]
    condition = dialect.among(field)
    if None in values:
        condition = f"({condition} OR {field} IS NULL)"
    return condition, [dialect.listed(comparable)]


def _contains(dialect: Dialect, field: str, scalar: Scalar, expected: Any) -> tuple[str, list[Any]]:
    if scalar is not str or not isinstance(expected, str):
        return "FALSE", []
    return dialect.contains(field), [expected]


_OPERATORS = {"exact": _exact, "within": _within, "contains": _contains}


def _scalar(annotation: Any) -> tuple[Scalar | None, bool]:
    """(type of a scalar field or None, whether it may be None)."""
    if get_origin(annotation) in (Union, UnionType):
        kinds = [kind for kind in get_args(annotation) if kind is not NoneType]
        return (_scalar(kinds[0])[0] if len(kinds) == 1 else None), len(kinds) < len(get_args(annotation))
    if get_origin(annotation) is Literal and all(isinstance(value, str) for value in get_args(annotation)):
        return str, False
    return (annotation if annotation in (str, int, float) else None), False
