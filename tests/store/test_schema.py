import json

import pytest
from pydantic import ValidationError

from store.endpoints import ServedPolicy
from store.protocol import LLM, ResourcesUpdate
from store.schema import ChatEndpoint, PolicyResources, Sampling, WrongKind
from store.werewolf import GameTask, SeatingRule
from tests.support.tasks import game_task


def make_task(**changes):
    return game_task(
        context_tokens=100, reply_tokens=10, **(dict(seating={"wolf": "policy", "good": "scripted"}) | changes)
    )


def test_a_task_survives_json_and_one_of_another_kind_is_refused_by_name():
    encoded = json.loads(json.dumps(make_task().encode()))
    assert GameTask.decode(encoded) == make_task()
    assert encoded.pop("kind") == "werewolf" and GameTask.decode(encoded) == make_task()  # from before there were kinds
    with pytest.raises(WrongKind, match="of kind 'agent', and this runner plays 'werewolf'"):
        GameTask.decode({"kind": "agent", "task_id": "t"})


@pytest.mark.parametrize("name", ["", "g\nrollout 7: wolf after 3 days", "g\x1b[2J", "g" * 257])
def test_a_games_name_cannot_forge_a_line_of_a_log(name):
    with pytest.raises(ValidationError, match="game_id"):
        make_task(game_id=name)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"seating": {"wolf": "policy"}}, "no player for every seat of side 'good'"),
        ({"trainable": ["good"]}, "side 'good' is trainable, but no rule seats 'policy'"),
        (
            {"seating": [{"players": {"scripted": 1}}, {"side": "wolf", "players": {"policy": 1}}]},
            "side 'wolf' is trainable, but no rule seats 'policy'",
        ),
        ({"limits": {"context_tokens": 10, "reply_tokens": 10}}, "smaller than context_tokens"),
    ],
)
def test_task_that_does_not_fit_is_refused_by_name(changes, message):
    with pytest.raises(ValidationError, match=message):
        make_task(**changes)


def make_resources():
    return PolicyResources(
        run_name="my-run.policy-9",
        version=12,
        endpoints=("http://127.0.0.1:8000/v1",),
        model="policy",
        sampling=Sampling(temperature=0.7),
        prompt_templates={"seer": "你是预言家。{literal}"},
    )


def as_update(resources, resources_id):
    return ResourcesUpdate(resources_id=resources_id, create_time=0.0, update_time=0.0, version=1, resources=resources)


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


def test_resources_come_back_as_published_and_those_of_a_stock_trainer_are_taken():
    frozen = (ServedPolicy(name="initial", endpoints=("http://h:9000/v1",), model="base"),)
    opponent = ChatEndpoint(endpoint="http://h/v1", model="qwen-max", api_key_env="DASHSCOPE_API_KEY", tries=2)
    judge = ChatEndpoint(provider="dashscope", model="qwen-plus", requests_per_minute=30)
    endpoints = tuple(f"http://127.0.0.1:{8000 + number}/v1" for number in range(11))
    others = {"policies": frozen, "players": {"strong": opponent}, "judge": judge}
    for resources in (make_resources().model_copy(update={"endpoints": endpoints, **others}), make_resources()):
        assert PolicyResources.decode(as_update(resources.encode(), resources.resources_id)) == resources
    unserved = PolicyResources(run_name="run", version=0, endpoints=(), model="folder")
    assert PolicyResources.decode(as_update(unserved.encode(), unserved.resources_id)) == unserved
    stock = PolicyResources.decode(as_update({"policy": LLM(endpoint="e", model="m")}, "run.policy-000001"))
    assert stock == PolicyResources(run_name="run", version=1, endpoints=("e",), model="m")


@pytest.mark.parametrize("share", [0, -1, float("nan"), float("inf")])
def test_shares_must_be_positive_numbers(share):
    with pytest.raises(ValidationError, match="shares must be positive"):
        SeatingRule(players={"policy": share})


def test_a_rule_matches_what_it_names_and_seating_by_side_is_short_for_rules():
    named = ({}, {"role": "seer"}, {"role": "witch"}, {"side": "wolf"}, {"seat": 4})
    matches = [SeatingRule(players={"policy": 1}, **name).matches(3, "seer", "good") for name in named]
    assert matches == [True, True, False, False, False]
    sides = {"wolf": "policy", "good": "scripted"}
    rules = tuple(SeatingRule(side=side, players={player: 1.0}) for side, player in sides.items())
    assert make_task(seating=sides).seating == rules


def test_a_trainable_side_may_be_played_by_the_policy_in_part():
    task = make_task(seating=[{"role": "wolf_king", "players": {"policy": 1}}, {"players": {"scripted": 1}}])
    assert task.trainable == {"wolf"}
    with pytest.raises(ValidationError, match="no player for every seat of side 'good'"):
        make_task(seating=[{"side": "wolf", "players": {"policy": 1}}, {"role": "seer", "players": {"policy": 1}}])


@pytest.mark.parametrize(
    "changes",
    [
        {"endpoint": "https://sk-secret@h/v1"},
        {"endpoint": "https://h/v1?key=sk-secret"},
        {"endpoint": "sk-secret"},
        {"api_key_env": "sk-secret"},
        {"temperature": "sk-secret"},
    ],
)
def test_an_endpoint_holds_no_secret_and_a_refusal_shows_none(changes):
    with pytest.raises(ValidationError, match=next(iter(changes))) as caught:
        ChatEndpoint(model="m", **changes)
    assert "sk-secret" not in str(caught.value)
