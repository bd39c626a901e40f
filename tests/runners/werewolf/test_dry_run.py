"""One game printed call by call: from a hub that is only read, or from a model that is served somewhere."""

import random
import re

import pytest

from runners.werewolf.__main__ import parse_arguments
from runners.werewolf.dry_run import dry_run
from store.endpoints import ServedPolicy
from store.schema import PolicyResources
from tests.support.chat_templates import chat_tokens
from tests.support.werewolf.seat_players import legal_answer


def answer(prompt):
    """A reply in form, one that is not, or one cut at its limit; from the prompt alone."""
    rng = random.Random(prompt)
    legal = legal_answer(rng)(prompt)
    return rng.choice([legal, legal, f"<think>想</think>{legal}", "？", "我觉得他很可疑" * 9])


@pytest.fixture
def vllm(vllm):
    vllm.answer = answer
    return vllm


async def shown_by(*arguments):
    """(exit status, what was shown)"""
    shown = []
    status = await dry_run(parse_arguments(["--dry-run", *map(str, arguments)]), shown.append)
    return status, shown


async def test_a_game_that_nobody_reads_is_not_played_on(vllm):
    def show(text):
        if "[reply]" in text:
            raise BrokenPipeError

    with pytest.raises(BrokenPipeError):
        await dry_run(parse_arguments(["--dry-run", *endpoint_of(vllm), "--reply-tokens", "30"]), show)
    assert len(vllm.exchanges) < 5


def endpoint_of(vllm):
    return "--endpoint", vllm.endpoint.removesuffix("/v1"), "--model", "policy"


async def test_every_model_call_is_shown_with_all_that_is_known_of_it(vllm):
    status, (given, *calls, end) = await shown_by(*endpoint_of(vllm), "--reply-tokens", 30, "--seed", 3)
    assert status == 0 and vllm.endpoint in given and '"seed": 3' in given
    assert len(calls) == len(vllm.exchanges) > 10
    shown = "\n".join(calls)
    tokens = chat_tokens(vllm.tokenizer)
    for body, choice in vllm.exchanges:
        # What is new of the prompt ends as the whole does, and the reply is what was sampled.
        assert vllm.tokenizer.decode(body["prompt"][-20:]) in shown
        reply = (await tokens.decode_reply(choice["token_ids"])).rpartition("</think>")[2].strip()
        assert f"[reply] {reply}" in shown
        assert f"{len(choice['token_ids'])} sampled, finish: {choice['finish_reason']}" in shown
    for pattern in (
        r"\d号 wolf \(wolf\), day 1, wolf_kill, call 0",
        r", re-ask\n",
        r"\n\d+ new \+ 0 context tokens in segment 0, ",
        r"\n\d+ new \+ \d\d\d+ context tokens in segment 0, ",
        r"\[thought\] 想\n\[reply\]",
        r"\[then\] \d号发言：我是好人，请相信我。",
        r"\[then\] 【法官】投票：\d号",
        r"\[error\] no_choice",
    ):
        assert re.search(pattern, shown), pattern
    assert all("[facts] invalid " in call for call in calls)
    assert "# 5p_tiny，种子3，上帝视角" in end and f"model calls: {len(calls)}, invalid replies: " in end
    by_seat = [int(count) for count in re.findall(r"policy\): (\d+) model calls, \d+ decisions, 1 segments", end)]
    assert len(by_seat) == 5 and sum(by_seat) == len(calls)


async def test_a_context_that_fills_up_and_a_server_that_keeps_the_tokenizer(vllm):
    vllm.model_folder, vllm.context_tokens = "/not/on/this/machine", 800
    status, (_, *calls, end) = await shown_by(*endpoint_of(vllm), "--reply-tokens", 30, "--seed", 5)
    assert status == 0
    assert any("in segment 1" in call and "前情回顾" in call for call in calls) and re.search(r"[2-9] segments", end)


async def test_what_a_terminal_would_obey_is_written_out(vllm):
    vllm.answer = lambda prompt: "\x1b[31m我是好人"
    _, shown = await shown_by(*endpoint_of(vllm))
    assert r"[reply] \x1b[31m我是好人" in "\n".join(shown) and "\x1b" not in "\n".join(shown)


def resources_at(endpoint, run_name):
    return PolicyResources(run_name=run_name, version=2, endpoints=(endpoint,), model="policy")


async def test_the_newest_policy_of_a_hub_is_played_and_nothing_is_stored(hub, client, vllm):
    frozen = (ServedPolicy(name="old", endpoints=(vllm.endpoint,), model="policy"),)
    frozen += (ServedPolicy(name="past-000003", endpoints=(vllm.endpoint,), model="policy", share=1.0),)
    newer = resources_at(vllm.endpoint, "newer").model_copy(update={"policies": frozen})
    for resources in (resources_at("http://127.0.0.1:1/v1", "older"), newer):
        await client.update_resources(resources.resources_id, resources.encode())
    before = list(await client.query_resources())
    status, shown = await shown_by("--store", hub.url, "--reply-tokens", 30)
    assert status == 0 and '"run_name": "newer"' in shown[0] and len(vllm.exchanges) > 10
    vllm.exchanges.clear()
    players = ("--players", "wolf=scripted,good=old")
    status, (_, *calls, end) = await shown_by("--store", hub.url, "--reply-tokens", 30, *players)
    assert status == 0 and sum("[reply]" in call for call in calls) == len(vllm.exchanges) > 5
    assert "(old): " in end and "(scripted): 0 model calls" in end
    status, (_, *calls, end) = await shown_by(
        "--store", hub.url, "--reply-tokens", 30, "--players", "wolf=past,good=old"
    )
    assert status == 0 and "(past-000003): " in end
    assert list(await client.query_resources()) == before
    assert (
        not list(await client.query_rollouts()) and not (await client.request("post", "/workers/search", {}))["items"]
    )


@pytest.mark.parametrize("arguments", [
    ("--tokenizer", "/nowhere"), ("--context-tokens", 300, "--reply-tokens", 40), ("--players", "gpt-9"),
    ("--model", "absent"),
])  # fmt: skip
async def test_an_unplayable_game_gives_an_error_of_one_line(hub, vllm, capsys, arguments):
    vllm.adapters = {"\x1b]0;owned": "unused"}
    for played in ((*endpoint_of(vllm), *arguments), ("--store", hub.url)):  # a hub without a policy
        assert (await shown_by(*played))[0] == 1
        assert re.fullmatch("error: [^\x1b\n]*\n", capsys.readouterr().err)
