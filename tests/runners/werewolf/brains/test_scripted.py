"""What scripted players answer to questions made by hand. That they play whole games as they did: test_panel.py."""

import random
from dataclasses import replace

import pytest

from runners.werewolf.brains import ScriptedBrain
from runners.werewolf.game import Decision, Option, Role, Side
from runners.werewolf.language.speech import understand
from tests.support.game.game_playing import GUNS, TINY, TWELVE
from tests.support.werewolf.crafted_questions import (
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
    wolf_says,
)


@pytest.mark.parametrize("decision", sorted(SPEAKING - {Decision.WOLF_TALK}))
def test_the_seer_reports_all_it_found_in_every_public_speech(decision):
    findings = [finding(2, 4, Side.WOLF), finding(2, 5, Side.GOOD, 2), finding(2, 6, Side.GOOD, 3)]
    for brain in each_brain():
        said = brain.act(seen(2, Role.SEER, decision, *findings, day=3))
        assert understand(said.text).claimed is Role.SEER
        assert dict(understand(said.text).reports) == {4: Side.WOLF, 5: Side.GOOD, 6: Side.GOOD}
        assert "第2夜查验5号，是好人" in said.text


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


def test_the_wolf_that_is_sent_poses_and_runs_and_its_mates_do_not_pose():
    plan = wolf_says(3, "1号悍跳预言家。")
    others_plan = wolf_says(3, "2号悍跳预言家。")
    for brain in each_brain():
        assert (
            brain.act(seen(1, Role.WOLF, Decision.SIGN_UP, team(1, 2, 3), plan, options=(Option.RUN,))).choice
            is Option.RUN
        )
        said = brain.act(seen(1, Role.WOLF, Decision.CAMPAIGN_SPEECH, options=(Option.WITHDRAW,)))
        assert said.choice is None
        assert understand(said.text).claimed is Role.SEER
        assert len(understand(said.text).reports) == 1
        again = brain.act(seen(1, Role.WOLF, Decision.LAST_WORDS, day=2))
        assert set(understand(said.text).reports) < set(understand(again.text).reports)
    for brain in each_brain():
        said = brain.act(seen(1, Role.WOLF, Decision.SPEECH, team(1, 2, 3), others_plan))
        assert understand(said.text).claimed is not Role.SEER
    runs = [
        brain.act(seen(1, Role.WOLF, Decision.SIGN_UP, team(1, 2, 3), others_plan, options=(Option.RUN,))).choice
        for brain in each_brain(100)
    ]
    assert runs.count(Option.RUN) < 30


@pytest.mark.parametrize(
    "decision",
    [Decision.CAMPAIGN_SPEECH, Decision.SPEECH, Decision.CLOSING_SPEECH, Decision.PK_SPEECH, Decision.EXILE_VOTE],
)
def test_a_wolf_explodes_only_when_a_seer_named_it_and_then_not_always(decision):
    options = (Option.WITHDRAW, Option.EXPLODE) if decision is Decision.CAMPAIGN_SPEECH else (Option.EXPLODE,)
    ask = lambda *events: [  # noqa: E731
        brain.act(seen(1, Role.WOLF, decision, team(1, 2), *events, options=options)) for brain in each_brain(100)
    ]
    named = [action.choice for action in ask(claim(4, (1, 1, Side.WOLF)))]
    assert 10 < named.count(Option.EXPLODE) < 60
    assert all(not action.text for action in ask(claim(4, (1, 1, Side.WOLF))) if action.choice is Option.EXPLODE)
    for events in ((), (claim(4, (1, 5, Side.WOLF)),), (claim(2, (1, 1, Side.WOLF)),), (accuses(4, 1), accuses(5, 1))):
        assert Option.EXPLODE not in {action.choice for action in ask(*events)}
