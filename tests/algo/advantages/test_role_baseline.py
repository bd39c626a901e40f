"""Running baselines against numbers worked out by hand; what is written down is all there is."""

import json
import math

import pytest

from algo.advantages.baseline import RoleBaselines


def test_mean_and_deviation_decay():
    baselines = RoleBaselines(decay=0.5)
    first = baselines.compare({"seer": [1.0, -1.0], "wolf": [2.0]})
    assert (first["seer"].mean, first["seer"].deviation) == (0.0, 1.0)
    assert (first["wolf"].mean, first["wolf"].deviation) == (2.0, 0.0)
    # Compared with what was before: 0, at a distance of 1 and 3; the wolf is not in this step.
    second = baselines.compare({"seer": [1.0, 3.0]})
    assert (second["seer"].mean, second["seer"].deviation) == (0.0, math.sqrt(0.5 * 1 + 0.5 * (1 + 9) / 2))
    third = baselines.compare({"seer": [1.0], "wolf": [0.0]})
    assert (third["seer"].mean, third["seer"].deviation) == (1.0, math.sqrt(0.5 * 3))
    assert (third["wolf"].mean, third["wolf"].deviation) == (2.0, math.sqrt(0.5 * 4))


def test_a_state_continues_exactly():
    baselines = RoleBaselines(decay=0.9)
    baselines.compare({"seer": [1.0, -0.3], "wolf": [0.1]})
    state = json.loads(json.dumps(baselines.state()))
    restored = RoleBaselines.from_state(state, decay=0.9)
    rewards = {"seer": [0.7], "guard": [1.0]}
    assert restored.compare(rewards) == baselines.compare(rewards)
    assert restored.state() == baselines.state() != state
    with pytest.raises(KeyError):
        RoleBaselines.from_state({"seer": {"mean": 1.0}}, decay=0.9)


@pytest.mark.parametrize("decay", [-0.1, 1.0])
def test_a_decay_that_forgets_nothing_or_more_than_all_is_refused(decay):
    with pytest.raises(ValueError, match="at least 0 and below 1"):
        RoleBaselines(decay)
