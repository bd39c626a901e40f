"""Beliefs asked of a real vLLM beside a real game: what transformers would say, and a game that is as without them."""

import math

import pytest
import torch

from algo.rollouts.triplets import read_attempt
from algo.sequences.vocabulary import vocabulary_of
from algo.werewolf.listening import listening_rows
from runners.attempt_spans import AttemptSpans
from runners.werewolf.agent import WerewolfGames
from store.schema import PolicyResources, Sampling
from store.werewolf import GAME
from store.werewolf_study import Study
from tests.support.recording_proxy import FLOAT32_TOLERANCE
from tests.support.small_models import load_model, token_log_probs
from tests.support.tasks import HERE, game_task

# Shares the vLLM of test_league.py and test_lag.py, which push weights to it.
pytestmark = [pytest.mark.xdist_group("machine"), pytest.mark.timeout(600)]

CONTEXT, REPLY = 3072, 24


@pytest.fixture
async def vllm(tiny_model, lend_vllm):
    """Base URL of a real vLLM, ending in /v1."""
    return await lend_vllm(tiny_model) + "/v1"


async def play(endpoint, study):
    limits = {"context_tokens": CONTEXT, "reply_tokens": REPLY}
    task = game_task(seed=4, sampling_seed=4, trainable=["good"], study=study, **limits)
    # Not 1, so that log-probs at the wrong temperature would show.
    sampling = Sampling(temperature=0.7)
    resources = PolicyResources(run_name="r", version=0, endpoints=(endpoint,), model="policy", sampling=sampling)
    spans, games = [], WerewolfGames(HERE)
    attempt = AttemptSpans(spans.append, ("rollout", "attempt"))
    try:
        result = await games.play(task, resources, attempt.add_turn)
    finally:
        await games.close()
    attempt.add_result(result, 2.0)
    return read_attempt(GAME, "rollout", "attempt", spans)


def word_log_prob(model, given, word):
    with torch.no_grad():
        return token_log_probs(model, [*given, *word])[len(given) :].sum().item()


async def test_probes_say_what_transformers_computes_and_leave_the_game_alone(vllm, tiny_model):
    model = load_model(tiny_model)
    plain = await play(vllm, None)
    probed = await play(vllm, Study(probes=frozenset({"speech", "vote"}), with_tokens=True))
    assert [turn.response_ids for turn in probed.turns] == [turn.response_ids for turn in plain.turns]
    assert [turn.prompt_ids for turn in probed.turns] == [turn.prompt_ids for turn in plain.turns]
    assert probed.outcome == plain.outcome and (plain.notes, len(probed.notes)) == ((), 1)

    sequences = {
        (triplet.metadata["seat"], triplet.metadata["segment"]): [
            *triplet.prompt["token_ids"],
            *triplet.response["token_ids"],
        ]
        for triplet in probed.triplets
    }
    beliefs = probed.notes[0].beliefs
    assert {belief.moment for belief in beliefs} == {"speech", "vote"}
    for belief in beliefs[::5]:
        masses = []
        for asked in belief.asked:
            context = sequences.get((belief.seat, asked.segment), [])[: asked.context_tokens]
            assert len(context) == asked.context_tokens
            given = [*context, *asked.prompt_ids]
            found = {role: math.exp(word_log_prob(model, given, word)) for role, word in asked.words.items()}
            masses.append(sum(found.values()))
            for role, chance in belief.beliefs[asked.target].items():
                assert math.log(chance) == pytest.approx(math.log(found[role] / masses[-1]), abs=FLOAT32_TOLERANCE)
        assert math.log(belief.mass) == pytest.approx(math.log(sum(masses) / len(masses)), abs=FLOAT32_TOLERANCE)
    # One row for each question to a trained seat, the wolf's left out.
    good = {seat.seat for seat in probed.outcome.seats if seat.side == "good"}
    rows = list(listening_rows(probed, CONTEXT, vocabulary_of(tiny_model)))
    assert len(rows) == sum(len(belief.asked) for belief in beliefs if belief.seat in good) > 0
