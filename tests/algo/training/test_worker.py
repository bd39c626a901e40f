"""One rank, without models."""

from types import SimpleNamespace

import pytest

from algo.training import worker
from algo.training.worker import TrainingRank


@pytest.mark.parametrize("offloads", [True, False])
def test_memory_returns_to_the_gpu_after_all_has_left_it(monkeypatch, offloads):
    """verl empties its cache between the weights and the optimizer's state."""
    events = []
    engine = SimpleNamespace(is_param_offload_enabled=offloads, is_optimizer_offload_enabled=offloads)
    rank = TrainingRank.__new__(TrainingRank)
    rank._parts = {"policy": SimpleNamespace(engine=engine, to=lambda device, **what: events.append(device))}
    emptied = SimpleNamespace(empty_cache=lambda: events.append("emptied"))
    monkeypatch.setattr(worker, "get_torch_device", lambda: emptied)
    rank.move("policy", "device")
    rank.move("policy", "cpu")
    assert events == ([*(["device"] * offloads), *(["cpu"] * offloads), "emptied"])
