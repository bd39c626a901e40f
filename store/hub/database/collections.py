"""agentlightning's collections as tables."""

import functools
import operator
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import cached_property
from typing import Any, Generic, Self, TypeAlias, TypeVar

import sqlalchemy as sa
from agentlightning import Attempt, ResourcesUpdate, Rollout, Span
from agentlightning.store.collection.base import (
    AtomicLabels,
    AtomicMode,
    Collection,
    KeyValue,
    LightningCollections,
    Queue,
    normalize_filter_options,
    resolve_sort_options,
    tracked,
)
from agentlightning.types import FilterOptions, PaginatedResult, SortOptions, Worker
from agentlightning.utils.metrics import MetricsBackend
from pydantic import BaseModel
from pydantic_core import from_json, to_json
from sqlalchemy.dialects.postgresql import insert  # its ON CONFLICT is SQLite's, too

from store.hub.database import schema
from store.hub.database.database import Database
from store.hub.database.statements import Statement, among, contains, greater, selected
from store.protocol import CLOSED

Item = TypeVar("Item", bound=BaseModel)
Kept = TypeVar("Kept")
Key: TypeAlias = tuple[Any, ...]
Value = TypeVar("Value", str, int)
Comparison: TypeAlias = tuple[str, str, int]
"""(field, operator, number of the parameter to compare with)."""

Condition: TypeAlias = tuple[str, tuple[Comparison, ...], tuple[Comparison, ...]]
"""A filter without its values: ("and" or "or" among the last ones, required comparisons, others)."""

Order: TypeAlias = tuple[str, str]
"""(field, "asc" or "desc"). Equal items stay in the order of insertion, in both directions."""

ALL: Condition = ("and", (), ())
_OPERATORS: Mapping[str, Callable[[Any, Any], Any]] = {"exact": operator.eq, "within": among, "contains": contains}
_LARGEST_INTEGER = 2**63 - 1
_DEEPEST = 200
"""Levels of JSON that pydantic's parser reads."""

_counts = schema.counts.c
_total = sa.select(sa.cast(sa.func.coalesce(sa.func.sum(_counts.number), sa.literal_column("0")), sa.BigInteger)).where(
    _counts.name == sa.bindparam("name")
)
_SIZE = Statement(_total)
_SIZE_OF_STATES = Statement(_total.where(among(_counts.status, sa.bindparam("states"))))
_ADD_COUNT = Statement(sa.insert(schema.counts).values({n: sa.bindparam(n) for n in ("name", "status", "number")}))


class SqlCollection(Collection[Item], Generic[Item]):
    """Items of one pydantic type in the order of insertion. Returned items are copies."""

    def __init__(self, database: Database, table: sa.Table, model: type[Item], tracker: MetricsBackend | None = None):
        super().__init__(tracker=tracker)
        self._database, self._table, self._model = database, table, model
        (unique,) = (one for one in table.constraints if isinstance(one, sa.UniqueConstraint))
        self._keys = [column.name for column in unique.columns]
        columns = [column.name for column in table.columns if column.name != "position"]
        self._fields = [name for name in columns if name in model.model_fields]
        self._values_of = operator.attrgetter(*self._fields)
        new = insert(table).values({name: sa.bindparam(name) for name in columns})
        replaced = {name: new.excluded[name] for name in columns if name not in self._keys}
        self._insert = Statement(new)
        self._put = Statement(new.on_conflict_do_update(index_elements=self._keys, set_=replaced))
        self._select = functools.lru_cache(1024)(self._selection)
        by_key = [among(table.c[name], sa.bindparam(name)) for name in self._keys]
        self._stored = Statement(sa.select(table.c.document).where(*by_key).with_for_update(key_share=True))
        self._known = Statement(sa.select(*(table.c[name] for name in self._keys)).where(*by_key))

    @property
    def collection_name(self) -> str:
        return self._table.name

    @tracked("size")
    async def size(self) -> int:
        return await self._database.value(_SIZE, name=self._table.name)

    @tracked("query")
    async def query(
        self, filter: FilterOptions | None = None, sort: SortOptions | None = None, limit: int = -1, offset: int = 0
    ) -> PaginatedResult[Item]:
        check_page(limit, offset)
        (condition, values), order = self._condition(filter), self._order(sort)
        async with self._database.transaction(write=False):
            items = await self.select(self._select("document", condition, order, limit, offset), values)
            total = len(items)
            if condition == ALL:
                total = await self.size()
            elif limit != -1 or offset:
                total = await self._database.value(self._select("count", condition), **values)
        return PaginatedResult(items=items, limit=limit, offset=offset, total=total)

    @tracked("get")
    async def get(self, filter: FilterOptions | None = None, sort: SortOptions | None = None) -> Item | None:
        condition, values = self._condition(filter)
        items = await self.select(self._select("document", condition, self._order(sort), 1), values)
        return items[0] if items else None

    async def positions(self, filter: FilterOptions | None, sort: SortOptions | None) -> list[int]:
        """Positions of the items that ``query`` finds, for ``at``."""
        condition, values = self._condition(filter)
        rows = await self._database.rows(self._select("sorted", condition, self._order(sort)), **values)
        return [position for _, position in rows]

    async def at(self, positions: Sequence[int], sort: SortOptions | None) -> list[Item]:
        """Those of the items at these positions that still exist."""
        return await self.select(self._select("at", ALL, self._order(sort)), {"positions": list(positions)})

    async def select(self, statement: Statement, parameters: Mapping[str, Any]) -> list[Item]:
        """The items of the documents that a statement finds."""
        rows = await self._database.rows(statement, **parameters)
        return [self._model.model_validate_json(document) for (document,) in rows]

    @tracked("insert")
    async def insert(self, items: Sequence[Item]) -> None:
        async with self._database.transaction(write=True):
            await self._database.change_each(self._insert, [self._row(item) for item in items])
            await self._count(Counter(map(self._state, items)))

    async def insert_new(self, items: Sequence[Item]) -> list[Item]:
        """Add the items that do not exist yet and return them; the others stay as they are."""
        async with self._database.transaction(write=True):
            known = set(map(tuple, await self._database.rows(self._known, **self._keys_of(items))))
            new: dict[Key, Item] = {}
            for item in items:
                if (key := self._key(item)) not in known:
                    new.setdefault(key, item)
            await self.insert(list(new.values()))
        return list(new.values())

    @tracked("update")
    async def update(self, items: Sequence[Item], update_fields: Sequence[str] | None = None) -> Sequence[Item]:
        """Replace items that exist, or only the given fields."""
        return await self.upsert(items, update_fields)

    @tracked("upsert")
    async def upsert(self, items: Sequence[Item], update_fields: Sequence[str] | None = None) -> Sequence[Item]:
        """Insert items; of those that exist, replace all fields or only the given ones."""
        async with self._database.transaction(write=True):
            stored = await self._existing(items)
            if len(stored) < len(items):
                await self._database.try_lock(f"new {self._table.name}", wait=True)  # or two hubs add them
                stored = await self._existing(items)
            await self.insert([item for item in items if self._key(item) not in stored])
            changed = []
            for item in items:
                known = stored.get(self._key(item))
                if known is not None and update_fields is not None:
                    item = known.model_copy(update={field: getattr(item, field) for field in update_fields})
                changed.append(item)
            await self.replace([item for item in changed if self._key(item) in stored], stored)
        return changed

    async def replace(self, items: Sequence[Item], before: Mapping[Key, Item] | None = None) -> None:
        """Replace items that exist. before: their stored versions by key, if the caller has them."""
        await self._database.change_each(self._put, [self._row(item) for item in items])

    async def delete_by(self, deletion: Statement, **parameters: Any) -> None:
        """Delete items by a statement that returns the state of each."""
        gone = await self._database.change(deletion, **parameters)
        await self._count({state: -number for state, number in Counter(state for (state,) in gone).items()})

    async def _count(self, changes: Mapping[str, int]) -> None:
        rows = [(self._table.name, state, number) for state, number in changes.items() if number]
        await self._database.change_each(_ADD_COUNT, rows)

    def _state(self, item: Item) -> str:
        """Key of the item's count."""
        return ""

    async def _existing(self, items: Sequence[Item]) -> dict[Key, Item]:
        """The stored versions of items by key, locked until the transaction ends."""
        return {self._key(item): item for item in await self.select(self._stored, self._keys_of(items))}

    def _key(self, item: Item) -> Key:
        return tuple([getattr(item, name) for name in self._keys])

    def _keys_of(self, items: Sequence[Item]) -> dict[str, list[Any]]:
        return {name: [getattr(item, name) for item in items] for name in self._keys}

    def _row(self, item: Item) -> tuple[Any, ...]:
        return (*self._values_of(item), _document(item))

    def _condition(self, options: FilterOptions | None) -> tuple[Condition, dict[str, Any]]:
        """A filter without its values, and the values by the names of their parameters."""
        filters, must, aggregate = normalize_filter_options(options)
        values: dict[str, Any] = {}
        groups: list[tuple[Comparison, ...]] = []
        for group in (must, filters):
            comparisons = []
            for field, operators in (group or {}).items():
                self._check(field)
                for comparison, value in operators.items():
                    if value is not None:
                        comparisons.append((field, comparison, len(values)))
                        values[f"value_{len(values)}"] = list(value) if isinstance(value, list | tuple) else value
            groups.append(tuple(comparisons))
        return (aggregate, groups[0], groups[1]), values

    def _order(self, options: SortOptions | None) -> Order:
        field, direction = resolve_sort_options(options)
        if field is None:
            return "position", "asc"
        self._check(field)
        return field, direction

    def _check(self, field: str) -> None:
        if field not in self._fields:
            raise ValueError(f"{self._table.name} have no field {field!r} to search by; use {', '.join(self._fields)}")

    def _selection(
        self, what: str, condition: Condition, order: Order = ("position", "asc"), limit: int = -1, offset: int = 0
    ) -> Statement:
        """what: "document", "count", "sorted" (sort value and position), or "at" positions.

        Limits are literals: PostgreSQL plans a page of unknown size as a tenth of all rows.
        """
        columns = self._table.c
        aggregate, *groups = condition
        required, others = (
            [_OPERATORS[compare](columns[field], sa.bindparam(f"value_{number}")) for field, compare, number in group]
            for group in groups
        )
        where = [*required, *([sa.or_(*others)] if aggregate == "or" and others else others)]
        if what == "count":
            return Statement(sa.select(sa.func.count()).select_from(self._table).where(*where))
        field, direction = order
        value = columns[field]
        if value.nullable:
            value = sa.func.coalesce(value, schema.END_OF_TIME if field.endswith("_time") else sa.literal_column("''"))
        query = sa.select(value, columns.position) if what == "sorted" else sa.select(columns.document)
        if what == "at":
            where.append(among(columns.position, sa.bindparam("positions")))
        query = query.where(*where).order_by(value.desc() if direction == "desc" else value, columns.position)
        if limit != -1 or offset:
            query = query.limit(sa.literal_column(str(_LARGEST_INTEGER if limit == -1 else limit)))
        return Statement(query.offset(sa.literal_column(str(offset))) if offset else query)


class SqlRollouts(SqlCollection[Rollout]):
    """Also stores the number of rollouts by status, and the order in which they close."""

    @tracked("query")
    async def query(
        self, filter: FilterOptions | None = None, sort: SortOptions | None = None, limit: int = -1, offset: int = 0
    ) -> PaginatedResult[Rollout]:
        """As in the base class. A page by states alone is read from an index, at a cost independent of the total."""
        condition, values = self._condition(filter)
        if limit == -1 or condition[1:] != ((), (("status", "within", 0),)):
            return await super().query(filter, sort, limit, offset)
        check_page(limit, offset)
        order, states = self._order(sort), list(dict.fromkeys(values["value_0"]))
        of_state = self._select("sorted", ("and", (("status", "exact", 0),), ()), order, limit + offset)
        async with self._database.transaction(write=False):
            found = [row for state in states for row in await self._database.rows(of_state, value_0=state)]
            found.sort(key=operator.itemgetter(1))
            found.sort(key=operator.itemgetter(0), reverse=order[1] == "desc")
            items = await self.at([position for _, position in found[offset : offset + limit]], sort)
            total = await self._database.value(_SIZE_OF_STATES, name=self._table.name, states=states)
        return PaginatedResult(items=items, limit=limit, offset=offset, total=total)

    async def replace(self, items: Sequence[Rollout], before: Mapping[Key, Rollout] | None = None) -> None:
        async with self._database.transaction(write=True):
            before = await self._existing(items) if before is None else before
            moved = [(before[self._key(item)].status, item) for item in items]
            moved = [(state, item) for state, item in moved if state != item.status]
            changes = Counter(item.status for _, item in moved)
            changes.subtract(state for state, _ in moved)
            await self._count(changes)
            closed = [(item.rollout_id,) for state, item in moved if item.status in CLOSED]
            await self._database.change_each(_COMPLETE, closed)
            await super().replace(items, before)

    def _state(self, item: Rollout) -> str:
        return item.status

    def _row(self, item: Rollout) -> tuple[Any, ...]:
        timeouts = item.config.timeout_seconds, item.config.unresponsive_seconds
        return (*self._values_of(item), *timeouts, _document(item))


_COMPLETE = Statement(sa.insert(schema.completions).values(rollout_id=sa.bindparam("rollout_id")))


def _document(item: BaseModel) -> str:
    """A model as JSON text. ValueError for invalid JSON: every response with it would fail."""
    try:
        text = to_json(_fields(item), inf_nan_mode="constants")  # of a model, it would write null for NaN
        if b"NaN" in text or b"Infinity" in text or text.count(b"{") + text.count(b"[") > _DEEPEST:  # rarely
            from_json(text, allow_inf_nan=False)
    except ValueError as error:
        reason = f"it contains NaN, an infinity, a type without JSON form, or more than {_DEEPEST} levels"
        raise ValueError(f"a {type(item).__name__} cannot be stored: {reason}") from error
    return text.decode()


def _fields(item: BaseModel) -> dict[str, Any]:
    """A fast ``model_dump`` for the items that change most often; it dominates the cost of an update."""
    kind, fields = type(item), vars(item)
    if kind is Rollout:
        return {**fields, "config": vars(fields["config"])}
    return fields if kind is Attempt or kind is Worker else item.model_dump()


def check_page(limit: int, offset: int) -> None:
    """ValueError unless limit is -1 (all) or a count, and offset a count."""
    if not (-1 <= limit <= _LARGEST_INTEGER // 2 and 0 <= offset <= _LARGEST_INTEGER // 2):
        raise ValueError(f"limit must be -1 or a count and offset a count, got {limit} and {offset}")


class SqlQueue(Queue[str]):
    """A FIFO queue of texts. Concurrent consumers skip items that another is dequeuing instead of waiting for them."""

    def __init__(self, database: Database, table: sa.Table, tracker: MetricsBackend | None = None):
        super().__init__(tracker=tracker)
        self._database, self._table = database, table
        position, item = table.c.position, table.c.item
        first = sa.select(position).order_by(position).limit(sa.bindparam("number", type_=sa.BigInteger()))
        front = first.with_for_update(skip_locked=True).scalar_subquery()
        waiting = sa.select(position).where(among(item, sa.bindparam("items")))
        chosen = waiting.with_for_update(skip_locked=True).scalar_subquery()
        self._append = Statement(sa.insert(table).values(item=sa.bindparam("item")))
        self._has = Statement(sa.select(position).where(item == sa.bindparam("item")).limit(sa.literal_column("1")))
        self._take = Statement(sa.delete(table).where(selected(position, front)).returning(position, item))
        self._remove = Statement(sa.delete(table).where(selected(position, chosen)))
        self._size = Statement(sa.select(sa.func.count()).select_from(table))

    @property
    def collection_name(self) -> str:
        return self._table.name

    @tracked("has")
    async def has(self, item: str) -> bool:
        return await self._database.value(self._has, item=item) is not None

    @tracked("enqueue")
    async def enqueue(self, items: Sequence[str]) -> Sequence[str]:
        await self._database.change_each(self._append, [(item,) for item in items])
        return items

    @tracked("dequeue")
    async def dequeue(self, limit: int = 1) -> Sequence[str]:
        taken = await self._database.change(self._take, number=min(limit, _LARGEST_INTEGER))
        return [item for _, item in sorted(map(tuple, taken))]

    async def discard(self, items: Sequence[str]) -> None:
        """Remove texts from any position."""
        if items:
            await self._database.change(self._remove, items=items)

    @tracked("size")
    async def size(self) -> int:
        return await self._database.value(self._size)


class SqlKeyValue(KeyValue[str, Value], Generic[Value]):
    """Texts or integers, by the type of the table's column ``value``, by text keys."""

    def __init__(self, database: Database, table: sa.Table, tracker: MetricsBackend | None = None):
        super().__init__(tracker=tracker)
        self._database, self._table = database, table
        key, value = table.c.key, table.c.value
        new = insert(table).values(key=sa.bindparam("key"), value=sa.bindparam("value", type_=value.type))

        def put(combined: Any) -> Statement:
            return Statement(new.on_conflict_do_update(index_elements=[key], set_={"value": combined}).returning(value))

        self._get = Statement(sa.select(key, value).where(among(key, sa.bindparam("keys"))))
        self._put = put(new.excluded.value)
        self._add = put(value + new.excluded.value)
        self._raise = put(greater(value, new.excluded.value))

    @property
    def collection_name(self) -> str:
        return self._table.name

    @tracked("get")
    async def get(self, key: str, default: Value | None = None) -> Value | None:
        return (await self.get_many([key])).get(key, default)

    async def get_many(self, keys: Iterable[str]) -> dict[str, Value]:
        return dict(map(tuple, await self._database.rows(self._get, keys=list(keys))))

    @tracked("set")
    async def set(self, key: str, value: Value) -> None:
        await self.set_many({key: value})

    async def set_many(self, values: Mapping[str, Value]) -> None:
        await self._database.change_each(self._put, list(values.items()))

    @tracked("inc")
    async def inc(self, key: str, amount: Value) -> Value:
        return (await self._database.change(self._add, key=key, value=amount))[0][0]

    @tracked("chmax")
    async def chmax(self, key: str, value: Value) -> Value:
        return (await self._database.change(self._raise, key=key, value=value))[0][0]


_attempts, _other = schema.attempts.c, schema.attempts.alias("other").c
_last_number = sa.select(sa.func.max(_other.sequence_id)).where(_other.rollout_id == _attempts.rollout_id)
_of_rollouts = among(_attempts.rollout_id, sa.bindparam("rollout_ids"))
_LATEST_ATTEMPTS = Statement(
    sa.select(_attempts.document).where(_of_rollouts, _attempts.sequence_id == _last_number.scalar_subquery())
)
_rollout_ids = sa.select(schema.rollouts.c.rollout_id).where(
    among(schema.rollouts.c.rollout_id, sa.bindparam("rollout_ids"))
)
_LOCKED = {
    wait: Statement(_rollout_ids.order_by("rollout_id").with_for_update(key_share=True, skip_locked=not wait))
    for wait in (True, False)
}
_TAKE_COUNTS = Statement(sa.delete(schema.counts).returning(_counts.name, _counts.status, _counts.number))
_NUMBER_OF_COUNTS = Statement(sa.select(sa.func.count()).select_from(schema.counts))


def _deletion(table: sa.Table, *where: Any) -> Statement:
    state = table.c.status if table is schema.rollouts else sa.literal_column("''")
    return Statement(sa.delete(table).where(*where).returning(state))


_DELETIONS = {
    column.table.name: _deletion(column.table, among(column, sa.bindparam("rollout_ids")))
    for column in (
        schema.spans.c.rollout_id,
        schema.attempts.c.rollout_id,
        schema.rollouts.c.rollout_id,
        schema.completions.c.rollout_id,
        schema.span_sequence_ids.c.key,
        schema.idempotency_keys.c.value,
        schema.rollout_queue.c.item,
    )
}
_before = sa.bindparam("before", type_=sa.Double())
_used = sa.exists().where(schema.rollouts.c.resources_id == schema.resources.c.resources_id)
_DELETE_RESOURCES = _deletion(
    schema.resources,
    schema.resources.c.update_time < _before,
    ~_used,
    schema.resources.c.resources_id.not_in(sa.select(schema.marks.c.value)),
)
_DELETE_WORKERS = _deletion(
    schema.workers,
    *(
        sa.func.coalesce(schema.workers.c[f"last_{what}_time"], sa.literal_column("0.0")) < _before
        for what in ("heartbeat", "dequeue", "busy", "idle")
    ),
)


def _kept(kind: Callable[..., Kept], table: sa.Table, *model: type[BaseModel]) -> cached_property[Kept]:
    return cached_property(lambda self: kind(self.database, table, *model, tracker=self.tracker))


class SqlCollections(LightningCollections):
    """All collections of a store, in one database.

    ``atomic`` is a transaction; mode "r" is a snapshot. Labels are ignored.
    """

    collection_name = property(lambda self: "router")

    def __init__(self, database: Database, tracker: MetricsBackend | None = None):
        super().__init__(tracker=tracker)
        self.database = database

    rollouts: cached_property[SqlRollouts] = _kept(SqlRollouts, schema.rollouts, Rollout)
    attempts: cached_property[SqlCollection[Attempt]] = _kept(SqlCollection[Attempt], schema.attempts, Attempt)
    spans: cached_property[SqlCollection[Span]] = _kept(SqlCollection[Span], schema.spans, Span)
    resources: cached_property[SqlCollection[ResourcesUpdate]] = _kept(
        SqlCollection[ResourcesUpdate], schema.resources, ResourcesUpdate
    )
    workers: cached_property[SqlCollection[Worker]] = _kept(SqlCollection[Worker], schema.workers, Worker)
    rollout_queue: cached_property[SqlQueue] = _kept(SqlQueue, schema.rollout_queue)
    span_sequence_ids: cached_property[SqlKeyValue[int]] = _kept(SqlKeyValue[int], schema.span_sequence_ids)
    marks: cached_property[SqlKeyValue[str]] = _kept(SqlKeyValue[str], schema.marks)
    idempotency_keys: cached_property[SqlKeyValue[str]] = _kept(SqlKeyValue[str], schema.idempotency_keys)

    @asynccontextmanager
    async def atomic(
        self, *, mode: AtomicMode = "rw", labels: Sequence[AtomicLabels] | None = None, **_: Any
    ) -> AsyncIterator[Self]:
        async with (
            self.tracking_context("atomic", self.collection_name),
            self.database.transaction(write=mode != "r"),
        ):
            yield self

    async def latest_attempts(self, rollout_ids: Iterable[str]) -> dict[str, Attempt]:
        """The latest attempts of those rollouts that have any, by rollout id."""
        found = await self.attempts.select(_LATEST_ATTEMPTS, {"rollout_ids": list(rollout_ids)})
        return {attempt.rollout_id: attempt for attempt in found}

    async def lock_rollouts(self, rollout_ids: Iterable[str], *, wait: bool = True) -> list[str]:
        """Lock rollouts with their attempts and spans until the transaction ends.

        Returns the ids of those that exist. wait: for other holders of a lock; else skip the rollouts that they hold.
        """
        ids = sorted(set(rollout_ids))
        if not self.database.shared:  # a single writer
            return ids
        return [rollout_id for (rollout_id,) in await self.database.rows(_LOCKED[wait], rollout_ids=ids)]

    async def delete_rollouts(self, rollout_ids: Sequence[str]) -> int:
        """Delete rollouts with their attempts, spans and keys; returns how many of them there were."""
        counted = {"rollouts": self.rollouts, "attempts": self.attempts, "spans": self.spans}
        async with self.database.transaction(write=True):
            ids = await self.lock_rollouts(rollout_ids)
            for name, deletion in _DELETIONS.items():
                if name in counted:
                    await counted[name].delete_by(deletion, rollout_ids=ids)
                else:
                    await self.database.change(deletion, rollout_ids=ids)
        return len(ids)

    async def delete_unused(self, before: float) -> None:
        """Delete workers, and resources without a rollout except the latest, that are older than ``before``."""
        async with self.database.transaction(write=True):
            await self.resources.delete_by(_DELETE_RESOURCES, before=before)
            await self.workers.delete_by(_DELETE_WORKERS, before=before)

    async def compact_counts(self, more_than: int = 100) -> None:
        """Merge the rows of the table of counts; the server calls this every second."""
        if await self.database.value(_NUMBER_OF_COUNTS) <= more_than:
            return
        async with self.database.transaction(write=True):
            if not await self.database.try_lock("counts"):
                return
            totals: Counter[tuple[str, str]] = Counter()
            for name, status, number in await self.database.change(_TAKE_COUNTS):
                totals[name, status] += number
            rows = [(*key, number) for key, number in totals.items() if number]
            await self.database.change_each(_ADD_COUNT, rows)
