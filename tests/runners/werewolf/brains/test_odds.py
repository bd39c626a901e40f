"""Locks the odds over the deal: certain where the rules make them so, summed exactly, and true to scripted games."""

from collections import defaultdict
from itertools import permutations
from math import log

import numpy as np
import pytest

from runners.werewolf.brains import ScriptedBrain, odds
from runners.werewolf.brains.memory import TableMemory
from runners.werewolf.brains.odds import role_odds, wolf_odds
from runners.werewolf.game import PRESETS, Event, EventKind, Role, Side, new_game
from runners.werewolf.prompts_zh.names import CHECK_NAMES
from tests.support.game.game_playing import GODS, GUNS, TINY, TWELVE, play_brains

SEVEN = PRESETS["7p"]


def dealt(seat: int, role: Role) -> Event:
    return Event(EventKind.ROLE_DEALT, 0, frozenset({seat}), seat=seat, data={"role": role.value})


def team(*seats: int) -> Event:
    return Event(EventKind.WOLF_TEAM, 1, frozenset(seats), data={"seats": ",".join(map(str, seats))})


def finding(seer: int, target: int, side: Side) -> Event:
    return Event(EventKind.SEER_RESULT, 1, frozenset({seer}), seat=seer, target=target, data={"side": side.value})


def exploded(seat: int) -> Event:
    return Event(EventKind.EXPLODED, 1, seat=seat)


def speech(seat: int, text: str) -> Event:
    return Event(EventKind.SPEECH, 1, seat=seat, text=text)


def claim(seat: int, *reports: tuple[int, int, Side]) -> Event:
    """A seat calls itself the seer; reports: (night, seat, side)."""
    checks = (f"第{night}夜查验{checked}号，是{CHECK_NAMES[side]}。" for night, checked, side in reports)
    return speech(seat, "".join(["我是预言家。", *checks]))


def test_private_information_of_a_seat_is_certain():
    of_seer = wolf_odds(
        role_odds([dealt(2, Role.SEER), finding(2, 4, Side.WOLF), finding(2, 5, Side.GOOD)], 2, SEVEN.deck)
    )
    assert of_seer[4] == pytest.approx(1, abs=1e-6) and of_seer[5] == pytest.approx(0, abs=1e-6)
    of_wolf = wolf_odds(role_odds([dealt(1, Role.WOLF), team(1, 6)], 1, SEVEN.deck))
    assert [round(of_wolf[seat], 6) for seat in SEVEN.seats] == [1, 0, 0, 0, 0, 1, 0]
    seen = wolf_odds(role_odds([dealt(1, Role.VILLAGER), exploded(7)], 1, TWELVE.deck))
    assert seen[7] == pytest.approx(1, abs=1e-6)


def exiled(day: int, seat: int) -> Event:
    return Event(EventKind.EXILED, day, target=seat)


def test_wolves_know_which_of_them_is_the_king():
    for name, king in (("12p_sheriff", Role.WOLF_KING), ("12p_white_wolf_king", Role.WHITE_WOLF_KING)):
        state = new_game(PRESETS[name], 3)
        wolves = [seat for seat in state.preset.seats if state.role_of(seat).side is Side.WOLF]
        for seat in wolves:
            events = [event for event in state.events if event.visible_to(seat)]
            odds = role_odds(events, seat, state.preset.deck)
            assert king in odds[seat]
            assert all(odds[mate][state.role_of(mate)] == 1.0 == sum(odds[mate].values()) for mate in wolves)


def test_a_game_that_goes_on_has_a_living_wolf():
    told = [dealt(1, Role.VILLAGER), Event(EventKind.DEATHS_ANNOUNCED, 1, data={"seats": "2"})]
    of_one = wolf_odds(role_odds(told, 1, TINY.deck))
    assert [of_one[seat] for seat in TINY.seats] == pytest.approx([0, 0, 1 / 3, 1 / 3, 1 / 3], abs=1e-6)
    later = wolf_odds(role_odds([*told, exiled(1, 3)], 1, TINY.deck))
    assert [later[seat] for seat in TINY.seats] == pytest.approx([0, 0, 0, 0.5, 0.5], abs=1e-6)
    over = [*told, exiled(1, 3), Event(EventKind.GAME_OVER, 1, data={"result": "good"})]
    assert wolf_odds(role_odds(over, 1, TINY.deck))[3] > 0.2
    # Two wolves: either of the dead may be one, not both.
    told = [dealt(1, Role.SEER), exiled(1, 2), exiled(2, 3), finding(1, 4, Side.GOOD), finding(1, 5, Side.GOOD)]
    of_two = wolf_odds(role_odds(told, 1, SEVEN.deck))
    pairs = [{2, 6}, {2, 7}, {3, 6}, {3, 7}, {6, 7}]
    expected = [sum(seat in pair for pair in pairs) / len(pairs) for seat in SEVEN.seats]
    assert [of_two[seat] for seat in SEVEN.seats] == pytest.approx(expected, abs=1e-6)


def test_of_two_seers_each_may_be_the_wolf_and_an_explosion_decides():
    told = [dealt(1, Role.VILLAGER), claim(4, (1, 5, Side.GOOD)), claim(6, (1, 9, Side.WOLF))]
    found = role_odds(told, 1, TWELVE.deck)
    assert found[4][Role.SEER] + found[6][Role.SEER] > 0.9 and 0.2 < found[4][Role.SEER] < 0.8
    assert role_odds([*told, exploded(9)], 1, TWELVE.deck)[6][Role.SEER] > 0.9


def test_a_seer_that_first_spoke_without_its_claim_is_hardly_believed():
    claims = [claim(4, (1, 5, Side.GOOD)), claim(6, (1, 9, Side.GOOD))]
    at_once, late = (
        role_odds([dealt(1, Role.VILLAGER), *told, *claims], 1, TWELVE.deck) for told in ([], [speech(4, "我是好人。")])
    )
    assert at_once[4][Role.SEER] == pytest.approx(at_once[6][Role.SEER])
    assert late[4][Role.SEER] < 0.1 and late[6][Role.SEER] > 0.8 and wolf_odds(late)[4] > 0.8


@pytest.mark.parametrize(("preset", "role"), [(TINY, Role.VILLAGER), (SEVEN, Role.WITCH), (GODS, Role.HUNTER)])
def test_summing_without_listing_the_deals_gives_what_listing_them_gives(preset, role):
    told = [dealt(1, role), claim(3, (1, 2, Side.WOLF)), speech(4, "我是女巫。"), speech(5, "我是女巫。")]
    told += [Event(EventKind.VOTE, 1, seat=2, target=3), Event(EventKind.VOTE, 1, seat=5, target=2)]
    memory = TableMemory()
    memory.learn(told, 1, preset.deck)
    weights: defaultdict[tuple[int, Role], float] = defaultdict(float)
    total = 0.0
    for deal in set(permutations(preset.deck)):
        if deal[0] is not role:
            continue
        wolves = np.array([[dealt_role.side is Side.WOLF for dealt_role in deal]])
        weight = np.zeros(1)
        odds._weigh_public(memory, wolves, weight, speaker=1)
        for seat in range(2, len(deal) + 1):
            if deal[seat - 1].side is Side.GOOD:
                weight += odds._log_of_good(memory, seat, deal[seat - 1])
            if deal[seat - 1] is Role.SEER:
                wrong = [
                    wolves[0, other - 1] != (side is Side.WOLF) for other, side in memory.claims.get(seat, {}).items()
                ]
                weight += log(odds.IMPOSSIBLE) * sum(wrong)
        likely = float(np.exp(weight[0]))
        total += likely
        for seat, dealt_role in enumerate(deal, start=1):
            weights[seat, dealt_role] += likely
    found = role_odds(told, 1, preset.deck)
    for seat in preset.seats:
        for each in set(preset.deck):
            assert found[seat][each] == pytest.approx(weights[seat, each] / total, abs=1e-4), (seat, each)


@pytest.mark.parametrize("preset", [TWELVE, PRESETS["9p"], SEVEN, TINY, GUNS], ids=lambda preset: preset.name)
def test_the_odds_add_up_and_are_true_to_scripted_games(preset):
    """A seat said to be a wolf with some probability is one about as often, and knowing the odds beats not knowing."""
    told: list[tuple[float, bool]] = []
    chance = 0.0
    for seed in range(50):
        state = play_brains(preset, seed, ScriptedBrain)
        seat = next(seat for seat in preset.seats if state.role_of(seat).side is Side.GOOD)
        days = {event.day for event in state.events}
        events = [event for event in state.events if event.visible_to(seat) and event.day < max(2, max(days))]
        found = role_odds(events, seat, preset.deck)
        for role in set(preset.deck):
            assert sum(of_role[role] for of_role in found.values()) == pytest.approx(preset.deck.count(role), abs=1e-3)
        wolves = sum(role.side is Side.WOLF for role in preset.deck)
        for other, likely in wolf_odds(found).items():
            if other != seat:
                told.append((likely, state.role_of(other).side is Side.WOLF))
                chance = wolves / (len(preset.deck) - 1)
    if preset is GUNS:
        return  # what players do is measured on the presets
    likely, true = np.array([pair[0] for pair in told]).clip(1e-3, 1 - 1e-3), np.array([pair[1] for pair in told])

    def surprise(claimed):
        return -np.where(true, np.log(claimed), np.log(1 - claimed)).mean()

    assert surprise(likely) < surprise(np.full(len(true), chance))
    for low, high in ((0.0, 0.2), (0.6, 1.01)):
        chosen = (likely >= low) & (likely < high)
        assert not chosen.any() or abs(likely[chosen].mean() - true[chosen].mean()) < 0.15
