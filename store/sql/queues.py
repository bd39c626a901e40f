"""agentlightning's Queue and KeyValue as tables."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Generic, TypeVar

from agentlightning.store.collection.base import KeyValue, Queue, ensure_numeric, tracked
from agentlightning.utils.metrics import MetricsBackend

from store.sql.database import Database

Value = TypeVar("Value")


class SqlQueue(Queue[str]):
    """Texts, first in, first out; the same text may wait more than once.

    Where many write at once, what another is taking out at this moment is passed over, and not waited for.
    """

    def __init__(self, database: Database, name: str, tracker: MetricsBackend | None = None):
        super().__init__(tracker=tracker)
        self._database = database
        self._name = name
        self._taking = " FOR UPDATE SKIP LOCKED" if database.dialect.locks_rows else ""
        text = database.dialect.types[str] or "TEXT"
        database.create(
            f"CREATE TABLE IF NOT EXISTS {name} ({database.dialect.queue_position}, item {text} NOT NULL)",
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
        return await self._database.value(f"SELECT 1 FROM {self._name} WHERE item = ? LIMIT 1", [item]) is not None

    @tracked("enqueue")
    async def enqueue(self, items: Sequence[str]) -> Sequence[str]:
        """Append texts."""
        async with self._database.transaction(write=True):
            for item in items:
                self._check_type(item)
            await self._database.append(self._name, "item", items)
        return items

    @tracked("dequeue")
    async def dequeue(self, limit: int = 1) -> Sequence[str]:
        """Take up to ``limit`` texts from the front."""
        if limit <= 0:
            return []
        front = f"SELECT position FROM {self._name} ORDER BY position LIMIT ?{self._taking}"
        taken = self._database.dialect.selected("position", front)
        rows = await self._database.returned(
            f"DELETE FROM {self._name} WHERE {taken} RETURNING position, item", [limit]
        )
        return [item for _, item in sorted(map(tuple, rows))]

    @tracked("peek")
    async def peek(self, limit: int = 1) -> Sequence[str]:
        """Up to ``limit`` texts from the front, which stay."""
        rows = await self._database.rows(f"SELECT item FROM {self._name} ORDER BY position LIMIT ?", [max(limit, 0)])
        return [item for (item,) in rows]

    @tracked("discard")
    async def discard(self, items: Iterable[str]) -> None:
        """Remove texts, wherever they wait."""
        among, listed = self._database.dialect.among("item"), list(items)
        if listed:
            waiting = f"SELECT position FROM {self._name} WHERE {among}{self._taking}"
            await self._database.change(
                f"DELETE FROM {self._name} WHERE {self._database.dialect.selected('position', waiting)}",
                [self._database.dialect.listed(listed)],
            )

    @tracked("size")
    async def size(self) -> int:
        """Number of waiting texts."""
        return await self._database.value(f"SELECT COUNT(*) FROM {self._name}")

    def _check_type(self, item: object) -> None:
        if not isinstance(item, str):
            raise TypeError(f"{self._name} holds str, not {type(item).__name__}")


class SqlKeyValue(KeyValue[str, Value], Generic[Value]):
    """Texts or whole numbers by text keys.

    value_type: what the column holds, where columns have types; SQLite's hold anything.
    """

    def __init__(self, database: Database, name: str, value_type: type, tracker: MetricsBackend | None = None):
        super().__init__(tracker=tracker)
        self._database = database
        self._name = name
        text, value = database.dialect.types[str] or "TEXT", database.dialect.types[value_type]
        database.create(
            f"CREATE TABLE IF NOT EXISTS {name} (key {text} PRIMARY KEY, {f'value {value}'.strip()} NOT NULL)"
            f"{database.dialect.key_value_options}"
        )

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

    async def get_many(self, keys: Iterable[str]) -> dict[str, Value]:
        """The values of those keys that have one."""
        dialect = self._database.dialect
        sql = f"SELECT key, value FROM {self._name} WHERE {dialect.among('key')}"
        return {key: value for key, value in await self._database.rows(sql, [dialect.listed(keys)])}

    @tracked("set")
    async def set(self, key: str, value: Value) -> None:
        """Put a value in the place of what was there."""
        await self.set_many({key: value})

    async def set_many(self, values: Mapping[str, Value]) -> None:
        """Put values in the place of what was there."""
        await self._database.put(self._name, sorted(values.items()))

    async def set_new(self, key: str, value: Value) -> Value:
        """Put a value where there is none; returns what is there then."""
        async with self._database.transaction(write=True):
            await self._database.change(
                f"INSERT INTO {self._name} (key, value) VALUES (?, ?) ON CONFLICT (key) DO NOTHING", [key, value]
            )
        return await self._get(key)

    @tracked("inc")
    async def inc(self, key: str, amount: Value) -> Value:
        """Add to a number, which is zero if it is not there, and return the sum. TypeError if either is no number."""
        return await self._combine(key, amount, "amount", f"{self._name}.value + EXCLUDED.value")

    @tracked("chmax")
    async def chmax(self, key: str, value: Value) -> Value:
        """Raise a number to ``value`` if it is smaller or not there; returns it. TypeError if either is no number."""
        greatest = self._database.dialect.greatest(f"{self._name}.value", "EXCLUDED.value")
        return await self._combine(key, value, "value", greatest)

    @tracked("pop")
    async def pop(self, key: str, default: Value | None = None) -> Value | None:
        """Take the value out, or return the default."""
        rows = await self._database.returned(f"DELETE FROM {self._name} WHERE key = ? RETURNING value", [key])
        return rows[0][0] if rows else default

    @tracked("size")
    async def size(self) -> int:
        """Number of keys."""
        return await self._database.value(f"SELECT COUNT(*) FROM {self._name}")

    async def _get(self, key: str) -> Any:
        return await self._database.value(f"SELECT value FROM {self._name} WHERE key = ?", [key])

    async def _combine(self, key: str, value: Value, description: str, combined: str) -> Value:
        ensure_numeric(value, description=description)
        async with self._database.transaction(write=True):
            if not self._database.dialect.locks_rows:  # where a column has a type, what is there is a number
                current = await self._get(key)
                if current is not None:
                    ensure_numeric(current, description=f"the value of {key!r}")
            rows = await self._database.returned(
                f"INSERT INTO {self._name} (key, value) VALUES (?, ?) "
                f"ON CONFLICT (key) DO UPDATE SET value = {combined} RETURNING value",
                [key, value],
            )
        return rows[0][0]
