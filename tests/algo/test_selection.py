"""What reaches the update: whole seats of a game, the same ones for the same seed, nothing uncounted."""

from collections import Counter

import pytest

from algo.selection import OVER_GAME_LIMIT, UNINFORMATIVE, select_sequences
from algo.trajectories import SeatTrajectory


def trajectory(game, seat, segment=0, turns=1):
    mask = (0, 1) * turns
    streams = dict(token_ids=(5,) * len(mask), loss_mask=mask, logprobs=(0.0,) * len(mask))
    identity = dict(game_id=game, group_id="deal", seat=seat, role="seer", side="good", segment=segment)
    ends = tuple(range(2, len(mask) + 1, 2))
    return SeatTrajectory(**identity, **streams, turn_ends=ends, turn_versions=(0,) * turns, reward=1.0)


def select(trajectories, limit, seed=1, informative=None):
    return select_sequences(trajectories, informative or [True] * len(trajectories), limit, seed)


def turns_of(trajectories):
    return sum(len(one.turn_ends) for one in trajectories)


SEATS = [trajectory(game, seat, turns=seat) for game in "ab" for seat in range(1, 7)]


def test_without_a_limit_all_that_tells_something_stays():
    informative = [row % 3 != 0 for row in range(len(SEATS))]
    found = select(SEATS, None, informative=informative)
    assert found.rows == tuple(row for row in range(len(SEATS)) if row % 3)
    assert found.left_out == Counter({UNINFORMATIVE: turns_of(SEATS[::3])})
    assert select(SEATS, 6) == select(SEATS, None, seed=2) and select([], 1).rows == ()


@pytest.mark.parametrize("limit", [1, 2, 5])
@pytest.mark.parametrize("seed", range(5))
def test_no_game_has_more_than_its_limit_and_every_turn_is_counted(limit, seed):
    found = select(SEATS, limit, seed)
    kept = [SEATS[row] for row in found.rows]
    assert Counter(one.game_id for one in kept) == {"a": limit, "b": limit}
    assert list(found.rows) == sorted(found.rows)
    assert set(found.left_out) == {OVER_GAME_LIMIT}
    assert turns_of(kept) + found.left_out.total() == turns_of(SEATS)


def test_the_sample_follows_from_seed_and_game_alone():
    chosen = {seed: select(SEATS, 2, seed).rows for seed in range(10)}
    assert chosen == {seed: select(SEATS, 2, seed).rows for seed in range(10)} and len(set(chosen.values())) > 5
    # Other games of the step, and the order of the rows, change nothing.
    alone = {SEATS[row].seat for row in chosen[3] if SEATS[row].game_id == "b"}
    only_b = SEATS[:5:-1]
    assert {only_b[row].seat for row in select(only_b, 2, 3).rows} == alone
    of_a = {tuple(SEATS[row].seat for row in rows if SEATS[row].game_id == "a") for rows in chosen.values()}
    of_b = {tuple(SEATS[row].seat for row in rows if SEATS[row].game_id == "b") for rows in chosen.values()}
    assert len(of_a) > 3 and of_a != of_b


@pytest.mark.parametrize("seed", range(8))
def test_segments_of_a_seat_stay_together(seed):
    trajectories = [trajectory("a", seat, segment) for seat in (1, 2, 3) for segment in range(seat)]
    found = select(trajectories, 4, seed)
    kept = Counter(trajectories[row].seat for row in found.rows)
    assert all(count == seat for seat, count in kept.items()) and 3 <= len(found.rows) <= 4


def test_a_seat_with_more_segments_than_the_limit_is_cut_only_if_it_comes_first():
    trajectories = [trajectory("a", 1, segment) for segment in range(5)]
    samples = {select(trajectories, 2, seed).rows for seed in range(10)}
    assert all(len(rows) == 2 for rows in samples) and len(samples) > 3


def test_what_teaches_nothing_takes_no_place():
    informative = [one.seat > 4 for one in SEATS]
    found = select(SEATS, 2, informative=informative)
    assert [SEATS[row].seat for row in found.rows] == [5, 6, 5, 6]
    assert set(found.left_out) == {UNINFORMATIVE}
    with pytest.raises(ValueError):
        select(SEATS, 2, informative=[True])
