"""Several policies that learn at one table, through the hub and back."""

import pytest
from agentlightning import LLM, ResourcesUpdate
from pydantic import ValidationError

from store.schema import FrozenPolicy, PolicyResources, Sampling
from store.team import TeamMember
from store.token_spans import to_span
from store.werewolf import TurnSpan
from tests.support.fakes import make_turn

FIRST, SECOND, OTHER = "http://h:1/v1", "http://h:2/v1", "http://h:3/v1"


def make_resources(**changes):
    team = (
        TeamMember(name="seers", roles=("seer", "witch"), endpoints=(FIRST, SECOND), model="seers"),
        TeamMember(name="good_2", side="good", endpoints=(OTHER,), model="m"),
        TeamMember(name="wolves", endpoints=(FIRST,), model="wolves"),
    )
    fields = dict(run_name="run", version=3, endpoints=(FIRST, SECOND), model="seers", team=team)
    return PolicyResources(**fields | {"sampling": Sampling(temperature=0.7)} | changes)


def decoded(resources, **changes):
    encoded = {**resources.encode(), **changes}
    # A hub may give them back in any order.
    shuffled = {name: encoded[name] for name in sorted(encoded, reverse=True) if encoded[name] is not None}
    return PolicyResources.decode(
        ResourcesUpdate(
            resources_id=resources.resources_id, resources=shuffled, create_time=0.0, update_time=0.0, version=1
        )
    )


def test_a_team_comes_back_from_the_hub_as_it_was():
    resources = make_resources()
    assert decoded(resources) == resources
    assert [resources.learner_of(*card) for card in (("witch", "good"), ("hunter", "good"), ("wolf", "wolf"))] == [
        "seers", "good_2", "wolves",
    ]  # fmt: skip
    # Who knows no teams finds the first of it.
    assert resources.encode()["policy"].model == "seers" and resources.encode()["policy_2"].endpoint == SECOND


def test_what_a_team_was_has_a_model_for_each_of_it():
    models = {"seers": "past-000001-seers", "good_2": "past-000001-good_2", "wolves": "past-000001-wolves"}
    past = FrozenPolicy(endpoint=OTHER, model="past-000001-seers", share=0.5, models=models)
    resources = make_resources(frozen={"past-000001": past, "initial": FrozenPolicy(endpoint=OTHER, model="base")})
    assert decoded(resources) == resources
    assert "models" not in resources.encode()["frozen_initial"].sampling_parameters
    with pytest.raises(ValidationError, match="'past-000001' is what another team was: it has seers, good_2, wolves"):
        make_resources(frozen={"past-000001": past}, team=make_resources().team[:2])


def test_without_a_team_resources_are_what_they_were():
    alone = make_resources(team=())
    assert set(alone.encode()) == {"policy", "policy_2"} and decoded(alone) == alone
    assert alone.learner_of("wolf", "wolf") is None


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"member_good_2": None}, "lack some of the team"),
        ({"member_seers": None}, None),  # one of two servers
        ({"member_seers.2": LLM(endpoint=SECOND, model="other")}, "contradict themselves about 'seers'"),
        ({"member_good_2": LLM(endpoint=OTHER, model="m")}, "contradict themselves about 'good_2'"),
        ({"member_a": LLM(endpoint=OTHER, model="m", sampling_parameters={"order": 0})}, "contradict themselves"),
    ],
)
def test_what_cannot_be_a_team_is_refused(changes, message):
    if message is None:
        with pytest.raises(ValueError, match="'policy' must be served where the first of its team, 'seers', is"):
            decoded(make_resources(), **changes)
    else:
        with pytest.raises(ValueError, match=message):
            decoded(make_resources(), **changes)


@pytest.mark.parametrize("name", ["policy", "scripted", "old"])
def test_a_member_may_not_have_the_name_of_another_player(name):
    member = TeamMember(name=name, endpoints=(FIRST, SECOND), model="seers")
    frozen = {"old": {"endpoint": "e", "model": "m"}}
    with pytest.raises(ValidationError, match=f"more than one player is named {name}"):
        make_resources(team=(member,), frozen=frozen)
    with pytest.raises(ValidationError, match="more than one player is named seers"):
        make_resources(team=(make_resources().team[0],) * 2)


def test_a_team_that_plays_no_such_seat_says_so():
    team = make_resources().team[:1]
    with pytest.raises(ValueError, match=r"\(seers\) plays the role 'wolf' of side 'wolf'"):
        make_resources(team=team).learner_of("wolf", "wolf")


def test_a_team_is_served_elsewhere_member_by_member():
    moved = make_resources().served_at((SECOND,), {"seers": (SECOND,), "wolves": (SECOND,)})
    assert [member.endpoints for member in moved.team] == [(SECOND,), (OTHER,), (SECOND,)]
    assert make_resources(team=()).served_at((OTHER,), {}).endpoints == (OTHER,)


def test_a_turn_names_its_learner_and_without_one_has_no_such_attribute():
    def stored(turn):
        return to_span(turn, rollout_id="r", attempt_id="a", sequence_id=1, start_time=0, end_time=1)

    assert TurnSpan.decode(stored(make_turn(learner="seers"))).learner == "seers"
    assert not [name for name in stored(make_turn()).attributes if "learner" in name]
    assert TurnSpan.decode(stored(make_turn())).learner is None
