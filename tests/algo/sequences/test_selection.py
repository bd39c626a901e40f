"""What reaches the update: whole seats of a game, the same ones for the same seed, nothing uncounted."""

from collections import Counter

import pytest

from algo.sequences.selection import ROLE_NOT_SELECTED, STALE, UNINFORMATIVE, select_sequences
from configs.sections.training import SelectionConfig
from tests.support.algo.trajectories import made_trajectory


def trajectory(game, seat, segment=0, turns=1, role="seer", outcome=None, versions=None, run=""):
    played = (*map(ord, game), seat, segment)  # no two sequences are the same
    return made_trajectory(
        (0, 1) * turns, task_id=run + game, actor=f"seat {seat:02d}", role=role, segment=segment,
        token_ids=(played * turns)[: 2 * turns], turn_versions=versions or (0,) * turns,
        dimensions={} if outcome is None else {"outcome": outcome},
    )  # fmt: skip


def select(trajectories, seed=1, informative=None, oldest_version_allowed=0, **settings):
    config = SelectionConfig(**settings)
    informative = informative or [True] * len(trajectories)
    return select_sequences(trajectories, informative, config, str(seed), oldest_version_allowed=oldest_version_allowed)


def turns_of(trajectories):
    return sum(len(one.turn_ends) for one in trajectories)


def test_roles_that_are_not_trained_are_left_out_first():
    trajectories = [
        trajectory("a", seat, role=role, turns=seat) for seat, role in enumerate(["seer", "witch", "wolf"], 1)
    ]
    found = select(trajectories, roles=("witch",), informative=[False] * 3)
    assert found.left_out == Counter({ROLE_NOT_SELECTED: 1 + 3, UNINFORMATIVE: 2})


@pytest.mark.parametrize("seed", range(6))
def test_a_share_of_a_role_is_a_sample_of_its_whole_seats_beside_all_of_another(seed):
    roles = ["seer", "villager", "villager", "wolf"]
    trajectories = [
        trajectory(str(game), seat, segment, turns=seat, role=role)
        for game in range(8)
        for seat, role in enumerate(roles, 1)
        for segment in range(2 if (game + seat) % 3 == 0 else 1)
    ]
    found = select(trajectories, roles={"seer": 1, "villager": 0.25}, seed=seed)
    kept = [trajectories[row] for row in found.rows]
    seats = Counter(role for role, _, _ in {(one.role, one.task_id, one.actor) for one in kept})
    assert seats == {"seer": 8, "villager": 4} and set(found.left_out) == {ROLE_NOT_SELECTED}
    left = [one for row, one in enumerate(trajectories) if row not in found.rows]
    assert {(one.task_id, one.actor) for one in kept}.isdisjoint((one.task_id, one.actor) for one in left)
    assert turns_of(kept) + found.left_out.total() == turns_of(trajectories)


def test_a_sequence_is_as_old_as_its_oldest_turn():
    trajectories = [
        trajectory("a", 1, turns=3, versions=(4, 5, 6)), trajectory("a", 2, turns=2, versions=(5, 6)),
        trajectory("b", 1, turns=1, versions=(7,)),
    ]  # fmt: skip
    assert select(trajectories, oldest_version_allowed=4).rows == (0, 1, 2)
    found = select(trajectories, oldest_version_allowed=5)
    assert found.rows == (1, 2) and found.left_out == Counter({STALE: 3})
    assert select(trajectories, oldest_version_allowed=6).rows == (2,)


def outcomes(count, run=""):
    """Of 4 seats of each game one wins, two lose and one draws (as in no real game); every third has 2 segments."""
    return [
        trajectory(str(game), seat, segment, turns=seat, outcome=outcome, run=run)
        for game in range(count)
        for seat, outcome in enumerate([1.0, -1.0, -1.0, 0.0], 1)
        for segment in range(2 if (game + seat) % 3 == 0 else 1)
    ]


def seats_with(trajectories, outcome):
    return {(one.task_id, one.actor) for one in trajectories if one.dimensions["outcome"] == outcome}


@pytest.mark.parametrize("seed", range(6))
def test_a_share_of_the_losers_is_a_sample_of_whole_seats_beside_all_winners_and_no_draw(seed):
    trajectories = outcomes(8)
    found = select(trajectories, losers=0.25, draws=0, seed=seed)
    kept = [trajectories[row] for row in found.rows]
    assert seats_with(kept, 1.0) == seats_with(trajectories, 1.0) and len(seats_with(kept, -1.0)) == 4
    assert seats_with(kept, -1.0).isdisjoint(
        seats_with([one for row, one in enumerate(trajectories) if row not in found.rows], -1.0)
    )
    assert not seats_with(kept, 0.0) and set(found.left_out) == {"loser_not_selected", "draw_not_selected"}
    assert turns_of(kept) + found.left_out.total() == turns_of(trajectories)


def test_the_remainder_of_a_share_is_one_more_now_and_then():
    trajectories = outcomes(5)
    counts = Counter(
        len(seats_with([trajectories[row] for row in select(trajectories, winners=0.3, seed=seed).rows], 1.0))
        for seed in range(200)
    )
    assert set(counts) == {1, 2} and 70 < counts[1] < 130  # of 1.5 seats


def test_samples_differ_by_seed_but_not_by_the_name_of_the_run():
    settings = dict(losers=0.5)
    chosen = {seed: select(outcomes(4), seed=seed, **settings).rows for seed in range(6)}
    assert len(set(chosen.values())) > 3
    for seed, rows in chosen.items():
        assert select(outcomes(4, run="repeated-"), seed=seed, **settings).rows == rows
