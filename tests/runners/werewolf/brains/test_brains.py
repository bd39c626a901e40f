"""Locks that the players without a model play legally, by the seed, and say what can be read back."""

import random
from dataclasses import replace
from types import SimpleNamespace

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from runners.werewolf import brains
from runners.werewolf.brains import ExpertBrain, RandomBrain, ScriptedBrain, TimidBrain
from runners.werewolf.brains.beliefs import _judge_claims
from runners.werewolf.brains.habits import PoserBrain
from runners.werewolf.brains.memory import TableMemory
from runners.werewolf.game import PRESETS, Action, Decision, Option, Side, observe, pending, winner
from runners.werewolf.language import saying
from runners.werewolf.language.replies import parse_reply, render_reply
from runners.werewolf.language.saying import fit_together
from runners.werewolf.local import play_locally, seeded_brains
from store.schema import PLAYERS_WITHOUT_A_MODEL
from tests.support.game.game_playing import TEST_PRESETS, TINY, TWELVE, brain_steps, play_brains
from tests.support.werewolf.reply_tables import QUESTIONS

# --- whole games ----------------------------------------------------------------------------------------------------


def test_who_plays_without_a_model_is_known_everywhere_by_the_same_names():
    assert set(brains.BRAINS) == set(PLAYERS_WITHOUT_A_MODEL)


@pytest.mark.parametrize("brain", (RandomBrain, TimidBrain, ScriptedBrain, PoserBrain))
@example(TWELVE, 4, 0)
@given(st.sampled_from(TEST_PRESETS), st.integers(1, 60) | st.none(), st.integers(0, 10_000))
@settings(max_examples=25, deadline=None)
def test_brains_play_whole_games_by_seed_in_answers_that_are_legal_parsed_and_no_longer_than_is_heard(
    brain, preset, speech_chars, seed
):
    check_game(brain, replace(preset, speech_chars=speech_chars or preset.speech_chars), seed, speech_chars is None)


@given(st.sampled_from(TEST_PRESETS), st.integers(0, 10_000))
@settings(max_examples=6, deadline=None)
def test_so_does_the_expert_who_takes_a_second_a_game(preset, seed):
    check_game(ExpertBrain, preset, seed, True)


def check_game(brain, preset, seed, parses):
    for state, actions, end in brain_steps(preset, seed, brain):  # noqa: B007
        for request in pending(state):
            action = actions[request.seat]
            assert len(action.text) <= request.speech_chars
            assert not parses or parse_reply(render_reply(action, request), request) == action
    assert winner(end) is not None and play_brains(preset, seed, brain) == end


@pytest.mark.parametrize(
    ("brain", "preset", "seed"),
    [  # games in which they did otherwise
        *((ScriptedBrain, TWELVE, seed) for seed in (17, 24)),
        (ScriptedBrain, PRESETS["12p_white_wolf_king"], 21),
        (ScriptedBrain, PRESETS["12p_knight"], 34),
        *((ExpertBrain, TWELVE, seed) for seed in (16, 21)),
    ],
)
def test_the_last_wolf_never_explodes_and_nobody_poisons_who_dies_anyway(brain, preset, seed):
    for state, actions, _ in brain_steps(preset, seed, brain):
        wolves = {seat for seat in state.living if state.roles[seat - 1].side is Side.WOLF}
        for request in pending(state):
            choice = actions[request.seat].choice
            assert choice is not Option.EXPLODE or wolves > {request.seat}
            assert request.decision is not Decision.WITCH or choice is None or choice != request.subject


@pytest.mark.parametrize(
    ("player", "seed", "seer", "good"),
    [("scripted", 68, 5, 10), ("expert", 34, 9, 4), ("expert", 41, 5, 12)],  # the last is elected on the second day
)
def test_the_badge_of_a_seer_killed_by_night_makes_no_good_seat_a_wolf(player, seed, seer, good):
    players = seeded_brains(TWELVE, seed, dict.fromkeys(Side, player))
    play_locally(TWELVE, seed, players)
    assert all(one._memory.claims.get(seer, {}).get(good) is not Side.WOLF for one in players.values())


@pytest.mark.parametrize(("side", "seer"), [(Side.GOOD, 5), (Side.WOLF, 4)])
def test_a_claim_that_a_duel_refutes_is_a_lie_and_one_that_it_confirms_is_trusted(side, seer):
    """Seat 4 reports 6 as a wolf, seat 5 as good."""
    known = TableMemory(claims={4: {6: Side.WOLF}, 5: {6: Side.GOOD}}, claimed_on={4: 1, 5: 1}, proven={6: side})
    turn = SimpleNamespace(memory=known, me=1, observation=SimpleNamespace(sheriff=None), hunch=lambda seat: 0.5)
    assert _judge_claims(turn, set()) == (seer, True, {9 - seer})


def memory(brain):
    """State of a player without its random generator."""
    return repr({name: value for name, value in vars(brain).items() if name not in ("_rng", "_believe")})


def test_nobody_can_foresee_whom_the_expert_chooses_among_equal_seats():
    chosen = {Decision.SEER_CHECK: set(), Decision.WOLF_TALK: set()}
    for seed in range(12):
        for state, actions, _ in brain_steps(PRESETS["7p"], seed, ExpertBrain):
            asked = {request.decision: actions[request.seat].choice for request in pending(state)}
            if Decision.SPEECH in asked:
                break
            for decision in chosen.keys() & asked.keys():
                chosen[decision].add(asked[decision])
    assert all(len(seats) > 3 for seats in chosen.values())


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


def test_sentences_that_do_not_fit_are_left_out_whole():
    assert fit_together(["我是好人。", "大家好好分析，不要乱投。", "先听。"], 8) == "我是好人。先听。"


@pytest.mark.parametrize("words", saying.WITHDRAWALS)
def test_who_withdraws_says_so_in_words_that_the_reader_takes(words):
    action = Action(Option.WITHDRAW, words)
    assert parse_reply(render_reply(action, QUESTIONS["campaign"]), QUESTIONS["campaign"]) == action
