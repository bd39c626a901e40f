"""Several policies that learn at one table: who is asked for which seat, and what is written down of it."""

from collections import Counter
from functools import partial

import pytest

from algo.rollouts.triplets import WrongLearner, read_attempt
from algo.sequences.trajectories import build_trajectories
from algo.werewolf.rewards import game_rewards
from configs.sections.rewards import RewardConfig
from runners.errors import UnknownPlayer
from store.endpoints import ServedPolicy
from store.schema import PolicyResources
from store.werewolf import GAME
from tests.runners.werewolf.test_table import make_task, whole_prompts
from tests.support.fakes import spans_of
from tests.support.tasks import play_task


def team_at(vllms, *others):
    vllms[1].adapters |= dict.fromkeys(("seers", "others"), "adapters")
    wolves, good = (vllm.endpoint for vllm in vllms)
    team = (
        ServedPolicy(player="policy", name="wolves", side="wolf", endpoints=(wolves,), model="policy"),
        ServedPolicy(player="policy", name="seers", roles=("seer",), endpoints=(good,), model="seers"),
        ServedPolicy(player="policy", name="others", endpoints=(good,), model="others"),
    )
    fields = {"run_name": "run", "version": 3, "endpoints": (wolves,), "model": "policy", "policies": (*team, *others)}
    return PolicyResources(**fields)


async def play(resources, tiny_model, **task):
    return await play_task(make_task(**task), resources, tokenizer=tiny_model)


def learner_of(role):
    return {"wolf": "wolves", "seer": "seers"}.get(role, "others")


async def test_each_seat_is_played_by_its_policy_and_says_so_up_to_its_trajectory(vllms, tiny_model):
    resources = team_at(vllms)
    result, turns = await play(resources, tiny_model, trainable=["wolf", "good"])
    assert {(turn.role, turn.learner) for turn in turns} == {
        ("wolf", "wolves"), ("seer", "seers"), ("villager", "others"),
    }  # fmt: skip
    assert {turn.policy for turn in turns} == {"policy"} == {seat.policy for seat in result.seats}
    prompts, asked = whole_prompts(turns), Counter()
    for number, vllm in enumerate(vllms):
        for body, choice in vllm.exchanges:
            asked[number, body["model"], tuple(body["prompt"]), tuple(choice["token_ids"])] += 1
    at = {"wolves": (0, "policy"), "seers": (1, "seers"), "others": (1, "others")}
    assert asked == Counter(
        (*at[turn.learner], tuple(prompts[turn.seat, turn.turn]), turn.response_ids) for turn in turns
    )
    read = read_attempt(GAME, "ro-1", "at-1", spans_of([*turns, result]), resources)
    found = build_trajectories([read], partial(game_rewards, weights=RewardConfig()), 10_000).trajectories
    assert len(found) == 5 and all(one.learner == learner_of(one.role) for one in found)


async def test_a_past_self_is_played_by_who_plays_such_seats_and_nobody_learns_from_it(vllms, tiny_model):
    wolves, good = vllms
    models = {"wolves": "past-wolves", "seers": "past-seers", "others": "past-others"}
    good.adapters |= dict.fromkeys(models.values(), "adapters")
    past = [
        ServedPolicy(
            name=models[one.name], player="past-000001", side=one.side, roles=one.roles,
            endpoints=(good.endpoint,), model=models[one.name], share=1.0,
        )
        for one in team_at(vllms).learners
    ]  # fmt: skip
    resources = team_at(vllms, *past)
    seating = {"wolf": "policy", "good": "past"}
    result, turns = await play(resources, tiny_model, trainable=["wolf"], seating=seating)
    assert {(turn.policy, turn.learner) for turn in turns} == {("policy", "wolves"), ("past-000001", None)}
    assert {body["model"] for body, _ in wolves.exchanges} == {"policy"}
    prompts = whole_prompts(turns)
    asked = Counter(
        (body["model"], tuple(body["prompt"]), tuple(choice["token_ids"])) for body, choice in good.exchanges
    )
    assert asked == Counter(
        (models[learner_of(turn.role)], tuple(prompts[turn.seat, turn.turn]), turn.response_ids)
        for turn in turns
        if turn.policy == "past-000001"
    )
    assert read_attempt(GAME, "ro-1", "at-1", spans_of([*turns, result]), resources).turns


@pytest.mark.parametrize(
    ("plays", "wrong"), [("wolves", "seers"), ("wolves", "stranger"), ("wolves", None), (None, "wolves")]
)
async def test_a_turn_of_another_policy_than_its_seats_is_refused(vllms, tiny_model, plays, wrong):
    resources = team_at(vllms) if plays else team_at(vllms).model_copy(update={"policies": ()})
    result, turns = await play(resources, tiny_model)
    assert read_attempt(GAME, "ro-1", "at-1", spans_of([*turns, result]), resources).turns
    number = next(number for number, turn in enumerate(turns) if turn.role == "wolf")
    assert turns[number].learner == plays
    turns[number] = turns[number].model_copy(update={"learner": wrong})
    with pytest.raises(WrongLearner, match=rf"was sampled by {wrong!r}, but {plays!r} plays the seat"):
        read_attempt(GAME, "ro-1", "at-1", spans_of([*turns, result]), resources)


async def test_a_seat_that_no_policy_of_the_team_plays_ends_the_game(vllms, tiny_model):
    resources = team_at(vllms)
    resources = resources.model_copy(update={"policies": resources.policies[:1]})
    with pytest.raises(UnknownPlayer, match=r"none of the policies of 'policy' \(wolves\) plays the role"):
        await play(resources, tiny_model)
