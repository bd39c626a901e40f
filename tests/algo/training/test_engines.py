"""Log-probs and entropies of a chunked head are verl's own, and so are their gradients."""

from types import SimpleNamespace

import pytest
import torch
from transformers import FalconH1Config, Gemma3nConfig, Qwen3Config
from verl.utils import tensordict_utils
from verl.utils.dataset.dataset_utils import DatasetPadMode
from verl.workers.engine.fsdp.transformer_impl import FSDPEngineWithLMHead

from algo.training import chunked_head
from algo.training.chunked_head import ChunkedHead
from algo.training.engines import ChunkedLanguageModelEngine, logit_settings

LENGTHS, VOCABULARY, WIDTH = (5, 2, 7), 11, 3


def test_models_that_transform_their_logits_keep_their_head():
    assert logit_settings(Gemma3nConfig()) == ["final_logit_softcapping"]  # of its text model
    assert logit_settings(FalconH1Config(lm_head_multiplier=0.5)) == ["lm_head_multiplier"]
    assert logit_settings(Qwen3Config()) == []


class Decoder(torch.nn.Module):
    """As a language model of transformers: the head's output is its logits."""

    def __init__(self, dtype):
        super().__init__()
        torch.manual_seed(3)
        self.embedding = torch.nn.Embedding(VOCABULARY, WIDTH, dtype=dtype)
        self.head = torch.nn.Linear(WIDTH, VOCABULARY, bias=False, dtype=dtype)
        with torch.no_grad():
            self.head.weight.mul_(4)

    def forward(self, input_ids, **_):
        return SimpleNamespace(logits=self.head(self.embedding(input_ids)))


def outputs_of(engine_class, temperature, packed=False, dtype=torch.float32, loss_mask=None, **asked):
    """What an engine makes of random sequences, and the gradients of a weighed sum of it.

    loss_mask: of all tokens end to end; weights of tokens whose successor does not count are zero.
    """
    model, engine = Decoder(dtype), object.__new__(engine_class)
    engine.engine_config = SimpleNamespace(entropy_checkpointing=False, entropy_from_logits_with_chunking=False)
    engine.use_ulysses_sp = engine.pad_to_length = False
    engine.compute_entropy_from_logits = lambda logits: (
        torch.logsumexp(logits, -1) - (torch.softmax(logits, -1) * logits).sum(-1)
    )
    if engine_class is ChunkedLanguageModelEngine:
        engine._head = model.head = ChunkedHead(model.head)
    ids = torch.nested.as_nested_tensor([torch.randint(0, VOCABULARY, (n,)) for n in LENGTHS], layout=torch.jagged)
    positions = torch.nested.as_nested_tensor([torch.arange(n) for n in LENGTHS], layout=torch.jagged)
    masks = {} if loss_mask is None else {"loss_mask": torch.nested.nested_tensor_from_jagged(loss_mask, ids.offsets())}
    micro_batch = tensordict_utils.get_tensordict(
        {"input_ids": ids, "position_ids": positions, **masks},
        non_tensor_dict={
            "use_remove_padding": packed,
            "pad_mode": DatasetPadMode.NO_PADDING,
            "temperature": temperature,
            **asked,
        },
    )
    inputs, arguments = engine.prepare_model_inputs(micro_batch)
    found = engine.prepare_model_outputs(model(**inputs), arguments, micro_batch, None)
    weights = torch.randn(sum(LENGTHS))
    if loss_mask is not None:
        weights *= torch.roll(loss_mask, -1)
    sum((value.values() * weights).sum() for value in found.values()).backward()
    return found, [parameter.grad for parameter in model.parameters()]


@pytest.mark.parametrize("temperature", [1.0, 0.7])
@pytest.mark.parametrize("entropy", [False, True])
@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("tokens_at_once", [1, 4, 1000])
def test_outputs_and_gradients_are_those_of_verl(monkeypatch, temperature, entropy, packed, tokens_at_once):
    monkeypatch.setattr(chunked_head, "CHUNK_ELEMENTS", tokens_at_once * VOCABULARY)
    found, gradients = outputs_of(ChunkedLanguageModelEngine, temperature, packed, calculate_entropy=entropy)
    expected, expected_gradients = outputs_of(FSDPEngineWithLMHead, temperature, packed, calculate_entropy=entropy)
    assert set(found) == set(expected) == {"log_probs", *(["entropy"] if entropy else [])}
    for name, value in expected.items():
        assert torch.equal(found[name].offsets(), value.offsets())
        assert torch.allclose(found[name].values(), value.values(), atol=1e-5)
    for gradient, other in zip(gradients, expected_gradients, strict=True):
        assert gradient.abs().max() > 0.1 and torch.allclose(gradient, other, atol=1e-5)


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("learned", [(1, 3, 4, 6, 9, 13), ()])
def test_in_training_only_tokens_that_count_pass_through_the_head_and_gradients_are_the_same(packed, learned):
    loss_mask = torch.zeros(sum(LENGTHS))
    loss_mask[list(learned)] = 1.0
    settings = dict(packed=packed, loss_mask=loss_mask, calculate_entropy=True)
    found, gradients = outputs_of(ChunkedLanguageModelEngine, 0.7, **settings)
    expected, expected_gradients = outputs_of(FSDPEngineWithLMHead, 0.7, **settings)
    counts = torch.roll(loss_mask, -1) > 0
    for name, value in expected.items():
        assert torch.allclose(found[name].values()[counts], value.values()[counts], atol=1e-5)
        assert not found[name].values()[~counts].any()
    for gradient, other in zip(gradients, expected_gradients, strict=True):
        assert torch.allclose(gradient, other, atol=1e-5)
    with torch.no_grad():
        engine = object.__new__(ChunkedLanguageModelEngine)
        assert engine._learns({"loss_mask": None}) is None  # whoever only asks gets the log-prob of every token


def test_weights_in_bfloat16_gather_their_gradient_in_float32(monkeypatch):
    """Token by token in bfloat16, small contributions would be lost in the sum of the others."""
    monkeypatch.setattr(chunked_head, "CHUNK_ELEMENTS", VOCABULARY)
    _, chunked = outputs_of(ChunkedLanguageModelEngine, 1.0, dtype=torch.bfloat16)
    monkeypatch.setattr(chunked_head, "CHUNK_ELEMENTS", 1000 * VOCABULARY)
    _, at_once = outputs_of(ChunkedLanguageModelEngine, 1.0, dtype=torch.bfloat16)
    for gradient, other in zip(chunked, at_once, strict=True):
        assert gradient.dtype == torch.bfloat16 and (gradient - other).abs().max() <= 2**-7 * other.abs().max()


def test_no_more_logits_exist_at_once_than_allowed(monkeypatch):
    """Every tensor that PyTorch makes, forward and backward, is looked at."""
    largest = 0

    class Watch(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, function, types, arguments=(), options=None):
            nonlocal largest
            result = function(*arguments, **(options or {}))
            if isinstance(result, torch.Tensor):
                largest = max(largest, result.numel())
            return result

    words, tokens, width = 500, 300, 4
    monkeypatch.setattr(chunked_head, "CHUNK_ELEMENTS", 20 * words)
    head = ChunkedHead(torch.nn.Linear(width, words, bias=False))
    hidden = torch.randn(1, tokens, width, requires_grad=True)
    head.set_labels(torch.randint(0, words, (1, tokens)), torch.ones(1, tokens), True)
    with Watch():
        head(hidden).sum().backward()
    assert 20 * words == largest < words * tokens
