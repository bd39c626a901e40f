"""Locks that the players without a model play legally, by the seed, and say what can be read back."""

import random
from dataclasses import replace

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from runners.werewolf import brains
from runners.werewolf.brains import ExpertBrain, RandomBrain, ScriptedBrain, TimidBrain
from runners.werewolf.brains.habits import PoserBrain
from runners.werewolf.game import Action, Option, observe, pending, winner
from runners.werewolf.language import saying
from runners.werewolf.language.replies import parse_reply, render_reply
from runners.werewolf.language.saying import fit_together
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


def memory(brain):
    """State of a player without its random generator."""
    return repr({name: value for name, value in vars(brain).items() if name not in ("_rng", "_believe")})


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
