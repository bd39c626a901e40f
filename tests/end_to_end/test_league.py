"""A league with every real part: past selves join, are served, and play with the weights that their names say.
So does the initial policy, in the evaluations of the same run.

Real hub (`python -m store`), runner, verl, vLLM for the policy (attached to) and for its past selves. Members join;
every turn of a past self has the log-probs that transformers computes from that member's folder. As adapters:
tests/algo/serving/test_adapters.py; kills of a league, without a model: tests/algo/loop/test_train.py.
"""

import json
from collections import Counter, defaultdict

import pytest

from store.client import connect
from store.werewolf import ResultSpan, TurnSpan, is_result, is_turn
from tests.support.algo.machine import GAMES, LEAGUE, STEPS, finish, steps_of
from tests.support.recording_proxy import FLOAT32_TOLERANCE

pytestmark = [pytest.mark.xdist_group("machine"), pytest.mark.timeout(1500)]

NAME, DEALS = "league", 3
SETTINGS = [
    *(*LEAGUE, "league.choice=newest"),  # one server: another member is met at each step
    *("evaluation.opponents=[initial]", f"evaluation.deals={DEALS}", "evaluation.at_start=false"),
    *("checkpoint.every_steps=1", "checkpoint.keep=3"),
]


@pytest.fixture(scope="module")
def run(machine):
    """The folder of a finished run."""
    finish(machine, NAME, *SETTINGS)
    return machine.folder / NAME


@pytest.fixture
async def games(machine, run):
    """The run's finished games."""
    client = connect(machine.hub.url)
    rollouts = [one for one in await client.query_rollouts() if one.metadata["run"].startswith(f"{NAME}-")]
    games = [decoded(await client.query_spans(one.rollout_id)) for one in rollouts if one.status == "succeeded"]
    await client.close()
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


async def test_past_selves_play_with_their_own_weights(machine, run, games):
    from tests.support.small_models import load_model

    state = json.loads((run / "checkpoints" / f"step-{STEPS:06d}" / "state.json").read_text())
    assert [member["version"] for member in state["league"]["members"]] == [0, 1, 2]
    games = [game for game in games if "initial" not in game[0]]
    assert len(games) == STEPS * GAMES
    models, compared = {}, 0
    for sides, turns in games:
        (member,) = sides.keys() - {"policy"}
        if member not in models:
            folder = run / "league" / member
            # Whole weights of the start stay where they are.
            models[member] = load_model(folder if folder.is_dir() else machine.model)
        for turn in turns:
            assert turn.policy in ("policy", member) and turn.trainable == (turn.policy == "policy")
        compared += compare([turn for turn in turns if turn.policy == member], lambda _, own=models[member]: own)
    assert compared > 1000 and "past-000000" in models and len(models) > 1

    payoff = json.loads((run / "payoff.json").read_text())
    assert sum(cell["games"] for cell in payoff["cells"]) == STEPS * GAMES
    assert models.keys() < set(payoff["players"])
    steps = [line["data"] for line in steps_of(machine, NAME)]
    assert [step["league/size"] for step in steps] == [1, 2, 3]
    assert all(step["league/share/past"] == 1 and step["policy_version"] > 0 for step in steps)


async def test_an_evaluation_against_the_initial_policy_leaves_each_turn_to_the_policy_that_it_names(
    machine, run, games
):
    """After the last step. ``initial`` has a vLLM of its own, whose weights stay those of ``model.path``."""
    from tests.support.small_models import load_model

    games = [game for game in games if "initial" in game[0]]
    assert "vllm-initial.log" in [log.name for log in run.glob("vllm*.log")]
    checkpoint = run / "checkpoints" / f"step-{STEPS:06d}" / "huggingface"
    models = {"initial": load_model(machine.model), "policy": load_model(checkpoint)}
    assert len(games) == 2 * DEALS
    turns = [turn for _, turns in games for turn in turns]
    assert {turn.policy_version for turn in turns if turn.policy == "policy"} == {STEPS}
    by_policy = Counter(turn.policy for turn in turns)
    assert by_policy.keys() == models.keys() and min(by_policy.values()) > 20
    for _, turns in games:
        assert compare(turns, lambda turn: models[turn.policy])
