"""What poser and follower do that a scripted player does not."""

import random

import pytest

from runners.werewolf.brains import FollowerBrain, PoserBrain, ScriptedBrain
from runners.werewolf.game import Decision, EventKind, Role, Side
from runners.werewolf.language.speech import understand
from tests.support.game.game_playing import NINE, play_brains
from tests.support.werewolf.crafted_questions import accuses, seen, speech, team


def test_the_posers_wolves_attack_one_of_their_own_who_then_claims_to_be_the_seer():
    for seed in range(12):
        state = play_brains(NINE, seed, "poser")
        wolves = [seat for seat, role in enumerate(state.roles, start=1) if role.side is Side.WOLF]
        attacked = [event.target for event in state.events if event.kind is EventKind.WOLF_TARGET and event.day == 1]
        assert attacked == [min(wolves)]
        spoke = [event.text for event in state.events if event.kind is EventKind.SPEECH and event.seat == min(wolves)]
        assert not spoke or understand(spoke[0]).claimed is Role.SEER


def test_on_the_posers_good_side_a_villager_claims_to_be_the_seer_on_the_first_day_only():
    for day, claims in ((1, True), (2, False)):
        question = seen(1, Role.VILLAGER, Decision.SPEECH, day=day)
        said = [understand(PoserBrain(random.Random(seed)).act(question).text).claimed for seed in range(20)]
        assert all((claimed is Role.SEER) == claims for claimed in said)


@pytest.mark.parametrize(("seat", "role", "known"), [(1, Role.VILLAGER, ()), (2, Role.WOLF, (team(2, 4),))])
def test_the_follower_votes_for_the_seat_that_most_others_accuse(seat, role, known):
    heard = (*known, accuses(7, 4), accuses(8, 4), accuses(9, 3))
    for seed in range(20):
        question = seen(seat, role, Decision.EXILE_VOTE, *heard)
        assert FollowerBrain(random.Random(seed)).act(question).choice == 4
    unaccused = seen(seat, role, Decision.EXILE_VOTE, *known, speech(7, "过。"))
    for seed in range(20):
        assert FollowerBrain(random.Random(seed)).act(unaccused) == ScriptedBrain(random.Random(seed)).act(unaccused)
