"""What of the MongoDB backend needs no MongoDB to be tested: what it refuses, and what the stock store is handed."""

import asyncio
import logging
import struct
import sys

import bson
import pytest
from conftest import free_port
from pymongo.errors import AutoReconnect

from store import hub, mongo
from store.mongo import MongoUnusable, open_mongo_store

PASSWORD = "pa55-and-secret"


class FakeMongo:
    """Answers every command of MongoDB's wire protocol as a server that has just started."""

    def __init__(self, set_name=None):
        self.port = free_port()
        self.uri = f"mongodb://127.0.0.1:{self.port}/?directConnection=true"
        self._answer = {"ok": 1, "maxWireVersion": 25, "minWireVersion": 0, "isWritablePrimary": True, "helloOk": True}
        if set_name:
            self._answer |= {"setName": set_name, "hosts": [f"127.0.0.1:{self.port}"]}

    async def __aenter__(self):
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)
        return self

    async def __aexit__(self, *_):
        self._server.close()

    async def _serve(self, reader, writer):
        try:
            while True:
                length, request, _, code = struct.unpack("<iiii", await reader.readexactly(16))
                await reader.readexactly(length - 16)
                document = bson.encode(self._answer)
                if code == 2013:  # OP_MSG
                    body = struct.pack("<iB", 0, 0) + document
                else:  # OP_QUERY, which a client begins with, answered by OP_REPLY
                    code, body = 1, struct.pack("<iqii", 8, 0, 0, 1) + document
                writer.write(struct.pack("<iiii", 16 + len(body), 0, request, code) + body)
        except asyncio.IncompleteReadError:
            writer.close()


async def test_the_partition_is_the_one_that_was_named_each_time():
    async with FakeMongo(set_name="rs0") as server:
        for _ in range(2):
            async with open_mongo_store(server.uri, "production") as store:
                assert store.collections.rollouts._partition_id == "production"


async def test_a_mongodb_without_replica_set_is_refused():
    async with FakeMongo() as server:
        with pytest.raises(MongoUnusable, match="no replica set: start mongod with --replSet"):
            async with open_mongo_store(server.uri, "hub"):
                pass


async def test_a_mongodb_that_does_not_answer_is_one_line(monkeypatch):
    monkeypatch.setattr(mongo, "_CHECK_MILLISECONDS", 200)
    with pytest.raises(MongoUnusable, match=r"^no MongoDB can be used at .*Connect call failed") as refused:
        async with open_mongo_store(f"mongodb://user:{PASSWORD}@127.0.0.1:{free_port()}", "hub"):
            pass
    assert "\n" not in str(refused.value) and "Topology" not in str(refused.value)
    assert PASSWORD not in str(refused.value)


@pytest.mark.parametrize("uri", ["mongodb://user:{}/@host", "mongodb://user:a@{}@host", "mongo://user:{}@host"])
async def test_an_address_that_cannot_be_read_is_not_shown(uri):
    with pytest.raises(MongoUnusable, match="is no address such as") as refused:
        async with open_mongo_store(uri.format(PASSWORD), "hub"):
            pass
    assert PASSWORD not in str(refused.value) and refused.value.__suppress_context__


async def test_without_the_package_the_extra_is_named(monkeypatch):
    for name in [name for name in sys.modules if name.startswith("agentlightning.store.mongo")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "agentlightning.store.mongo", None)  # importing it fails
    with pytest.raises(MongoUnusable, match=r"pip install '\.\[mongo\]'"):
        async with open_mongo_store("mongodb://localhost", "hub"):
            pass


async def test_the_watchdog_outlives_a_mongodb_that_is_away(monkeypatch, caplog):
    looked = asyncio.Event()

    class FakeStore:
        calls = 0

        async def wait_for_rollouts(self, **_):
            self.calls += 1
            if self.calls == 1:
                raise AutoReconnect("no primary")
            looked.set()

    monkeypatch.setattr(hub, "_WATCHDOG_SECONDS", 0)
    watching = asyncio.create_task(hub.watch(FakeStore()))
    with caplog.at_level(logging.ERROR):
        await asyncio.wait_for(looked.wait(), 20)
    watching.cancel()
    assert "no primary; trying again" in caplog.text
