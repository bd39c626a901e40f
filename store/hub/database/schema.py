"""The tables of a hub.

An item of agentlightning is kept as JSON text, its ``document``; what it is searched and sorted by stands beside it in
columns of the same names. ``position`` is the order in which rows came. The document is text and not ``jsonb``, which
cannot hold every JSON text (``\\u0000``) and returns some numbers changed. Texts are compared byte by byte.
"""

import sqlalchemy as sa

VERSION = 2
"""Of these tables. A database of another version is refused."""

END_OF_TIME = 1e300
"""In the place of a time that is null, where items are sorted by it: later than all others."""

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
    # Of the configuration and the metadata: what the watchdog and exports look for.
    sa.Column("timeout_seconds", FLOAT),
    sa.Column("unresponsive_seconds", FLOAT),
    _text("run", null=True),
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
"""Ids of the rollouts that wait for a runner; the same one may wait twice."""

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
"""version: of these tables. resources: the id of those added or updated last. database: a random name of this one."""

counts = sa.Table(
    "counts",
    metadata,
    sa.Column("name", TEXT, nullable=False),
    sa.Column("status", TEXT, nullable=False),
    sa.Column("number", INTEGER, nullable=False),
    sa.Index("counts_name", "name", "status"),
)
"""How many rows a table has, by status ("" where nobody asks for it): the sum of what every transaction added. A row of
its own for each change, since transactions would wait for one another at a shared row; the watchdog adds them up."""

completions = _table(
    "completions",
    _text("rollout_id"),
    sa.Column("number", INTEGER),
    sa.UniqueConstraint("rollout_id"),
    sa.UniqueConstraint("number"),
)
"""The rollouts that were closed. Numbers are given, in ascending order and under a lock, to rows that have become
visible: a number given inside the closing transaction could become visible after a higher one, and be missed."""

last_completion = sa.Table("last_completion", metadata, sa.Column("number", INTEGER, nullable=False))
"""The highest number given; one row."""

sa.Index(
    "rollouts_status_end_time", rollouts.c.status, sa.func.coalesce(rollouts.c.end_time, sa.literal_column("1e300"))
)
sa.Index("rollouts_status", rollouts.c.status, rollouts.c.position)
sa.Index("rollouts_status_start_time", rollouts.c.status, rollouts.c.start_time)
sa.Index("rollouts_start_time", rollouts.c.start_time)
sa.Index("attempts_sequence_id", attempts.c.rollout_id, attempts.c.sequence_id)
sa.Index(
    "completions_without_number",
    completions.c.position,
    sqlite_where=completions.c.number.is_(None),
    postgresql_where=completions.c.number.is_(None),
)


def creation(dialect: sa.Dialect) -> list[str]:
    """The statements that make all tables in an empty database."""
    statements = []
    for table in metadata.sorted_tables:
        statements.append(str(sa.schema.CreateTable(table).compile(dialect=dialect)))
        statements += [
            str(sa.schema.CreateIndex(index).compile(dialect=dialect))
            for index in sorted(table.indexes, key=lambda one: one.name)
        ]
    statements.append("INSERT INTO last_completion (number) VALUES (0)")
    statements.append(f"INSERT INTO marks (key, value) VALUES ('version', '{VERSION}')")
    return statements
