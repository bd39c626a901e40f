"""A run's table of policies, through the hub and back."""

import json

import pytest
from pydantic import ValidationError

from store.endpoints import ServedPolicy
from store.protocol import PromptTemplate, ResourcesUpdate
from store.schema import PolicyResources, Sampling
from store.token_spans import to_span
from store.werewolf import TurnSpan
from tests.support.fakes import make_turn

FIRST, SECOND, OTHER = "http://h:1/v1", "http://h:2/v1", "http://h:3/v1"


def make_resources(*others, **changes):
    learners = (
        ServedPolicy(player="policy", name="seers", roles=("seer", "witch"), endpoints=(FIRST, SECOND), model="seers"),
        ServedPolicy(player="policy", name="good_2", side="good", endpoints=(OTHER,), model="m"),
        ServedPolicy(player="policy", name="wolves", endpoints=(FIRST,), model="wolves"),
    )
    fields = dict(run_name="run", version=3, endpoints=(FIRST, SECOND), model="seers", policies=(*learners, *others))
    return PolicyResources(**fields | {"sampling": Sampling(temperature=0.7)} | changes)


def decoded(resources, **changes):
    named = {name: one for name, one in {**resources.encode(), **changes}.items() if one is not None}
    return PolicyResources.decode(
        ResourcesUpdate(
            resources_id=resources.resources_id, resources=named, create_time=0.0, update_time=0.0, version=1
        )
    )


def test_the_table_comes_back_from_the_hub_as_it_was():
    past = [
        ServedPolicy(name=f"past-1-{name}", player="past-1", side=side, endpoints=(OTHER,), model=name, share=0.25)
        for name, side in (("wolves", "wolf"), ("others", None))
    ]
    initial = ServedPolicy(name="initial", endpoints=(OTHER,), model="base")
    resources = make_resources(*past, initial)
    assert decoded(resources) == resources
    cards = (("witch", "good"), ("hunter", "good"), ("wolf", "wolf"))
    assert [resources.policy_of("policy", *card) for card in cards] == ["seers", "good_2", "wolves"]
    assert [resources.policy_of("past-1", *card) for card in cards[1:]] == ["past-1-others", "past-1-wolves"]
    assert resources.policy_of("initial", "witch", "good") == "initial"
    assert resources.frozen == ("past-1", "initial") and resources.past_selves == {"past-1": 0.25}
    # Runners that know a single policy find the first that learns.
    assert (resources.encode()["policy"].model, resources.encode()["policy"].endpoint) == ("seers", FIRST)


def test_a_sole_policy_needs_no_table():
    alone = make_resources(policies=())
    assert decoded(alone) == alone and alone.policy_of("policy", "wolf", "wolf") is None
    assert decoded(alone, table=None) == alone.model_copy(update={"endpoints": (FIRST,)})


def table(**changes):
    return json.dumps(json.loads(make_resources().encode()["table"].template) | changes)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (table()[:-9], "JSON"),
        ("[]", "dict"),
        (table(endpoints=[OTHER]), "'policy' must be served where 'seers', the first that learns, is"),
    ],
)
def test_what_cannot_be_a_table_is_refused(text, message):
    with pytest.raises(ValueError, match=message):
        decoded(make_resources(), table=PromptTemplate(template=text, engine="f-string"))


@pytest.mark.parametrize("name", ["policy", "scripted", "old", "other", "seers"])
def test_two_players_may_not_have_one_name(name):
    old = ServedPolicy(name="past-1-old", player="old", endpoints=(FIRST,), model="m")
    learner = ServedPolicy(name=name, player="policy", endpoints=(OTHER,), model="m")
    with pytest.raises(ValidationError, match=f"more than one player is named {name}"):
        make_resources(old, learner, players={"other": {"model": "m"}})


def test_policies_that_play_no_such_seat_say_so():
    (seers, *_) = make_resources().policies
    with pytest.raises(ValueError, match=r"\(seers\) plays the role 'wolf' of side 'wolf'"):
        make_resources(policies=(seers,)).policy_of("policy", "wolf", "wolf")


def test_policies_are_served_elsewhere_one_by_one():
    moved = make_resources().with_endpoints((SECOND,), {"seers": (SECOND,), "wolves": (SECOND,)})
    assert [policy.endpoints for policy in moved.policies] == [(SECOND,), (OTHER,), (SECOND,)]
    assert make_resources(policies=()).with_endpoints((OTHER,), {}).endpoints == (OTHER,)


def test_a_turn_names_its_learner_and_without_one_has_no_such_attribute():
    def stored(turn):
        return to_span(turn, rollout_id="r", attempt_id="a", sequence_id=1, start_time=0, end_time=1)

    assert TurnSpan.decode(stored(make_turn(learner="seers"))).learner == "seers"
    assert not [name for name in stored(make_turn()).attributes if "learner" in name]
    assert TurnSpan.decode(stored(make_turn())).learner is None
