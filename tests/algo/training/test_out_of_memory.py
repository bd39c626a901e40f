"""A batch that ran a rank out of memory is cut smaller by the run that goes on."""

import pytest
import ray
import torch
from ray.exceptions import RayTaskError

from algo.training.engine import Engine
from algo.training.out_of_memory import is_out_of_memory, remember, with_smaller_passes
from configs.loading import load_config
from configs.section import ConfigError
from configs.sections.training import TrainingConfig


def raised_by_ray(error):
    """As a call of a rank raises it."""
    return RayTaskError("train_policy", "traceback", error).as_instanceof_cause()


@pytest.mark.parametrize(
    ("error", "counts"), [(torch.OutOfMemoryError("CUDA out of memory"), True), (RuntimeError("other"), False)]
)
def test_a_rank_without_memory_is_remembered(tmp_path, error, counts):
    assert is_out_of_memory(raised_by_ray(error)) is counts
    engine = Engine.__new__(Engine)  # without its ranks
    engine._config = load_config(None, [f"run.dir={tmp_path}", "training.micro_batch_size=8"])
    engine._config.run_dir.mkdir(parents=True)
    closed = []
    engine.close = lambda: closed.append(True)

    def train():
        raise raised_by_ray(error)

    with pytest.raises(ray.exceptions.RayError):
        engine._call(train)
    smaller = with_smaller_passes(engine._config.run_dir, engine._config.training)
    assert smaller.micro_batch_size == (4 if counts else 8) and closed == [True]


def test_passes_are_halved_each_time_until_there_is_nothing_left(tmp_path):
    training = TrainingConfig(micro_batch_size=4)
    for rows in (2, 1):
        remember(tmp_path, training)
        assert with_smaller_passes(tmp_path, training).micro_batch_size == rows
    remember(tmp_path, training)
    with pytest.raises(ConfigError, match=r"lower training\.max_sequence_tokens"):
        with_smaller_passes(tmp_path, training)
    # Once a setting that decides is changed, it is tried as it stands.
    changed = training.model_copy(update={"max_sequence_tokens": 4096})
    assert with_smaller_passes(tmp_path, changed) == changed


def test_passes_by_tokens_are_halved_down_to_the_longest_sequence(tmp_path):
    training = TrainingConfig(max_tokens_per_micro_batch=20000, max_sequence_tokens=8192)
    for tokens in (10000, 8192):
        remember(tmp_path, training)
        assert with_smaller_passes(tmp_path, training).max_tokens_per_micro_batch == tokens
    remember(tmp_path, training)
    with pytest.raises(ConfigError, match="one sequence in each forward pass"):
        with_smaller_passes(tmp_path, training)
