"""Locks that the players without a model play legally, sensibly, from their own view, and in balance.

Here are whole games, and what they say; the questions of each side are in test_good_brains.py and test_wolf_brains.py.
"""

import random
from collections import Counter
from dataclasses import replace
from functools import lru_cache

import pytest
from crafted_questions import (
    claim,
    each_brain,
    memory,
    seen,
    team,
)
from game_playing import TEST_PRESETS, TINY, TWELVE, brain_steps, play_brains
from hypothesis import given, settings
from hypothesis import strategies as st

from runners.werewolf.brains import RandomBrain, ScriptedBrain, TimidBrain
from runners.werewolf.game import (
    PRESETS,
    Decision,
    EventKind,
    GameState,
    Option,
    Result,
    Role,
    Side,
    choices,
    new_game,
    observe,
    pending,
    winner,
)
from runners.werewolf.prompts_zh import talk
from runners.werewolf.prompts_zh.talk import understand, understand_wolf
from runners.werewolf.replies import parse_reply, render_reply

BRAINS = (RandomBrain, TimidBrain, ScriptedBrain)
PUBLIC_SPEECHES = (
    EventKind.CAMPAIGN_SPEECH,
    EventKind.SHERIFF_PK_SPEECH,
    EventKind.SPEECH,
    EventKind.CLOSING_SPEECH,
    EventKind.PK_SPEECH,
    EventKind.LAST_WORDS,
)


@lru_cache
def scripted_games(name: str, count: int = 400) -> tuple[GameState, ...]:
    return tuple(play_brains(PRESETS[name], seed, ScriptedBrain) for seed in range(count))


# --- whole games ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("brain", BRAINS)
@given(st.sampled_from(TEST_PRESETS), st.integers(0, 10_000))
@settings(max_examples=60, deadline=None)
def test_brains_play_whole_games_legally_and_by_seed(brain, preset, seed):
    state = play_brains(preset, seed, brain)
    assert winner(state) is not None
    assert play_brains(preset, seed, brain) == state


@pytest.mark.parametrize("brain", BRAINS)
@given(st.sampled_from(TEST_PRESETS), st.integers(1, 60), st.integers(0, 10_000))
@settings(max_examples=30, deadline=None)
def test_no_speech_is_longer_than_is_heard(brain, preset, speech_chars, seed):
    for state, actions, _ in brain_steps(replace(preset, speech_chars=speech_chars), seed, brain):
        for request in pending(state):
            assert len(actions[request.seat].text) <= request.speech_chars


@pytest.mark.parametrize("brain", BRAINS)
@pytest.mark.parametrize("preset", TEST_PRESETS, ids=lambda preset: preset.name)
def test_what_brains_decide_can_be_said_and_read_back(brain, preset):
    for seed in range(4):
        for state, actions, _ in brain_steps(preset, seed, brain):
            for request in pending(state):
                action = actions[request.seat]
                assert parse_reply(render_reply(action, request), request) == action


@pytest.mark.parametrize("name", PRESETS)
def test_neither_side_wins_nearly_always_under_scripted_play(name):
    results = Counter(winner(state) for state in scripted_games(name))
    for result in (Result.WOLF, Result.GOOD):
        assert 0.25 < results[result] / results.total() < 0.75, results


def test_neither_side_wins_nearly_always_under_random_play_of_the_small_game():
    results = Counter(winner(play_brains(TINY, seed, RandomBrain)) for seed in range(500))
    for result in (Result.WOLF, Result.GOOD):
        assert 0.25 < results[result] / 500 < 0.75, results


def test_scripted_games_show_what_the_rules_offer():
    happened = {event.kind for state in scripted_games("12p_sheriff") for event in state.events}
    assert set(EventKind) - happened == set()
    lost = {
        event.data["reason"]
        for state in scripted_games("12p_sheriff")
        for event in state.events
        if event.kind is EventKind.BADGE_LOST
    }
    assert {"swallowed", "tied_twice"} <= lost


@pytest.mark.parametrize("name", PRESETS)
def test_nobody_claims_to_be_what_it_is_not_but_wolves_that_pose_as_the_seer(name):
    for state in scripted_games(name):
        for event in state.events:
            if event.kind in PUBLIC_SPEECHES:
                claimed, role = understand(event.text).claimed, state.role_of(event.seat)
                lies = {Role.VILLAGER, Role.SEER} if role.side is Side.WOLF else set()
                assert claimed in {None, role} | lies, event


@pytest.mark.parametrize("name", ["12p_sheriff", "9p", "7p"])
def test_wolves_agree_in_the_first_round_of_their_talk_and_never_on_a_wolf(name):
    for state in scripted_games(name):
        talks = Counter((event.day, event.seat) for event in state.events if event.kind is EventKind.WOLF_SAYS)
        assert set(talks.values()) == {1}
        for event in state.events:
            if event.kind is EventKind.WOLF_TARGET:
                assert state.role_of(event.target).side is Side.GOOD


@pytest.mark.parametrize("name", ["12p_sheriff", "9p"])
def test_wolves_vote_for_each_other_only_after_a_seer_named_one(name):
    betrayals = 0
    for state in scripted_games(name):
        named: set[int] = set()
        for event in state.events:
            if event.kind in PUBLIC_SPEECHES and state.role_of(event.seat) is Role.SEER:
                named |= {seat for seat, side in understand(event.text).reports if side is Side.WOLF}
            among_wolves = (
                event.kind is EventKind.VOTE
                and event.target is not None
                and {state.role_of(seat).side for seat in (event.seat, event.target)} == {Side.WOLF}
            )
            assert not among_wolves or event.target in named
            betrayals += among_wolves
    assert betrayals


def test_wolves_send_at_most_one_to_pose_as_the_seer_while_none_is_named():
    posers = Counter()
    for state in scripted_games("12p_sheriff"):
        posing: set[int] = set()
        for event in state.events:
            if event.kind is EventKind.CAMPAIGN_SPEECH and understand(event.text).claimed is Role.SEER:
                posing |= {event.seat} if state.role_of(event.seat).side is Side.WOLF else set()
        posers[len(posing)] += 1
    # Two: one was sent, or posed, and the seer then named another in its campaign speech.
    assert posers[0] > 100 and posers[1] > 100 and posers[2] < 10 and set(posers) <= {0, 1, 2}


# --- any brain ------------------------------------------------------------------------------------------------------


def test_a_brain_without_a_question_says_so():
    state = new_game(TINY, 0)
    sleeper = next(seat for seat in TINY.seats if state.role_of(seat) is Role.VILLAGER)
    for brain in BRAINS:
        with pytest.raises(ValueError, match=f"seat {sleeper} is not asked"):
            brain(random.Random(0)).act(observe(state, sleeper))


def test_the_random_brain_may_choose_anything_legal_but_seldom_what_rides_along():
    vote = seen(1, Role.WOLF, Decision.EXILE_VOTE, living=(1, 2, 3, 4), options=(Option.EXPLODE,))
    chosen = Counter(RandomBrain(random.Random(seed)).act(vote).choice for seed in range(2000))
    assert set(chosen) == set(choices(vote.request))
    assert 0.02 < chosen[Option.EXPLODE] / 2000 < 0.08
    assert all(0.19 < chosen[choice] / 2000 < 0.29 for choice in (2, 3, 4, None))
    potion = seen(1, Role.WITCH, Decision.WITCH, targets=(2,), options=(Option.SAVE,), subject=2)
    saved = sum(RandomBrain(random.Random(seed)).act(potion).choice is Option.SAVE for seed in range(600))
    assert 150 < saved < 250


def test_the_random_brain_proposes_in_words_what_it_chooses():
    observation = seen(1, Role.WOLF, Decision.WOLF_TALK, team(1, 2))
    for seed in range(50):
        action = RandomBrain(random.Random(seed)).act(observation)
        assert understand_wolf(action.text)[0] == action.choice


def test_the_timid_player_plays_like_a_scripted_one_but_abstains_from_most_votes():
    def answers(brain, decision, targets=None, may_pass=True):
        told = claim(2, (1, 5, Side.WOLF))
        observation = seen(4, Role.VILLAGER, decision, told, targets=targets, may_pass=may_pass)
        return [brain(random.Random(seed)).act(observation) for seed in range(300)]

    assert answers(TimidBrain, Decision.SPEECH) == answers(ScriptedBrain, Decision.SPEECH)
    votes = Counter(action.choice for action in answers(TimidBrain, Decision.EXILE_VOTE, (2, 5, 7)))
    assert set(votes) == {5, None} and 0.6 < votes[None] / 300 < 0.8
    assert {action.choice for action in answers(TimidBrain, Decision.PK_VOTE, (2, 5, 7), may_pass=False)} == {5}


@pytest.mark.parametrize("preset", [TWELVE, TINY], ids=lambda preset: preset.name)
def test_the_same_observation_twice_teaches_nothing_new(preset):
    for seed in range(3):
        brains = {seat: ScriptedBrain(random.Random(f"{seed}/{seat}")) for seat in preset.seats}
        for state, _, _ in brain_steps(preset, seed, ScriptedBrain):
            for request in pending(state):
                observation = observe(state, request.seat)
                brains[request.seat].act(observation)
                before = memory(brains[request.seat])
                brains[request.seat].act(observation)
                assert memory(brains[request.seat]) == before


# --- what is said ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seat", [1, 11])
def test_every_sentence_is_understood_and_says_nothing_else(seat):
    nothing = understand("")
    expected = {
        talk.ACCUSATIONS: replace(nothing, accused=frozenset({seat})),
        talk.ACCUSATIONS_OF_NAMED: replace(nothing, accused=frozenset({seat})),
        talk.ACCUSATIONS_OF_CLAIMANTS: replace(nothing, accused=frozenset({seat})),
        talk.RALLIES: replace(nothing, accused=frozenset({seat})),
        talk.FOLLOWINGS: replace(nothing, followed=seat),
        (talk.report_saving(seat),): replace(nothing, saved=frozenset({seat})),
        (talk.report_poisoning(seat),): replace(nothing, poisoned=frozenset({seat})),
        (talk.name_next_checks([seat, 2]),): nothing,
        (talk.CLAIM_GOOD,): nothing,
        **{(talk.claim_role(role),): replace(nothing, claimed=role) for role in Role if role.side is Side.GOOD},
        **{
            lines: nothing
            for lines in (
                talk.SMALL_TALK,
                talk.CALLS_FOR_SEER,
                talk.CAMPAIGN_LINES,
                talk.WITHDRAWALS,
                talk.DEFENCES,
                talk.FAREWELLS,
            )
        },
    }
    for templates, heard in expected.items():
        for template in templates:
            assert understand(template.format(seat=seat)) == heard
    for template in (*talk.PROPOSALS, *talk.AGREEMENTS):
        assert understand_wolf(template.format(seat=seat)) == (seat, None)
    assert understand_wolf(talk.PROPOSALS[0].format(seat=3) + talk.plan_posing(seat)) == (3, seat)


def test_a_seers_report_is_understood_with_the_wolves_first_and_then_the_newest():
    reports = [(1, 11, Side.GOOD), (2, 3, Side.WOLF), (3, 1, Side.GOOD)]
    heard = understand("".join(talk.seer_report(reports)))
    assert heard.claimed is Role.SEER
    assert heard.reports == ((3, Side.WOLF), (1, Side.GOOD), (11, Side.GOOD))


def test_a_denied_role_is_no_claim():
    assert understand("我不是预言家，我是村民。").claimed is Role.VILLAGER


def test_sentences_that_do_not_fit_are_left_out_whole():
    assert talk.fit_together(["我是好人。", "大家好好分析，不要乱投。", "先听。"], 8) == "我是好人。先听。"


def test_speeches_vary():
    for role in (Role.VILLAGER, Role.WOLF):
        said = {brain.act(seen(1, role, Decision.SPEECH, team(1, 2))).text for brain in each_brain(40)}
        assert len(said) > 20
