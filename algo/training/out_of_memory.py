"""What a run remembers of ranks that ran out of memory, so that a resumed run does not meet the same batch again.

How many sequences share a forward pass changes neither loss nor gradient (``algo.sequences.batch``), only memory.
"""

import json
from pathlib import Path

from configs.section import ConfigError
from configs.sections.training import TrainingConfig

_FILE = "out_of_memory.json"
_DECIDE = (
    "ranks",
    "sequence_parallel",
    "micro_batch_size",
    "max_tokens_per_micro_batch",
    "max_sequence_tokens",
    "gradient_checkpointing",
    "param_offload",
    "optimizer_offload",
)
"""Settings that decide how much memory an update takes: once one is changed, what happened before says nothing."""


def is_out_of_memory(error: BaseException) -> bool:
    """Whether a rank's error is that of a device without free memory."""
    # Ray's error derives from the rank's own, which may be of a kind that this process cannot import.
    return any(kind.__name__ == "OutOfMemoryError" for kind in (*type(error).__mro__, type(error.__cause__)))


def remember(run_dir: Path, training: TrainingConfig) -> None:
    """Note that a rank ran out of memory with these settings."""
    times = _times(run_dir, training) + 1
    (run_dir / _FILE).write_text(json.dumps({"times": times, "settings": _settings(training)}), encoding="utf-8")


def with_smaller_passes(run_dir: Path, training: TrainingConfig) -> TrainingConfig:
    """The settings with forward passes halved as often as a rank ran out of memory with them.

    Raises ConfigError, with what to change, where there is nothing left to halve.
    """
    times = _times(run_dir, training)
    if not times:
        return training
    rows, tokens = training.micro_batch_size, training.max_tokens_per_micro_batch
    least = -(-training.max_sequence_tokens // training.sequence_parallel)
    left = (rows >> times) >= 1 if tokens is None else max(least, tokens >> (times - 1)) > least
    if not left:
        raise ConfigError(
            f"a rank ran out of memory with one sequence in each forward pass ({run_dir / _FILE}): lower "
            f"training.max_sequence_tokens, raise training.sequence_parallel or training.ranks, or set "
            f"training.param_offload, training.optimizer_offload or training.gradient_checkpointing"
        )
    smaller = {"micro_batch_size": rows >> times} if tokens is None else {}
    smaller |= {} if tokens is None else {"max_tokens_per_micro_batch": max(least, tokens >> times)}
    return training.model_copy(update=smaller)


def _times(run_dir: Path, training: TrainingConfig) -> int:
    file = run_dir / _FILE
    if not file.is_file():
        return 0
    noted = json.loads(file.read_text(encoding="utf-8"))
    return int(noted["times"]) if noted["settings"] == _settings(training) else 0


def _settings(training: TrainingConfig) -> dict[str, object]:
    return {name: getattr(training, name) for name in _DECIDE}
