"""Locks how scripted players of the good side decide, from crafted questions and what many of them answer."""

import random
from dataclasses import replace

import pytest

from runners.werewolf.brains import ScriptedBrain
from runners.werewolf.game import (
    Decision,
    Event,
    EventKind,
    Option,
    Role,
    Side,
)
from runners.werewolf.language.speech import understand
from tests.support.game.game_playing import GUNS, NINE, TINY, TWELVE
from tests.support.werewolf.crafted_questions import (
    NINE_SEATS,
    SPEAKING,
    accuses,
    answers,
    claim,
    each_brain,
    finding,
    memory,
    role_claim,
    seen,
    speech,
    team,
)

# --- the seer -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("decision", sorted(SPEAKING - {Decision.WOLF_TALK}))
def test_the_seer_reports_all_it_found_in_every_public_speech(decision):
    findings = [finding(2, 4, Side.WOLF), finding(2, 5, Side.GOOD, 2), finding(2, 6, Side.GOOD, 3)]
    for brain in each_brain():
        said = brain.act(seen(2, Role.SEER, decision, *findings, day=3))
        assert understand(said.text).claimed is Role.SEER
        assert dict(understand(said.text).reports) == {4: Side.WOLF, 5: Side.GOOD, 6: Side.GOOD}
        assert "第2夜查验5号，是好人" in said.text


def test_the_seer_checks_whom_it_does_not_know_and_the_suspicious_first():
    found = [finding(2, 4, Side.GOOD), finding(2, 5, Side.GOOD)]
    check = seen(2, Role.SEER, Decision.SEER_CHECK, *found, claim(6, (1, 2, Side.WOLF)))
    assert answers(check) == {1, 3, 7, 8, 9}
    suspicions = [accuses(seat, 7) for seat in (3, 4, 5, 8)]
    assert answers(replace(check, events=(*check.events, *suspicions))) == {7}
    all_known = replace(check, request=replace(check.request, targets=(4, 5)))
    assert answers(all_known) == {None}


def test_the_seer_votes_for_its_find_and_never_for_whom_it_cleared():
    finds = [finding(2, 4, Side.WOLF), finding(2, 5, Side.GOOD)]
    accused = [accuses(seat, 5) for seat in (1, 3, 6, 7, 8)]
    assert answers(seen(2, Role.SEER, Decision.EXILE_VOTE, *finds, *accused)) == {4}
    assert answers(seen(2, Role.SEER, Decision.PK_VOTE, *finds, *accused, targets=(5, 6))) - {None} == {6}
    assert answers(seen(2, Role.SEER, Decision.PK_VOTE, *finds, targets=(5,))) == {None}
    assert answers(seen(2, Role.SEER, Decision.PK_VOTE, *finds, targets=(5,), may_pass=False)) == {5}
    assert answers(seen(2, Role.SEER, Decision.EXILE_VOTE, finds[1], claim(7, (1, 3, Side.GOOD)))) == {7}


# --- the witch, the guard, the hunter -------------------------------------------------------------------------------


def potions(*events, day, victim, options=(Option.SAVE,), **others):
    told = Event(EventKind.WITCH_TOLD, day, frozenset({1}), seat=1, target=victim)
    return seen(
        1,
        Role.WITCH,
        Decision.WITCH,
        *events,
        told,
        day=day,
        options=options,
        subject=victim if options else None,
        **others,
    )


def test_the_witch_saves_in_the_first_night_and_herself_where_she_may():
    # Nearly always, since the victim may be a wolf that hopes for it; less where no guard protects the seer later.
    guarded, unguarded = (
        [brain.act(replace(potions(day=1, victim=3), deck=deck)).choice for brain in each_brain(100)]
        for deck in (TWELVE.deck, NINE.deck)
    )
    assert set(guarded) == set(unguarded) == {Option.SAVE, None}
    assert guarded.count(Option.SAVE) > 80 > 60 > unguarded.count(Option.SAVE) > 20
    assert answers(potions(day=1, victim=1)) == {Option.SAVE}
    assert answers(potions(day=2, victim=1)) == {Option.SAVE}
    assert answers(potions(day=1, victim=1, options=())) == {None}


def test_the_guard_protects_the_seer_else_the_sheriff_else_itself_and_nobody_in_the_first_night():
    seer = claim(3, (1, 5, Side.GOOD))
    everybody = NINE_SEATS
    others = (1, 2, 4, 5, 6, 7, 8, 9)
    guard = lambda *events, **rest: answers(seen(1, Role.GUARD, Decision.GUARD, *events, **rest))  # noqa: E731
    assert guard(seer, targets=everybody, day=1) == {None}
    assert guard(seer, targets=everybody, day=2, sheriff=4) == {3}
    assert guard(seer, targets=others, day=2, sheriff=4) == {4}
    assert guard(seer, targets=others, day=2, sheriff=3) == {1}
    assert guard(targets=everybody, day=2) == {1}
    assert guard(targets=(2, 3), day=2) == {None}
    distrusted = [seer, claim(4, (1, 1, Side.WOLF))]
    assert guard(*distrusted, targets=others, day=2, sheriff=4) == {1}


def test_the_hunter_shoots_whom_it_suspects_and_nobody_on_a_hunch():
    assert answers(seen(1, Role.HUNTER, Decision.SHOT, claim(3, (1, 5, Side.WOLF)))) == {5}
    assert answers(seen(1, Role.HUNTER, Decision.SHOT)) == {None}
    assert answers(seen(1, Role.HUNTER, Decision.SHOT, accuses(2, 4))) == {4, None}


# --- villagers, and what all good seats share ------------------------------------------------------------------------


def test_good_seats_follow_a_seer_and_spare_whom_it_cleared():
    assert answers(seen(1, Role.VILLAGER, Decision.EXILE_VOTE, claim(2, (1, 4, Side.WOLF)))) == {4}
    cleared = seen(1, Role.VILLAGER, Decision.EXILE_VOTE, claim(2, (1, 4, Side.GOOD)), living=(1, 2, 3, 4, 5))
    assert answers(cleared, 80) - {None} == {3, 5}


def test_who_claims_ones_own_role_lies_unless_the_role_may_be_dealt_twice():
    cases = ((Role.GUARD, TWELVE, 5), (Role.WITCH, TWELVE, 5), (Role.HUNTER, TWELVE, 5), (Role.HUNTER, GUNS, 6))
    for role, preset, suspect in cases:
        vote = seen(1, role, Decision.PK_VOTE, speech(5, role_claim(role)), targets=(5, 6), deck=preset.deck)
        assert answers(vote) - {None} == {suspect}


@pytest.mark.parametrize("role", [Role.HUNTER, Role.WITCH, Role.GUARD])
def test_who_claims_a_role_that_nobody_was_dealt_is_taken_for_a_liar(role):
    said = speech(2, role_claim(role) + "我救了3号，是银水。")
    vote = seen(1, Role.VILLAGER, Decision.EXILE_VOTE, said, living=(1, 2, 3, 4, 5), deck=TINY.deck)
    assert answers(vote) - {None} == {2}
    assert 2 not in answers(replace(vote, deck=TWELVE.deck))
    # A lie is remembered, whatever the liar calls itself next, and is worth nothing to the one it speaks for.
    for later in (speech(2, role_claim(Role.VILLAGER)), claim(2, (1, 3, Side.WOLF))):
        assert answers(replace(vote, events=(said, later))) - {None} == {2}
        assert answers(replace(vote, events=(later, said))) - {None} == {2}
    spoken_for = replace(vote, events=(said,), request=replace(vote.request, targets=(3, 4)))
    assert answers(spoken_for, 100) >= {3, 4}


def test_wolves_do_not_hunt_a_role_that_nobody_was_dealt():
    said = speech(4, role_claim(Role.HUNTER))
    hunt = seen(1, Role.WOLF, Decision.WOLF_KILL, team(1), said, living=(1, 2, 3, 4, 5), deck=TINY.deck)
    assert answers(hunt) == {2, 3, 4, 5}
    hunted = [brain.act(replace(hunt, deck=TWELVE.deck)).choice for brain in each_brain(100)]
    assert hunted.count(4) > 50
    vouches = replace(hunt, events=(team(1), speech(4, role_claim(Role.WITCH) + "我救了3号，是银水。")))
    assert answers(vouches) == {2, 3, 4, 5}


def test_its_own_words_teach_a_player_nothing():
    own = [claim(1, (1, 5, Side.WOLF)), accuses(1, 5), speech(1, role_claim(Role.WITCH) + "我救了3号，是银水。")]
    deaf, hearing = ScriptedBrain(random.Random(1)), ScriptedBrain(random.Random(1))
    deaf.act(seen(1, Role.VILLAGER, Decision.EXILE_VOTE))
    hearing.act(seen(1, Role.VILLAGER, Decision.EXILE_VOTE, *own))
    assert memory(deaf) == memory(hearing)
