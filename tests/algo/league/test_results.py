"""Games are counted by row, opponent and side; who is beaten is met less; the fit says who fell below its own past."""

import math

import pytest

from algo.league.pool import LeagueState
from algo.league.results import Match

FIRST, SECOND = "past-000000", "past-000002"


def league(version=0):
    state = LeagueState()
    state.join(version, [], 8)
    return state


def games(opponent, side, wins, losses, draws=0):
    return [
        *[Match(opponent, side, 1.0)] * wins,
        *[Match(opponent, side, 0.0)] * losses,
        *[Match(opponent, side, 0.5)] * draws,
    ]


def test_pfsp_by_hand():
    state = league()
    assert state.recent_win_rate(FIRST) == 0.5
    state.count([Match(FIRST, "wolf", 1.0), Match(FIRST, "good", 0.5), Match(FIRST, "good", 1.0)], version=0)
    # Each game counts 0.99 of the next; two games, one of them won, come before the first.
    of_games, of_score = 0.99**2 + 0.99 + 1, 0.99**2 + 0.99 / 2 + 1
    p = (of_score + 1) / (of_games + 2)
    assert state.recent_win_rate(FIRST) == pytest.approx(p)
    weights = {FIRST: (1 - p) ** 2, SECOND: 0.25}
    expected = {name: 0.9 * weight / sum(weights.values()) + 0.05 for name, weight in weights.items()}
    assert state.pfsp_shares([FIRST, SECOND]) == pytest.approx(expected)


def test_the_fit_is_of_the_difference_whatever_side_is_easier():
    """The policy wins 3 of 4 games against the one and 1 of 4 against the other, where sides weigh the same."""
    state = league()
    for side in ("wolf", "good"):
        state.count(games(FIRST, side, wins=3000, losses=1000), version=0)
        state.count(games(SECOND, side, wins=1000, losses=3000), version=0)
    found = state.strengths()
    assert found.difference("policy 0", FIRST).value == pytest.approx(math.log(3), abs=0.01)
    assert found.difference(SECOND, "policy 0").value == pytest.approx(math.log(3), abs=0.01)
    # Without a prior the interval of a log-odds of n games with share p is 1.96 / sqrt(n p (1 - p)).
    width = found.difference("policy 0", FIRST).high - found.difference("policy 0", FIRST).value
    assert width == pytest.approx(1.96 / math.sqrt(8000 * 0.75 * 0.25), rel=0.01)

    uneven = league()  # the wolves win 9 of 10 whoever they are
    uneven.count(games(FIRST, "wolf", wins=900, losses=100) + games(FIRST, "good", wins=100, losses=900), version=0)
    assert uneven.strengths().difference("policy 0", FIRST).value == pytest.approx(0, abs=0.01)


def test_the_flag_is_of_the_past_alone_and_of_clear_differences():
    state = league()
    assert state.strengths() is None and state.strongest_past_self(None) is None

    def play(version, **opponents):
        for side in ("wolf", "good"):
            for opponent, results in opponents.items():
                state.count(games({"first": FIRST, "second": SECOND}.get(opponent, opponent), side, *results), version)

    play(1, first=(20, 5), expert=(0, 25))
    assert state.strongest_past_self(state.strengths()) is None  # of those that are ahead, none is its past
    state.join(2, [], 8)
    assert state.strongest_past_self(state.strengths()) is None  # the new row has not played
    play(3, first=(10, 12), second=(2, 3))
    assert state.strongest_past_self(state.strengths()) is None  # behind, and perhaps by chance
    play(4, first=(2, 23))
    name, ahead = state.strongest_past_self(state.strengths())
    assert name == FIRST and 0 < ahead.low < ahead.value


def test_the_flag_does_not_become_likelier_with_the_number_of_past_selves():
    """19 of 25 games lost as each side are clear against one past self, and may be chance against the best of eight."""
    for selves, flagged in ((1, True), (8, False)):
        state = league()
        names = [f"past-{number:06}" for number in range(0, 2 * selves, 2)]
        for number in range(1, selves):
            state.join(2 * number, [], 8)
        for side in ("wolf", "good"):
            for name in names:
                state.count(games(name, side, *((8, 17) if name == FIRST else (12, 13))), 20)
        assert bool(state.strongest_past_self(state.strengths())) is flagged


def test_losing_as_one_side_alone_may_be_that_side():
    state = league()
    state.count(games(FIRST, "wolf", wins=0, losses=100), version=1)
    assert state.strongest_past_self(state.strengths()) is None
