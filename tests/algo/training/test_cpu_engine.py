"""Log-probs and entropies that are computed for all tokens at once are verl's own."""

from types import SimpleNamespace

import pytest
import torch
from verl.utils import tensordict_utils
from verl.utils.dataset.dataset_utils import DatasetPadMode
from verl.workers.engine.fsdp.transformer_impl import FSDPEngineWithLMHead

from algo.training.cpu_engine import CpuLanguageModelEngine

LENGTHS, VOCABULARY = (5, 2, 7), 11


def outputs_of(engine_class, temperature, **asked):
    """What an engine makes of random logits, and the gradient of a weighed sum of it."""
    torch.manual_seed(3)
    logits = (4 * torch.randn(len(LENGTHS), max(LENGTHS), VOCABULARY)).requires_grad_()
    ids = torch.nested.as_nested_tensor([torch.randint(0, VOCABULARY, (n,)) for n in LENGTHS], layout=torch.jagged)
    micro_batch = tensordict_utils.get_tensordict(
        {"input_ids": ids},
        non_tensor_dict={"use_remove_padding": False, "pad_mode": DatasetPadMode.NO_PADDING, **asked},
    )
    engine = object.__new__(engine_class)
    engine.engine_config = SimpleNamespace(entropy_checkpointing=False)
    arguments = {
        "temperature": torch.full((len(LENGTHS),), temperature),
        "temperature_is_one": temperature == 1.0,
        "input_ids_rmpad_rolled": torch.roll(ids.values(), -1),
    }
    found = engine.prepare_model_outputs(SimpleNamespace(logits=logits), arguments, micro_batch, None)
    weights = torch.randn(sum(LENGTHS))
    sum((value.values() * weights).sum() for value in found.values()).backward()
    return found, logits.grad


@pytest.mark.parametrize("temperature", [1.0, 0.7])
@pytest.mark.parametrize("entropy", [False, True])
def test_outputs_and_gradients_are_those_of_verl(temperature, entropy):
    found, gradient = outputs_of(CpuLanguageModelEngine, temperature, calculate_entropy=entropy)
    expected, expected_gradient = outputs_of(FSDPEngineWithLMHead, temperature, calculate_entropy=entropy)
    assert set(found) == set(expected) == {"log_probs", *(["entropy"] if entropy else [])}
    for name, value in expected.items():
        assert torch.equal(found[name].offsets(), value.offsets())
        assert torch.allclose(found[name].values(), value.values(), atol=1e-5)
    assert gradient.abs().max() > 0.1 and torch.allclose(gradient, expected_gradient, atol=1e-5)


def test_what_is_asked_for_seldom_is_left_to_verl():
    found, _ = outputs_of(CpuLanguageModelEngine, 1.0, calculate_sum_pi_squared=True)
    assert "sum_pi_squared" in found
