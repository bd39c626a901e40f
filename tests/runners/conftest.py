"""Servers that tests of runners share: fakes of vLLM and of a chat endpoint, and one that answers as a test says."""

import random

import pytest


@pytest.fixture
async def vllms(tiny_tokenizer, tiny_model):
    """Two that answer in form."""
    from tests.support.fakes import FakeVllm
    from tests.support.werewolf.seat_players import legal_answer

    one, other = (FakeVllm(tiny_tokenizer, legal_answer(random.Random(seed)), str(tiny_model)) for seed in (1, 2))
    async with one, other:
        yield [one, other]


@pytest.fixture
def vllm(vllms):
    return vllms[0]


@pytest.fixture
def policy(vllm):
    """Resources that name the fake."""
    from store.schema import PolicyResources

    return PolicyResources(run_name="run", version=3, endpoints=(vllm.endpoint,), model="policy")


@pytest.fixture
async def chat_api():
    from tests.support.werewolf.fakes_api import FakeChatApi

    async with FakeChatApi() as api:
        yield api
