"""What counts as a reward."""

from fractions import Fraction

import numpy as np
import pytest

from runners.agents.rewards import UnusableReward, dimensions_of


@pytest.mark.parametrize("given", [1, True, Fraction(1), np.float32(1), np.int64(1), np.True_, np.array([1.0])])
def test_a_number_of_any_type_is_a_reward(given):
    for found in (dimensions_of(given), dimensions_of({"reward": given})):
        assert found == {"reward": 1.0} and type(found["reward"]) is float


@pytest.mark.parametrize(
    "given",
    [pytest.param(10**400, id="too large"), float("inf"), np.float32("nan"), np.array([1.0, 2.0]), 1j, "1", None, {}],
)
def test_what_is_no_finite_number_is_refused_by_name(given):
    with pytest.raises(UnusableReward, match="the judge returned"):
        dimensions_of(given, where="the judge")
