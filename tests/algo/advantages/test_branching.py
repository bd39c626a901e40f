"""Credit by branching against numbers worked out by hand, and its expectation against the policy's gradient."""

from itertools import product
from math import prod

import pytest

from algo.advantages.baseline import RoleBaselines
from algo.advantages.branching import Continuation, Decision, Worth, branch_credit, check_branching
from algo.advantages.estimators import token_advantages
from configs.section import ConfigError
from configs.sections.training import AdvantageConfig
from tests.support.algo.trajectories import made_trajectory

ME, MATE = "seat 01", "seat 02"


def went_on(task_id, choice, outcome, later=((ME, 3), (MATE, 2)), mate=None):
    outcomes = {ME: outcome, MATE: outcome if mate is None else mate}
    return Continuation(task_id, choice, outcomes, dict(later))


def test_a_decision_is_worth_the_mean_after_it_less_the_mean_before_it():
    games = went_on("g", "a", 1.0), went_on("b1", "a", 0.0), went_on("b2", "c", 0.0), went_on("b3", "c", 1.0, mate=-1.0)
    found = branch_credit([Decision(5, "vote", ME, 2, games)])
    assert found.branches == {"b1", "b2", "b3"}
    assert found.worths == {("g", ME, 2): Worth(before=0.5, after=0.5, games=4)} and found.spreads == {"vote": 0.5}
    found = branch_credit(
        [Decision(5, "vote", ME, 2, (went_on("g", "a", 1.0), went_on("b1", "a", 1.0), went_on("b2", "c", 0.0)))]
    )
    # Before: 2/3. Those that chose a: 1, the other: 0; times 3/2.
    assert found.worths == {("g", ME, 2): Worth(before=pytest.approx(2 / 3), after=1.0, games=3)}
    assert [found.advantage(task, ME, 2) for task in ("g", "b1", "b2")] == pytest.approx([0.5, 0.5, -1.0])
    # Later turns are compared with the state before the decision; earlier ones, and a mate's at that moment, are not.
    assert [found.advantage(task, MATE, 2) for task in ("g", "b1", "b2")] == pytest.approx([0.5, 0.5, -1.0])
    assert found.advantage("g", ME, 1) is None and found.advantage("b2", MATE, 1) is None
    assert found.outcomes == {("g", ME): pytest.approx(-1 / 3), ("g", MATE): pytest.approx(-1 / 3)}


def test_what_came_of_a_later_decision_counts_for_an_earlier_one():
    early = Decision(2, "vote", ME, 1, (went_on("g", "x", 1.0, [(ME, 2)]), went_on("e", "y", 0.0, [(ME, 2)])))
    late = Decision(7, "vote", ME, 2, (went_on("g", "a", 1.0, [(ME, 3)]), went_on("l", "b", 0.0, [(ME, 3)])))
    for decisions in ([early, late], [late, early]):
        found = branch_credit(decisions)
        # The recorded game is worth 1/2 before its later decision, and (1/2 + 0) / 2 before the earlier one.
        assert found.worths[("g", ME, 2)] == Worth(0.5, 1.0, 2) and found.worths[("g", ME, 1)] == Worth(0.25, 0.5, 2)
        assert [found.advantage("g", ME, turn) for turn in range(4)] == [None, 0.5, 1.0, 1.0]
        assert found.outcomes[("g", ME)] == -0.75
        weights = {task: [found.weight(task, ME, turn) for turn in range(4)] for task in "gel"}
        # After each decision all games together weigh as one.
        assert weights == {"g": [1, 1 / 2, 1 / 4, 1 / 4], "e": [1, 1 / 2, 1 / 2, 1 / 2], "l": [1, 1, 1 / 4, 1 / 4]}


@pytest.mark.parametrize("count", [2, 3, 4])
def test_its_expectation_is_the_gradient_of_the_policy(count):
    """All games of two choices and two outcomes, each with its probability; the policy is a sigmoid of one number."""
    chooses, wins = 0.3, {0: 0.2, 1: 0.7}
    expected = 0.0
    for choices in product((0, 1), repeat=count):
        for outcomes in product((0.0, 1.0), repeat=count):
            chance = prod(chooses if choice else 1 - chooses for choice in choices)
            chance *= prod(
                wins[choice] if won else 1 - wins[choice] for choice, won in zip(choices, outcomes, strict=True)
            )
            games = [
                went_on(f"{number}", str(choice), won)
                for number, (choice, won) in enumerate(zip(choices, outcomes, strict=True))
            ]
            credit = branch_credit([Decision(0, "vote", ME, 0, tuple(games))])
            for number, choice in enumerate(choices):
                slope = choice - chooses
                expected += chance * slope * credit.advantage(f"{number}", ME, 0) / count
    assert expected == pytest.approx(chooses * (1 - chooses) * (wins[1] - wins[0]))


def seat(game, outcome, *, actor=ME, group="deal", turns=(0, 1, 2), rewards=None, role="wolf"):
    """A seat's sequence of two-token turns. turns: their numbers."""
    rewards = rewards or (0.0,) * len(turns)
    return made_trajectory(
        (0, 1, 1) * len(turns), task_id=game, group_id=group, actor=actor, role=role, side="wolf",
        reward=outcome + sum(rewards), turn_rewards=rewards, turn_questions=("vote",) * len(turns), turn_numbers=turns,
    )  # fmt: skip


def by_turn(result):
    return [[row[place].item() for place in range(1, len(row), 3)] for row in result.per_token]


BRANCHES = [Decision(5, "vote", ME, 1, (went_on("g", "a", 1.0, [(ME, 2)]), went_on("b", "c", -1.0, [(ME, 2)])))]


def test_branches_replace_the_estimator_at_and_after_the_decision_and_never_count_in_a_baseline():
    config = AdvantageConfig(estimator="role_baseline", credit="branch")
    games = [seat("g", 1.0), seat("h", 1.0, group="other"), seat("i", -1.0, group="third")]
    plain, baselines = RoleBaselines(0.9), RoleBaselines(0.9)
    alone = token_advantages(games, config, role_baselines=plain)
    branch = seat("b", -1.0, turns=(1, 2))
    found = token_advantages([*games, branch], config, role_baselines=baselines, branches=branch_credit(BRANCHES))
    assert baselines.state() == plain.state()
    deviation = found.metrics["advantage/deviation/wolf"]
    # Before the decision the game is worth 0, its value there; a third of all games are lost.
    # The four turns from the decision on count half, as the two games of one past: the weights' mean is 9 / 11.
    recorded, *others, branched = [[value * 9 / 11 for value in row] for row in by_turn(found)]
    assert others == [pytest.approx(row, abs=1e-5) for row in by_turn(alone)[1:]]
    assert recorded == pytest.approx([(0.0 - 1 / 3) / deviation, 1 / deviation, 1 / deviation], abs=1e-5)
    assert branched == pytest.approx([-1 / deviation, -1 / deviation], abs=1e-5)
    assert found.informative == (True,) * 4 and found.metrics["advantage/groups"] == 3
    # Of one decision only, so without variance.
    assert found.metrics["advantage/branched/decisions"] == 1
    assert found.metrics["advantage/branched/magnitude"] == pytest.approx(2 / deviation)


def test_turns_before_and_after_a_decision_have_the_same_unit():
    """Two games of a deal with four branches each: mean outcomes before the decisions differ by 0.4, outcomes by 2."""
    games = [seat("g", 1.0), seat("h", -1.0)]
    decisions, branches = [], []
    for game, own, won in (("g", 1.0, 2), ("h", -1.0, 4)):
        results = [1.0] * won + [-1.0] * (4 - won)
        names = [f"{game}{number}" for number in range(4)]
        went = [went_on(game, "a", own, [(ME, 2)])]
        went += [went_on(name, f"other {number}", result, [(ME, 2)])
                 for number, (name, result) in enumerate(zip(names, results, strict=True))]  # fmt: skip
        decisions.append(Decision(5, "vote", ME, 1, tuple(went)))
        branches += [seat(name, result, turns=(1, 2)) for name, result in zip(names, results, strict=True)]
    found = token_advantages([*games, *branches], AdvantageConfig(credit="branch"), branches=branch_credit(decisions))
    deviation, mean_weight = 2**0.5, (2 + 20 / 5) / 22
    before = [row[0] * mean_weight for row in by_turn(found)[:2]]
    after = [row[1] * mean_weight * 5 for row in by_turn(found)[:2]]
    assert before == pytest.approx([-0.2 / deviation, 0.2 / deviation], abs=1e-5)
    assert after == pytest.approx([(1 - 0.2) * 5 / 4 / deviation, (-1 - 0.6) * 5 / 4 / deviation], abs=1e-5)


def test_rewards_of_turns_count_for_their_turns_in_branches_too():
    config = AdvantageConfig(credit="branch", normalize_by_std=False)
    games = [seat("g", 1.0, rewards=(0.3, 0.0, 0.0)), seat("h", 1.0)]
    branch = seat("b", -1.0, turns=(1, 2), rewards=(0.5, 0.0))
    found = token_advantages([*games, branch], config, branches=branch_credit(BRANCHES))
    mean = 0.3 / 6  # of the questions of the games from the deal
    recorded, other, branched = [[value * 6 / 8 for value in row] for row in by_turn(found)]
    # Both games of the deal end alike, but the recorded one is worth 0 before the decision: half less than the mean.
    assert recorded == pytest.approx([0.3 - mean - 0.5, (2 - mean) / 2, (2 - mean) / 2], abs=1e-6)
    assert other == pytest.approx([0.5 - mean] * 3, abs=1e-6)
    assert branched == pytest.approx([(-2 + 0.5 - mean) / 2, (-2 - mean) / 2], abs=1e-6)


def test_games_of_a_role_that_end_alike_are_compared_by_the_value_before_a_decision():
    config = AdvantageConfig(estimator="role_baseline", credit="branch")
    games = [seat("g", 1.0), seat("h", 1.0, group="other"), seat("b", -1.0, turns=(1, 2))]
    found = token_advantages(games, config, role_baselines=RoleBaselines(0.9), branches=branch_credit(BRANCHES))
    recorded, other, _ = [[value * 6 / 8 for value in row] for row in by_turn(found)]
    assert recorded[0] == pytest.approx(-1.0, abs=1e-5) and other == pytest.approx([0.0] * 3, abs=1e-5)


def test_branches_without_a_difference_are_left_out():
    same = [Decision(5, "vote", ME, 1, (went_on("g", "a", 1.0, [(ME, 2)]), went_on("b", "c", 1.0, [(ME, 2)])))]
    games = [seat("g", 1.0), seat("h", -1.0), seat("b", 1.0, turns=(1, 2))]
    found = token_advantages(games, AdvantageConfig(credit="branch"), branches=branch_credit(same))
    assert found.informative == (True, True, False)


@pytest.mark.parametrize("estimator", ["gae", "reinforce_plus_plus"])
def test_estimators_of_returns_are_refused(estimator):
    with pytest.raises(ConfigError, match="use one of grpo, "):
        check_branching(AdvantageConfig(estimator=estimator, credit="branch"))
    check_branching(AdvantageConfig(estimator=estimator))
