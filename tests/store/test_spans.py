import struct

import pytest
from agentlightning import find_final_reward
from fakes import make_result, make_turn
from pydantic import ValidationError

from store.spans import MalformedSpan, ResultSpan, TurnSpan, is_result, is_turn, to_span


def wrap(record, sequence_id=1):
    return to_span(record, rollout_id="ro-1", attempt_id="at-1", sequence_id=sequence_id, start_time=1.0, end_time=2.0)


def test_turn_comes_back_exactly():
    turn = make_turn()
    decoded = TurnSpan.decode(wrap(turn))
    assert decoded.prompt_ids == turn.prompt_ids and decoded.response_ids == turn.response_ids
    # float32 is what vLLM computes; the stored value is the nearest float32, bit for bit.
    assert decoded.logprobs == tuple(struct.unpack("<2f", struct.pack("<2f", -0.1, -17.25)))
    assert decoded.model_copy(update={"logprobs": turn.logprobs}) == turn


def test_result_comes_back_and_is_a_reward_for_stock_agentlightning():
    span = wrap(make_result("wolf"))
    assert ResultSpan.decode(span) == make_result("wolf")
    assert find_final_reward([wrap(make_turn()), span]) == -1.0
    assert find_final_reward([wrap(make_result("good"))]) == 1.0


def test_turn_and_result_are_told_apart():
    turn, result = wrap(make_turn()), wrap(make_result())
    assert is_turn(turn) and not is_result(turn)
    assert is_result(result) and not is_turn(result)
    assert find_final_reward([turn]) is None


def test_the_same_span_has_the_same_id_and_another_one_has_not():
    assert wrap(make_turn()).span_id == wrap(make_turn()).span_id
    assert wrap(make_turn()).span_id != wrap(make_turn(), sequence_id=2).span_id


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"logprobs": (-0.1,)}, "2 sampled tokens but 1 log-probs"),
        ({"logprobs": (-0.1, float("-inf"))}, "not finite"),
        ({"prompt_ids": ()}, "without a prompt"),
    ],
)
def test_streams_that_do_not_align_are_refused(changes, message):
    with pytest.raises(ValidationError, match=message):
        make_turn(**changes)


@pytest.mark.parametrize(
    ("attribute", "value"),
    [("prompt_ids", "not base64!"), ("logprobs", "AAAA"), ("response_ids", None), ("seat", "two"), ("turn", None)],
)
def test_a_malformed_span_names_itself(attribute, value):
    span = wrap(make_turn())
    if value is None:
        del span.attributes["werewolf." + attribute]
    else:
        span.attributes["werewolf." + attribute] = value
    with pytest.raises(MalformedSpan, match=f"(?s)span {span.span_id}.*{attribute}"):
        TurnSpan.decode(span)


def test_attributes_are_what_every_store_accepts():
    for record in (make_turn(error=None), make_result()):
        assert all(isinstance(value, (str, int, float, bool)) for value in record.encode().values())
