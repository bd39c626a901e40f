"""Rows of the listening loss are the questions that were asked, in their very tokens, answered with the truth."""

import random

import pytest

from algo.rollouts.triplets import read_attempt
from algo.sequences.vocabulary import vocabulary_of
from algo.werewolf.demonstrations import demonstration_tasks
from algo.werewolf.listening import listening_rows
from algo.werewolf.tasks import step_tasks
from algo.werewolf.workload import Werewolf
from configs.roles_and_decks import Role
from configs.sections.policies import LearnerConfig, learner_of
from configs.werewolf import WerewolfConfig
from runners.attempt_spans import AttemptSpans
from runners.werewolf.table import play_game
from store.werewolf import GAME
from store.werewolf_study import Study
from tests.runners.werewolf.test_table import legal_answer, make_task, policy_seats
from tests.support.fakes import FakeVllm

SPOKEN = {"speech", "closing_speech", "pk_speech", "last_words"}
NAMES = {"wolf": "狼人", "seer": "预言家", "villager": "村民"}


@pytest.fixture
async def vllm(tiny_tokenizer):
    async with FakeVllm(tiny_tokenizer, legal_answer(random.Random(1))) as vllm:
        yield vllm


async def played(vllm, **study):
    asked = {"probes": frozenset({"vote"}), "with_tokens": True, **study}
    task, spans = make_task(study=Study(**asked)), []
    attempt = AttemptSpans(spans.append, ("r", "a"))
    result = await play_game(task, 0, policy_seats(vllm, task), lambda turn, *t: attempt.add_turn(turn, 2.0, 3.0))
    attempt.add_result(result, 4.0)
    return read_attempt(GAME, "r", "a", spans)


async def test_a_row_is_a_question_that_was_asked_and_the_true_role(vllm, tiny_tokenizer, tiny_model):
    asked, vocabulary = set(), vocabulary_of(tiny_model)
    vllm.likely = lambda prompt, token: asked.add(tuple(prompt)) or -1.0
    rollout = await played(vllm)
    roles = {seat.seat: seat.role for seat in rollout.outcome.seats}
    trained = {seat.seat for seat in rollout.outcome.seats if seat.trainable}
    (note,) = rollout.notes
    answers = [(belief, one) for belief in note.beliefs if belief.seat in trained for one in belief.asked]
    rows = list(listening_rows(rollout, 100_000, vocabulary))
    assert len(rows) == len(answers) > 0
    for row, (belief, one) in zip(rows, answers, strict=True):
        word = tuple(tiny_tokenizer.encode(NAMES[roles[one.target]], add_special_tokens=False))
        assert row.token_ids[-len(word) :] == word and row.token_ids[: -len(word)] in asked
        assert row.weights == (0.0,) * (len(row.token_ids) - len(word)) + (1.0,) * len(word)
        question = tiny_tokenizer.decode(row.token_ids).rpartition("<|im_start|>user")[2]
        assert f"你认为{one.target}号的身份" in question and belief.seat in trained
    assert {row.learner for row in rows} == {None}
    # Of several policies it is for the one whose seat was asked.
    team = {"seers": LearnerConfig(roles=("seer",)), "wolves": LearnerConfig(side="wolf"), "others": LearnerConfig()}
    learners = [row.learner for row in listening_rows(rollout, 100_000, vocabulary, team)]
    assert learners == [learner_of(team, Role(roles[belief.seat])) for belief, _ in answers]
    longest = max(len(row.token_ids) for row in rows)
    assert len(list(listening_rows(rollout, longest - 1, vocabulary))) < len(rows)
    # Tokens that the model does not have would end the trainer.
    largest = max(token for row in rows for token in row.token_ids)
    assert len(list(listening_rows(rollout, 100_000, largest + 1))) == len(rows)
    assert len(list(listening_rows(rollout, 100_000, largest))) < len(rows)


async def test_only_a_run_that_learns_to_listen_has_rows(vllm, tiny_model):
    rollout = await played(vllm)
    for listening in (0.0, 0.3):
        config = WerewolfConfig(model={"path": tiny_model}, probes={"listening": listening})
        assert any(Werewolf(config, None).targets_of(rollout)) == (listening > 0)


async def test_of_so_many_seats_is_asked_as_the_task_says_and_others_on_other_occasions(vllm):
    rollout = await played(vllm, questions=1)
    targets = [tuple(one.target for one in belief.asked) for belief in rollout.notes[0].beliefs]
    assert {len(each) for each in targets} == {1} and len(set(targets)) > 1
    vllm.answer = legal_answer(random.Random(1))  # the same game once more
    (again,) = (await played(vllm, questions=1)).notes
    assert [tuple(one.target for one in belief.asked) for belief in again.beliefs] == targets


async def test_the_notes_say_which_turn_made_a_speech(vllm):
    rollout = await played(vllm)
    turns = {(turn.seat, turn.turn): turn for turn in rollout.turns}
    (note,) = rollout.notes
    assert len(note.speeches) > 3
    for speech in note.speeches:
        turn = turns[speech.seat, speech.turn]
        assert turn.day == speech.day and turn.decision in SPOKEN and turn.error is None
    assert len({(speech.seat, speech.turn) for speech in note.speeches}) == len(note.speeches)


def test_games_in_training_are_studied_only_where_listening_is_learned():
    assert {task.study for task in step_tasks(WerewolfConfig(), 1)} == {None}
    config = WerewolfConfig(probes={"listening": 0.3, "moments": ["speech"], "questions": 2})
    (study,) = {task.study for task in step_tasks(config, 1)}
    assert study == Study(probes=frozenset({"speech"}), questions=2, with_tokens=True)


def test_a_share_of_the_deals_is_asked_the_same_games_of_a_deal_and_the_same_each_time():
    config = {"rollout": {"groups_per_step": 400, "rollouts_per_group": 2}, "run": {"seed": 3}}

    def asked(tasks):
        return {task.seed for task in tasks if task.study}

    some = WerewolfConfig(**config, probes={"listening": 0.3, "share_of_deals": 0.25})
    tasks = step_tasks(some, 1)
    assert 70 < len(asked(tasks)) < 130 and asked(tasks) == asked(step_tasks(some, 1))
    assert sum(task.study is not None for task in tasks) == 2 * len(asked(tasks))
    more = WerewolfConfig(**config, probes={"listening": 0.3, "share_of_deals": 0.5})
    assert asked(tasks) < asked(step_tasks(more, 1))
    shown = WerewolfConfig(probes={"listening": 0.3, "share_of_deals": 0.25}, warm_start={"games": 400})
    assert 60 < len(asked(demonstration_tasks(shown))) < 140
