"""What SQLite and PostgreSQL say differently, and nothing else."""

import json
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any

CLOSED = "('succeeded', 'failed', 'cancelled')"
"""The states in which a rollout is over, as SQL."""


def is_closed(row: str) -> str:
    """A condition: a row's status is one of ``CLOSED``.

    Of a list of three SQLite makes a table, in a trigger again for each row.
    """
    return "(" + " OR ".join(f"{row}.status = '{status}'" for status in ("succeeded", "failed", "cancelled")) + ")"


class Dialect(ABC):
    """One engine's words.

    types: column type by Python type. position: the column that keeps the order in which rows came.
    infinity: after every time. keeps_extracted: fields deep in a document are columns of their own, since the engine
    does not read them out of any document. locks_rows: several may write at once, so that rows must be locked.
    """

    name: str
    types: Mapping[type, str]
    position: str
    queue_position: str
    key_value_options = ""
    infinity: str
    keeps_extracted: bool
    locks_rows: bool
    for_update = ""

    @abstractmethod
    def among(self, column: str) -> str:
        """A condition: the column is one of a list, which is one parameter however long."""

    @abstractmethod
    def selected(self, column: str, query: str) -> str:
        """A condition: the column is one of what a query finds, which is asked once."""

    @abstractmethod
    def listed(self, values: Iterable[Any]) -> Any:
        """The parameter for ``among``."""

    @abstractmethod
    def contains(self, column: str) -> str:
        """A condition: the column has the parameter's text in it."""

    @abstractmethod
    def greatest(self, *values: str) -> str:
        """The largest of some values, none of them null."""

    @abstractmethod
    def least(self, *values: str) -> str:
        """The smallest of some values, none of them null."""

    def page(self, limit: int, offset: int) -> str:
        """LIMIT and OFFSET as SQL; the limit -1 stands for all.

        As numbers: PostgreSQL's plan for a page of unknown size would be for a tenth of all games.
        """
        return f"LIMIT {limit:d} OFFSET {offset:d}"

    @abstractmethod
    def counting(self, table: str, has_status: bool) -> list[str]:
        """Statements that keep the number of a table's rows, by status where they have one, in ``counts``."""

    @abstractmethod
    def completing(self) -> list[str]:
        """Statements that note, in ``completions``, the order in which rollouts are closed."""


class SqliteDialect(Dialect):
    """SQLite. Columns have no declared type, so that it compares what was put in, and never converts it."""

    name = "sqlite"
    types: Mapping[type, str] = MappingProxyType({str: "", int: "", float: ""})
    position = "position INTEGER PRIMARY KEY"
    queue_position = "position INTEGER PRIMARY KEY AUTOINCREMENT"
    key_value_options = " WITHOUT ROWID"
    infinity = "9e999"
    keeps_extracted = False
    locks_rows = False

    def among(self, column: str) -> str:
        """One parameter however many values: SQLite limits their number."""
        return f"{column} IN (SELECT value FROM json_each(?))"

    def selected(self, column: str, query: str) -> str:
        """See the base class."""
        return f"{column} IN ({query})"

    def listed(self, values: Iterable[Any]) -> Any:
        """A JSON list."""
        return json.dumps(list(values), ensure_ascii=False)

    def contains(self, column: str) -> str:
        """See the base class."""
        return f"instr({column}, ?) > 0"

    def greatest(self, *values: str) -> str:
        """See the base class."""
        return f"MAX({', '.join(values)})"

    def least(self, *values: str) -> str:
        """See the base class."""
        return f"MIN({', '.join(values)})"

    def counting(self, table: str, has_status: bool) -> list[str]:
        """See the base class. What a database of an earlier version holds is counted once.

        Rows that come are counted by ``SqliteDatabase.insert_new``, all at once; a trigger counts one at a time.
        """
        status = "status" if has_status else "''"

        def change(row: str, by: int) -> str:
            value = f"{row}.status" if has_status else "''"
            return (
                f"INSERT INTO counts VALUES ('{table}', {value}, {by}) "
                f"ON CONFLICT DO UPDATE SET number = number + {by};"
            )

        triggers = [("DELETE", change("OLD", -1), "")]
        if has_status:
            triggers.append(("UPDATE OF status", change("OLD", -1) + change("NEW", 1), "WHEN OLD.status <> NEW.status"))
        return [
            "CREATE TABLE IF NOT EXISTS counts (name TEXT, status TEXT, number INTEGER NOT NULL, "
            "PRIMARY KEY (name, status)) WITHOUT ROWID",
            # The status "" stands for none of an item.
            f"INSERT INTO counts SELECT '{table}', {status}, COUNT(*) FROM {table} "
            f"WHERE NOT EXISTS (SELECT 1 FROM counts WHERE name = '{table}') GROUP BY 2",
            f"INSERT OR IGNORE INTO counts VALUES ('{table}', '', 0)",
            f"DROP TRIGGER IF EXISTS {table}_counted_insert",  # of an earlier version
            *(
                f"CREATE TRIGGER IF NOT EXISTS {table}_counted_{event.split()[0].lower()} AFTER {event} "
                f"ON {table} {condition} BEGIN {statements} END"
                for event, statements, condition in triggers
            ),
        ]

    def completing(self) -> list[str]:
        """See the base class. A number is never used twice, so that who has seen one has seen all before it."""
        return [
            "CREATE TABLE IF NOT EXISTS completions (number INTEGER PRIMARY KEY AUTOINCREMENT, rollout_id TEXT UNIQUE)",
            "CREATE TRIGGER IF NOT EXISTS rollouts_completed AFTER UPDATE OF status ON rollouts "
            f"WHEN {is_closed('NEW')} AND NOT {is_closed('OLD')} BEGIN "
            "INSERT OR REPLACE INTO completions (rollout_id) VALUES (NEW.rollout_id); END",
            "CREATE TRIGGER IF NOT EXISTS rollouts_forgotten AFTER DELETE ON rollouts BEGIN "
            "DELETE FROM completions WHERE rollout_id = OLD.rollout_id; END",
        ]


class PostgresDialect(Dialect):
    """PostgreSQL, where many write at once.

    Texts are compared byte by byte, as in SQLite and whatever the database's language. Documents are text and not
    ``jsonb``, which cannot hold every JSON text (``\\u0000``) and gives numbers back otherwise than they came.
    """

    name = "postgres"
    types: Mapping[type, str] = MappingProxyType({str: 'TEXT COLLATE "C"', int: "BIGINT", float: "DOUBLE PRECISION"})
    position = "position BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY"
    queue_position = position
    infinity = "'infinity'::float8"
    keeps_extracted = True
    locks_rows = True
    for_update = " FOR NO KEY UPDATE"

    def among(self, column: str) -> str:
        """See the base class."""
        return f"{column} = ANY(?)"

    def selected(self, column: str, query: str) -> str:
        """See the base class. With IN it may be asked again for each row, and lock others each time."""
        return f"{column} = ANY(ARRAY({query}))"

    def listed(self, values: Iterable[Any]) -> Any:
        """A list."""
        return list(values)

    def contains(self, column: str) -> str:
        """See the base class."""
        return f"strpos({column}, ?) > 0"

    def greatest(self, *values: str) -> str:
        """See the base class."""
        return f"GREATEST({', '.join(values)})"

    def least(self, *values: str) -> str:
        """See the base class."""
        return f"LEAST({', '.join(values)})"

    def page(self, limit: int, offset: int) -> str:
        """See the base class."""
        return f"OFFSET {offset:d}" if limit == -1 else super().page(limit, offset)

    def counting(self, table: str, has_status: bool) -> list[str]:
        """See the base class. Each connection counts in rows of its own: in one for all, each would wait for the last.

        ``Database.tidy_counts`` adds up those of connections that are gone.
        """
        status = "status" if has_status else "''"

        def change(rows: str, sign: str) -> str:
            return (
                f"INSERT INTO counts SELECT '{table}', {status}, pg_backend_pid(), {sign}count(*) FROM {rows} "
                "GROUP BY 2 ON CONFLICT (name, status, shard) DO UPDATE SET number = counts.number + EXCLUDED.number; "
            )

        def function(name: str, body: str) -> str:
            return (
                f"CREATE FUNCTION {table}_counted_{name}() RETURNS trigger LANGUAGE plpgsql AS "
                f"$$ BEGIN {body} RETURN NULL; END $$"
            )

        statements = [
            "CREATE TABLE IF NOT EXISTS counts (name TEXT, status TEXT, shard INTEGER, number BIGINT NOT NULL, "
            "PRIMARY KEY (name, status, shard)) WITH (fillfactor = 50)",
            function("insert", change("added", "")),
            f"CREATE TRIGGER {table}_counted_insert AFTER INSERT ON {table} REFERENCING NEW TABLE AS added "
            f"FOR EACH STATEMENT EXECUTE FUNCTION {table}_counted_insert()",
            function("delete", change("removed", "-")),
            f"CREATE TRIGGER {table}_counted_delete AFTER DELETE ON {table} REFERENCING OLD TABLE AS removed "
            f"FOR EACH STATEMENT EXECUTE FUNCTION {table}_counted_delete()",
        ]
        if has_status:
            one = "INSERT INTO counts VALUES ('{table}', {row}.status, pg_backend_pid(), {by}) ON CONFLICT "
            one += "(name, status, shard) DO UPDATE SET number = counts.number + EXCLUDED.number; "
            moved = one.format(table=table, row="OLD", by=-1) + one.format(table=table, row="NEW", by=1)
            statements += [
                function("update", moved),
                f"CREATE TRIGGER {table}_counted_update AFTER UPDATE OF status ON {table} FOR EACH ROW "
                f"WHEN (OLD.status <> NEW.status) EXECUTE FUNCTION {table}_counted_update()",
            ]
        return statements

    def completing(self) -> list[str]:
        """See the base class. Rows get their numbers when somebody looks (``SqlCollections.completed_after``).

        A number given at once could become visible after a higher one, whose reader would never see it.
        """
        return [
            'CREATE TABLE completions (rollout_id TEXT COLLATE "C" PRIMARY KEY, number BIGINT UNIQUE, '
            "noticed BIGINT GENERATED ALWAYS AS IDENTITY)",
            "CREATE INDEX completions_without_number ON completions (noticed) WHERE number IS NULL",
            "CREATE TABLE last_completion (number BIGINT NOT NULL)",
            "INSERT INTO last_completion VALUES (0)",
            "CREATE FUNCTION rollouts_completed() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
            "INSERT INTO completions (rollout_id) VALUES (NEW.rollout_id) ON CONFLICT (rollout_id) DO NOTHING; "
            "RETURN NULL; END $$",
            "CREATE TRIGGER rollouts_completed AFTER UPDATE OF status ON rollouts FOR EACH ROW "
            f"WHEN ({is_closed('NEW')} AND NOT {is_closed('OLD')}) EXECUTE FUNCTION rollouts_completed()",
            "CREATE FUNCTION rollouts_forgotten() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
            "DELETE FROM completions WHERE rollout_id = OLD.rollout_id; RETURN NULL; END $$",
            "CREATE TRIGGER rollouts_forgotten AFTER DELETE ON rollouts FOR EACH ROW "
            "EXECUTE FUNCTION rollouts_forgotten()",
        ]


NUMBER_COMPLETIONS = (
    "WITH waiting AS (SELECT rollout_id, row_number() OVER (ORDER BY noticed) AS place FROM completions "
    "WHERE number IS NULL), given AS (UPDATE completions SET number = last_completion.number + waiting.place "
    "FROM waiting, last_completion WHERE completions.rollout_id = waiting.rollout_id RETURNING completions.number) "
    "UPDATE last_completion SET number = highest FROM (SELECT max(number) AS highest FROM given) AS new "
    "WHERE highest IS NOT NULL"
)
"""PostgreSQL: number the completions that have become visible, one after the other; under a lock."""
