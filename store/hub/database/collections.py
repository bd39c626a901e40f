"""agentlightning's collections as tables."""

import functools
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from operator import attrgetter
from typing import Any, Generic, Self, TypeVar

import sqlalchemy as sa
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
    normalize_filter_options,
    resolve_sort_options,
    tracked,
)
from agentlightning.types import FilterOptions, PaginatedResult, SortOptions, Worker
from agentlightning.utils.metrics import MetricsBackend
from pydantic import BaseModel
from sqlalchemy.dialects.postgresql import insert

from store.errors import UnknownId
from store.hub.database import schema
from store.hub.database.database import Database
from store.hub.database.documents import encode_document
from store.hub.database.statements import Statement, among, contains, greater, selected
from store.hub.database.transitions import CLOSED_ROLLOUT

Item = TypeVar("Item", bound=BaseModel)
Value = TypeVar("Value")
Filter = tuple[str, tuple[Any, ...]]
"""What is compared, without the values: ("and" or "or", conditions). A condition is a Filter, or (field, operator,
whether null matches, number of its parameter). Statements are cached by it."""

_LARGEST_INTEGER = 2**63 - 1
_CACHED_STATEMENTS = 1024
_MANY_COUNTS = 100
_LIMITS = sa.literal_column


class SqlCollection(Collection[Item], Generic[Item]):
    """Items of one pydantic type, unique by their keys, in the order in which they were put in.

    What comes out is a copy: changing it changes nothing that is stored. A call that fails leaves nothing behind.

    model: the items' type. keys: the fields that together are unique. searched: an item's values of columns that
    are none of its fields. counted: the number of items, by status if they have one, is kept in ``counts``.
    """

    def __init__(
        self,
        database: Database,
        table: sa.Table,
        model: type[Item],
        tracker: MetricsBackend | None = None,
        searched: Callable[[Item], tuple[Any, ...]] | None = None,
        counted: bool = False,
    ):
        super().__init__(tracker=tracker)
        self._database = database
        self._table = table
        self._model = model
        (unique,) = (one for one in table.constraints if isinstance(one, sa.UniqueConstraint))
        self._keys = [column.name for column in unique.columns]
        self._columns = [column.name for column in table.columns if column.name != "position"]
        self._fields = [name for name in self._columns if name in model.model_fields]
        self._values_of = attrgetter(*self._fields)
        self._key_of = attrgetter(*self._keys) if len(self._keys) > 1 else lambda item: (getattr(item, self._keys[0]),)
        self._searched = searched
        self._counted = counted
        self._has_counted_status = counted and "status" in self._columns and table is schema.rollouts
        self._statements = functools.lru_cache(_CACHED_STATEMENTS)(self._statement)

    @property
    def collection_name(self) -> str:
        """The table's name."""
        return self._table.name

    def primary_keys(self) -> Sequence[str]:
        """The fields that together are unique."""
        return self._keys

    def item_type(self) -> type[Item]:
        """The type of the items."""
        return self._model

    @tracked("size")
    async def size(self) -> int:
        """Number of items."""
        if self._counted:
            return await self._database.value(_SIZE, name=self._table.name)
        return await self._database.value(self._statements("count", None, None, None, 0))

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
        condition, parameters = self._condition(filter)
        order = self._order(sort)
        if limit == -1 and offset == 0:
            items = await self.select(self._statements("document", condition, order, None, 0), parameters)
            return PaginatedResult(items=items, limit=limit, offset=offset, total=len(items))
        states = self._only_states(filter) if limit != -1 and self._has_counted_status else None
        async with self._database.transaction(write=False):
            if states is None:
                page = self._statements("document", condition, order, None if limit == -1 else limit, offset)
                items = await self.select(page, parameters)
                if condition is None:
                    total = await self.size()
                else:
                    total = await self._database.value(
                        self._statements("count", condition, None, None, 0), **parameters
                    )
            else:
                page = self._statements("states", len(states), order, limit, offset)
                items = await self.select(page, {f"state_{n}": state for n, state in enumerate(states)})
                total = await self._database.value(_SIZE_OF_STATES, name=self._table.name, states=states)
        return PaginatedResult(items=items, limit=limit, offset=offset, total=total)

    @tracked("get")
    async def get(self, filter: FilterOptions | None = None, sort: SortOptions | None = None) -> Item | None:
        """The first item in the given order that matches, or None."""
        condition, parameters = self._condition(filter)
        items = await self.select(self._statements("document", condition, self._order(sort), 1, 0), parameters)
        return items[0] if items else None

    async def positions(self, filter: FilterOptions | None, sort: SortOptions | None) -> list[int]:
        """Where the items that ``query`` finds are, for ``at``."""
        condition, parameters = self._condition(filter)
        rows = await self._database.rows(
            self._statements("position", condition, self._order(sort), None, 0), **parameters
        )
        return [position for (position,) in rows]

    async def at(self, positions: Sequence[int], sort: SortOptions | None) -> list[Item]:
        """Those of the items at these positions that are still there."""
        statement = self._statements("at", None, self._order(sort), None, 0)
        return await self.select(statement, {"positions": list(positions)})

    async def select(self, statement: Statement, parameters: Mapping[str, Any]) -> list[Item]:
        """The items whose documents a statement finds."""
        rows = await self._database.rows(statement, **parameters)
        return [self._model.model_validate_json(document) for (document,) in rows]

    @tracked("insert")
    async def insert(self, items: Sequence[Item]) -> None:
        """Add items. DuplicatedPrimaryKeyError, and nothing is added, if one is there or given twice."""
        async with self._database.transaction(write=True):
            added = await self.insert_new(items)
            if len(added) < len(items):
                new = set(map(self._key_of, added))
                item = next((item for item in items if self._key_of(item) not in new), items[-1])
                raise DuplicatedPrimaryKeyError(f"{self._table.name} already has an item with {self._named(item)}")

    async def insert_new(self, items: Sequence[Item]) -> list[Item]:
        """Add the items that are not there yet and return them; the others are left as they are."""
        self._check_type(items)
        rows = [self._row(item) for item in items]
        async with self._database.transaction(write=True):
            is_new = await self._database.insert_new(self._table, self._columns, self._keys, rows)
            added = [item for item, new in zip(items, is_new, strict=True) if new]
            if self._counted and added:
                await self._count(Counter(self._state(item) for item in added))
        return added

    @tracked("update")
    async def update(self, items: Sequence[Item], update_fields: Sequence[str] | None = None) -> Sequence[Item]:
        """Replace items, or only the given fields. ValueError, and nothing is changed, if one is not there."""
        self._check_type(items)
        async with self._database.transaction(write=True):
            stored = await self._stored(items)
            missing = [item for item in items if self._key_of(item) not in stored]
            if missing:
                raise UnknownId(f"Item does not exist with primary key(s): {self._named(missing[0])}")
            changed = [
                item if update_fields is None else _merged(stored[self._key_of(item)], item, update_fields)
                for item in items
            ]
            await self.replace(changed, stored)
        return changed

    @tracked("upsert")
    async def upsert(self, items: Sequence[Item], update_fields: Sequence[str] | None = None) -> Sequence[Item]:
        """Insert items; of those that are there, replace all fields or only the given ones."""
        async with self._database.transaction(write=True):
            new = {self._key_of(item) for item in await self.insert_new(items)}
            there = [item for item in items if self._key_of(item) not in new]
            updated = {self._key_of(item): item for item in (await self.update(there, update_fields) if there else [])}
        return [updated.get(self._key_of(item), item) for item in items]

    async def delete(self, items: Sequence[Item]) -> None:
        """Nothing calls it: whole rollouts are deleted, see ``SqlCollections.forget``."""
        raise NotImplementedError

    async def replace(self, items: Sequence[Item], before: Mapping[tuple[Any, ...], Item] | None = None) -> None:
        """Replace items that are there. before: what was there, by keys; it is read if it is not given."""
        columns = [name for name in self._columns if name not in self._keys]
        rows = [(*self._row(item)[len(self._keys) :], *self._key_of(item)) for item in items]
        async with self._database.transaction(write=True):
            if self._has_counted_status:
                before = await self._stored(items) if before is None else before
                await self._note_states(items, before)
            await self._database.update(self._table, self._keys, columns, rows)

    async def _note_states(self, items: Sequence[Item], before: Mapping[tuple[Any, ...], Item]) -> None:
        moved = [(before[self._key_of(item)].status, item) for item in items]
        moved = [(state, item) for state, item in moved if state != item.status]
        if not moved:
            return
        changes = Counter(item.status for _, item in moved)
        changes.subtract(state for state, _ in moved)
        await self._count(changes)
        closed = [
            (item.rollout_id,) for state, item in moved if item.status in CLOSED_ROLLOUT and state not in CLOSED_ROLLOUT
        ]
        if closed:
            await self._database.insert_new(schema.completions, ["rollout_id"], ["rollout_id"], closed)

    async def _count(self, changes: Mapping[str, int]) -> None:
        rows = [(self._table.name, state, number) for state, number in changes.items() if number]
        await self._database.insert(schema.counts, ["name", "status", "number"], rows)

    async def _stored(self, items: Sequence[Item]) -> dict[tuple[Any, ...], Item]:
        """What is there under the keys of items, locked until the transaction ends."""
        parameters = {name: [getattr(item, name) for item in items] for name in self._keys}
        found = await self.select(self._statements("stored", None, None, None, 0), parameters)
        return {self._key_of(item): item for item in found}

    def _row(self, item: Item) -> tuple[Any, ...]:
        searched = () if self._searched is None else self._searched(item)
        return (*self._values_of(item), *searched, encode_document(item))

    def _state(self, item: Item) -> str:
        return item.status if self._has_counted_status else ""

    def _named(self, item: Item) -> str:
        return ", ".join(f"{name}={getattr(item, name)!r}" for name in self._keys)

    def _check_type(self, items: Iterable[object]) -> None:
        for item in items:
            if not isinstance(item, self._model):
                raise TypeError(f"{self._table.name} holds {self._model.__name__}, not {type(item).__name__}")

    # Filters and orders

    def _condition(self, options: FilterOptions | None) -> tuple[Filter | None, dict[str, Any]]:
        """A filter without its values, and the values by the names that ``_where`` gives them."""
        filters, must, aggregate = normalize_filter_options(options)
        parameters: dict[str, Any] = {}
        conditions = self._comparisons(filters, parameters)
        required = self._comparisons(must, parameters)
        if required:
            return ("and", (*required, *([(aggregate, conditions)] if conditions else []))), parameters
        return ((aggregate, conditions) if conditions else None), parameters

    def _comparisons(self, filters: Mapping[str, Any] | None, parameters: dict[str, Any]) -> tuple[Any, ...]:
        conditions = []
        for field, operators in (filters or {}).items():
            self._check_field(field, "filter")
            kind = self._table.c[field].type.python_type
            for operator, expected in operators.items():
                if operator not in ("exact", "within", "contains"):
                    raise ValueError(f"unknown filter operator {operator!r} for field {field!r}")
                if expected is None:
                    continue
                if operator == "within":
                    values = [value for value in (_comparable(kind, one) for one in expected) if value is not None]
                    conditions.append((field, operator, None in expected, len(parameters)))
                else:
                    values = _comparable(kind, expected)
                    if values is None or (operator == "contains" and kind is not str):
                        conditions.append((field, "never", False, len(parameters)))
                        continue
                    conditions.append((field, operator, False, len(parameters)))
                parameters[f"value_{len(parameters)}"] = values
        return tuple(conditions)

    def _order(self, options: SortOptions | None) -> tuple[str, str]:
        """(field, direction); equal items keep the order in which they were put in, whichever the direction."""
        field, direction = resolve_sort_options(options)
        if field is None:
            return "position", "asc"
        self._check_field(field, "sort")
        return field, direction

    def _only_states(self, options: FilterOptions | None) -> list[str] | None:
        """The states that a filter asks for, each once, if it asks for nothing else."""
        filters, must, _ = normalize_filter_options(options)
        if must or not filters or set(filters) != {"status"} or set(filters["status"]) != {"within"}:
            return None
        states = filters["status"]["within"]
        return list(dict.fromkeys(states)) or None if states and None not in states else None

    def _check_field(self, field: str, purpose: str) -> None:
        if field not in self._fields:
            raise ValueError(
                f"cannot {purpose} {self._table.name} by {field!r}; the fields for that are {', '.join(self._fields)}"
            )

    def _statement(self, what: str, condition: Any, order: Any, limit: int | None, offset: int) -> Statement:
        """What to select. Limits are part of the text: PostgreSQL plans a page of unknown size as a tenth of all."""
        columns = self._table.c
        match what:
            case "count":
                query = sa.select(sa.func.count()).select_from(self._table)
            case "position":
                query = sa.select(columns.position)
            case _:
                query = sa.select(columns.document)
        if what == "stored":
            by_key = [among(columns[name], sa.bindparam(name)) for name in self._keys]
            return Statement(query.where(*by_key).with_for_update(key_share=True))
        if what == "at":
            query = query.where(among(columns.position, sa.bindparam("positions")))
        elif what == "states":
            query = query.where(selected(columns.position, self._page_of_states(condition, order, limit, offset)))
            return Statement(query.order_by(*self._ordering(order)))
        elif condition is not None:
            query = query.where(self._where(condition))
        if order is not None:
            query = query.order_by(*self._ordering(order))
        if limit is not None:
            query = query.limit(_LIMITS(str(limit)))
        return Statement(query.offset(_LIMITS(str(offset))) if offset else query)

    def _page_of_states(self, number: int, order: tuple[str, str], limit: int, offset: int) -> Any:
        """The positions of a page: each state's are read from an index, in order, no further than the page needs."""
        value, _ = self._ordering(order)
        value = value.element if isinstance(value, sa.UnaryExpression) else value
        each = [
            sa.select(value.label("value"), self._table.c.position)
            .where(self._table.c.status == sa.bindparam(f"state_{n}"))
            .order_by(*self._ordering(order))
            .limit(_LIMITS(str(limit + offset)))
            .subquery()
            for n in range(number)
        ]
        merged = sa.union_all(*(sa.select(one.c.value, one.c.position) for one in each)).subquery()
        direction = merged.c.value.desc() if order[1] == "desc" else merged.c.value
        page = sa.select(merged.c.position).order_by(direction, merged.c.position).limit(_LIMITS(str(limit)))
        return page.offset(_LIMITS(str(offset))).scalar_subquery()

    def _where(self, condition: Filter) -> Any:
        aggregate, parts = condition
        clauses = []
        for part in parts:
            if len(part) == 2:
                clauses.append(self._where(part))
                continue
            field, operator, or_null, number = part
            column, value = self._table.c[field], sa.bindparam(f"value_{number}")
            match operator:
                case "exact":
                    clauses.append(column == value)
                case "contains":
                    clauses.append(contains(column, value))
                case "within" if or_null:
                    clauses.append(sa.or_(among(column, value), column.is_(None)))
                case "within":
                    clauses.append(among(column, value))
                case "never":
                    clauses.append(sa.false())
        return sa.or_(*clauses) if aggregate == "or" else sa.and_(*clauses)

    def _ordering(self, order: tuple[str, str]) -> tuple[Any, Any]:
        """None counts as the end of time in a field named ``*_time``, else as an empty text."""
        field, direction = order
        value = self._table.c[field]
        if value.nullable and field.endswith("_time"):
            value = sa.func.coalesce(value, sa.literal_column("1e300"))
        elif value.nullable:
            value = sa.func.coalesce(value, sa.literal_column("''"))
        return (value.desc() if direction == "desc" else value), self._table.c.position


def _merged(stored: Item, item: Item, fields: Sequence[str]) -> Item:
    return stored.model_copy(update={field: getattr(item, field) for field in fields})


def _comparable(kind: type, value: Any) -> Any:
    """The value as a column of that type may hold it; None for one that it never holds."""
    if kind is str:
        return value if isinstance(value, str) else None
    if not isinstance(value, int | float):
        return None
    if kind is int and isinstance(value, float):
        return int(value) if value.is_integer() else None
    return value


def check_page(limit: int, offset: int) -> None:
    """ValueError unless limit is -1 (all) or a count, and offset a count."""
    if not (-1 <= limit <= _LARGEST_INTEGER and 0 <= offset <= _LARGEST_INTEGER):
        raise ValueError(f"limit must be -1 or a count and offset a count, got {limit} and {offset}")


_total = sa.func.coalesce(sa.func.sum(schema.counts.c.number), sa.literal_column("0"))
_total = sa.select(sa.cast(_total, sa.BigInteger)).where(schema.counts.c.name == sa.bindparam("name"))
_SIZE = Statement(_total)
_SIZE_OF_STATES = Statement(_total.where(among(schema.counts.c.status, sa.bindparam("states"))))


class SqlQueue(Queue[str]):
    """Texts, first in, first out; the same text may wait more than once.

    Where many write at once, what another is taking out at this moment is passed over, and not waited for.
    """

    def __init__(self, database: Database, table: sa.Table, tracker: MetricsBackend | None = None):
        super().__init__(tracker=tracker)
        self._database = database
        self._table = table
        position, item = table.c.position, table.c.item
        first = sa.select(position).order_by(position).limit(sa.bindparam("number", type_=sa.BigInteger()))
        front = first.with_for_update(skip_locked=True).scalar_subquery()
        waiting = sa.select(position).where(among(item, sa.bindparam("items")))
        chosen = waiting.with_for_update(skip_locked=True).scalar_subquery()
        self._has = Statement(sa.select(position).where(item == sa.bindparam("item")).limit(_LIMITS("1")))
        self._take = Statement(sa.delete(table).where(selected(position, front)).returning(position, item))
        self._remove = Statement(sa.delete(table).where(selected(position, chosen)))
        self._peek = Statement(sa.select(item).order_by(position).limit(sa.bindparam("number", type_=sa.BigInteger())))
        self._size = Statement(sa.select(sa.func.count()).select_from(table))

    @property
    def collection_name(self) -> str:
        """The table's name."""
        return self._table.name

    def item_type(self) -> type[str]:
        """Text."""
        return str

    @tracked("has")
    async def has(self, item: str) -> bool:
        """Whether the text waits."""
        self._check_type(item)
        return await self._database.value(self._has, item=item) is not None

    @tracked("enqueue")
    async def enqueue(self, items: Sequence[str]) -> Sequence[str]:
        """Append texts."""
        for item in items:
            self._check_type(item)
        await self._database.insert(self._table, ["item"], [(item,) for item in items])
        return items

    @tracked("dequeue")
    async def dequeue(self, limit: int = 1) -> Sequence[str]:
        """Take up to ``limit`` texts from the front."""
        if limit <= 0:
            return []
        return [item for _, item in sorted(map(tuple, await self._database.change(self._take, number=limit)))]

    @tracked("peek")
    async def peek(self, limit: int = 1) -> Sequence[str]:
        """Up to ``limit`` texts from the front, which stay."""
        return [item for (item,) in await self._database.rows(self._peek, number=max(limit, 0))]

    async def discard(self, items: Iterable[str]) -> None:
        """Remove texts, wherever they wait."""
        if listed := list(items):
            await self._database.change(self._remove, items=listed)

    @tracked("size")
    async def size(self) -> int:
        """Number of waiting texts."""
        return await self._database.value(self._size)

    def _check_type(self, item: object) -> None:
        if not isinstance(item, str):
            raise TypeError(f"{self._table.name} holds str, not {type(item).__name__}")


class SqlKeyValue(KeyValue[str, Value], Generic[Value]):
    """Texts or whole numbers, as the table's column ``value`` is, by text keys."""

    def __init__(self, database: Database, table: sa.Table, tracker: MetricsBackend | None = None):
        super().__init__(tracker=tracker)
        self._database = database
        self._table = table
        key, value = table.c.key, table.c.value
        by_key = key == sa.bindparam("given_key")
        new = insert(table).values(key=sa.bindparam("given_key"), value=sa.bindparam("given_value", type_=value.type))

        def unless_there(combined: Any) -> Statement:
            return Statement(new.on_conflict_do_update(index_elements=[key], set_={"value": combined}).returning(value))

        self._get = Statement(sa.select(value).where(by_key))
        self._get_many = Statement(sa.select(key, value).where(among(key, sa.bindparam("keys"))))
        self._put_new = Statement(new.on_conflict_do_nothing(index_elements=[key]))
        self._put = unless_there(new.excluded.value)
        self._add = unless_there(value + new.excluded.value)
        self._raise = unless_there(greater(value, new.excluded.value))
        self._remove = Statement(sa.delete(table).where(by_key).returning(value))
        self._remove_many = Statement(sa.delete(table).where(among(key, sa.bindparam("keys"))))
        self._size = Statement(sa.select(sa.func.count()).select_from(table))

    @property
    def collection_name(self) -> str:
        """The table's name."""
        return self._table.name

    @tracked("has")
    async def has(self, key: str) -> bool:
        """Whether there is a value."""
        return await self._database.value(self._get, given_key=key) is not None

    @tracked("get")
    async def get(self, key: str, default: Value | None = None) -> Value | None:
        """The value, or the default."""
        value = await self._database.value(self._get, given_key=key)
        return default if value is None else value

    async def get_many(self, keys: Iterable[str]) -> dict[str, Value]:
        """The values of those keys that have one."""
        return dict(map(tuple, await self._database.rows(self._get_many, keys=list(keys))))

    @tracked("set")
    async def set(self, key: str, value: Value) -> None:
        """Put a value in the place of what was there."""
        await self._database.change(self._put, given_key=key, given_value=value)

    async def set_many(self, values: Mapping[str, Value]) -> None:
        """Put values in the place of what was there."""
        async with self._database.transaction(write=True):
            await self._database.change(self._remove_many, keys=list(values))
            await self._database.insert(self._table, ["key", "value"], list(values.items()))

    async def set_new(self, key: str, value: Value) -> Value:
        """Put a value where there is none; returns what is there then."""
        await self._database.change(self._put_new, given_key=key, given_value=value)
        return await self._database.value(self._get, given_key=key)

    @tracked("inc")
    async def inc(self, key: str, amount: Value) -> Value:
        """Add to a number, which is zero if it is not there, and return the sum. TypeError if it is no number."""
        ensure_numeric(amount, description="amount")
        return (await self._database.change(self._add, given_key=key, given_value=amount))[0][0]

    @tracked("chmax")
    async def chmax(self, key: str, value: Value) -> Value:
        """Raise a number to ``value`` if it is smaller or not there; returns it. TypeError if it is no number."""
        ensure_numeric(value, description="value")
        return (await self._database.change(self._raise, given_key=key, given_value=value))[0][0]

    @tracked("pop")
    async def pop(self, key: str, default: Value | None = None) -> Value | None:
        """Take the value out, or return the default."""
        rows = await self._database.change(self._remove, given_key=key)
        return rows[0][0] if rows else default

    @tracked("size")
    async def size(self) -> int:
        """Number of keys."""
        return await self._database.value(self._size)


def _searched_of_rollouts(rollout: Rollout) -> tuple[float | None, float | None, str | None]:
    run = (rollout.metadata or {}).get("run")
    return rollout.config.timeout_seconds, rollout.config.unresponsive_seconds, run if isinstance(run, str) else None


_attempts, _other = schema.attempts, schema.attempts.alias("other")
_LATEST_ATTEMPTS = Statement(
    sa.select(_attempts.c.document).where(
        among(_attempts.c.rollout_id, sa.bindparam("rollout_ids")),
        _attempts.c.sequence_id
        == sa.select(sa.func.max(_other.c.sequence_id))
        .where(_other.c.rollout_id == _attempts.c.rollout_id)
        .scalar_subquery(),
    )
)
_NUMBERS_OF_ATTEMPTS = Statement(
    sa.select(_attempts.c.rollout_id, sa.func.max(_attempts.c.sequence_id))
    .where(among(_attempts.c.rollout_id, sa.bindparam("rollout_ids")))
    .group_by(_attempts.c.rollout_id)
)
_rollout_ids = sa.select(schema.rollouts.c.rollout_id).where(
    among(schema.rollouts.c.rollout_id, sa.bindparam("rollout_ids"))
)
_LOCKED = {
    wait: Statement(_rollout_ids.order_by("rollout_id").with_for_update(key_share=True, skip_locked=not wait))
    for wait in (True, False)
}
_completions = schema.completions
_COMPLETED_AFTER = Statement(
    sa.select(_completions.c.number, _completions.c.rollout_id)
    .where(_completions.c.number > sa.bindparam("mark"))
    .order_by(_completions.c.number)
    .limit(sa.bindparam("most", type_=sa.BigInteger()))
)
_LAST_COMPLETION = Statement(
    sa.select(schema.last_completion.c.number, sa.exists().where(_completions.c.number.is_(None)))
)
_UNNUMBERED = Statement(
    sa.select(_completions.c.position).where(_completions.c.number.is_(None)).order_by(_completions.c.position)
)
_SET_LAST_COMPLETION = Statement(sa.update(schema.last_completion).values(number=sa.bindparam("last")))
_TAKE_COUNTS = Statement(
    sa.delete(schema.counts).returning(schema.counts.c.name, schema.counts.c.status, schema.counts.c.number)
)
_NUMBER_OF_COUNTS = Statement(sa.select(sa.func.count()).select_from(schema.counts))


_closed = sa.or_(*(schema.rollouts.c.status == sa.literal_column(f"'{one}'") for one in sorted(CLOSED_ROLLOUT)))
_CLOSED_BEFORE = Statement(
    sa.select(schema.rollouts.c.rollout_id)
    .where(_closed, schema.rollouts.c.end_time <= sa.bindparam("end_time", type_=sa.Double()))
    .order_by(schema.rollouts.c.end_time)
    .limit(sa.bindparam("most", type_=sa.BigInteger()))
)
_END_OF_CLOSED = Statement(
    sa.select(schema.rollouts.c.end_time)
    .where(_closed)
    .order_by(schema.rollouts.c.end_time.desc())
    .limit(_LIMITS("1"))
    .offset(sa.bindparam("number", type_=sa.BigInteger()))
)
_finished = sa.select(schema.rollouts.c.rollout_id).where(_closed).order_by(schema.rollouts.c.end_time)
_CLOSED = {False: Statement(_finished), True: Statement(_finished.where(schema.rollouts.c.run == sa.bindparam("run")))}
_this_rollout = schema.rollouts.c.rollout_id == sa.bindparam("rollout_id")
_DOCUMENTS = {
    "rollout": Statement(sa.select(schema.rollouts.c.document).where(_this_rollout)),
    **{
        table.name: Statement(
            sa.select(table.c.document)
            .where(table.c.rollout_id == sa.bindparam("rollout_id"))
            .order_by(table.c.position)
        )
        for table in (schema.attempts, schema.spans)
    },
    "resources": Statement(
        sa.select(schema.resources.c.document).where(
            _this_rollout, schema.rollouts.c.resources_id == schema.resources.c.resources_id
        )
    ),
}


def _belongs(column: sa.Column[str]) -> Any:
    return among(column, sa.bindparam("rollout_ids"))


_number = sa.func.count()
_no_status = sa.literal_column("''")
_SIZES_OF = {
    "rollouts": Statement(
        sa.select(schema.rollouts.c.status, _number)
        .where(_belongs(schema.rollouts.c.rollout_id))
        .group_by(schema.rollouts.c.status)
    ),
    **{
        table.name: Statement(sa.select(_no_status, _number).where(_belongs(table.c.rollout_id)))
        for table in (schema.attempts, schema.spans)
    },
}
_DELETIONS = [
    Statement(sa.delete(column.table).where(_belongs(column)))
    for column in (
        schema.spans.c.rollout_id,
        schema.attempts.c.rollout_id,
        schema.completions.c.rollout_id,
        schema.span_sequence_ids.c.key,
        schema.idempotency_keys.c.value,
        schema.rollout_queue.c.item,
        schema.rollouts.c.rollout_id,
    )
]
_before = sa.bindparam("before", type_=sa.Double())
_used = sa.select(schema.rollouts.c.resources_id).where(schema.rollouts.c.resources_id.is_not(None))
_DELETE_RESOURCES = Statement(
    sa.delete(schema.resources).where(
        schema.resources.c.update_time < _before,
        schema.resources.c.resources_id.not_in(_used),
        schema.resources.c.resources_id.not_in(sa.select(schema.marks.c.value)),
    )
)
_DELETE_WORKERS = Statement(
    sa.delete(schema.workers).where(
        *(
            sa.func.coalesce(schema.workers.c[f"last_{what}_time"], sa.literal_column("0.0")) < _before
            for what in ("heartbeat", "dequeue", "busy", "idle")
        )
    )
)


class SqlCollections(LightningCollections):
    """Everything a store keeps, in one database.

    ``atomic`` is a transaction, undone by an error; mode "r" is a snapshot and refuses writes. Labels do not matter.
    """

    def __init__(self, database: Database, tracker: MetricsBackend | None = None):
        super().__init__(tracker=tracker)
        self.database = database
        self._rollouts = SqlCollection(
            database, schema.rollouts, Rollout, tracker, searched=_searched_of_rollouts, counted=True
        )
        self._attempts = SqlCollection(database, schema.attempts, Attempt, tracker, counted=True)
        self._spans = SqlCollection(database, schema.spans, Span, tracker, counted=True)
        self._resources = SqlCollection(database, schema.resources, ResourcesUpdate, tracker)
        self._workers = SqlCollection(database, schema.workers, Worker, tracker)
        self._rollout_queue = SqlQueue(database, schema.rollout_queue, tracker)
        self._span_sequence_ids = SqlKeyValue[int](database, schema.span_sequence_ids, tracker)
        self.marks = SqlKeyValue[str](database, schema.marks, tracker)
        self.idempotency_keys = SqlKeyValue[str](database, schema.idempotency_keys, tracker)

    collection_name = property(lambda self: "router")
    rollouts = property(attrgetter("_rollouts"))
    attempts = property(attrgetter("_attempts"))
    spans = property(attrgetter("_spans"))
    resources = property(attrgetter("_resources"))
    workers = property(attrgetter("_workers"))
    rollout_queue = property(attrgetter("_rollout_queue"))
    span_sequence_ids = property(attrgetter("_span_sequence_ids"))

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

    async def latest_attempts(self, rollout_ids: Iterable[str]) -> dict[str, Attempt]:
        """The latest attempts of those rollouts that have any, by rollout id."""
        found = await self.attempts.select(_LATEST_ATTEMPTS, {"rollout_ids": list(rollout_ids)})
        return {attempt.rollout_id: attempt for attempt in found}

    async def numbers_of_attempts(self, rollout_ids: Iterable[str]) -> dict[str, int]:
        """How many attempts those rollouts have had that have any."""
        return dict(map(tuple, await self.database.rows(_NUMBERS_OF_ATTEMPTS, rollout_ids=list(rollout_ids))))

    async def lock_rollouts(self, rollout_ids: Iterable[str], *, wait: bool = True) -> list[str]:
        """Keep others from changing rollouts and what belongs to them until the transaction ends; returns who is there.

        wait: for others that have locked them; else those are left out.
        """
        ids = sorted(set(rollout_ids))
        if not self.database.shared:  # one writes at a time
            return ids
        return [rollout_id for (rollout_id,) in await self.database.rows(_LOCKED[wait], rollout_ids=ids)]

    async def completed_after(self, number: int, limit: int) -> list[tuple[int, str]]:
        """(number in the order of completion, rollout id) of those that were closed after that number, in order."""
        return list(map(tuple, await self.database.rows(_COMPLETED_AFTER, mark=number, most=limit)))

    async def last_completion(self) -> int:
        """The highest number in the order of completion; every rollout that is closed by now has one."""
        ((number, is_incomplete),) = await self.database.rows(_LAST_COMPLETION)
        if is_incomplete:
            async with self.database.transaction(write=True):
                await self.database.lock("completions")
                ((number, _),) = await self.database.rows(_LAST_COMPLETION)
                waiting = await self.database.rows(_UNNUMBERED)
                numbered = [(number + place, position) for place, (position,) in enumerate(waiting, start=1)]
                await self.database.update(schema.completions, ["position"], ["number"], numbered)
                number += len(numbered)
                await self.database.change(_SET_LAST_COMPLETION, last=number)
        return number

    async def closed_before(self, end_time: float, limit: int) -> list[str]:
        """The ids of rollouts that were closed until then, the oldest first."""
        return [one for (one,) in await self.database.rows(_CLOSED_BEFORE, end_time=end_time, most=limit)]

    async def end_of_closed(self, number: int) -> float | None:
        """When the newest closed rollout ended after ``number`` newer ones; None if there are not so many."""
        return await self.database.value(_END_OF_CLOSED, number=number)

    async def closed_of_run(self, run: str | None) -> list[str]:
        """The ids of the closed rollouts, or of those of a run, the oldest first."""
        return [one for (one,) in await self.database.rows(_CLOSED[run is not None], run=run)]

    async def documents_of(self, rollout_id: str) -> dict[str, str]:
        """A rollout and what belongs to it as JSON texts, by name."""

        async def of(name: str) -> list[str]:
            return [text for (text,) in await self.database.rows(_DOCUMENTS[name], rollout_id=rollout_id)]

        rollout, attempts, spans, resources = [await of(name) for name in _DOCUMENTS]
        return {
            "rollout": rollout[0] if rollout else "null",
            "attempts": f"[{','.join(attempts)}]",
            "spans": f"[{','.join(spans)}]",
            "resources": resources[0] if resources else "null",
        }

    async def forget(self, rollout_ids: Sequence[str]) -> None:
        """Delete rollouts and all that belongs to them."""
        async with self.database.transaction(write=True):
            ids = await self.lock_rollouts(rollout_ids)
            rows = [
                (name, state, -n)
                for name, sizes in _SIZES_OF.items()
                for state, n in await self.database.rows(sizes, rollout_ids=ids)
            ]
            await self.database.insert(schema.counts, ["name", "status", "number"], rows)
            for deletion in _DELETIONS:
                await self.database.change(deletion, rollout_ids=ids)

    async def forget_unused(self, before: float) -> None:
        """Delete resources that no rollout has and that are not the latest, and workers, not heard of since then."""
        async with self.database.transaction(write=True):
            await self.database.change(_DELETE_RESOURCES, before=before)
            await self.database.change(_DELETE_WORKERS, before=before)

    async def has_many_counts(self) -> bool:
        """Whether ``add_up_counts`` is worth it."""
        return await self.database.value(_NUMBER_OF_COUNTS) > _MANY_COUNTS

    async def add_up_counts(self) -> None:
        """Replace the rows of counts by their sums; inside a lock."""
        totals: Counter[tuple[str, str]] = Counter()
        for name, status, number in await self.database.change(_TAKE_COUNTS):
            totals[name, status] += number
        rows = [(name, status, number) for (name, status), number in totals.items() if number]
        await self.database.insert(schema.counts, ["name", "status", "number"], rows)
