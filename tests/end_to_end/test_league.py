"""A league with every real part: past selves join, are served, and play with the weights that their names say.

Real hub (`python -m store`), runner, verl, vLLM for the policy (attached to) and for its past selves. What is proven,
for whole weights, for adapters, and for two policies that learn side by side: members join; every turn of a past self
has the log-probs that transformers computes from that member's folder; a run that was killed ends with the payoff table
and the weights of one that was left alone.
"""

import json
from collections import defaultdict

import pytest

from store.client import connect
from store.werewolf import ResultSpan, TurnSpan, is_result, is_turn
from tests.support.algo.machine import GAMES, LEAGUE, LORA, STEPS, TEAM, finish, kill_when, steps_of, weights_of
from tests.support.recording_proxy import FLOAT32_TOLERANCE

pytestmark = [pytest.mark.xdist_group("machine"), pytest.mark.timeout(1500)]

MEMBERS = {"wolf": "wolves", "good": "villagers"}


def settings_of(machine, kind):
    if kind == "whole":  # one server: another member is met at each step
        return [*LEAGUE, "league.choice=newest"]
    team = TEAM if kind == "team" else []
    return [*LEAGUE, *LORA, *team, f"serving.urls=[{machine.adapters}]"]


def payoff_of(machine, name):
    return json.loads((machine.folder / name / "payoff.json").read_text())


def members_of(machine, name):
    state = json.loads((machine.folder / name / "checkpoints" / f"step-{STEPS:06d}" / "state.json").read_text())
    return [member["version"] for member in state["league"]["members"]]


def model_of(machine, name, member, side):
    """What a past self's folder holds, as transformers loads it. side: of two policies the one that plays it."""
    from tests.support.small_models import load_model

    folder = machine.folder / name / "league" / member
    if (folder / MEMBERS[side]).is_dir():
        folder /= MEMBERS[side]
    if (folder / "adapter_config.json").is_file():
        return load_model(machine.model, folder)
    return load_model(folder if folder.is_dir() else machine.model)  # whole weights of the start stay where they are


async def games_of(machine, name):
    """The spans of each of a run's finished games."""
    client = connect(machine.hub.url)
    rollouts = [one for one in await client.query_rollouts() if one.metadata["run"].startswith(f"{name}-")]
    games = [await client.query_spans(one.rollout_id) for one in rollouts if one.status == "succeeded"]
    await client.close()
    return games


@pytest.mark.parametrize(
    "kind", ["whole", *(pytest.param(kind, marks=pytest.mark.soak) for kind in ("adapters", "team"))]
)
async def test_past_selves_play_with_their_own_weights(machine, kind):
    import torch

    from tests.support.small_models import token_log_probs

    name = f"league-{kind}"
    finish(machine, name, *settings_of(machine, kind))
    assert members_of(machine, name) == [0, 1, 2]
    games = await games_of(machine, name)
    assert len(games) == STEPS * GAMES
    models, compared, met = {}, 0, set()
    for spans in games:
        (result,) = [ResultSpan.decode(span) for span in spans if is_result(span)]
        (member,) = {seat.policy for seat in result.seats} - {"policy"}
        met.add(member)
        (side,) = {seat.side for seat in result.seats if seat.policy == member}
        if (member, side) not in models:
            models[member, side] = model_of(machine, name, member, side)
        model = models[member, side]
        ids, sampled = defaultdict(list), defaultdict(list)
        for turn in sorted((TurnSpan.decode(span) for span in spans if is_turn(span)), key=lambda turn: turn.turn):
            assert turn.policy in ("policy", member) and turn.trainable == (turn.policy == "policy")
            assert turn.learner == (MEMBERS[turn.side] if kind == "team" and turn.trainable else None)
            if turn.policy == member:
                key = turn.seat, turn.segment
                start = len(ids[key]) + len(turn.prompt_ids)
                ids[key] += [*turn.prompt_ids, *turn.response_ids]
                sampled[key] += enumerate(turn.logprobs, start)
        for key, whole in ids.items():
            with torch.no_grad():
                expected = token_log_probs(model, whole).tolist()
            for place, logprob in sampled[key]:
                assert logprob == pytest.approx(expected[place], abs=FLOAT32_TOLERANCE), (member, key)
            compared += len(sampled[key])
    assert compared > 1000 and "past-000000" in met and len(met) > 1

    payoff = payoff_of(machine, name)
    assert sum(cell["games"] for cell in payoff["cells"]) == STEPS * GAMES
    assert met < set(payoff["players"])
    steps = [line["data"] for line in steps_of(machine, name)]
    assert [step["league/size"] for step in steps] == [1, 2, 3]
    assert all(step["league/share/past"] == 1 and step["policy_version"] > 0 for step in steps)


@pytest.mark.soak  # tests/algo/loop/test_train.py kills a league at every stage, without a model
@pytest.mark.parametrize("kind", ["whole", "team"])
def test_killed_and_resumed_it_ends_with_the_table_of_an_undisturbed_run(machine, kind):
    import torch

    whole, name, settings = f"league-{kind}", f"league-killed-{kind}", settings_of(machine, kind)
    # The checkpoint is of the second step; version 2 has joined since, and played.
    kill_when(machine, name, 3, "giving version", *settings)
    assert (machine.folder / name / "league" / "past-000002").is_dir()
    finish(machine, name, *settings)
    assert payoff_of(machine, name) == payoff_of(machine, whole)
    assert members_of(machine, name) == [0, 1, 2]
    undisturbed = weights_of(machine, whole)
    assert all(torch.equal(values, undisturbed[tensor]) for tensor, values in weights_of(machine, name).items())
