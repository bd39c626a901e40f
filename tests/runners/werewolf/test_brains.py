"""Locks that the players without a model play legally, from their own view, and in balance."""

import random
from collections import Counter

import pytest
from game_playing import TEST_PRESETS, TINY, play_brains
from hypothesis import given, settings
from hypothesis import strategies as st

from runners.werewolf.brains import RandomBrain, ScriptedBrain
from runners.werewolf.game import (
    Action,
    Decision,
    Event,
    EventKind,
    Observation,
    Phase,
    Request,
    Result,
    Role,
    Side,
    apply,
    new_game,
    observe,
    pending,
    winner,
)
from runners.werewolf.prompts_zh import say_accusation, say_seer_claim
from runners.werewolf.replies import parse_reply, render_reply


def seen(
    seat: int, role: Role, decision: Decision, *events: Event, living=(1, 2, 3, 4, 5), targets=None
) -> Observation:
    speaks = decision in (Decision.SPEECH, Decision.LAST_WORDS, Decision.WOLF_TALK)
    if targets is None:
        targets = () if speaks else tuple(other for other in living if other != seat)
    request = Request(seat, decision, 1, Phase.DISCUSSION, targets, True, speaks, Action())
    return Observation(seat, role, role.side, 1, Phase.DISCUSSION, living, events, request)


def speech(seat: int, text: str) -> Event:
    return Event(EventKind.SPEECH, 1, seat=seat, text=text)


def team(*seats: int) -> Event:
    return Event(EventKind.WOLF_TEAM, 1, frozenset(seats), data={"seats": ",".join(map(str, seats))})


def finding(seer: int, target: int, side: Side) -> Event:
    return Event(EventKind.SEER_RESULT, 1, frozenset({seer}), seat=seer, target=target, data={"side": side.value})


def each_brain(count: int = 20):
    return [ScriptedBrain(random.Random(seed)) for seed in range(count)]


@pytest.mark.parametrize("brain", [RandomBrain, ScriptedBrain])
@given(st.sampled_from(TEST_PRESETS), st.integers(0, 10_000))
@settings(max_examples=40, deadline=None)
def test_brains_play_whole_games_legally_and_by_seed(brain, preset, seed):
    state = play_brains(preset, seed, brain)
    assert winner(state) is not None
    assert play_brains(preset, seed, brain) == state


@pytest.mark.parametrize("brain", [RandomBrain, ScriptedBrain])
def test_what_brains_decide_can_be_said_and_read_back(brain):
    for seed in range(20):
        state = new_game(TINY, seed)
        brains = {seat: brain(random.Random(seat)) for seat in TINY.seats}
        while winner(state) is None:
            actions = {}
            for request in pending(state):
                action = brains[request.seat].act(observe(state, request.seat))
                actions[request.seat] = action
                assert parse_reply(render_reply(action, request), request) == action
            state = apply(state, actions)


@pytest.mark.parametrize("brain", [RandomBrain, ScriptedBrain])
def test_neither_side_wins_nearly_always(brain):
    # 5,000 games: random 34% good, scripted 63% good.
    results = Counter(winner(play_brains(TINY, seed, brain)) for seed in range(500))
    for result in (Result.WOLF, Result.GOOD):
        assert 0.25 < results[result] / 500 < 0.75, results


def test_a_brain_without_a_question_says_so():
    state = new_game(TINY, 0)
    sleeper = next(seat for seat in TINY.seats if state.role_of(seat) is Role.VILLAGER)
    for brain in (RandomBrain(random.Random(0)), ScriptedBrain(random.Random(0))):
        with pytest.raises(ValueError, match=f"seat {sleeper} is not asked"):
            brain.act(observe(state, sleeper))


def test_the_seer_reports_what_it_found():
    for brain in each_brain():
        said = brain.act(seen(2, Role.SEER, Decision.SPEECH, finding(2, 4, Side.WOLF)))
        assert said.text == say_seer_claim([(1, 4, Side.WOLF)])
        assert brain.act(seen(2, Role.SEER, Decision.EXILE_VOTE)).target == 4


def test_the_seer_checks_nobody_twice():
    for brain in each_brain():
        brain.act(seen(2, Role.SEER, Decision.SPEECH, finding(2, 4, Side.GOOD), finding(2, 5, Side.GOOD)))
        assert brain.act(seen(2, Role.SEER, Decision.SEER_CHECK)).target in (1, 3)


def test_villagers_follow_a_seer_and_spare_whom_it_cleared():
    for brain in each_brain():
        assert (
            brain.act(
                seen(1, Role.VILLAGER, Decision.EXILE_VOTE, speech(2, say_seer_claim([(1, 4, Side.WOLF)])))
            ).target
            == 4
        )
    votes = {
        brain.act(seen(1, Role.VILLAGER, Decision.EXILE_VOTE, speech(2, say_seer_claim([(1, 4, Side.GOOD)])))).target
        for brain in each_brain(60)
    }
    assert votes == {3, 5}


def test_a_villager_called_a_wolf_knows_the_claim_for_a_lie():
    claim = speech(2, say_seer_claim([(1, 1, Side.WOLF)]))
    for brain in each_brain():
        assert brain.act(seen(1, Role.VILLAGER, Decision.EXILE_VOTE, claim)).target == 2


def test_a_claimant_killed_by_night_is_believed_over_its_rival():
    events = [
        Event(EventKind.DEATHS_ANNOUNCED, 1, data={"seats": "2"}),
        Event(EventKind.LAST_WORDS, 1, seat=2, text=say_seer_claim([(1, 3, Side.GOOD)])),
        speech(4, say_seer_claim([(1, 3, Side.WOLF)])),
    ]
    for brain in each_brain():
        assert brain.act(seen(1, Role.VILLAGER, Decision.EXILE_VOTE, *events, living=(1, 3, 4, 5))).target == 4


def test_wolves_neither_kill_nor_vote_for_each_other():
    claims = [speech(3, say_accusation(2)), speech(4, say_seer_claim([(1, 2, Side.WOLF)]))]
    for brain in each_brain():
        assert brain.act(seen(1, Role.WOLF, Decision.WOLF_KILL, team(1, 2), targets=(1, 2, 3, 4, 5))).target in (
            3,
            4,
            5,
        )
        assert brain.act(seen(1, Role.WOLF, Decision.EXILE_VOTE, *claims)).target == 4
        assert brain.act(seen(1, Role.WOLF, Decision.WOLF_KILL, targets=(1, 2, 3, 4, 5))).target == 4


def test_a_wolf_takes_up_its_mates_proposal():
    proposal = Event(EventKind.WOLF_SAYS, 1, frozenset({1, 2}), seat=2, text="建议袭击5号。")
    for brain in each_brain():
        assert brain.act(seen(1, Role.WOLF, Decision.WOLF_KILL, team(1, 2), proposal)).target == 5


def test_a_named_wolf_claims_to_be_the_seer_and_frames_its_rival():
    for brain in each_brain():
        said = brain.act(seen(1, Role.WOLF, Decision.SPEECH, team(1), speech(3, say_seer_claim([(1, 1, Side.WOLF)]))))
        assert said.text == say_seer_claim([(1, 3, Side.WOLF)])
        assert brain.act(seen(1, Role.WOLF, Decision.EXILE_VOTE)).target == 3


def test_the_same_observation_twice_teaches_nothing_new():
    observation = seen(
        1, Role.VILLAGER, Decision.EXILE_VOTE, speech(2, say_accusation(3)), speech(4, say_accusation(3))
    )
    once, twice = ScriptedBrain(random.Random(1)), ScriptedBrain(random.Random(1))
    once.act(observation)
    twice.act(observation)
    twice.act(observation)
    memory = lambda brain: {name: value for name, value in vars(brain).items() if name != "_rng"}  # noqa: E731
    assert memory(once) == memory(twice)
