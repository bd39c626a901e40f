"""The tables of a hub.

An item of agentlightning is stored as JSON text, its ``document``; the fields for searches and sorting are also columns
of the same names. ``position`` is the order of insertion. The document is text since ``jsonb`` rejects some JSON texts
(``\\u0000``) and changes some numbers. Texts are compared byte by byte.
"""

import secrets

import sqlalchemy as sa

from store.hub.database.statements import DIALECTS

VERSION = 3
"""Of these tables. A database of another version is rejected."""

END_OF_TIME = sa.literal_column("1e300")
"""Sort value of a null time: later than all others."""

TEXT = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
FLOAT = sa.Double()
INTEGER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")

metadata = sa.MetaData()


def _table(name: str, *parts: sa.schema.SchemaItem) -> sa.Table:
    position = sa.Column("position", INTEGER, sa.Identity(always=False), primary_key=True)
    return sa.Table(name, metadata, position, *parts)


def _text(name: str, *, null: bool = False) -> sa.Column[str]:
    return sa.Column(name, TEXT, nullable=null)


def _time(name: str, *, null: bool = True) -> sa.Column[float]:
    return sa.Column(name, FLOAT, nullable=null)


def _document() -> sa.Column[str]:
    return sa.Column("document", sa.Text(), nullable=False)


rollouts = _table(
    "rollouts",
    _text("rollout_id"),
    _time("start_time", null=False),
    _time("end_time"),
    _text("mode", null=True),
    _text("resources_id", null=True),
    _text("status"),
    # From the configuration, for the watchdog.
    _time("timeout_seconds"),
    _time("unresponsive_seconds"),
    _document(),
    sa.UniqueConstraint("rollout_id"),
)
attempts = _table(
    "attempts",
    _text("rollout_id"),
    _text("attempt_id"),
    sa.Column("sequence_id", INTEGER, nullable=False),
    _time("start_time", null=False),
    _time("end_time"),
    _text("status"),
    _text("worker_id", null=True),
    _time("last_heartbeat_time"),
    _document(),
    sa.UniqueConstraint("rollout_id", "attempt_id"),
)
spans = _table(
    "spans",
    _text("rollout_id"),
    _text("attempt_id"),
    _text("span_id"),
    sa.Column("sequence_id", INTEGER, nullable=False),
    _text("trace_id"),
    _text("parent_id", null=True),
    _text("name"),
    _time("start_time"),
    _time("end_time"),
    _document(),
    sa.UniqueConstraint("rollout_id", "attempt_id", "span_id"),
)
resources = _table(
    "resources",
    _text("resources_id"),
    _time("create_time", null=False),
    _time("update_time", null=False),
    sa.Column("version", INTEGER, nullable=False),
    _document(),
    sa.UniqueConstraint("resources_id"),
)
workers = _table(
    "workers",
    _text("worker_id"),
    _text("status"),
    _time("last_heartbeat_time"),
    _time("last_dequeue_time"),
    _time("last_busy_time"),
    _time("last_idle_time"),
    _text("current_rollout_id", null=True),
    _text("current_attempt_id", null=True),
    _document(),
    sa.UniqueConstraint("worker_id"),
)

rollout_queue = _table("rollout_queue", _text("item"), sa.Index("rollout_queue_item", "item"))
"""Ids of the rollouts that wait for a runner; duplicates are possible."""

span_sequence_ids = sa.Table(
    "span_sequence_ids",
    metadata,
    sa.Column("key", TEXT, primary_key=True),
    sa.Column("value", INTEGER, nullable=False),
)
"""The highest sequence id of a span that was issued or seen, by rollout id."""

idempotency_keys = sa.Table(
    "idempotency_keys",
    metadata,
    sa.Column("key", TEXT, primary_key=True),
    sa.Column("value", TEXT, nullable=False),
    sa.Index("idempotency_keys_value", "value"),
)
"""Key of an enqueued task -> id of its rollout."""

marks = sa.Table("marks", metadata, sa.Column("key", TEXT, primary_key=True), sa.Column("value", TEXT, nullable=False))
"""version: of these tables. database: a random name of this one. resources: the id of those added or updated last.
completions: the highest number given to a completion."""

counts = sa.Table(
    "counts",
    metadata,
    sa.Column("name", TEXT, nullable=False),
    sa.Column("status", TEXT, nullable=False),
    sa.Column("number", INTEGER, nullable=False),
    sa.Index("counts_name", "name", "status"),
)
"""Number of rows of a table, of rollouts by status (elsewhere ""): a sum. Every change is a row of its own, since
transactions would block each other at a shared one; the watchdog merges them."""

completions = _table(
    "completions",
    _text("rollout_id"),
    sa.Column("number", INTEGER),
    sa.UniqueConstraint("rollout_id"),
    sa.UniqueConstraint("number"),
)
"""Closed rollouts. Committed rows are numbered later, under a lock: a number assigned by the closing transaction could
become visible after a higher one, and be missed."""

sa.Index("rollouts_status_end_time", rollouts.c.status, sa.func.coalesce(rollouts.c.end_time, END_OF_TIME))
sa.Index("rollouts_status", rollouts.c.status, rollouts.c.position)
sa.Index("rollouts_status_start_time", rollouts.c.status, rollouts.c.start_time)
sa.Index("rollouts_start_time", rollouts.c.start_time)
LATER_INDEX = str(sa.schema.CreateIndex(sa.Index("rollouts_resources_id", rollouts.c.resources_id), if_not_exists=True))
"""For SQLite databases made before this index existed; PostgreSQL needs none, since it uses a hash join."""

sa.Index("attempts_sequence_id", attempts.c.rollout_id, attempts.c.sequence_id)
sa.Index(
    "completions_without_number",
    completions.c.position,
    sqlite_where=completions.c.number.is_(None),
    postgresql_where=completions.c.number.is_(None),
)


def creation(engine: str) -> list[str]:
    """The statements that create all tables in an empty database."""
    creations: list[sa.schema.ExecutableDDLElement] = []
    for table in metadata.sorted_tables:
        creations += [sa.schema.CreateTable(table), *map(sa.schema.CreateIndex, table.indexes)]
    first_marks = {"version": VERSION, "database": secrets.token_hex(6), "completions": 0}
    return [
        *(str(one.compile(dialect=DIALECTS[engine])) for one in creations),
        *(f"INSERT INTO marks (key, value) VALUES ('{key}', '{value}')" for key, value in first_marks.items()),
    ]


def other_version(version: object, database: object) -> str:
    """The error for a database of another version."""
    return (
        f"its tables are version {version}, and this program needs {VERSION}: choose another database with --db, and "
        f"export its rollouts with the version that wrote it, `python -m store export --db {database} rollouts.jsonl`"
    )
