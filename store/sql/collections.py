"""agentlightning's Collection as a table, and all of a store's collections together."""

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Generic, Self, TypeVar

from agentlightning import Attempt, ResourcesUpdate, Rollout, Span
from agentlightning.store.collection.base import (
    AtomicLabels,
    AtomicMode,
    Collection,
    DuplicatedPrimaryKeyError,
    LightningCollections,
    tracked,
)
from agentlightning.types import FilterOptions, PaginatedResult, SortOptions, Worker
from agentlightning.utils.metrics import MetricsBackend
from pydantic import BaseModel

from store.sql.database import Database
from store.sql.dialects import NUMBER_COMPLETIONS
from store.sql.queues import SqlKeyValue, SqlQueue
from store.sql.tables import Scalar, Table, check_page

Item = TypeVar("Item", bound=BaseModel)


class SqlCollection(Collection[Item], Generic[Item]):
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
        extracted: Mapping[str, tuple[Scalar, Sequence[str]]] | None = None,
    ):
        super().__init__(tracker=tracker)
        self._database = database
        self._item_type = item_type
        self.table = table = Table.of(name, item_type, primary_keys, database.dialect, extracted)
        database.create(*table.creation(indexes))
        by_key = " AND ".join(f"{key} = ?" for key in table.keys)
        self._select_one = f"SELECT document FROM {name} WHERE {by_key}{database.dialect.for_update}"
        self._delete = f"DELETE FROM {name} WHERE {by_key}"

    @property
    def collection_name(self) -> str:
        """The table's name."""
        return self.table.name

    def primary_keys(self) -> Sequence[str]:
        """The fields that together are unique."""
        return self.table.keys

    def item_type(self) -> type[Item]:
        """The type of the items."""
        return self._item_type

    @tracked("size")
    async def size(self) -> int:
        """Number of items, which is kept and not counted."""
        return await self._database.value(
            "SELECT CAST(COALESCE(SUM(number), 0) AS BIGINT) FROM counts WHERE name = ?", [self.table.name]
        )

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
        condition, parameters = self.table.where(filter)
        order = self.table.order(sort)
        if limit == -1 and offset == 0:
            items = await self.select(f"{condition} ORDER BY {order}", parameters)
            return PaginatedResult(items=items, limit=limit, offset=offset, total=len(items))
        statuses = self.table.only_statuses(filter)
        async with self._database.transaction(write=False):
            if statuses is not None and limit != -1:
                # Positions are found in an index, one state after the other; only then are documents looked at.
                page = self.table.page_of_statuses(len(statuses), sort, limit, offset)
                items = await self.select(f"{page} ORDER BY {order}", statuses)
                total = await self._count_statuses(statuses)
            else:
                page = self._database.dialect.page(limit, offset)
                items = await self.select(f"{condition} ORDER BY {order} {page}", parameters)
                total = await (self._count(condition, parameters) if parameters else self.size())
        return PaginatedResult(items=items, limit=limit, offset=offset, total=total)

    @tracked("get")
    async def get(self, filter: FilterOptions | None = None, sort: SortOptions | None = None) -> Item | None:
        """The first item in the given order that matches, or None."""
        condition, parameters = self.table.where(filter)
        items = await self.select(f"{condition} ORDER BY {self.table.order(sort)} LIMIT 1", parameters)
        return items[0] if items else None

    async def select(self, condition: str, parameters: Sequence[Any]) -> list[Item]:
        """Items by an SQL condition, which may go on with ORDER BY and LIMIT."""
        rows = await self._database.rows(f"SELECT document FROM {self.table.name} WHERE {condition}", parameters)
        return [self._item_type.model_validate_json(document) for (document,) in rows]

    async def positions(self, filter: FilterOptions | None, sort: SortOptions | None) -> list[int]:
        """Where the items that ``query`` finds are, for ``at``."""
        condition, parameters = self.table.where(filter)
        rows = await self._database.rows(
            f"SELECT position FROM {self.table.name} WHERE {condition} ORDER BY {self.table.order(sort)}", parameters
        )
        return [position for (position,) in rows]

    async def at(self, positions: Sequence[int], sort: SortOptions | None) -> list[Item]:
        """Those of the items at these positions that are still there."""
        dialect = self._database.dialect
        condition = f"{dialect.among('position')} ORDER BY {self.table.order(sort)}"
        return await self.select(condition, [dialect.listed(positions)])

    async def _count_statuses(self, statuses: Sequence[str]) -> int:
        dialect = self._database.dialect
        return await self._database.value(
            "SELECT CAST(COALESCE(SUM(number), 0) AS BIGINT) FROM counts WHERE name = ? AND " + dialect.among("status"),
            [self.table.name, dialect.listed(statuses)],
        )

    async def _count(self, condition: str, parameters: Sequence[Any]) -> int:
        return await self._database.value(f"SELECT COUNT(*) FROM {self.table.name} WHERE {condition}", parameters)

    @tracked("insert")
    async def insert(self, items: Sequence[Item]) -> None:
        """Add items. DuplicatedPrimaryKeyError, and nothing is added, if one is there or given twice."""
        async with self._database.transaction(write=True):
            for item, is_new in zip(items, await self._insert(items), strict=True):
                if not is_new:
                    raise DuplicatedPrimaryKeyError(
                        f"{self.table.name} already has an item with {self.table.describe(item)}"
                    )

    @tracked("insert_new")
    async def insert_new(self, items: Sequence[Item]) -> list[Item]:
        """Add the items that are not there yet and return them; the others are left as they are."""
        added = await self._insert(items)
        return [item for item, is_new in zip(items, added, strict=True) if is_new]

    @tracked("update")
    async def update(self, items: Sequence[Item], update_fields: Sequence[str] | None = None) -> Sequence[Item]:
        """Replace items, or only the given fields. ValueError, and nothing is changed, if one is not there."""
        if update_fields is None:
            return await self.replace(items)
        async with self._database.transaction(write=True):
            return [await self._replace(item, update_fields) for item in items]

    @tracked("upsert")
    async def upsert(self, items: Sequence[Item], update_fields: Sequence[str] | None = None) -> Sequence[Item]:
        """Insert items; of those that are there, replace all fields or only the given ones."""
        async with self._database.transaction(write=True):
            return [
                item if (await self._insert([item]))[0] else await self._replace(item, update_fields) for item in items
            ]

    @tracked("delete")
    async def delete(self, items: Sequence[Item]) -> None:
        """Remove items. ValueError, and nothing is removed, if one is not there."""
        async with self._database.transaction(write=True):
            for item in items:
                self._check_type(item)
                if await self._database.change(self._delete, self.table.key(item)) == 0:
                    raise ValueError(f"{self.table.name} has no item with {self.table.describe(item)}")

    async def _insert(self, items: Sequence[Item]) -> list[bool]:
        for item in items:
            self._check_type(item)
        return await self._database.insert_new(self.table, [self.table.row(item) for item in items])

    async def replace(self, items: Sequence[Item], changed: Iterable[str] = ()) -> Sequence[Item]:
        """Replace items as they were read, of which only the fields ``changed`` are others, or any where none is named.

        ValueError, and nothing is changed, if one is not there.
        """
        for item in items:
            self._check_type(item)
        columns = {*(changed or self.table.stored), "document"} - set(self.table.keys)
        async with self._database.transaction(write=True):
            rows = [self.table.row(item) for item in items]
            if await self._database.replace(self.table, rows, columns) < len(items):
                for item in items:
                    if await self._database.value(self._select_one, self.table.key(item)) is None:
                        raise ValueError(f"{self.table.name} has no item with {self.table.describe(item)}")
        return items

    async def _replace(self, item: Item, update_fields: Sequence[str] | None) -> Item:
        changed: Iterable[str] = ()
        if update_fields is not None:
            self._check_type(item)
            stored = await self._database.value(self._select_one, self.table.key(item))
            if stored is not None:
                changes = {field: getattr(item, field) for field in update_fields}
                item = self._item_type.model_validate_json(stored).model_copy(update=changes)
                if changes.keys() <= self.table.columns.keys():  # what is extracted follows from the other fields
                    changed = changes
        await self.replace([item], changed)
        return item

    def _check_type(self, item: object) -> None:
        if not isinstance(item, self._item_type):
            raise TypeError(f"{self.table.name} holds {self._item_type.__name__}, not {type(item).__name__}")


READ_BY_QUERIES: Mapping[str, tuple[Scalar, Sequence[str]]] = {
    "timeout_seconds": (float, ("config", "timeout_seconds")),
    "unresponsive_seconds": (float, ("config", "unresponsive_seconds")),
    "run": (str, ("metadata", "run")),
}


class SqlCollections(LightningCollections):
    """Everything a store keeps, in one database.

    ``atomic`` is a transaction, undone by an error; mode "r" is a snapshot and refuses writes. Labels do not matter.
    """

    def __init__(self, database: Database, tracker: MetricsBackend | None = None):
        super().__init__(tracker=tracker)
        self.database = database
        self._rollouts = SqlCollection(
            database,
            "rollouts",
            Rollout,
            ["rollout_id"],
            [["status"], ["status", "end_time"], ["start_time"]],
            tracker,
            extracted=READ_BY_QUERIES,
        )
        self._attempts = SqlCollection(
            database, "attempts", Attempt, ["rollout_id", "attempt_id"], [["rollout_id", "sequence_id"]], tracker
        )
        self._spans = SqlCollection(database, "spans", Span, ["rollout_id", "attempt_id", "span_id"], tracker=tracker)
        self._resources = SqlCollection(
            database, "resources", ResourcesUpdate, ["resources_id"], [["update_time"]], tracker
        )
        self._workers = SqlCollection(database, "workers", Worker, ["worker_id"], tracker=tracker)
        self._rollout_queue = SqlQueue(database, "rollout_queue", tracker)
        self._span_sequence_ids = SqlKeyValue[int](database, "span_sequence_ids", int, tracker)
        self.latest = SqlKeyValue[str](database, "latest", str, tracker)
        """Under "resources" the id of the resources that were added or updated last, whatever the clock says."""
        self.idempotency_keys = SqlKeyValue[str](database, "idempotency_keys", str, tracker)
        """Key of an enqueued task -> id of its rollout."""
        database.create("CREATE INDEX IF NOT EXISTS idempotency_keys_by_value ON idempotency_keys (value)")
        database.create(*database.dialect.completing())

    @property
    def collection_name(self) -> str:
        """Name of the whole, for metrics."""
        return "router"

    @property
    def rollouts(self) -> SqlCollection[Rollout]:
        """Rollouts by id."""
        return self._rollouts

    @property
    def attempts(self) -> SqlCollection[Attempt]:
        """Attempts by rollout id and attempt id."""
        return self._attempts

    @property
    def spans(self) -> SqlCollection[Span]:
        """Spans by rollout id, attempt id and span id."""
        return self._spans

    @property
    def resources(self) -> SqlCollection[ResourcesUpdate]:
        """Resources by id."""
        return self._resources

    @property
    def workers(self) -> SqlCollection[Worker]:
        """Workers by id."""
        return self._workers

    async def completed_after(self, number: int, limit: int) -> list[tuple[int, str]]:
        """(number in the order of completion, rollout id) of those that were closed after that number, in order."""
        rows = await self.database.rows(
            "SELECT number, rollout_id FROM completions WHERE number > ? ORDER BY number LIMIT ?", [number, limit]
        )
        return [(number, rollout_id) for number, rollout_id in rows]

    async def last_completion(self) -> int:
        """The highest number given in the order of completion; all that is closed by now has one.

        Where many write at once the numbers are given here, one after the other, to what has become visible: a number
        that a transaction takes before it ends can come to light after a higher one, and be missed.
        """
        if not self.database.dialect.locks_rows:
            return await self.database.value("SELECT seq FROM sqlite_sequence WHERE name = 'completions'") or 0
        look = "SELECT number, EXISTS (SELECT 1 FROM completions WHERE number IS NULL) FROM last_completion"
        ((number, is_incomplete),) = await self.database.rows(look)
        if is_incomplete:
            async with self.database.transaction(write=True):
                await self.database.lock("completions")
                await self.database.change(NUMBER_COMPLETIONS)
                number = await self.database.value("SELECT number FROM last_completion")
        return number

    async def numbers_of_attempts(self, rollout_ids: Sequence[str]) -> dict[str, int]:
        """How many attempts those rollouts have had that have any."""
        dialect = self.database.dialect
        rows = await self.database.rows(
            f"SELECT rollout_id, MAX(sequence_id) FROM attempts WHERE {dialect.among('rollout_id')} "
            "GROUP BY rollout_id",
            [dialect.listed(rollout_ids)],
        )
        return {rollout_id: number for rollout_id, number in rows}

    async def lock_rollouts(self, rollout_ids: Iterable[str], *, wait: bool = True) -> list[str]:
        """Keep others from changing rollouts and what belongs to them until the transaction ends; returns who is there.

        wait: for others that have locked them; else those are left out. Where one may write at a time, nothing happens.
        """
        dialect, ids = self.database.dialect, sorted(set(rollout_ids))
        if not dialect.locks_rows:
            return ids
        rows = await self.database.rows(
            f"SELECT rollout_id FROM rollouts WHERE {dialect.among('rollout_id')} ORDER BY rollout_id"
            f"{dialect.for_update}{'' if wait else ' SKIP LOCKED'}",
            [dialect.listed(ids)],
        )
        return [rollout_id for (rollout_id,) in rows]

    @property
    def rollout_queue(self) -> SqlQueue:
        """Ids of the rollouts that wait for a runner."""
        return self._rollout_queue

    @property
    def span_sequence_ids(self) -> SqlKeyValue[int]:
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
            self.database.transaction(write=mode != "r", snapshot=snapshot),
        ):
            yield self
