import struct

import pytest
from pydantic import ValidationError

from store.otlp import encode_otlp
from store.token_spans import MalformedSpan, to_span
from store.werewolf import NEUTRAL_FACTS, Judgement, ResultSpan, TurnSpan
from tests.support.fakes import make_result, make_turn
from tests.support.hub.asking import final_reward


def wrap(record):
    return to_span(record, rollout_id="ro-1", attempt_id="at-1", sequence_id=1, start_time=1.0, end_time=2.0)


def test_turn_comes_back_exactly():
    facts = {**NEUTRAL_FACTS, "speech_chars": 200.0, "repetition": 1 / 3}
    turn = make_turn(target=3, facts=facts)
    decoded = TurnSpan.decode(wrap(turn))
    assert decoded.prompt_ids == turn.prompt_ids and decoded.response_ids == turn.response_ids
    # float32 is what vLLM computes; the stored value is the nearest float32, bit for bit.
    assert decoded.logprobs == tuple(struct.unpack("<2f", struct.pack("<2f", -0.1, -17.25)))
    assert decoded.model_copy(update={"logprobs": turn.logprobs}) == turn


def test_older_spans_without_what_a_reply_chose_are_read():
    older = wrap(make_turn(target=None))
    assert "werewolf.target" not in older.attributes
    turn = TurnSpan.decode(older)
    assert (turn.target, turn.facts) == (None, {})


def test_what_otlp_cannot_encode_is_replaced_or_refused_before_it_joins_a_batch():
    span = wrap(make_turn(reply="城市\ud83d"))
    encode_otlp({("ro-1", "at-1"): [span]})
    assert TurnSpan.decode(span).reply == "城市?"
    with pytest.raises(MalformedSpan, match="policy_version"):
        wrap(make_turn(policy_version=2**63))


def test_result_comes_back_and_is_a_reward_for_stock_agentlightning():
    span = wrap(make_result("wolf"))
    assert ResultSpan.decode(span) == make_result("wolf")
    assert final_reward([wrap(make_turn()), span]) == -1.0
    assert final_reward([wrap(make_result("good"))]) == 1.0


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"logprobs": (-0.1,)}, "2 sampled tokens but 1 log-probs"),
        ({"logprobs": (-0.1, float("-inf"))}, "not finite"),
        ({"prompt_ids": ()}, "without a prompt"),
        ({"target": 0}, "target"),
        ({"facts": {"repetitions": 0.1}}, "unknown fact 'repetitions'; known: invalid"),
        ({"facts": {"repetition": -0.1}}, "must lie in"),
        ({"facts": {"cut": float("nan")}}, "must lie in"),
    ],
)
def test_streams_that_do_not_align_and_facts_that_cannot_be_are_refused(changes, message):
    with pytest.raises(ValidationError, match=message):
        make_turn(**changes)


@pytest.mark.parametrize(
    ("attribute", "value"),
    [
        ("prompt_ids", "not base64!"),
        ("logprobs", "AAAA"),
        ("response_ids", None),
        ("seat", "two"),
        ("turn", None),
        ("facts", "[" * 100_000),
    ],
)
def test_a_malformed_span_names_itself(attribute, value):
    span = wrap(make_turn())
    if value is None:
        del span.attributes["werewolf." + attribute]
    else:
        span.attributes["werewolf." + attribute] = value
    with pytest.raises(MalformedSpan, match=f"(?s)span {span.span_id}.*{attribute}"):
        TurnSpan.decode(span)


def judged_result():
    first = make_result().seats[0].model_copy(update={"facts": {"invalid": 0.5, "identity_leak": 0.25}})
    second = first.model_copy(update={"seat": 2, "facts": {}, "outcome": -1.0})
    judgements = (Judgement(seat=1, turn=0, score=0.5), Judgement(seat=1, turn=3, score=1.0))
    changes = {"seats": (first, second), "judgements": judgements, "judge_asked": 3}
    return make_result("wolf").model_copy(update=changes)


def test_reward_dimensions_of_a_seat():
    assert judged_result().rewards() == {
        "outcome.good": -1.0,
        "outcome.wolf": 1.0,
        "seat.1.outcome": 1.0,
        "seat.1.invalid": 0.5,
        "seat.1.identity_leak": 0.25,
        "seat.1.judgement": 0.75,
        "seat.2.outcome": -1.0,
    }
    assert ResultSpan.decode(wrap(judged_result())) == judged_result()
    assert final_reward([wrap(judged_result())]) == -1.0
