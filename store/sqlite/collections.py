"""agentlightning's Collection, Queue and KeyValue as SQLite tables, and all of a store's collections together."""

import json
import math
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import Any, Generic, Self, TypeVar

from agentlightning import Attempt, ResourcesUpdate, Rollout, Span
from agentlightning.store.collection.base import (
    AtomicLabels,
    AtomicMode,
    Collection,
    DuplicatedPrimaryKeyError,
    KeyValue,
    LightningCollections,
    Queue,
    ensure_numeric,
    tracked,
)
from agentlightning.types import FilterOptions, PaginatedResult, SortOptions, Worker
from agentlightning.utils.metrics import MetricsBackend
from pydantic import BaseModel

from store.sqlite.database import Database
from store.sqlite.tables import Table, check_page

Item = TypeVar("Item", bound=BaseModel)
Value = TypeVar("Value")


class SqliteCollection(Collection[Item], Generic[Item]):
    """Items of one pydantic type, unique by their keys, in the order in which they were put in.

    What comes out is a copy: changing it changes nothing that is stored. A call that fails leaves nothing behind.
    indexes: fields that are often searched by together; the keys are indexed anyway.
    """

    def __init__(
        self,
        database: Database,
        name: str,
        item_type: type[Item],
        primary_keys: Sequence[str],
        indexes: Iterable[Sequence[str]] = (),
        tracker: MetricsBackend | None = None,
    ):
        super().__init__(tracker=tracker)
        self._database = database
        self._item_type = item_type
        self._table = table = Table.of(name, item_type, primary_keys)
        database.create(*table.creation(indexes), *table.counting())
        names = [*table.columns, "document"]
        by_key = " AND ".join(f"{key} = ?" for key in table.keys)
        self._select_one = f"SELECT document FROM {name} WHERE {by_key}"
        self._insert = f"INSERT INTO {name} ({', '.join(names)}) VALUES ({', '.join('?' * len(names))})"
        self._update = f"UPDATE {name} SET {', '.join(f'{column} = ?' for column in names)} WHERE {by_key}"
        self._delete = f"DELETE FROM {name} WHERE {by_key}"

    @property
    def collection_name(self) -> str:
        """The table's name."""
        return self._table.name

    def primary_keys(self) -> Sequence[str]:
        """The fields that together are unique."""
        return self._table.keys

    def item_type(self) -> type[Item]:
        """The type of the items."""
        return self._item_type

    @tracked("size")
    async def size(self) -> int:
        """Number of items, which is kept and not counted."""
        async with self._database.transaction(write=False):
            (count,) = self._database.execute(
                "SELECT COALESCE(SUM(number), 0) FROM counts WHERE name = ?", [self._table.name]
            ).fetchone()
        return count

    @tracked("query")
    async def query(
        self,
        filter: FilterOptions | None = None,
        sort: SortOptions | None = None,
        limit: int = -1,
        offset: int = 0,
    ) -> PaginatedResult[Item]:
        """See the base class. ValueError for an unknown field, operator, order or page."""
        check_page(limit, offset)
        condition, parameters = self._table.where(filter)
        order = self._table.order(sort)
        statuses = self._table.only_statuses(filter)
        async with self._database.transaction(write=False):
            if statuses is not None and limit != -1:
                # Positions are found in an index, one state after the other; only then are documents looked at.
                page = f"{self._table.page_of_statuses(len(statuses), sort)} ORDER BY {order}"
                items = await self.select(page, [*statuses, limit, offset])
                total = await self._count_statuses(statuses)
            else:
                page = f"{condition} ORDER BY {order} LIMIT ? OFFSET ?"
                items = await self.select(page, [*parameters, limit, offset])
                whole = limit == -1 and offset == 0
                if whole:
                    total = len(items)
                else:
                    total = await (self._count(condition, parameters) if parameters else self.size())
        return PaginatedResult(items=items, limit=limit, offset=offset, total=total)

    @tracked("get")
    async def get(self, filter: FilterOptions | None = None, sort: SortOptions | None = None) -> Item | None:
        """The first item in the given order that matches, or None."""
        condition, parameters = self._table.where(filter)
        items = await self.select(f"{condition} ORDER BY {self._table.order(sort)} LIMIT 1", parameters)
        return items[0] if items else None

    async def select(self, condition: str, parameters: Sequence[Any]) -> list[Item]:
        """Items by an SQL condition, which may go on with ORDER BY and LIMIT."""
        async with self._database.transaction(write=False):
            rows = self._database.execute(
                f"SELECT document FROM {self._table.name} WHERE {condition}", parameters
            ).fetchall()
        return [self._item_type.model_validate_json(document) for (document,) in rows]

    async def _count_statuses(self, statuses: Sequence[str]) -> int:
        (count,) = self._database.execute(
            "SELECT COALESCE(SUM(number), 0) FROM counts WHERE name = ? AND status IN (SELECT value FROM json_each(?))",
            [self._table.name, json.dumps(statuses)],
        ).fetchone()
        return count

    async def _count(self, condition: str, parameters: Sequence[Any]) -> int:
        async with self._database.transaction(write=False):
            (count,) = self._database.execute(
                f"SELECT COUNT(*) FROM {self._table.name} WHERE {condition}", parameters
            ).fetchone()
        return count

    @tracked("insert")
    async def insert(self, items: Sequence[Item]) -> None:
        """Add items. DuplicatedPrimaryKeyError, and nothing is added, if one is there or given twice."""
        async with self._database.transaction(write=True):
            for item in items:
                if not self._insert_if_new(item):
                    raise DuplicatedPrimaryKeyError(
                        f"{self._table.name} already has an item with {self._table.describe(item)}"
                    )

    @tracked("insert_new")
    async def insert_new(self, items: Sequence[Item]) -> list[Item]:
        """Add the items that are not there yet and return them; the others are left as they are."""
        async with self._database.transaction(write=True):
            return [item for item in items if self._insert_if_new(item)]

    @tracked("update")
    async def update(self, items: Sequence[Item], update_fields: Sequence[str] | None = None) -> Sequence[Item]:
        """Replace items, or only the given fields. ValueError, and nothing is changed, if one is not there."""
        async with self._database.transaction(write=True):
            return [self._replace(item, update_fields) for item in items]

    @tracked("upsert")
    async def upsert(self, items: Sequence[Item], update_fields: Sequence[str] | None = None) -> Sequence[Item]:
        """Insert items; of those that are there, replace all fields or only the given ones."""
        async with self._database.transaction(write=True):
            return [item if self._insert_if_new(item) else self._replace(item, update_fields) for item in items]

    @tracked("delete")
    async def delete(self, items: Sequence[Item]) -> None:
        """Remove items. ValueError, and nothing is removed, if one is not there."""
        async with self._database.transaction(write=True):
            for item in items:
                self._check_type(item)
                if self._database.execute(self._delete, self._table.key(item)).rowcount == 0:
                    raise ValueError(f"{self._table.name} has no item with {self._table.describe(item)}")

    def _insert_if_new(self, item: Item) -> bool:
        self._check_type(item)
        return self._database.execute(f"{self._insert} ON CONFLICT DO NOTHING", self._table.row(item)).rowcount == 1

    def _replace(self, item: Item, update_fields: Sequence[str] | None) -> Item:
        self._check_type(item)
        key = self._table.key(item)
        if update_fields is not None:
            stored = self._database.execute(self._select_one, key).fetchone()
            if stored is not None:
                changes = {field: getattr(item, field) for field in update_fields}
                item = self._item_type.model_validate_json(stored[0]).model_copy(update=changes)
        if self._database.execute(self._update, [*self._table.row(item), *key]).rowcount == 0:
            raise ValueError(f"{self._table.name} has no item with {self._table.describe(item)}")
        return item

    def _check_type(self, item: object) -> None:
        if not isinstance(item, self._item_type):
            raise TypeError(f"{self._table.name} holds {self._item_type.__name__}, not {type(item).__name__}")


class SqliteQueue(Queue[str]):
    """Texts, first in, first out; the same text may wait more than once."""

    def __init__(self, database: Database, name: str, tracker: MetricsBackend | None = None):
        super().__init__(tracker=tracker)
        self._database = database
        self._name = name
        database.create(
            f"CREATE TABLE IF NOT EXISTS {name} (position INTEGER PRIMARY KEY AUTOINCREMENT, item TEXT NOT NULL)",
            f"CREATE INDEX IF NOT EXISTS {name}_by_item ON {name} (item)",
        )

    @property
    def collection_name(self) -> str:
        """The table's name."""
        return self._name

    def item_type(self) -> type[str]:
        """Text."""
        return str

    @tracked("has")
    async def has(self, item: str) -> bool:
        """Whether the text waits."""
        self._check_type(item)
        return bool(await self._select("WHERE item = ? LIMIT 1", [item]))

    @tracked("enqueue")
    async def enqueue(self, items: Sequence[str]) -> Sequence[str]:
        """Append texts."""
        async with self._database.transaction(write=True):
            for item in items:
                self._check_type(item)
                self._database.execute(f"INSERT INTO {self._name} (item) VALUES (?)", [item])
        return items

    @tracked("dequeue")
    async def dequeue(self, limit: int = 1) -> Sequence[str]:
        """Take up to ``limit`` texts from the front."""
        if limit <= 0:
            return []
        async with self._database.transaction(write=True):
            rows = await self._select("ORDER BY position LIMIT ?", [limit])
            if rows:
                self._database.execute(f"DELETE FROM {self._name} WHERE position <= ?", [rows[-1][0]])
        return [item for _, item in rows]

    @tracked("peek")
    async def peek(self, limit: int = 1) -> Sequence[str]:
        """Up to ``limit`` texts from the front, which stay."""
        return [item for _, item in await self._select("ORDER BY position LIMIT ?", [max(limit, 0)])]

    @tracked("discard")
    async def discard(self, items: Iterable[str]) -> None:
        """Remove texts, wherever they wait."""
        async with self._database.transaction(write=True):
            for item in items:
                self._database.execute(f"DELETE FROM {self._name} WHERE item = ?", [item])

    @tracked("size")
    async def size(self) -> int:
        """Number of waiting texts."""
        async with self._database.transaction(write=False):
            (count,) = self._database.execute(f"SELECT COUNT(*) FROM {self._name}").fetchone()
        return count

    async def _select(self, rest: str, parameters: Sequence[Any]) -> list[tuple[int, str]]:
        async with self._database.transaction(write=False):
            return self._database.execute(f"SELECT position, item FROM {self._name} {rest}", parameters).fetchall()

    def _check_type(self, item: object) -> None:
        if not isinstance(item, str):
            raise TypeError(f"{self._name} holds str, not {type(item).__name__}")


class SqliteKeyValue(KeyValue[str, Value], Generic[Value]):
    """Texts, whole numbers and fractions by text keys."""

    def __init__(self, database: Database, name: str, tracker: MetricsBackend | None = None):
        super().__init__(tracker=tracker)
        self._database = database
        self._name = name
        # Without a declared type, a value keeps its own.
        database.create(f"CREATE TABLE IF NOT EXISTS {name} (key TEXT PRIMARY KEY, value NOT NULL) WITHOUT ROWID")

    @property
    def collection_name(self) -> str:
        """The table's name."""
        return self._name

    @tracked("has")
    async def has(self, key: str) -> bool:
        """Whether there is a value."""
        return await self._get(key) is not None

    @tracked("get")
    async def get(self, key: str, default: Value | None = None) -> Value | None:
        """The value, or the default."""
        value = await self._get(key)
        return default if value is None else value

    @tracked("set")
    async def set(self, key: str, value: Value) -> None:
        """Put a value in the place of what was there."""
        async with self._database.transaction(write=True):
            self._database.execute(f"INSERT OR REPLACE INTO {self._name} VALUES (?, ?)", [key, value])

    @tracked("inc")
    async def inc(self, key: str, amount: Value) -> Value:
        """Add to a number, which is zero if it is not there, and return the sum. TypeError if either is no number."""
        ensure_numeric(amount, description="amount")
        return await self._change(key, amount, lambda current: current + amount)

    @tracked("chmax")
    async def chmax(self, key: str, value: Value) -> Value:
        """Raise a number to ``value`` if it is smaller or not there; returns it. TypeError if either is no number."""
        ensure_numeric(value, description="value")
        return await self._change(key, value, lambda current: max(current, value))

    @tracked("pop")
    async def pop(self, key: str, default: Value | None = None) -> Value | None:
        """Take the value out, or return the default."""
        async with self._database.transaction(write=True):
            value = await self._get(key)
            self._database.execute(f"DELETE FROM {self._name} WHERE key = ?", [key])
        return default if value is None else value

    @tracked("size")
    async def size(self) -> int:
        """Number of keys."""
        async with self._database.transaction(write=False):
            (count,) = self._database.execute(f"SELECT COUNT(*) FROM {self._name}").fetchone()
        return count

    async def _get(self, key: str) -> Any:
        async with self._database.transaction(write=False):
            row = self._database.execute(f"SELECT value FROM {self._name} WHERE key = ?", [key]).fetchone()
        return None if row is None else row[0]

    async def _change(self, key: str, first: Value, change: Any) -> Value:
        async with self._database.transaction(write=True):
            current = await self._get(key)
            if current is not None:
                ensure_numeric(current, description=f"the value of {key!r}")
            value = first if current is None else change(current)
            await self.set(key, value)
        return value


_CLOSED = "('succeeded', 'failed', 'cancelled')"
_ORDER_OF_COMPLETION = (
    # A number is never used twice, so that who has seen one has seen all before it.
    "CREATE TABLE IF NOT EXISTS completions (number INTEGER PRIMARY KEY AUTOINCREMENT, rollout_id TEXT UNIQUE)",
    "CREATE TRIGGER IF NOT EXISTS rollouts_completed AFTER UPDATE OF status ON rollouts "
    f"WHEN NEW.status IN {_CLOSED} AND OLD.status NOT IN {_CLOSED} BEGIN "
    "INSERT OR REPLACE INTO completions (rollout_id) VALUES (NEW.rollout_id); END",
    "CREATE TRIGGER IF NOT EXISTS rollouts_forgotten AFTER DELETE ON rollouts BEGIN "
    "DELETE FROM completions WHERE rollout_id = OLD.rollout_id; END",
)


_UNDER_WAY = (
    "FROM (SELECT playing.rollout_id, MIN("
    "COALESCE(attempts.start_time + json_extract(playing.document, '$.config.timeout_seconds'), 9e999), "
    "COALESCE(MAX(COALESCE(last_heartbeat_time, attempts.start_time), ?) "
    "+ json_extract(playing.document, '$.config.unresponsive_seconds'), 9e999)) AS due "
    "FROM rollouts AS playing JOIN attempts USING (rollout_id) "
    "WHERE playing.status IN ('preparing', 'running') AND sequence_id = "
    "(SELECT MAX(sequence_id) FROM attempts AS other WHERE other.rollout_id = playing.rollout_id))"
)
"""Rollouts with the time from which they are overdue; its parameter is when all of them were heard of."""


class SqliteCollections(LightningCollections):
    """Everything a store keeps, in one file.

    ``atomic`` is a transaction whatever its arguments: always a snapshot, always undone by an error. Mode "r"
    refuses writes. The labels do not matter, since there is one writer for the whole file.
    """

    def __init__(self, database: Database, tracker: MetricsBackend | None = None):
        super().__init__(tracker=tracker)
        self.database = database
        self._rollouts = SqliteCollection(
            database, "rollouts", Rollout, ["rollout_id"], [["status"], ["status", "end_time"], ["start_time"]], tracker
        )
        self._attempts = SqliteCollection(
            database, "attempts", Attempt, ["rollout_id", "attempt_id"], [["rollout_id", "sequence_id"]], tracker
        )
        self._spans = SqliteCollection(
            database, "spans", Span, ["rollout_id", "attempt_id", "span_id"], tracker=tracker
        )
        self._resources = SqliteCollection(
            database, "resources", ResourcesUpdate, ["resources_id"], [["update_time"]], tracker
        )
        self._workers = SqliteCollection(database, "workers", Worker, ["worker_id"], tracker=tracker)
        self._rollout_queue = SqliteQueue(database, "rollout_queue", tracker)
        self._span_sequence_ids = SqliteKeyValue[int](database, "span_sequence_ids", tracker)
        self.latest = SqliteKeyValue[str](database, "latest", tracker)
        """Under "resources" the id of the resources that were added or updated last, whatever the clock says."""
        self.idempotency_keys = SqliteKeyValue[str](database, "idempotency_keys", tracker)
        """Key of an enqueued task -> id of its rollout."""
        database.create("CREATE INDEX IF NOT EXISTS idempotency_keys_by_value ON idempotency_keys (value)")
        database.create(*_ORDER_OF_COMPLETION)

    @property
    def collection_name(self) -> str:
        """Name of the whole, for metrics."""
        return "router"

    @property
    def rollouts(self) -> SqliteCollection[Rollout]:
        """Rollouts by id."""
        return self._rollouts

    @property
    def attempts(self) -> SqliteCollection[Attempt]:
        """Attempts by rollout id and attempt id."""
        return self._attempts

    @property
    def spans(self) -> SqliteCollection[Span]:
        """Spans by rollout id, attempt id and span id."""
        return self._spans

    @property
    def resources(self) -> SqliteCollection[ResourcesUpdate]:
        """Resources by id."""
        return self._resources

    @property
    def workers(self) -> SqliteCollection[Worker]:
        """Workers by id."""
        return self._workers

    async def completed_after(self, number: int, limit: int) -> list[tuple[int, str]]:
        """(number in the order of completion, rollout id) of those that were closed after that number, in order."""
        async with self.database.transaction(write=False):
            return self.database.execute(
                "SELECT number, rollout_id FROM completions WHERE number > ? ORDER BY number LIMIT ?", [number, limit]
            ).fetchall()

    async def last_completion(self) -> int:
        """The highest number that was ever given in the order of completion."""
        async with self.database.transaction(write=False):
            row = self.database.execute("SELECT seq FROM sqlite_sequence WHERE name = 'completions'").fetchone()
        return row[0] if row else 0

    async def numbers_of_attempts(self, rollout_ids: Sequence[str]) -> dict[str, int]:
        """How many attempts those rollouts have had that have any."""
        async with self.database.transaction(write=False):
            rows = self.database.execute(
                "SELECT rollout_id, MAX(sequence_id) FROM attempts "
                "WHERE rollout_id IN (SELECT value FROM json_each(?)) GROUP BY rollout_id",
                [json.dumps(rollout_ids)],
            ).fetchall()
        return dict(rows)

    async def overdue(self, now: float, heard_of_all: float) -> list[str]:
        """Ids of the rollouts whose latest attempt takes too long, or was not heard of for too long.

        now: seconds since the epoch. heard_of_all: when every attempt that was there counts as heard of.
        """
        async with self.database.transaction(write=False):
            rows = self.database.execute(f"SELECT rollout_id {_UNDER_WAY} WHERE due < ?", [heard_of_all, now])
            return [rollout_id for (rollout_id,) in rows.fetchall()]

    async def first_overdue(self, heard_of_all: float) -> float:
        """When the first of the rollouts under way will be overdue, if nothing is heard of it; infinity without one."""
        async with self.database.transaction(write=False):
            (due,) = self.database.execute(f"SELECT MIN(due) {_UNDER_WAY}", [heard_of_all]).fetchone()
        return math.inf if due is None else due

    @property
    def rollout_queue(self) -> SqliteQueue:
        """Ids of the rollouts that wait for a runner."""
        return self._rollout_queue

    @property
    def span_sequence_ids(self) -> SqliteKeyValue[int]:
        """The highest span sequence id issued or seen, by rollout id."""
        return self._span_sequence_ids

    @asynccontextmanager
    async def atomic(
        self,
        *,
        mode: AtomicMode = "rw",
        snapshot: bool = False,
        commit: bool = False,
        labels: Sequence[AtomicLabels] | None = None,
        **kwargs: Any,
    ) -> AsyncIterator[Self]:
        """A transaction; see the class. Within another one of the same task, a part of it."""
        async with (
            self.tracking_context("atomic", self.collection_name),
            self.database.transaction(write=mode != "r"),
        ):
            yield self
