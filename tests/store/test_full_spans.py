"""Turns written whole give agentlightning's own adapter the triplets that ours reads from what is new in each turn."""

import pytest
from agentlightning import TracerTraceToTriplet, find_final_reward
from agentlightning.adapter.triplet import RewardMatchPolicy

from store.full_spans import FullTokenSpans
from store.token_spans import context_digest, to_span
from store.werewolf import is_result, is_turn
from tests.support.fakes import make_result, make_turn

ATTEMPT = {"rollout_id": "r", "attempt_id": "a"}


def turns_of(seat, **changes):
    """Three turns of a seat, the last in a new segment."""
    whole = [10 + seat, 11, 12, 13, 14]
    fields = dict(seat=seat, logprobs=(-0.25,), **changes)
    return [
        make_turn(**fields, turn=0, context_tokens=0, context_digest=context_digest([]), prompt_ids=whole[:2],
                  response_ids=whole[2:3]),
        make_turn(**fields, turn=1, context_tokens=3, context_digest=context_digest(whole[:3]), prompt_ids=whole[3:4],
                  response_ids=whole[4:]),
        make_turn(**fields, turn=2, segment=1, context_tokens=0, context_digest=context_digest([]), prompt_ids=[20, 21],
                  response_ids=[22]),
    ]  # fmt: skip


@pytest.fixture
def spans():
    """Two seats' turns, taken in turns and overlapping in time, as a worker writes them."""
    full, written, now = FullTokenSpans(), [], 100.0
    wolf, seer = turns_of(1, role="wolf", side="wolf"), turns_of(2, trainable=False)
    for turn in (wolf[0], seer[0], seer[1], wolf[1], wolf[2], seer[2]):
        number = len(written) + 1
        span = to_span(turn, **ATTEMPT, sequence_id=number, start_time=now, end_time=now + 5)
        written += [span, full.of_turn(turn, span, number + 1)]
        now += 1
    result = to_span(make_result(), **ATTEMPT, sequence_id=len(written) + 1, start_time=120, end_time=120)
    return [*written, result, *full.of_actors(result, len(written) + 2, 100, 120)]


def test_whole_prompts_in_the_order_of_each_seat(spans):
    triplets = TracerTraceToTriplet().adapt(spans)
    read = [(t.metadata["agent_name"], t.prompt["token_ids"], t.response["token_ids"]) for t in triplets]
    wolf, seer = "wolf/wolf/seat-1/policy/trainable", "good/seer/seat-2/policy"
    assert read == [
        (wolf, [11, 11], [12]),
        (wolf, [11, 11, 12, 13], [14]),
        (wolf, [20, 21], [22]),
        (seer, [12, 11], [12]),
        (seer, [12, 11, 12, 13], [14]),
        (seer, [20, 21], [22]),
    ]
    assert {len(t.response["logprobs"]) for t in triplets} == {1}
    assert triplets[0].response["logprobs"][0]["logprob"] == -0.25
    assert len({t.metadata["response_id"] for t in triplets}) == 6


@pytest.mark.parametrize("options", [{"repair_hierarchy": False}, {"_skip_empty_token_spans": True}])
def test_no_option_is_needed(spans, options):
    assert TracerTraceToTriplet(**options).adapt(spans) == TracerTraceToTriplet().adapt(spans)


@pytest.mark.parametrize(("agent_match", "seats"), [("trainable", {11}), ("^good/", {12}), ("/seat-2/", {12})])
def test_seats_are_chosen_by_agent_name(spans, agent_match, seats):
    triplets = TracerTraceToTriplet(agent_match=agent_match).adapt(spans)
    assert len(triplets) == 3 and {t.prompt["token_ids"][0] for t in triplets} - {20} == seats


@pytest.mark.parametrize("policy", RewardMatchPolicy)
def test_the_games_reward_goes_to_the_last_call(spans, policy):
    triplets = TracerTraceToTriplet(reward_match=policy).adapt(spans)
    rewards = {t.metadata["response_id"]: t.reward for t in triplets if t.reward is not None}
    assert list(rewards.values()) == [-1.0] and find_final_reward(spans) == -1.0
    if policy is RewardMatchPolicy.FIRST_OCCURRENCE:
        assert list(rewards) == ["r/a/seat 02/2"]


def test_our_own_reading_sees_no_more_than_before(spans):
    assert sum(map(is_turn, spans)) == 6 and sum(map(is_result, spans)) == 1
    assert len({span.span_id for span in spans}) == len(spans)
    assert [span.sequence_id for span in spans] == list(range(1, len(spans) + 1))


def test_a_turn_that_does_not_continue_the_last_one_is_refused(spans):
    full = FullTokenSpans()
    with pytest.raises(ValueError, match="seat 01: turn 1 does not continue"):
        full.of_turn(turns_of(1)[1], spans[0], 1)
