"""What recorded games lack; the scores of their beliefs are held by ``test_frozen``."""

from algo.evaluation.beliefs import area_under_curve, deck_chances, wolf_chance
from configs.roles_and_decks import DECKS, Role


def test_the_decks_odds_are_a_share_of_the_cards_that_are_left():
    roles = dict(enumerate(DECKS["7p"], start=1))
    seer = next(seat for seat, role in roles.items() if role is Role.SEER)
    wolves = [seat for seat, role in roles.items() if role is Role.WOLF]
    others = [seat for seat in roles if seat != seer]
    for chances in deck_chances(DECKS["7p"], seer, roles, others).values():
        assert chances == {"wolf": 2 / 6, "villager": 3 / 6, "witch": 1 / 6, "seer": 0.0}
    of_wolf = deck_chances(DECKS["7p"], wolves[0], roles, [wolves[1], seer])
    assert wolf_chance(of_wolf[wolves[1]]) == 1.0
    assert of_wolf[seer] == {"wolf": 0.0, "villager": 3 / 5, "witch": 1 / 5, "seer": 1 / 5}


def test_an_answer_about_one_side_alone_has_no_area():
    assert area_under_curve([(0.9, True)]) is None


def test_every_role_of_the_wolves_counts_as_a_wolf():
    assert wolf_chance({"wolf": 0.25, "wolf_king": 0.5, "seer": 0.25}) == 0.75
