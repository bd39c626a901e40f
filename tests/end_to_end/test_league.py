"""A league with every real part: past selves join, are served, and play with the weights that their names say.

Real hub (`python -m store`), runner, verl, vLLM for the policy (attached to) and for its past selves. Members join;
every turn of a past self has the log-probs that transformers computes from that member's folder. As adapters:
tests/algo/serving/test_adapters.py; kills of a league, without a model: tests/algo/loop/test_train.py.
"""

import json
from collections import defaultdict

import pytest

from store.client import connect
from store.werewolf import ResultSpan, TurnSpan
from tests.support.algo.machine import GAMES, STEPS, finish, steps_of
from tests.support.recording_proxy import FLOAT32_TOLERANCE

pytestmark = [pytest.mark.xdist_group("machine"), pytest.mark.timeout(1500)]

NAME = "league"
SETTINGS = [
    "game.opponent=past",
    "league.every_steps=1",
    "league.choice=newest",  # one server: another member is met at each step
]


async def games_of(machine):
    """(policies that sat at the table, the turns in order) of each finished game of the run."""
    client = connect(machine.hub.url)
    games = []
    for rollout in await client.query_rollouts():
        if rollout.metadata["run"].startswith(f"{NAME}-") and rollout.status == "succeeded":
            spans = await client.query_spans(rollout.rollout_id)
            (result,) = [ResultSpan.decode(span) for span in spans if ResultSpan.is_in(span)]
            turns = sorted(
                (TurnSpan.decode(span) for span in spans if TurnSpan.is_in(span)), key=lambda turn: turn.turn
            )
            games.append(({seat.policy for seat in result.seats}, turns))
    await client.close()
    return games


def compare(turns, model):
    """Compare the turns' log-probs with those that transformers computes, and return for how many tokens."""
    import torch

    from tests.support.small_models import token_log_probs

    conversations, compared = defaultdict(list), 0
    for turn in turns:
        ids = conversations[turn.seat, turn.segment]
        ids += [*turn.prompt_ids, *turn.response_ids]
        with torch.no_grad():
            computed = token_log_probs(model, ids)[-len(turn.response_ids) :].tolist()
        assert computed == pytest.approx(turn.logprobs, abs=FLOAT32_TOLERANCE), (turn.policy, turn.policy_version)
        compared += len(turn.logprobs)
    return compared


async def test_past_selves_play_with_their_own_weights(machine):
    from tests.support.small_models import load_model

    finish(machine, NAME, *SETTINGS)
    run = machine.folder / NAME
    state = json.loads((run / "checkpoints" / f"step-{STEPS:06d}" / "state.json").read_text())
    assert [member["version"] for member in state["league"]["members"]] == [0, 1]
    games = await games_of(machine)
    assert len(games) == STEPS * GAMES
    models, compared = {}, 0
    for policies, turns in games:
        (member,) = policies - {"policy"}
        if member not in models:
            folder = run / "league" / member
            # Whole weights of the start stay where they are.
            models[member] = load_model(folder if folder.is_dir() else machine.model)
        for turn in turns:
            assert turn.policy in ("policy", member) and turn.trainable == (turn.policy == "policy")
        compared += compare([turn for turn in turns if turn.policy == member], models[member])
    assert compared > 1000 and models.keys() == {"past-000000", "past-000001"}

    payoff = json.loads((run / "payoff.json").read_text())
    assert sum(cell["games"] for cell in payoff["cells"]) == STEPS * GAMES
    assert models.keys() < set(payoff["players"])
    steps = [line["data"] for line in steps_of(machine, NAME)]
    assert [step["league/size"] for step in steps] == [1, 2]
    assert all(step["league/share/past"] == 1 and step["policy_version"] > 0 for step in steps)
