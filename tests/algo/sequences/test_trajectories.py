"""Which tokens of a trajectory belong to which turn."""

from collections import Counter
from types import SimpleNamespace

import pytest

from algo.rollouts.triplets import Triplet
from algo.sequences.trajectories import NOTHING_SAMPLED, TOO_LONG, ActorReward, build_trajectories
from tests.support.algo.trajectories import made_trajectory


def call(turn, prompt, reply):
    facts = {"task": "game", "actor": "seat 01", "segment": 0, "turn": turn, "policy_version": 3 + turn}
    facts |= {"question": f"question {turn}", "trainable": True, "learner": None}
    reply = {"token_ids": reply, "logprobs": [-0.5] * len(reply)}
    return Triplet(prompt={"token_ids": prompt}, response=reply, metadata=facts)


def test_every_turn_ends_behind_its_last_sampled_token():
    calls = (call(0, [1, 2], [3, 4]), call(1, [1, 2, 3, 4, 5], []), call(2, [1, 2, 3, 4, 5, 6], [7]))
    rollout = SimpleNamespace(triplets=calls, left_out=Counter(), outcome=SimpleNamespace(group_id="deal"))
    fields = dict(role="wolf_king", side="wolf", total=1.5, outcome=1.0, dimensions={"outcome": 1.0})
    reward = ActorReward(**fields, turns={0: 0.5, 1: 9.0})
    found = build_trajectories([rollout], lambda rollout: {"seat 01": reward}, max_sequence_tokens=7)
    (trajectory,) = found.trajectories
    assert found.left_out == {NOTHING_SAMPLED: 1}
    assert (trajectory.actor, trajectory.reward) == ("seat 01", 1.5)
    assert all(getattr(trajectory, name) == fields[name] for name in ("role", "side", "dimensions"))
    assert trajectory.turn_ends == (4, 7)
    assert list(trajectory.turn_spans()) == [(0, 4), (4, 7)]
    assert trajectory.turn_shares() == [0, 0, 0.5, 0.5, 0, 0, 1.0]
    assert trajectory.turn_versions == (3, 5) and trajectory.turn_rewards == (0.5, 0.0)
    assert trajectory.turn_questions == ("question 0", "question 2")
    found = build_trajectories([rollout], lambda rollout: {"seat 01": reward}, max_sequence_tokens=6)
    assert found.trajectories == () and found.left_out == {TOO_LONG: 3}


@pytest.mark.parametrize(
    ("mask", "problem"), [((0, 0), "no sampled token"), ((1, 1), "no context"), ((0, 2), "values other than 0 and 1")]
)
def test_a_trajectory_that_cannot_be_trained_on_is_refused(mask, problem):
    with pytest.raises(ValueError, match=problem):
        made_trajectory(mask)
