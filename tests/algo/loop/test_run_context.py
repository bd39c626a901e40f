"""When a run looks at itself."""

from types import SimpleNamespace

import pytest

from algo.loop.run_context import RunContext
from configs.loading import load_config


@pytest.mark.parametrize(
    ("settings", "due_after"),
    [
        ("deals: 0, every_steps: 1", []),
        ("deals: 2", [0, 6]),
        ("deals: 2, at_start: false, at_end: false", []),
        ("deals: 2, every_steps: 3, at_end: false", [0, 3, 6]),
        ("deals: 2, every_steps: 4", [0, 4, 6]),
    ],
)
def test_evaluations_are_due(settings, due_after):
    config = load_config(None, ["run.steps=6", f"evaluation={{{settings}}}"])
    runs = {step: SimpleNamespace(config=config, state=SimpleNamespace(step=step)) for step in range(7)}
    assert [step for step, run in runs.items() if RunContext.evaluation_is_due(run)] == due_after
