import json

import pytest
from pydantic import ValidationError

from store.endpoints import ServedPolicy
from store.protocol import LLM, ResourcesUpdate
from store.schema import ChatEndpoint, PolicyResources, Sampling, WrongKind
from store.werewolf import GameTask
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


def test_a_task_has_one_text_in_every_process():
    """Sets have no order; a hub compares the texts of repeated requests."""
    policy = dict.fromkeys(("wolf", "good"), "policy")
    task = make_task(seating=policy, trainable=["wolf", "good"], study={"probes": ["vote", "speech"]})
    assert task.encode()["trainable"] == ["good", "wolf"] and task.encode()["study"]["probes"] == ["speech", "vote"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        # A name cannot forge a line of a log.
        *(({"game_id": name}, "game_id") for name in ("", "g\nrollout 7: wolf after 3 days", "g\x1b[2J", "g" * 257)),
        ({"trainable": ["good"]}, "side 'good' is trainable, but no rule seats 'policy'"),
        (
            {"seating": [{"players": {"scripted": 1}}, {"side": "wolf", "players": {"policy": 1}}]},
            "side 'wolf' is trainable, but no rule seats 'policy'",
        ),
        (
            {"seating": [{"side": "wolf", "players": {"policy": 1}}, {"role": "seer", "players": {"policy": 1}}]},
            "no player for every seat of side 'good'",
        ),
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


def decoded(resources, **changes):
    """What a runner makes of published resources; None takes a part away."""
    named = {name: one for name, one in {**resources.encode(), **changes}.items() if one is not None}
    times = dict(create_time=0.0, update_time=0.0, version=1)
    return PolicyResources.decode(ResourcesUpdate(resources_id=resources.resources_id, resources=named, **times))


def test_resources_come_back_as_published_and_those_of_a_stock_trainer_are_taken():
    frozen = (ServedPolicy(name="initial", endpoints=("http://h:9000/v1",), model="base"),)
    opponent = ChatEndpoint(endpoint="http://h/v1", model="qwen-max", api_key_env="DASHSCOPE_API_KEY", tries=2)
    judge = ChatEndpoint(provider="dashscope", model="qwen-plus", requests_per_minute=30)
    endpoints = tuple(f"http://127.0.0.1:{8000 + number}/v1" for number in range(11))
    others = {"policies": frozen, "players": {"strong": opponent}, "judge": judge}
    for resources in (make_resources().model_copy(update={"endpoints": endpoints, **others}), make_resources()):
        assert decoded(resources) == resources
    unserved = PolicyResources(run_name="run", version=0, endpoints=(), model="folder")
    assert decoded(unserved) == unserved
    stock = PolicyResources(run_name="run", version=1, endpoints=("http://h/v1",), model="m")
    assert decoded(stock, **dict.fromkeys(stock.encode()) | {"policy": LLM(endpoint="http://h/v1", model="m")}) == stock


@pytest.mark.parametrize(
    "url", ["h/v1", "http://h/delete?id=7&x=/v1", "http://h/delete#/v1", "http://u:p@h/v1", "http://h"]
)
def test_an_endpoint_of_a_policy_is_the_base_of_a_model_server(url):
    for make in (
        lambda: PolicyResources(run_name="run", version=0, endpoints=(url,), model="m"),
        lambda: ServedPolicy(name="old", endpoints=(url,), model="m"),
    ):
        with pytest.raises(ValidationError, match="endpoint must"):
            make()


def test_a_trainable_side_may_be_played_by_the_policy_in_part():
    task = make_task(seating=[{"role": "wolf_king", "players": {"policy": 1}}, {"players": {"scripted": 1}}])
    assert task.trainable == {"wolf"}


@pytest.mark.parametrize("changes", [{"endpoint": "https://sk-secret@h/v1"}, {"temperature": "sk-secret"}])
def test_a_refusal_of_an_endpoint_shows_no_secret(changes):
    with pytest.raises(ValidationError, match=next(iter(changes))) as caught:
        ChatEndpoint(model="m", **changes)
    assert "sk-secret" not in str(caught.value)


FIRST, SECOND, OTHER = "http://h:1/v1", "http://h:2/v1", "http://h:3/v1"


def make_table(*others, **changes):
    learners = (
        ServedPolicy(player="policy", name="seers", roles=("seer", "witch"), endpoints=(FIRST, SECOND), model="seers"),
        ServedPolicy(player="policy", name="good_2", side="good", endpoints=(OTHER,), model="m"),
        ServedPolicy(player="policy", name="wolves", endpoints=(FIRST,), model="wolves"),
    )
    fields = dict(run_name="run", version=3, endpoints=(FIRST, SECOND), model="seers", policies=(*learners, *others))
    return PolicyResources(**fields | {"sampling": Sampling(temperature=0.7)} | changes)


def test_the_table_comes_back_from_the_hub_as_it_was():
    past = [
        ServedPolicy(name=f"past-1-{name}", player="past-1", side=side, endpoints=(OTHER,), model=name, share=0.25)
        for name, side in (("wolves", "wolf"), ("others", None))
    ]
    initial = ServedPolicy(name="initial", endpoints=(OTHER,), model="base")
    resources = make_table(*past, initial)
    assert decoded(resources) == resources
    cards = (("witch", "good"), ("hunter", "good"), ("wolf", "wolf"))
    assert [resources.policy_of("policy", *card) for card in cards] == ["seers", "good_2", "wolves"]
    assert [resources.policy_of("past-1", *card) for card in cards[1:]] == ["past-1-others", "past-1-wolves"]
    assert resources.policy_of("initial", "witch", "good") == "initial"
    assert resources.frozen == ("past-1", "initial") and resources.past_selves == {"past-1": 0.25}
    # Runners that know a single policy find the first that learns.
    assert (resources.encode()["policy"].model, resources.encode()["policy"].endpoint) == ("seers", FIRST)


def test_a_sole_policy_needs_no_table():
    alone = make_table(policies=())
    assert decoded(alone) == alone and alone.policy_of("policy", "wolf", "wolf") is None
    assert decoded(alone, table=None) == alone.model_copy(update={"endpoints": (FIRST,)})


@pytest.mark.parametrize("name", ["policy", "scripted", "old", "other", "seers"])
def test_two_players_may_not_have_one_name(name):
    old = ServedPolicy(name="past-1-old", player="old", endpoints=(FIRST,), model="m")
    learner = ServedPolicy(name=name, player="policy", endpoints=(OTHER,), model="m")
    with pytest.raises(ValidationError, match=f"more than one player is named {name}"):
        make_table(old, learner, players={"other": {"model": "m"}})


def test_policies_are_served_elsewhere_one_by_one():
    moved = make_table().with_endpoints((SECOND,), {"seers": (SECOND,), "wolves": (SECOND,)})
    assert [policy.endpoints for policy in moved.policies] == [(SECOND,), (OTHER,), (SECOND,)]
    assert make_table(policies=()).with_endpoints((OTHER,), {}).endpoints == (OTHER,)
