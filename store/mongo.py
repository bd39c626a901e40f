"""agentlightning's MongoDB store behind our hub: with a partition that stays the same, and checked before it serves."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from agentlightning.utils.metrics import MetricsBackend

from store.errors import OneLineError

if TYPE_CHECKING:
    from agentlightning.store.mongo import MongoLightningStore

_CHECK_MILLISECONDS = 10_000


class MongoUnusable(OneLineError):
    """There is no MongoDB to keep games in, or not one that can; the message does not contain its password."""


@asynccontextmanager
async def open_mongo_store(
    uri: str, partition: str, tracker: MetricsBackend | None = None
) -> AsyncIterator["MongoLightningStore"]:
    """The store in the database at ``uri``; closed in the end.

    partition: keeps this hub's games apart in the database. The stock command makes up another at each start, and then
    sees nothing of what it stored before. Raises MongoUnusable.
    """
    try:
        from agentlightning.store.mongo import MongoLightningStore
    except ImportError as error:
        raise MongoUnusable(f"backend mongo needs a package: pip install '.[mongo]' ({error})") from error
    await _check(uri)
    store = MongoLightningStore(mongo_uri=uri, partition_id=partition, tracker=tracker)
    try:
        yield store
    finally:
        await store.close()


def passing_errors() -> tuple[type[Exception], ...]:
    """What a MongoDB that is away for a while raises; nothing where its package is not installed."""
    try:
        from pymongo.errors import PyMongoError
    except ImportError:
        return ()
    return (PyMongoError,)


async def _check(uri: str) -> None:
    """Raises MongoUnusable unless a replica set answers: without one there are no transactions."""
    from pymongo import AsyncMongoClient
    from pymongo.errors import InvalidURI, PyMongoError

    try:
        async with AsyncMongoClient(uri, serverSelectionTimeoutMS=_CHECK_MILLISECONDS) as client:
            answer = await client.admin.command("hello")
    except (InvalidURI, ValueError):  # its message may hold a piece of the password
        raise MongoUnusable(
            "AGL_MONGO_URI or --mongo-uri is no address such as mongodb://user:password@host:27017/?replicaSet=rs0; "
            "are special characters of the password escaped, as in %40 for @?"
        ) from None
    except PyMongoError as error:
        raise MongoUnusable(f"no MongoDB can be used at AGL_MONGO_URI or --mongo-uri: {_one_line(error)}") from error
    if "setName" not in answer:
        raise MongoUnusable(
            "the MongoDB at AGL_MONGO_URI or --mongo-uri is no replica set: start mongod with --replSet rs0, and run "
            "rs.initiate() once"
        )


def _one_line(error: Exception) -> str:
    """The beginning of pymongo's messages, which go on with the whole topology."""
    return str(error).split(", Timeout:")[0].splitlines()[0]
