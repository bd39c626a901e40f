"""Spans -> triplets -> trajectories: joins checked token by token, nothing lost without a reason."""

from collections import Counter

import pytest
from fakes import make_result, make_turn

from algo.trajectories import build_trajectories, seat_reward
from algo.triplets import IncompleteGame, TurnTriplets, read_game
from configs.schema import RewardConfig
from store.spans import SeatResult, context_digest, to_span

WEIGHTS = RewardConfig(win=1.0, lose=-1.0, draw=0.0, invalid_turn=-0.5)


def seat_result(seat, side="good", outcome=-1.0, turns=2, invalid=0):
    return SeatResult(
        seat=seat,
        role=side,
        side=side,
        policy="policy",
        trainable=True,
        outcome=outcome,
        turns=turns,
        invalid_turns=invalid,
        segments=1,
        decisions=turns - invalid,
        defaulted_decisions=0,
    )


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
    return [
        to_span(record, rollout_id="ro-1", attempt_id=attempt, sequence_id=n, start_time=1.7e9, end_time=1.7e9)
        for n, record in enumerate([*turns, result], start=1)
    ]


def build(turns, seats, max_tokens=1000):
    return build_trajectories([read_game("ro-1", "at-1", as_spans(turns, seats))], WEIGHTS, max_tokens)


TWO_TURNS = [([1, 2, 3], [4, 5]), ([6], [7, 8])]


def test_triplets_hold_the_whole_prompt_in_turn_order():
    spans = as_spans(seat_turns(2, TWO_TURNS) + seat_turns(1, [([9], [10])]), [])
    triplets = TurnTriplets().adapt(spans[::-1])
    assert [triplet.prompt["token_ids"] for triplet in triplets] == [[9], [1, 2, 3], [1, 2, 3, 4, 5, 6]]
    assert [triplet.response["token_ids"] for triplet in triplets] == [[10], [4, 5], [7, 8]]
    assert triplets[2].metadata["role"] == "seer" and triplets[2].metadata["turn"] == 1


def test_a_seats_game_is_one_sequence_with_everything_aligned():
    (trajectory,) = build(seat_turns(2, TWO_TURNS), [seat_result(2, invalid=1)]).trajectories
    assert trajectory.token_ids == (1, 2, 3, 4, 5, 6, 7, 8)
    assert trajectory.loss_mask == (0, 0, 0, 1, 1, 0, 1, 1)
    assert trajectory.logprobs == pytest.approx((0, 0, 0, -0.04, -0.05, 0, -0.07, -0.08))
    assert trajectory.turn_ends == (5, 8)
    assert trajectory.reward == pytest.approx(-1.25)
    assert (trajectory.seat, trajectory.role, trajectory.side, trajectory.policy_version) == (2, "seer", "good", 5)


def test_each_segment_is_its_own_sequence():
    turns = seat_turns(2, TWO_TURNS) + seat_turns(2, [([20, 21], [22])], segment=1, first_turn=2)
    found = build(turns, [seat_result(2, turns=3)])
    assert [trajectory.segment for trajectory in found.trajectories] == [0, 1]
    assert found.trajectories[1].token_ids == (20, 21, 22)
    assert (found.turns, found.breaks, found.left_out) == (3, 0, Counter())


def test_a_turn_whose_past_is_missing_is_left_out_and_counted():
    turns = seat_turns(2, [*TWO_TURNS, ([9], [10])])
    tampered = turns[1].model_copy(update={"response_ids": (7, 9)})
    found = build([turns[0], tampered, turns[2]], [seat_result(2, turns=3)])
    assert found.left_out == Counter(broken_context=1)
    assert found.turns == 2 and found.trajectories[0].token_ids == (1, 2, 3, 4, 5, 6, 7, 9)


def test_the_digest_notices_what_the_length_does_not():
    turns = seat_turns(2, TWO_TURNS)
    swapped = turns[0].model_copy(update={"prompt_ids": (1, 3, 2)})
    assert len(TurnTriplets().adapt(as_spans([swapped, turns[1]], []))) == 1


def test_seats_that_are_not_trained_and_long_sequences_are_counted():
    turns = seat_turns(1, TWO_TURNS, trainable=False) + seat_turns(2, TWO_TURNS) + seat_turns(3, [([1], [2])])
    found = build(turns, [seat_result(1), seat_result(2), seat_result(3, turns=1)], max_tokens=7)
    assert found.left_out == Counter(not_trainable=2, too_long=2)
    assert [trajectory.seat for trajectory in found.trajectories] == [3]
    assert found.turns + found.left_out.total() == len(turns)


def test_spans_of_another_attempt_a_missing_turn_or_result_make_no_game():
    turns = seat_turns(2, TWO_TURNS)
    whole = as_spans(turns, [seat_result(2)])
    assert read_game("ro-1", "at-1", whole).result.turns == 2
    for spans, message in [
        (whole[1:], "1 of 2 turns"),
        (whole[:-1], "0 result spans"),
        ([*whole, *as_spans(turns, [], attempt="at-0")], "another attempt"),
        (as_spans([turns[0], turns[1].model_copy(update={"game_id": "other"})], []), "other games"),
    ]:
        with pytest.raises(IncompleteGame, match=message):
            read_game("ro-1", "at-1", spans)


def test_a_span_stored_twice_counts_once():
    whole = as_spans(seat_turns(2, TWO_TURNS), [seat_result(2)])
    assert len(read_game("ro-1", "at-1", [*whole[:-1], *whole]).triplets) == 2


@pytest.mark.parametrize(
    ("outcome", "invalid", "turns", "reward"),
    [(1.0, 0, 4, 1.0), (-1.0, 2, 4, -1.25), (0.0, 4, 4, -0.5), (1.0, 0, 0, 1.0)],
)
def test_reward_of_a_seat(outcome, invalid, turns, reward):
    assert seat_reward(seat_result(1, outcome=outcome, turns=turns, invalid=invalid), WEIGHTS) == reward
