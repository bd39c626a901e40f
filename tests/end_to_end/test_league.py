"""A league with every real part: past selves join, are served, and play with the weights that their names say.
So does the initial policy, in the evaluations of the same run.

Real hub (`python -m store`), runner, verl, vLLM for the policy (attached to) and for its past selves. What is proven,
for whole weights, for adapters, and for two policies that learn side by side: members join; every turn of a past self
has the log-probs that transformers computes from that member's folder; a run that was killed ends with the payoff table
and the weights of one that was left alone.
"""

import json
from collections import Counter, defaultdict

import pytest

from store.client import connect
from store.werewolf import ResultSpan, TurnSpan, is_result, is_turn
from tests.support.algo.machine import GAMES, LEAGUE, LORA, STEPS, TEAM, finish, kill_when, steps_of, weights_of
from tests.support.recording_proxy import FLOAT32_TOLERANCE

pytestmark = [pytest.mark.xdist_group("machine"), pytest.mark.timeout(1500)]

MEMBERS = {"wolf": "wolves", "good": "villagers"}


DEALS = 2
EVALUATED = ["evaluation.opponents=[initial]", f"evaluation.deals={DEALS}", "evaluation.every_steps=1"]


def settings_of(machine, kind):
    if kind == "whole":  # one server: another member is met at each step
        evaluated = [*EVALUATED, "evaluation.at_start=false", "checkpoint.every_steps=1", "checkpoint.keep=3"]
        return [*LEAGUE, "league.choice=newest", *evaluated]
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


@pytest.fixture(scope="module")
def undisturbed(machine):
    """``await undisturbed(kind)``: the games of a league that nobody kills, and those of its evaluations; run once."""
    found = {}

    async def games(kind):
        if kind not in found:
            finish(machine, f"league-{kind}", *settings_of(machine, kind))
            games = [decoded(spans) for spans in await games_of(machine, f"league-{kind}")]
            evaluation = [game for game in games if "initial" in game[0]]
            found[kind] = [game for game in games if game not in evaluation], evaluation
        return found[kind]

    return games


def decoded(spans):
    """(side of each policy that sat at the table, the turns in order) of a game."""
    (result,) = [ResultSpan.decode(span) for span in spans if is_result(span)]
    turns = sorted((TurnSpan.decode(span) for span in spans if is_turn(span)), key=lambda turn: turn.turn)
    return {seat.policy: seat.side for seat in result.seats}, turns


def compare(turns, model_of_turn):
    """Compare the turns' log-probs with those that transformers computes, and return for how many tokens."""
    import torch

    from tests.support.small_models import token_log_probs

    conversations, compared = defaultdict(list), 0
    for turn in turns:
        ids = conversations[turn.seat, turn.segment]
        ids += [*turn.prompt_ids, *turn.response_ids]
        with torch.no_grad():
            computed = token_log_probs(model_of_turn(turn), ids)[-len(turn.response_ids) :].tolist()
        assert computed == pytest.approx(turn.logprobs, abs=FLOAT32_TOLERANCE), (turn.policy, turn.policy_version)
        compared += len(turn.logprobs)
    return compared


@pytest.mark.parametrize(
    "kind", ["whole", *(pytest.param(kind, marks=pytest.mark.soak) for kind in ("adapters", "team"))]
)
async def test_past_selves_play_with_their_own_weights(machine, undisturbed, kind):
    name = f"league-{kind}"
    games, _ = await undisturbed(kind)
    assert members_of(machine, name) == [0, 1, 2]
    assert len(games) == STEPS * GAMES
    models, compared, met = {}, 0, set()
    for sides, turns in games:
        (member,) = sides.keys() - {"policy"}
        met.add(member)
        player = member, sides[member]
        if player not in models:
            models[player] = model_of(machine, name, *player)
        for turn in turns:
            assert turn.policy in ("policy", member) and turn.trainable == (turn.policy == "policy")
            assert turn.learner == (MEMBERS[turn.side] if kind == "team" and turn.trainable else None)
        compared += compare([turn for turn in turns if turn.policy == member], lambda _, own=models[player]: own)
    assert compared > 1000 and "past-000000" in met and len(met) > 1

    payoff = payoff_of(machine, name)
    assert sum(cell["games"] for cell in payoff["cells"]) == STEPS * GAMES
    assert met < set(payoff["players"])
    steps = [line["data"] for line in steps_of(machine, name)]
    assert [step["league/size"] for step in steps] == [1, 2, 3]
    assert all(step["league/share/past"] == 1 and step["policy_version"] > 0 for step in steps)


async def test_an_evaluation_against_the_initial_policy_leaves_each_turn_to_the_policy_that_it_names(
    machine, undisturbed
):
    """``initial`` has a vLLM of its own, whose weights stay those of ``model.path`` while the policy's change."""
    from tests.support.small_models import load_model

    _, games = await undisturbed("whole")
    run = machine.folder / "league-whole"
    assert "vllm-initial.log" in [log.name for log in run.glob("vllm*.log")]
    kept = sorted((run / "checkpoints").glob("step-*/huggingface"))
    models = [load_model(folder) for folder in (machine.model, *kept)]
    assert len(models) == STEPS + 1 and len(games) == STEPS * 2 * DEALS
    turns = [turn for _, turns in games for turn in turns]
    assert {(turn.policy, turn.policy_version) for turn in turns} >= {("policy", step) for step in range(1, STEPS + 1)}
    by_policy = Counter(turn.policy for turn in turns)
    assert by_policy.keys() == {"policy", "initial"} and min(by_policy.values()) > 20
    for _, turns in games:
        assert compare(turns, lambda turn: models[turn.policy_version if turn.policy == "policy" else 0])


@pytest.mark.soak  # tests/algo/loop/test_train.py kills a league at every stage, without a model
@pytest.mark.parametrize("kind", ["whole", "team"])
async def test_killed_and_resumed_it_ends_with_the_table_of_an_undisturbed_run(machine, undisturbed, kind):
    import torch

    whole, name, settings = f"league-{kind}", f"league-killed-{kind}", settings_of(machine, kind)
    await undisturbed(kind)
    # The checkpoint is of the second step; version 2 has joined since, and played.
    kill_when(machine, name, 3, "pushing version", *settings)
    assert (machine.folder / name / "league" / "past-000002").is_dir()
    finish(machine, name, *settings)
    assert payoff_of(machine, name) == payoff_of(machine, whole)
    assert members_of(machine, name) == [0, 1, 2]
    expected = weights_of(machine, whole)
    assert all(torch.equal(values, expected[tensor]) for tensor, values in weights_of(machine, name).items())
