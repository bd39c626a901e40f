"""Our types and our client against agentlightning's, on both hubs: what one writes the other reads, field by field."""

import json

import agentlightning
import pytest
from agentlightning import LightningStoreClient, Span
from agentlightning.types import Worker
from pydantic import BaseModel

from store import protocol
from store.client import connect
from tests.support.hub.hub_process import HubProcess, StockHub

NOW = 1_700_000_000.0
TYPES = [name for name, one in vars(protocol).items() if isinstance(one, type) and BaseModel in one.__mro__[1:]]
CONFIG = {"timeout_seconds": 60.0, "unresponsive_seconds": 9.5, "max_attempts": 3, "retry_condition": ["failed"]}
ATTRIBUTES = {
    "text": "我是3号，\u200b预言家\n",
    "yes": True,
    "count": 2**40,
    "share": 0.25,
    "texts": ["a", "验"],
    "flags": [True, False],
    "ids": [1, 0, 151_643],
    "shares": [0.5, 1.0],
    "none": [],
}
RESOURCES = {
    "policy": protocol.LLM(endpoint="http://a/v1", model="m", sampling_parameters={"temperature": 0.7}),
    "rules": protocol.PromptTemplate(template="你是{role}", engine="f-string"),
}


@pytest.fixture(params=[HubProcess, StockHub], ids=["ours", "stock"])
async def clients(request, tmp_path):
    """(our client, agentlightning's) of one hub."""
    hub = await request.param(tmp_path).start()
    ours, theirs = connect(hub.url, 20), LightningStoreClient(hub.url, retry_delays=(0.1,))
    yield ours, theirs
    await ours.close()
    await theirs.close()
    hub.kill()


@pytest.mark.parametrize("name", TYPES)
def test_types_have_the_fields_and_defaults_of_agentlightnings(name):
    ours, theirs = getattr(protocol, name), Worker if name == "Worker" else getattr(agentlightning, name)
    of_ours, of_theirs = ours.model_fields, theirs.model_fields
    if name == "Span":  # what nobody here reads is left out
        assert of_theirs.keys() - of_ours.keys() == {"status", "events", "links", "context", "parent", "resource"}
        return
    assert list(of_ours) == list(of_theirs)
    for field, info in of_ours.items():
        if not info.is_required():
            mine, default = (one.get_default(call_default_factory=True) for one in (info, of_theirs[field]))
            assert mine == default or mine.model_dump() == default.model_dump(), field
        assert info.is_required() == of_theirs[field].is_required(), field


@pytest.mark.parametrize("value", [*ATTRIBUTES.values(), [1, True], [1, "a"], [1, 0.5], None, {"a": 1}, [[1]], [None]])
def test_an_attribute_is_taken_and_kept_as_agentlightning_does(value):
    fields = dict(rollout_id="r", attempt_id="a", sequence_id=1, trace_id="1" * 32, span_id="2" * 16, name="n")
    fields |= {"attributes": {"it": value}, "start_time": NOW, "end_time": NOW}

    def kept(make):
        try:
            return repr(make(**fields).attributes)
        except ValueError:
            return "refused"

    assert kept(protocol.Span) == kept(Span.from_attributes)


def same(ours, theirs):
    """What our client read equals what theirs did."""
    if isinstance(ours, list):
        assert (len(ours), getattr(ours, "total", None)) == (len(theirs), getattr(theirs, "total", None))
        for one, other in zip(ours, theirs, strict=True):
            same(one, other)
        return
    assert type(ours).__name__ == type(theirs).__name__
    said = theirs.model_dump()
    assert ours.model_dump() == {name: said[name] for name in type(ours).model_fields}


async def test_what_one_client_writes_the_other_reads_alike(clients):
    ours, theirs = clients
    with_config = {"input": {"n": [1, None, "验"]}, "mode": "train", "config": CONFIG, "metadata": {"run": "r"}}
    asked = [protocol.EnqueueRolloutRequest.model_validate(one) for one in (with_config, {"input": "bare"})]
    queued = await ours.enqueue_many_rollouts(asked)
    queued += await theirs.enqueue_many_rollouts(
        [agentlightning.EnqueueRolloutRequest.model_validate(json.loads(one.model_dump_json())) for one in asked]
    )
    ids = [one.rollout_id for one in queued]
    mine, other = queued[:2], queued[2:]
    varying = {"rollout_id", "start_time"}
    assert [r.model_dump(exclude=varying) for r in mine] == [r.model_dump(exclude=varying) for r in other]
    same(await ours.query_rollouts(), await theirs.query_rollouts())

    (taken,) = await ours.dequeue_many_rollouts(limit=1, worker_id="w")
    (other_taken,) = await theirs.dequeue_many_rollouts(limit=1, worker_id="w2")
    limits = protocol.RolloutConfig(timeout_seconds=60)
    started = await ours.start_rollout({"s": 1}, mode="val", config=limits, metadata={"people": "x"}, worker_id="web")
    assert started.config == limits
    for query in (
        {"status_in": ["preparing"]},
        {"rollout_id_in": [ids[0], ids[3], started.rollout_id, "ro-none"]},
        {"limit": 2, "offset": 1, "sort_by": "start_time", "sort_order": "desc"},
    ):
        same(await ours.query_rollouts(**query), await theirs.query_rollouts(**query))

    key = (taken.rollout_id, taken.attempt.attempt_id)
    span = protocol.Span(
        rollout_id=key[0], attempt_id=key[1], sequence_id=1, trace_id="1" * 32, span_id="2" * 16, name="turn",
        attributes=ATTRIBUTES, start_time=NOW, end_time=NOW + 0.5,
    )  # fmt: skip
    assert await ours.upload_spans([span]) == {}
    await theirs.add_span(Span.from_attributes(**dict(span) | {"sequence_id": 2, "span_id": "3" * 16, "name": "b"}))
    for where, query in ((key, {}), (key[:1], {"name": "turn"}), ((key[0], "latest"), {"limit": 1, "offset": 1})):
        found = await ours.query_spans(*where, **query)
        same(found, await theirs.query_spans(*where, **query))
        assert found
    bulk, single = await ours.query_spans(*key)
    assert {name: bulk.attributes[name] for name in ATTRIBUTES} == single.attributes == ATTRIBUTES

    for client, attempted in ((ours, taken), (theirs, other_taken)):
        names = (attempted.rollout_id, attempted.attempt.attempt_id)
        changed = await client.update_attempt(*names, last_heartbeat_time=NOW, metadata={"reason": "验"})
        assert (changed.last_heartbeat_time, changed.metadata) == (NOW, {"reason": "验"})
        await client.update_attempt(*names, status="failed")
    for each in (taken, other_taken, started):
        same(await ours.query_attempts(each.rollout_id), await theirs.query_attempts(each.rollout_id))
    assert (await ours.update_rollout(ids[3], status="cancelled")).status == "cancelled"
    same((await ours.query_rollouts(rollout_id_in=ids[3:]))[0], await theirs.get_rollout_by_id(ids[3]))


async def test_resources_and_workers_are_read_and_written_alike(clients):
    ours, theirs = clients
    assert await ours.get_latest_resources() is await theirs.get_latest_resources() is None
    same(await ours.update_resources("run.policy-1", RESOURCES), await theirs.get_resources_by_id("run.policy-1"))
    proxy = agentlightning.ProxyLLM(endpoint="http://b/v1", model="m", api_key="none")
    await theirs.update_resources("run.policy-2", {"policy": proxy})
    same(await ours.get_latest_resources(), await theirs.get_latest_resources())
    for query in ({}, {"resources_id": "run.policy-1"}, {"resources_id_contains": "policy", "sort_by": "update_time"}):
        same(await ours.query_resources(**query), await theirs.query_resources(**query))
    assert await ours.query_resources(resources_id="none") == []
    same(await ours.update_worker("w", {"playing": 1}), await theirs.get_worker_by_id("w"))
