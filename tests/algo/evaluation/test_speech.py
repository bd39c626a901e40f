"""Speeches of a policy: what the table counts, and bits a character under a model."""

import math
from collections import Counter

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from algo.evaluation import speech
from algo.evaluation.games import GameRow, Spoken, row_of
from algo.evaluation.record import Record
from algo.evaluation.speech import score_speeches, speech_table
from algo.rollouts.triplets import FinishedRollout
from algo.speech import main
from configs.sections.rewards import RewardConfig
from tests.support.algo.made_games import made_evaluation, made_row
from tests.support.fakes import make_result, make_turn
from tests.support.processes import exit_status
from tests.support.tasks import game_task


def spoken(seat, text, chinese=1.0, repetition=0.0):
    return Spoken(seat=seat, text=text, chinese_share=chinese, repetition=repetition)


def evaluation(label="step 0", *said):
    return made_evaluation([made_row("scripted", "policy", spoken=said)], label)


def test_the_table_counts_the_policys_speeches_by_side():
    said = [spoken(2, "我是好人。"), spoken(3, "我是好人。", repetition=0.5), spoken(4, "ok?", chinese=0.0)]
    of_another = spoken(1, "别人的话。")
    (row,) = speech_table([evaluation("step 0", *said, of_another)], {"step 0": {"good": 5.25}}).rows
    assert row[0] == "step 0, good" and row[2:] == ("3", "4.3", "66.7%", "16.7%", "33.3%", "5.25")
    without = speech_table([evaluation("step 0", *said, of_another)], {})
    assert without.rows == [row[:-1]] and len(without.head) == len(row) - 1
    assert speech_table([made_evaluation([made_row()])], {}).rows == []


def test_talk_among_wolves_is_no_public_speech():
    facts = {"speech_chars": 5.0, "chinese_share": 1.0, "repetition": 0.0}
    turns = [
        make_turn(seat=1, decision=name, reply=name, facts=facts) for name in ("wolf_talk", "speech", "last_words")
    ]
    result = make_result()
    task = game_task(seed=result.seed, seating={"wolf": "policy", "good": "policy"})
    rollout = FinishedRollout("r", "a", result, tuple(turns), (), Counter())
    row = row_of(0, task, rollout, RewardConfig(), whole=False)
    assert [said.text for said in row.spoken] == ["speech", "last_words"]


def test_bits_a_character_are_those_of_the_text_alone(tmp_path, tiny_model, monkeypatch):
    tokenizer = AutoTokenizer.from_pretrained(tiny_model)
    model = AutoModelForCausalLM.from_pretrained(tiny_model, dtype=torch.float32)
    texts = ["我是好人。", "过。", "过。"]
    nats = 0.0
    for text in texts:
        ids = [tokenizer.bos_token_id or tokenizer.eos_token_id, *tokenizer.encode(text, add_special_tokens=False)]
        logits = model(torch.tensor([ids])).logits[0].double()
        nats += sum(torch.logsumexp(row, 0) - row[token] for row, token in zip(logits, ids[1:], strict=False)).item()
    expected = nats / math.log(2) / sum(map(len, texts))
    made = evaluation("step 0", *(spoken(2, text) for text in texts))
    assert score_speeches([made], tiny_model)["step 0"]["good"] == pytest.approx(expected, rel=1e-5)
    # Of too many, evenly: the first ones are all against the first opponent.
    monkeypatch.setattr(speech, "MOST_SPEECHES", 3)
    more = evaluation("step 0", *(spoken(2, text) for text in texts for _ in range(2)))
    assert score_speeches([more], tiny_model)["step 0"]["good"] == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("model", [["--model", "nowhere"], []])
def test_a_reference_model_that_is_not_there_is_named(tmp_path, capsys, model):
    made = made_evaluation([made_row("scripted", "policy", spoken=[spoken(2, "过。")])], initial="nowhere")
    record = Record(tmp_path, GameRow)
    record.begin(made.header)
    record.add(made.header, made.rows)
    assert exit_status(main, [str(tmp_path), *model]) == 2
    assert "error: --model nowhere does not exist" in capsys.readouterr().err
