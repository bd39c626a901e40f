"""Two policies that learn at one table, with every real part: a turn is of the one that it says, and trains no other.

Real hub (`python -m store`), runner, verl on two ranks, and a vLLM that serves both as adapters. Witnesses are a proxy
before that vLLM, which keeps who was asked for what, and transformers with the adapters of each policy and version.
Resuming from a checkpoint: tests/algo/training/test_team.py.
"""

import asyncio
import json
from collections import Counter

import aiohttp
import pytest

from algo.serving.policies import PolicyServers
from configs.loading import load_config
from tests.support.algo.machine import LORA, STEPS, finish
from tests.support.recording_proxy import FLOAT32_TOLERANCE, RecordingProxy, as_float32, turns_of

pytestmark = [pytest.mark.xdist_group("machine"), pytest.mark.timeout(1500)]

MEMBERS = {"wolf": "wolves", "good": "villagers"}
TEAM = ["policies={wolves: {side: wolf, learning_rate: 0.01}, villagers: {side: good}}", *LORA]


@pytest.fixture(scope="module")
def proxy(machine):
    proxy = RecordingProxy(machine.adapters)
    yield proxy
    proxy.stop()


@pytest.fixture(scope="module")
def settings(machine, proxy):
    """One vLLM for the adapters of both, which runners reach through the proxy."""
    own = [*TEAM, "training.ranks=2", f"checkpoint.keep={STEPS}"]
    return [*own, f"serving.urls=[{machine.adapters}]", f"serving.public_urls=[{proxy.url}]"]


@pytest.fixture(scope="module")
def whole(machine, proxy, settings):
    """A run that nothing disturbs: its folder, its batches by step, and what vLLM was asked for it."""
    finish(machine, "team-whole", *settings, "log.save_batches=true")
    folder = machine.folder / "team-whole"
    batches = [
        [json.loads(line) for line in (folder / "batches" / f"step-{step:04d}.jsonl").read_text().splitlines()]
        for step in range(1, STEPS + 1)
    ]
    return folder, batches, list(proxy.exchanges)


def adapters_of(folder, member, version):
    return folder / "checkpoints" / f"step-{version:06d}" / "policies" / member / "adapters"


def test_each_policy_is_trained_on_what_vllm_sampled_for_it(whole):
    _, batches, exchanges = whole

    def told(member, prompt, sampled, logprobs):
        return member, tuple(prompt), tuple(sampled), as_float32(logprobs)

    asked = Counter(
        told(body["model"], choice["prompt_token_ids"], choice["token_ids"], choice["logprobs"]["token_logprobs"])
        for body, choice in exchanges
    )
    rows = [row for batch in batches for row in batch]
    assert {(row["side"], row["learner"]) for row in rows} == set(MEMBERS.items())
    trained = Counter(told(row["learner"], *turn) for row in rows for turn in turns_of(row))
    assert trained.total() > 50 and not trained - asked


def test_every_turn_is_of_the_policy_and_the_version_that_it_says(machine, whole):
    import torch

    from tests.support.small_models import load_model, token_log_probs

    folder, batches, _ = whole

    def load(member, version):  # at the start adapters change nothing
        return load_model(machine.model, adapters_of(folder, member, version) if version else None)

    models = {(member, version): load(member, version) for member in MEMBERS.values() for version in range(STEPS)}
    compared, apart = Counter(), 0.0
    for version, batch in enumerate(batches):
        for row in batch:
            assert set(row["turn_versions"]) == {version}
            with torch.no_grad():
                found = {
                    member: token_log_probs(models[member, version], row["token_ids"]).tolist()
                    for member in MEMBERS.values()
                }
            (other,) = set(MEMBERS.values()) - {row["learner"]}
            for place, sampled in enumerate(row["loss_mask"]):
                if sampled:
                    logprob = row["logprobs"][place]
                    assert logprob == pytest.approx(found[row["learner"]][place], abs=FLOAT32_TOLERANCE)
                    compared[row["learner"], version] += 1
                    apart = max(apart, abs(logprob - found[other][place]))
    assert set(compared) == {(member, version) for member in MEMBERS.values() for version in range(STEPS)}
    assert compared.total() > 1000 and apart > 100 * FLOAT32_TOLERANCE  # the other policy would have been seen


async def test_vllm_serves_adapters_beside_one_another_and_their_base(machine, tmp_path):
    """What a merge in bfloat16 would round away is there."""
    from tests.support.small_models import load_model, random_adapters, token_log_probs

    def log_probs(adapters):
        return pytest.approx(token_log_probs(load_model(machine.model, adapters), ids)[1:].tolist(), abs=1e-4)

    ids = list(range(3, 200))
    config = load_config(
        None, [*machine.settings("adapters", *TEAM, machine.frozen, f"serving.urls=[{machine.adapters}]")]
    )
    serving = await PolicyServers.open(config, None)
    for version in (0, 1):
        folders = {
            name: random_adapters(tmp_path / f"{name}-{version}", machine.model, seed=2 * version + number, rank=8)
            for number, name in enumerate(MEMBERS.values())
        }
        await serving.push(folders, version)
        # At once, as games ask for them.
        found = await asyncio.gather(*(serving.scores(ids, name) for name in [*folders] * 2))
        for name, (scores,) in zip([*folders] * 2, found, strict=True):
            assert scores == log_probs(folders[name])
    async with aiohttp.ClientSession() as http:
        for served in serving.frozen():
            body = {"model": served.model, "prompt": ids, "max_tokens": 1, "prompt_logprobs": 0}
            async with http.post(f"{served.endpoints[0]}/completions", json=body) as response:
                assert response.status == 200, await response.text()
                entries = (await response.json())["choices"][0]["prompt_logprobs"]
            scores = [entry[str(token)]["logprob"] for entry, token in zip(entries[1:], ids[1:], strict=True)]
            assert scores == log_probs({"initial": None, "earlier": machine.earlier}[served.name])
    await serving.stop()
