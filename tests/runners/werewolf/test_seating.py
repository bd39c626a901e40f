"""Who plays which seat: shares, repeatability, the order of rules, and one lineup for all games of a deal."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runners.werewolf.game import PRESETS, Role, Side, new_game
from runners.werewolf.seating import players_by_seat
from tests.support.tasks import game_task

NAMES = ("policy", "scripted", "random", "strong")


def make_task(seating, seed=3, preset="12p_sheriff"):
    return game_task(seating=seating, seed=seed, preset=preset, trainable=[])


def deal(seed, preset="12p_sheriff"):
    state = new_game(PRESETS[preset], seed)
    return {seat: state.role_of(seat) for seat in state.preset.seats}


def lineup(seating, seed=3, preset="12p_sheriff"):
    return players_by_seat(make_task(seating, seed, preset), deal(seed, preset))


shares = st.dictionaries(st.sampled_from(NAMES), st.floats(0.01, 10), min_size=1)
special_rules = st.builds(
    lambda seen, players, together: {**seen, "players": players, "together": together},
    st.one_of(
        st.sampled_from(list(Role)).map(lambda role: {"role": role.value}),
        st.integers(1, 12).map(lambda seat: {"seat": seat}),
        st.sampled_from(list(Side)).map(lambda side: {"side": side.value}),
    ),
    shares,
    st.booleans(),
)
rules = st.lists(special_rules, max_size=4).map(lambda special: [*special, {"players": {"policy": 1, "strong": 1}}])


@given(rules, st.integers(0, 2**31))
def test_every_seat_gets_a_player_of_the_first_rule_that_matches_it(seating, seed):
    roles = deal(seed)
    for seat, name in lineup(seating, seed).items():
        sought = {"seat": seat, "role": roles[seat].value, "side": roles[seat].side.value}
        first = next(rule for rule in seating if all(rule.get(key) in (None, sought[key]) for key in sought))
        assert name in first["players"]


@given(rules, st.integers(0, 2**31))
def test_the_same_seed_seats_the_same_players_whatever_the_order_of_a_mapping(seating, seed):
    turned = [{**rule, "players": dict(reversed(rule["players"].items()))} for rule in seating]
    assert lineup(seating, seed) == lineup(turned, seed)


@pytest.mark.parametrize("together", [False, True])
def test_shares_hold_over_many_deals(together):
    mix = {"policy": 8, "strong": 2}
    seating = [
        {"side": "wolf", "players": mix, "together": together},
        {"side": "good", "players": {"scripted": 1, "random": 3}, "together": together},
    ]
    counted, side_by_side, mixed, deals = Counter(), Counter(), 0, 1500
    for seed in range(deals):
        roles, seated = deal(seed), lineup(seating, seed)
        wolves = {seated[seat] for seat, role in roles.items() if role.side is Side.WOLF}
        good = {seated[seat] for seat, role in roles.items() if role.side is Side.GOOD}
        assert not together or len(wolves) == len(good) == 1
        mixed += len(wolves) > 1
        counted.update(seated.values())
        side_by_side.update([("strong" in wolves, "random" in good)])
    wolf_seats, good_seats = 4 * deals, 8 * deals
    # Four standard deviations of what is drawn independently: seats, or whole sides.
    tolerance = 4 * (0.25 / (deals if together else wolf_seats)) ** 0.5
    assert counted["strong"] / wolf_seats == pytest.approx(0.2, abs=tolerance)
    assert counted["random"] / good_seats == pytest.approx(0.75, abs=tolerance)
    assert counted["policy"] + counted["strong"] == wolf_seats
    # Of four wolves drawn apart not all are of one name.
    assert mixed / deals == pytest.approx(0 if together else 1 - 0.8**4 - 0.2**4, abs=0.04)
    if together:  # two rules are drawn independently of each other
        assert side_by_side[True, True] / deals == pytest.approx(0.2 * 0.75, abs=tolerance)


POOL = {"past-000000": 1.0, "past-000002": 3.0}


def test_all_past_seats_of_a_game_are_one_member_that_follows_from_the_deal():
    seating = [{"side": "wolf", "players": {"past": 1}}, {"players": {"past": 1, "policy": 1}}]
    met = Counter()
    for seed in range(1000):
        task, roles = make_task(seating, seed), deal(seed)
        names = players_by_seat(task, roles, POOL)
        (member,) = set(names.values()) - {"policy"}
        assert names == players_by_seat(
            task.model_copy(update={"game_id": "game-2"}), roles, dict(reversed(POOL.items()))
        )
        # Who is met changes nothing about where: the lineup is that of a task that is looked at alone.
        assert {seat for seat, name in names.items() if name == member} == {
            seat for seat, name in players_by_seat(task, roles).items() if name == "past"
        }
        met[member] += 1
    assert met["past-000002"] / 1000 == pytest.approx(0.75, abs=0.04)
