import pytest

from tests.support.fakes import FakeVllm


@pytest.fixture
async def vllm(tiny_tokenizer):
    """A fake that serves a model whose folder is not on this machine."""
    async with FakeVllm(tiny_tokenizer, lambda prompt: "好的", model_folder="/not/on/this/machine") as vllm:
        yield vllm
