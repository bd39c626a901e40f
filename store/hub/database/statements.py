"""SQLAlchemy statements, compiled once for each database and run by its driver."""

import functools
from collections.abc import Mapping, Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.functions import FunctionElement

DIALECTS: dict[str, sa.Dialect] = {
    "sqlite": sqlite.dialect(paramstyle="qmark"),
    "postgres": postgresql.dialect(paramstyle="numeric_dollar"),
}


class Statement:
    """A statement with named parameters."""

    def __init__(self, clause: sa.ClauseElement):
        self._clause = clause
        self.compiled = functools.cache(self._compiled)

    def _compiled(self, engine: str) -> tuple[str, Sequence[str], Mapping[str, Any]]:
        """(SQL, names of its parameters in order, values of those that are part of the statement)."""
        compiled: Any = self._clause.compile(dialect=DIALECTS[engine])
        fixed = {name: value for name, value in compiled.params.items() if value is not None}
        return str(compiled), tuple(compiled.positiontup or ()), fixed

    def ready(self, engine: str, given: Mapping[str, Any]) -> tuple[str, list[Any]]:
        """SQL, and the values of its parameters in order."""
        sql, names, fixed = self.compiled(engine)
        return sql, [given[name] if name in given else fixed[name] for name in names]


class _Written(FunctionElement):
    type = sa.types.NullType()  # for a Boolean, SQLite's compiler appends "= 1", which disables indexes
    inherit_cache = True


class among(_Written):
    """``among(column, bindparam(...))``: the column is in a list, one parameter of any length."""


class selected(_Written):
    """``selected(column, query)``: the column is in the query's result. The query runs once.

    With IN, PostgreSQL may run it for each row, with other locks each time, or read the whole table for a join.
    """


class contains(_Written):
    """``contains(column, bindparam(...))``: the text is a substring of the column, case-sensitive."""


class smaller(_Written):
    """The smaller of two values that are not null."""


class greater(_Written):
    """The greater of two values that are not null."""


def _write(kind: type[_Written], **texts: str) -> None:
    def compiled(text: str, element: _Written, compiler: Any, **options: Any) -> str:
        return text.format(*(compiler.process(clause, **options) for clause in element.clauses))

    for dialect, text in texts.items():
        compiles(kind, dialect)(functools.partial(compiled, text))


_write(among, sqlite="{} IN (SELECT value FROM json_each({}))", postgresql="{} = ANY({})")
_write(selected, sqlite="{} IN {}", postgresql="{} = ANY(ARRAY{})")
_write(contains, sqlite="instr({}, {}) > 0", postgresql="strpos({}, {}) > 0")
_write(smaller, sqlite="min({}, {})", postgresql="least({}, {})")
_write(greater, sqlite="max({}, {})", postgresql="greatest({}, {})")
