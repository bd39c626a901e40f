"""What is noted of a game beside it: votes against the odds, claims, deaths, beliefs; and that the game is the same."""

import random
import re

import pytest

from runners.attempt_spans import AttemptSpans
from runners.errors import PolicyUnavailable
from runners.policy.word_log_probs import word_log_probs
from runners.werewolf.brains import ExpertBrain
from runners.werewolf.game import EventKind, Role, get_preset
from runners.werewolf.players import BrainPlayer
from runners.werewolf.study.notes import public_wolf_odds, study_of
from runners.werewolf.table import play_game
from store.werewolf import GAME, GameTask
from store.werewolf_study import Study, StudySpan
from tests.runners.werewolf.test_table import make_task, policy_seats, scripted_seat
from tests.support.game.game_playing import play_brains
from tests.support.werewolf.seat_players import legal_answer

ALL = Study(probes=frozenset({"speech", "vote"}), with_tokens=True)


def expert_seat(seat, role, name):
    return BrainPlayer(seat, ExpertBrain(random.Random(seat)))


async def spans_of(task, seat_player):
    spans = []
    attempt = AttemptSpans(spans.append, ("rollout", "attempt"))
    result = await play_game(task, 4, seat_player, lambda turn, *times: attempt.add_turn(turn, 2.0, 3.0))
    attempt.add_result(result, 4.0)
    return spans


async def test_a_studied_game_is_stored_alike_but_for_one_span_more(vllm):
    plain = await spans_of(make_task(), policy_seats(vllm, make_task()))
    vllm.answer, studied_task = legal_answer(random.Random(1)), make_task(study=ALL)
    studied = await spans_of(studied_task, policy_seats(vllm, studied_task))
    assert [span.model_dump_json() for span in studied[:-1]] == [span.model_dump_json() for span in plain]
    (note,) = [span for span in studied if GAME.note.is_in(span)]
    assert note is studied[-1] and StudySpan.decode(note).beliefs
    assert not any(GAME.call.is_in(span) or GAME.outcome.is_in(span) for span in (note,))
    assert "study" not in make_task().encode() and GameTask.decode(studied_task.encode()) == studied_task


async def test_beliefs_are_the_shares_of_the_roles_names(vllm, tiny_tokenizer):
    names = {Role.WOLF: "狼人", Role.SEER: "预言家", Role.VILLAGER: "村民"}
    # By the first token of each name; a further token is certain.
    first = {role: tiny_tokenizer.encode(name, add_special_tokens=False)[0] for role, name in names.items()}
    assert len(set(first.values())) == 3
    value = {first[Role.WOLF]: -1.0, first[Role.SEER]: -2.0, first[Role.VILLAGER]: -3.0}
    asked = []

    def likely(prompt, token):
        text = tiny_tokenizer.decode(prompt)
        if text.endswith("</think>\n\n"):
            asked.append(text)
            return value.get(token, -9.0)
        return 0.0

    vllm.likely = likely
    task = make_task(study=ALL)
    *_, note = await spans_of(task, policy_seats(vllm, task))
    study = StudySpan.decode(note)
    whole = sum(2.718281828459045**each for each in (-1.0, -2.0, -3.0))
    expected = {"wolf": 2.718281828459045**-1 / whole, "seer": 2.718281828459045**-2 / whole}
    for belief in study.beliefs:
        for chances in belief.beliefs.values():
            assert {role: chances[role] for role in expected} == pytest.approx(expected)
        assert belief.mass == pytest.approx(whole)
        assert belief.beliefs.keys() == belief.ceiling.keys() and belief.seat not in belief.beliefs
        assert [one.target for one in belief.asked] == list(belief.beliefs)
    assert all("场外提问" in text.rpartition("<|im_start|>user")[2] for text in asked)
    # What was said before a later speech is in its question, and no question is ever in another call.
    assert not any("场外提问" in tiny_tokenizer.decode(body["prompt"]) for body, _ in vllm.exchanges)
    speech = next(index for index, belief in enumerate(study.beliefs) if belief.at > study.beliefs[0].at)
    assert "发言" in tiny_tokenizer.decode(study.beliefs[speech].asked[0].prompt_ids)


async def test_who_keeps_the_experts_odds_believes_what_the_ceiling_says_and_others_cannot_be_asked():
    task = make_task(study=ALL, seed=5)
    for seat_player, told in ((expert_seat, True), (scripted_seat, False)):
        *_, note = await spans_of(task, seat_player)
        study = StudySpan.decode(note)
        assert {belief.moment for belief in study.beliefs} == {"speech", "vote"}
        for belief in study.beliefs:
            assert belief.beliefs == (belief.ceiling if told else None)


@pytest.mark.parametrize("preset", ["5p_tiny", "12p_sheriff"])
def test_deaths_claims_and_choices_are_the_records(preset):
    exploded = 0
    for seed in range(8):
        state = play_brains(get_preset(preset), seed)
        study = study_of("g", state, (), {})
        of = {kind: [event for event in state.events if event.kind is kind] for kind in EventKind}
        dead = [(seat, event.day) for event in of[EventKind.DEATHS_ANNOUNCED] for seat in event.seats]
        dead += [(event.target, event.day) for kind in (EventKind.EXILED, EventKind.SHOT) for event in of[kind]]
        # A wolf that was hit and explodes before it is announced dies by its explosion.
        dead += [(event.seat, event.day) for event in of[EventKind.EXPLODED]]
        exploded += len(of[EventKind.EXPLODED])
        assert sorted(study.deaths.items()) == sorted(set(dead))
        assert [(kill.day, kill.target) for kill in study.kills] == [
            (event.day, event.target) for event in of[EventKind.WOLF_TARGET]
        ]
        assert [(check.seat, check.target) for check in study.checks] == [
            (event.seat, event.target) for event in of[EventKind.SEER_RESULT]
        ]
        for speech in study.speeches:
            event = state.events[speech.at]
            assert (event.seat, event.audience) == (speech.seat, None) and event.text
            assert not speech.reports or re.search("验|查|摸|金水", event.text)
        assert any(speech.claimed == "seer" for speech in study.speeches) or not of[EventKind.SEER_RESULT]
    assert exploded or preset == "5p_tiny"


def test_votes_are_noted_with_the_odds_of_the_public_record_before_the_ballot():
    state = play_brains(get_preset("9p"), 3)
    study = study_of("g", state, (), {})
    cast = [(number, event) for number, event in enumerate(state.events) if event.kind is EventKind.VOTE]
    assert [(vote.seat, vote.target) for vote in study.votes] == [(event.seat, event.target) for _, event in cast]
    for vote in study.votes:
        assert state.events[vote.at].kind is EventKind.VOTE and state.events[vote.at - 1].kind is not EventKind.VOTE
        public = [event for event in state.events[: vote.at] if event.audience is None]
        likely = public_wolf_odds(public, vote.seat, state.preset.deck)
        assert vote.odds == (None if vote.target is None else pytest.approx(likely[vote.target]))
        assert vote.chance <= vote.best <= 1 and (vote.odds or 0) <= vote.best + 1e-9


def test_a_vote_is_pivotal_where_the_ballot_would_have_ended_otherwise_without_it():
    seen = set()
    for seed in range(12):  # by chance, and without a sheriff: every vote weighs the same
        votes = study_of("g", play_brains(get_preset("5p_tiny"), seed, "random"), (), {}).votes
        for vote in votes:
            ballot = [one for one in votes if one.at == vote.at]
            ends = []
            for counted in (ballot, [one for one in ballot if one is not vote]):
                targets = [one.target for one in counted if one.target is not None]
                most = max(map(targets.count, targets), default=0)
                ends.append({target for target in targets if targets.count(target) == most})
            assert vote.pivotal == (ends[0] != ends[1])
            seen.add(vote.pivotal)
    assert seen == {True, False}


class Server:
    """A server whose log-probs are made up; ``body`` is what it was asked."""

    endpoint, model = "http://fake/v1", "policy"

    def __init__(self, told):
        self.told = told

    async def ask(self, route, body):
        self.body = body
        top = {f"token_id:{token}": -float(token) for token in body["logprob_token_ids"]}
        choices = [
            {"index": number, "logprobs": {"top_logprobs": [top if self.told else {}]}}
            for number in range(len(body["prompt"]))
        ]
        return {"choices": choices[::-1]}


async def test_a_words_log_prob_is_the_sum_over_its_tokens_each_after_those_before():
    server = Server(True)
    found = await word_log_probs(server, [[7], [8, 9]], [(1, 2), (1, 3), (4,)])
    assert found == [[-3.0, -4.0, -4.0]] * 2
    assert server.body["prompt"] == [[7], [7, 1], [8, 9], [8, 9, 1]] and server.body["temperature"] == 1.0
    assert server.body["model"] == "policy"  # which adapters sample depends on it
    assert await word_log_probs(server, [], [(1,)]) == []
    for words in ([(1,), (1, 2)], [(1,), (1,)], [()]):
        with pytest.raises(ValueError, match="a prefix of another"):
            await word_log_probs(server, [[7]], words)
    with pytest.raises(PolicyUnavailable, match="log-probs of given tokens"):
        await word_log_probs(Server(False), [[7]], [(1,), (2,)])
