import pytest

from tests.support.fakes import FakeVllm


@pytest.fixture
async def vllm(tiny_tokenizer):
    """A fake that serves a model whose folder is not on this machine."""
    fake = FakeVllm(tiny_tokenizer, lambda prompt: "好的", model_folder="/not/on/this/machine")
    fake.endpoint = await fake.start()
    yield fake
    await fake.stop()
