"""Games on several servers of a policy: who is asked where, what happens when one is gone or gets new weights."""

import asyncio
from collections import Counter
from functools import partial

import pytest
from transformers import AutoTokenizer

from algo.machine.ports import free_port
from runners.errors import PolicyUnavailable
from runners.policy.client import seed_of
from runners.policy.connections import Policies, endpoint_of
from store.endpoints import ServedPolicy
from store.schema import PolicyResources
from store.token_spans import to_span
from store.werewolf import TurnSpan
from tests.runners.werewolf.test_table import make_task, whole_prompts
from tests.support.tasks import HERE, play_task

play = partial(play_task, policy_timeout_seconds=0)


def resources(*endpoints, **changes):
    return PolicyResources(**{"run_name": "run", "version": 3, "endpoints": endpoints, "model": "policy", **changes})


def calls(vllm):
    """(whole prompt, reply) of everything that the server was asked."""
    return Counter((tuple(body["prompt"]), tuple(choice["token_ids"])) for body, choice in vllm.exchanges)


async def test_a_game_goes_on_when_one_server_is_gone_only_if_it_has_no_seat_there(vllms):
    alive, gone = vllms
    there = resources(alive.endpoint, gone.endpoint)
    by_seats = {
        frozenset(seed_of(f"game-{game}/{seat}") % 2 for seat in range(1, 6)): f"game-{game}" for game in range(200)
    }
    await gone.stop()
    with pytest.raises(PolicyUnavailable, match=rf"{gone.endpoint}"):
        await play(make_task(by_seats[frozenset({0, 1})]), there)
    asked = len(alive.exchanges)
    _, turns = await play(make_task(by_seats[frozenset({0})]), there)
    assert len(turns) == len(alive.exchanges) - asked > 0


async def test_servers_of_a_policy_share_a_tokenizer_and_another_run_at_the_same_address_has_its_own(vllms):
    policies = Policies(HERE)
    there = resources(*(vllm.endpoint for vllm in vllms))
    versions = [there, there.model_copy(update={"version": 7})]
    served = {await policies.serving(of, seat=f"g/{seat}") for seat in range(20) for of in versions}
    assert {server.endpoint for server, _ in served} == set(there.endpoints)
    assert len(served) == 2 and len({id(tokens) for _, tokens in served}) == 1
    other = await policies.serving(there.model_copy(update={"run_name": "other"}))  # its model may be another one
    assert other[0] not in dict(served) and other[1] not in dict(served).values()
    await policies.close()


def test_a_policy_without_a_server_is_named_with_the_remedy_of_a_search():
    with pytest.raises(PolicyUnavailable, match=r"has no server of it.* --endpoint and --model"):
        endpoint_of(resources(), "policy", "task/agent")


async def test_runs_that_ended_long_ago_are_forgotten_and_what_still_plays_goes_on(vllms):
    policies, there = Policies(HERE, retry_seconds=10), resources(vllms[0].endpoint)

    async def of_run(number):
        return (await policies.serving(there.model_copy(update={"run_name": f"run-{number}"})))[0]

    first, second = await of_run(1), await of_run(2)
    for number in range(3, 18):
        await of_run(number)
        assert await of_run(2) is second
    assert await of_run(1) is not first
    assert (await first.complete([1, 2, 3], 8, seed=1)).token_ids
    await first.close()
    await policies.close()


async def test_a_server_that_does_not_answer_holds_up_no_other(vllms):
    connected = asyncio.Event()

    async def say_nothing(reader, writer):
        connected.set()

    silent = await asyncio.start_server(say_nothing, "127.0.0.1", 0)
    endpoint = f"http://127.0.0.1:{silent.sockets[0].getsockname()[1]}/v1"
    policies = Policies(HERE)
    waiting = asyncio.create_task(policies.serving(resources(endpoint)))
    await connected.wait()
    async with asyncio.timeout(30):
        await policies.serving(resources(vllms[0].endpoint))
    assert not waiting.done()
    await policies.close()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    silent.close()


async def test_a_turn_during_a_push_records_both_versions(vllms):
    _, turns = await play(make_task(), resources(vllms[0].endpoint))
    assert {turn.policy_version for turn in turns} == {3}, "of the resources, where the server does not say"
    vllms[0].policy_version, vllms[0].version_until = 3, 4
    _, turns = await play(make_task(), resources(vllms[0].endpoint))
    stored = [to_span(t, rollout_id="r", attempt_id="a", sequence_id=1, start_time=0, end_time=1) for t in turns]
    read = [TurnSpan.decode(span) for span in stored]
    assert {(turn.policy_version, turn.version_until, turn.newest_version) for turn in read} == {(3, 4, 4)}


@pytest.mark.parametrize("folder_is_here", [True, False])
async def test_a_frozen_policy_plays_token_by_token_with_its_own_tokenizer(vllms, tiny_model, tmp_path, folder_is_here):
    trained, frozen = vllms
    trained.policy_version = 7
    tokenizer = AutoTokenizer.from_pretrained(tiny_model, local_files_only=True)
    assert tokenizer.add_tokens(["你在玩狼人杀"]) == 1  # so that the same text has other ids
    tokenizer.save_pretrained(tmp_path)
    frozen.tokenizer = tokenizer
    frozen.model_folder = str(tmp_path) if folder_is_here else "/not/on/this/machine"
    there = resources(
        trained.endpoint, policies=(ServedPolicy(name="old", endpoints=(frozen.endpoint,), model="policy"),)
    )
    # The tokenizer is the trained policy's, wherever that is served.
    result, turns = await play(make_task(seating={"wolf": "policy", "good": "old"}), there, tokenizer=tiny_model)
    assert {(turn.side, turn.policy, turn.trainable, turn.policy_version) for turn in turns} == {
        ("wolf", "policy", True, 7), ("good", "old", False, 0),
    }  # fmt: skip
    assert {(seat.side, seat.policy, seat.trainable) for seat in result.seats} == {
        ("wolf", "policy", True), ("good", "old", False),
    }  # fmt: skip
    assert all(turn.valid for turn in turns), "each was told in its own tokens, and answered in form"
    prompts = whole_prompts(turns)
    for vllm, name in ((trained, "policy"), (frozen, "old")):
        recorded = [(prompts[turn.seat, turn.turn], turn.response_ids) for turn in turns if turn.policy == name]
        assert Counter(recorded) == calls(vllm) and recorded
    new_token = tokenizer.convert_tokens_to_ids("你在玩狼人杀")
    assert all(new_token in body["prompt"] for body, _ in frozen.exchanges)
    assert not any(new_token in body["prompt"] for body, _ in trained.exchanges)
    sampling = [{key: body[key] for key in ("temperature", "top_p", "top_k", "min_p")} for body, _ in frozen.exchanges]
    assert all(each == sampling[0] for each in sampling) and sampling[0]["temperature"] == there.sampling.temperature


async def test_a_frozen_policy_that_the_deal_does_not_seat_is_not_needed(vllms):
    """Shares are drawn for each deal; who sits elsewhere may be down."""
    gone = ServedPolicy(name="old", endpoints=(f"http://127.0.0.1:{free_port()}/v1",), model="policy")
    there = resources(vllms[0].endpoint, policies=(gone,))
    rule = {"side": "good", "players": {"old": 1, "scripted": 1}, "together": True}
    ends = Counter()
    for seed in range(6):
        try:
            result, _ = await play(make_task(seed=seed, seating=[rule, {"players": {"policy": 1}}]), there)
        except PolicyUnavailable as error:
            assert gone.endpoints[0] in str(error)
            ends["failed"] += 1
        else:
            assert {seat.policy for seat in result.seats if seat.side == "good"} == {"scripted"}
            ends["played"] += 1
    assert set(ends) == {"failed", "played"}
