"""Which connection and tokenizer a game's policy gets."""

import pytest

from runners.policy.servers import Policies
from store.schema import PolicyResources
from tests.support.fakes import FakeVllm
from tests.support.tasks import HERE


@pytest.fixture
async def vllm(tiny_tokenizer, tiny_model):
    fake = FakeVllm(tiny_tokenizer, lambda prompt: "过", model_folder=str(tiny_model))
    fake.endpoint = await fake.start()
    yield fake
    await fake.stop()


def resources(vllm, run_name, version=0):
    return PolicyResources(run_name=run_name, version=version, endpoints=(vllm.endpoint,), model="policy")


async def test_versions_of_a_run_share_a_tokenizer_and_another_run_at_the_same_address_has_its_own(vllm):
    policies = Policies(HERE)
    first = await policies.serving(resources(vllm, "run-1"))
    assert await policies.serving(resources(vllm, "run-1", version=7)) is first
    other = await policies.serving(resources(vllm, "run-2"))  # its model may be another one
    assert other[0] is not first[0] and other[1] is not first[1]
    await policies.close()
