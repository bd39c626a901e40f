"""Spans -> triplets -> trajectories: joins checked token by token, nothing lost without a reason."""

import random
from collections import Counter
from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from algo.rollouts.triplets import DUPLICATE_SPAN, IncompleteRollout, read_attempt
from algo.sequences.trajectories import build_trajectories
from algo.werewolf.rewards import game_rewards
from configs.sections.rewards import RewardConfig
from store.token_spans import MalformedSpan, context_digest
from store.werewolf import GAME, Judgement
from store.werewolf_study import BeliefRecord, ChoiceRecord, ProbeTokens, SpeechRecord, StudySpan, VoteRecord
from tests.support.fakes import make_result, make_turn, spans_of

WEIGHTS = RewardConfig(invalid=-0.5, judge_score=1.0)


def seat_result(seat, turns=2):
    (made,) = make_result().seats
    return made.model_copy(update={"seat": seat, "role": "seer", "side": "good", "outcome": -1.0, "turns": turns})


def seat_turns(seat, deltas, segment=0, first_turn=0, **changes):
    """Turns of one seat from (prompt ids, response ids) pairs, with the context that a runner would record."""
    context, turns = [], []
    for number, (prompt, response) in enumerate(deltas):
        turns.append(
            make_turn(
                seat=seat,
                segment=segment,
                turn=first_turn + number,
                context_tokens=len(context),
                context_digest=context_digest(context),
                prompt_ids=tuple(prompt),
                response_ids=tuple(response),
                logprobs=tuple(-float(token) / 100 for token in response),
                **changes,
            )
        )
        context += [*prompt, *response]
    return turns


def as_spans(turns, seats, attempt="at-1", **result_changes):
    result = make_result().model_copy(update={"seats": tuple(seats), "turns": len(turns), **result_changes})
    return spans_of([*turns, result], attempt_id=attempt)


def build(turns, seats, max_tokens=1000):
    return build_trajectories(
        [read_attempt(GAME, "ro-1", "at-1", as_spans(turns, seats))], partial(game_rewards, weights=WEIGHTS), max_tokens
    )


TWO_TURNS = [([1, 2, 3], [4, 5]), ([6], [7, 8])]


def turns_in(found):
    """Model turns in the trajectories, which with those left out must be all."""
    return sum(len(trajectory.turn_ends) for trajectory in found.trajectories)


def test_seats_that_are_not_trained_and_long_sequences_are_counted():
    turns = seat_turns(1, TWO_TURNS, trainable=False) + seat_turns(2, TWO_TURNS) + seat_turns(3, [([1], [2])])
    found = build(turns, [seat_result(1), seat_result(2), seat_result(3, turns=1)], max_tokens=7)
    assert found.left_out == Counter(not_trainable=2, too_long=2)
    assert [trajectory.actor for trajectory in found.trajectories] == ["seat 03"]
    assert turns_in(found) + found.left_out.total() == len(turns)


def test_spans_of_another_attempt_a_missing_turn_or_result_make_no_game():
    turns = seat_turns(2, TWO_TURNS)
    whole = as_spans(turns, [seat_result(2)])
    assert read_attempt(GAME, "ro-1", "at-1", whole).outcome.turns == 2
    with pytest.raises(IncompleteRollout, match="another task"):
        read_attempt(GAME, "ro-1", "at-1", whole, task_id="enqueued")
    for spans, message in [
        (whole[1:], "1 of 2 turns"),
        (whole[:-1], "0 outcome spans"),
        ([*whole, *as_spans(turns, [], attempt="at-0")], "another attempt"),
        ([*whole, whole[-1].model_copy(update={"span_id": "other"})], "2 outcome spans"),
        (as_spans([*turns, turns[1].model_copy(update={"reply": "另一句"})], []), "several spans of the same turn"),
        (as_spans([turns[0], turns[1].model_copy(update={"game_id": "other"})], []), "other tasks"),
        (as_spans(turns, [seat_result(3)]), "actors that the outcome lacks"),
        ([*whole, *note_spans(game_id="other")], "notes of other tasks"),
    ]:
        with pytest.raises(IncompleteRollout, match=message):
            read_attempt(GAME, "ro-1", "at-1", spans)


VOTE = VoteRecord(at=0, day=1, seat=2, target=2, odds=0.5, best=0.5, chance=0.5, pivotal=False)


def note_spans(game_id="g", *, seat=2, beliefs=None, actions=None, **probe):
    """A game's note with one probe, not validated."""
    asked = {"target": 2, "segment": 0, "context_tokens": 0, "prompt_ids": (5,), "words": {"seer": (7,)}} | probe
    given = {"at": 0, "day": 1, "moment": "vote", "ceiling": {}, "deaf": {}, "seat": seat, "beliefs": beliefs}
    belief = BeliefRecord.model_construct(**given, asked=(ProbeTokens.model_construct(**asked),))
    note = StudySpan.model_construct(game_id=game_id, beliefs=(belief,), **(actions or {}))
    return [span.model_copy(update={"span_id": "note"}) for span in spans_of([note])]


@pytest.mark.parametrize(
    ("note", "message"),
    [
        ({"seat": 99}, r"other seats, \[99\]"),
        ({"target": 99}, r"other seats, \[99\]"),
        ({"beliefs": {99: {"seer": 1.0}}}, r"other seats, \[99\]"),
        ({"beliefs": {}}, "without odds of the same seats"),
        ({"beliefs": {2: {"seer": 1.0}}}, "without odds of the same seats"),
        ({"actions": {"votes": (VOTE.model_copy(update={"seat": 99}),)}}, r"other seats, \[99\]"),
        ({"actions": {"votes": (VOTE.model_copy(update={"target": 99}),)}}, r"other seats, \[99\]"),
        ({"actions": {"kills": (ChoiceRecord(day=1, target=99),)}}, r"other seats, \[99\]"),
        ({"actions": {"checks": (ChoiceRecord(day=1, target=2),)}}, "a check without a seat"),
        ({"actions": {"speeches": (SpeechRecord(at=0, day=1, seat=99),)}}, r"other seats, \[99\]"),
        ({"words": {"wolf": (7,)}}, "seat 2 has no word for seer"),
        ({"words": {"seer": ()}}, "words"),
        ({"prompt_ids": ()}, "prompt_ids"),
    ],
)
def test_a_note_about_what_the_game_does_not_have_makes_no_game(note, message):
    whole = as_spans(seat_turns(2, TWO_TURNS), [seat_result(2)])
    assert len(read_attempt(GAME, "ro-1", "at-1", [*whole, *note_spans()]).notes) == 1
    with pytest.raises(MalformedSpan, match=message):
        read_attempt(GAME, "ro-1", "at-1", [*whole, *note_spans(**note)])


@pytest.mark.parametrize("events", ["[1]", '[{"text": "\\ud800"}]', pytest.param("[" * 10_000, id="nested")])
def test_events_that_cannot_be_read_or_written_again_make_no_game(events):
    turns = seat_turns(2, TWO_TURNS, events=f'{{"first": 0, "events": {events}}}')
    with pytest.raises(MalformedSpan, match="the events of game g"):
        read_attempt(GAME, "ro-1", "at-1", as_spans(turns, [seat_result(2)]))


def test_a_span_stored_twice_counts_once():
    whole = as_spans(seat_turns(2, TWO_TURNS), [seat_result(2)])
    game = read_attempt(GAME, "ro-1", "at-1", [*whole, *whole])
    assert len(game.triplets) == 2 and game.left_out == {DUPLICATE_SPAN: 2}
    found = build_trajectories([game], partial(game_rewards, weights=WEIGHTS), 1000)
    assert turns_in(found) + found.left_out.total() == 4


def test_turn_rewards_belong_to_their_turns_in_every_segment():
    leak, cut = {"identity_leak": 1.0}, {"cut": 1.0}
    turns = seat_turns(2, [([1], [2]), ([3], [4])]) + seat_turns(2, [([5], [6])], segment=1, first_turn=2)
    turns = [turn.model_copy(update={"facts": facts}) for turn, facts in zip(turns, ({}, leak, cut), strict=True)]
    judgements = (Judgement(seat=2, turn=2, score=1.0), Judgement(seat=3, turn=0, score=0.0))
    weights = RewardConfig(identity_leak=-3.0, cut=-0.6, judge_score=0.5)
    spans = as_spans(turns, [seat_result(2, turns=3)], judgements=judgements)
    found = build_trajectories(
        [read_attempt(GAME, "ro-1", "at-1", spans)], partial(game_rewards, weights=weights), 1000
    ).trajectories
    assert [one.turn_rewards for one in found] == [pytest.approx((0, -1)), pytest.approx((0.5 - 0.2,))]
    assert [one.reward for one in found] == [pytest.approx(-1 - 1 + 0.3)] * 2


def test_what_a_seat_earns_does_not_depend_on_which_turns_can_be_trained_on():
    turns = [turn.model_copy(update={"facts": {"invalid": 1.0}}) for turn in seat_turns(2, [*TWO_TURNS, ([9], [10])])]
    whole = build(turns, [seat_result(2, turns=3)])
    broken = build([turns[0], turns[1].model_copy(update={"context_digest": "?"}), turns[2]], [seat_result(2, turns=3)])
    assert turns_in(broken) == 1 and broken.left_out == Counter(broken_context=2)
    assert broken.trajectories[0].reward == whole.trajectories[0].reward == pytest.approx(-1.5)
    assert broken.trajectories[0].turn_rewards == pytest.approx((-1 / 6,))


# --- random games, shifted and tampered with --------------------------------------------------------------------------


def random_game(seed):
    """(turns, exchanges): spans of some seats, and what a server would have seen: whole prompts, samples, log-probs."""
    rng = random.Random(seed)
    turns, exchanges = [], Counter()
    for seat in range(1, rng.randint(2, 4)):
        number = 0
        for segment in range(rng.randint(1, 2)):
            deltas = [
                (
                    [rng.randrange(9) for _ in range(rng.randint(1, 4))],
                    [rng.randrange(9) for _ in range(rng.randint(1, 4))],
                )
                for _ in range(rng.randint(1, 4))
            ]
            played = seat_turns(seat, deltas, segment=segment, first_turn=number)
            number += len(played)
            context = []
            for turn in played:
                # Powers of two: exact in float32, so that what is stored equals what was returned.
                logprobs = tuple(-(2.0 ** -rng.randint(1, 20)) for _ in turn.response_ids)
                turns.append(turn.model_copy(update={"logprobs": logprobs}))
                exchanges[(*context, *turn.prompt_ids), turn.response_ids, logprobs] += 1
                context += [*turn.prompt_ids, *turn.response_ids]
    rng.shuffle(turns)
    return turns, exchanges


def exchanges_of(trajectory):
    """What the trajectory says was sampled after which prompt, read from its mask and turn ends alone."""
    for end in trajectory.turn_ends:
        start = end
        while trajectory.loss_mask[start - 1]:
            start -= 1
        yield trajectory.token_ids[:start], trajectory.token_ids[start:end], trajectory.logprobs[start:end]


@given(st.integers(0, 2**32))
@settings(max_examples=60, deadline=None)
def test_every_turn_is_what_the_server_saw(seed):
    turns, exchanges = random_game(seed)
    seats = [seat_result(seat) for seat in {turn.seat for turn in turns}]
    found = build(turns, seats)
    assert Counter(each for one in found.trajectories for each in exchanges_of(one)) == exchanges
    assert (found.left_out.total(), turns_in(found)) == (0, len(turns))


@given(st.integers(0, 2**32))
@settings(max_examples=60, deadline=None)
def test_a_broken_digest_is_never_papered_over(seed):
    """Change any token that a later turn of the segment builds on: that turn and all after it are left out."""
    turns, _ = random_game(seed)
    last = {}
    for turn in turns:
        last[turn.seat, turn.segment] = max(turn.turn, last.get((turn.seat, turn.segment), 0))
    rng = random.Random(seed)
    number = rng.randrange(len(turns))
    turn = turns[number]
    field = rng.choice(["prompt_ids", "response_ids"])
    wrong = list(getattr(turn, field))
    wrong[rng.randrange(len(wrong))] += 1
    turns[number] = turn.model_copy(update={field: tuple(wrong)})
    after = last[turn.seat, turn.segment] - turn.turn
    found = build(turns, [seat_result(seat) for seat in {turn.seat for turn in turns}])
    assert found.left_out == (Counter(broken_context=after) if after else Counter())
    assert turns_in(found) == len(turns) - after
