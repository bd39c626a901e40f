"""SQLAlchemy statements, each compiled once for a database, so that the raw driver runs it."""

import functools
from collections.abc import Mapping, Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.functions import FunctionElement

DIALECTS = {
    "sqlite": sqlite.dialect(paramstyle="qmark"),
    "postgres": postgresql.dialect(paramstyle="numeric_dollar"),
}


class Statement:
    """A statement whose parameters are given by name each time that it runs."""

    def __init__(self, clause: Any):
        self._clause = clause

    @functools.cached_property
    def sqlite(self) -> tuple[str, Sequence[str], Mapping[str, Any]]:
        """(SQL, names of its parameters in order, values of those that are part of the statement)."""
        return self._compiled("sqlite")

    @functools.cached_property
    def postgres(self) -> tuple[str, Sequence[str], Mapping[str, Any]]:
        """As ``sqlite``."""
        return self._compiled("postgres")

    def _compiled(self, engine: str) -> tuple[str, Sequence[str], Mapping[str, Any]]:
        compiled = self._clause.compile(dialect=DIALECTS[engine])
        fixed = {name: value for name, value in compiled.params.items() if value is not None}
        return str(compiled), tuple(compiled.positiontup or ()), fixed


def ordered(names: Sequence[str], fixed: Mapping[str, Any], given: Mapping[str, Any]) -> list[Any]:
    """The values of a statement's parameters."""
    return [given[name] if name in given else fixed[name] for name in names]


class among(FunctionElement):
    """``among(column, bindparam(...))``: the column is one of a list, which is one parameter however long."""

    type = sa.types.NullType()  # of a Boolean SQLite's compiler writes "= 1", which keeps indexes from being used
    inherit_cache = True


@compiles(among, "sqlite")
def _among_sqlite(element: among, compiler: Any, **options: Any) -> str:
    column, values = (compiler.process(clause, **options) for clause in element.clauses)
    return f"{column} IN (SELECT value FROM json_each({values}))"


@compiles(among, "postgresql")
def _among_postgres(element: among, compiler: Any, **options: Any) -> str:
    column, values = (compiler.process(clause, **options) for clause in element.clauses)
    return f"{column} = ANY({values})"


class selected(FunctionElement):
    """``selected(column, query)``: the column is one of what a query finds, which runs once.

    With IN, PostgreSQL may run it again for each row, and lock others each time, or read the whole table for a join.
    """

    type = sa.types.NullType()
    inherit_cache = True


@compiles(selected, "sqlite")
def _selected_sqlite(element: selected, compiler: Any, **options: Any) -> str:
    column, query = (compiler.process(clause, **options) for clause in element.clauses)
    return f"{column} IN {query}"


@compiles(selected, "postgresql")
def _selected_postgres(element: selected, compiler: Any, **options: Any) -> str:
    column, query = (compiler.process(clause, **options) for clause in element.clauses)
    return f"{column} = ANY(ARRAY{query})"


class contains(FunctionElement):
    """``contains(column, bindparam(...))``: the column has a text in it, letter by letter."""

    type = sa.types.NullType()
    inherit_cache = True


@compiles(contains, "sqlite")
def _contains_sqlite(element: contains, compiler: Any, **options: Any) -> str:
    return f"instr({compiler.process(element.clauses, **options)}) > 0"


@compiles(contains, "postgresql")
def _contains_postgres(element: contains, compiler: Any, **options: Any) -> str:
    return f"strpos({compiler.process(element.clauses, **options)}) > 0"


def smaller(first: Any, second: Any) -> Any:
    """The smaller of two values, neither of which is null."""
    return sa.case((first < second, first), else_=second)


def greater(first: Any, second: Any) -> Any:
    """The greater of two values, neither of which is null."""
    return sa.case((first > second, first), else_=second)
