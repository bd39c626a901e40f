import pytest
from agentlightning import LLM, ResourcesUpdate
from pydantic import ValidationError

from store.schema import GameTask, PolicyResources, Sampling


def make_task(**changes):
    fields = dict(
        game_id="g",
        group_id="d",
        seed=7,
        sampling_seed=8,
        preset="5p_tiny",
        seating={"wolf": "policy", "good": "scripted"},
        trainable=["wolf"],
        limits={"context_tokens": 100, "reply_tokens": 10},
    )
    return GameTask(**{**fields, **changes})


def test_task_survives_json():
    import json

    task = make_task()
    assert GameTask.decode(json.loads(json.dumps(task.encode()))) == task


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"seating": {"wolf": "policy"}}, "no player for"),
        ({"trainable": ["good"]}, "trainable sides"),
        ({"limits": {"context_tokens": 10, "reply_tokens": 10}}, "smaller than context_tokens"),
        ({"unknown": 1}, "unknown"),
        ({"seed": -1}, "seed"),
    ],
)
def test_task_that_does_not_fit_is_refused_by_name(changes, message):
    with pytest.raises(ValidationError, match=message):
        make_task(**changes)


def make_resources():
    return PolicyResources(
        run_name="my-run.policy-9",
        version=12,
        endpoint="http://127.0.0.1:8000/v1",
        model="policy",
        sampling=Sampling(temperature=0.7),
        prompt_templates={"seer": "你是预言家。{literal}"},
    )


def as_update(resources, resources_id):
    return ResourcesUpdate(resources_id=resources_id, create_time=0.0, update_time=0.0, version=1, resources=resources)


def test_resources_come_back_as_published():
    resources = make_resources()
    assert PolicyResources.decode(as_update(resources.encode(), resources.resources_id)) == resources


@pytest.mark.parametrize(
    ("resources_id", "resources", "message"),
    [
        ("rs-1234", make_resources().encode(), "not published by"),
        ("run.policy-000001", {"other": LLM(endpoint="e", model="m")}, "no LLM named 'policy'"),
    ],
)
def test_foreign_resources_are_refused(resources_id, resources, message):
    with pytest.raises(ValueError, match=message):
        PolicyResources.decode(as_update(resources, resources_id))
