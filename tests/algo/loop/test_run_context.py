"""When a run looks at itself."""

from types import SimpleNamespace
from unittest.mock import AsyncMock

import pytest

from algo.loop.run_context import RunContext
from configs.loading import load_config
from store.endpoints import ServedPolicy


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


async def test_past_selves_and_the_base_move_with_the_servers_that_are_left():
    others = [ServedPolicy(name=name, endpoints=("http://left/v1",), model=name) for name in ("initial", "past-000001")]
    left = ServedPolicy(name="past-000000", endpoints=("http://left/v1",), model="past-000000")  # no longer published
    run = SimpleNamespace(
        frozen=AsyncMock(),
        serving=SimpleNamespace(
            check_alive=AsyncMock(return_value=True), endpoints=("http://left/v1",), learners=lambda: []
        ),
        resources=lambda: SimpleNamespace(policies=others),
        league=SimpleNamespace(in_flight=lambda: [left, others[1].model_copy(update={"endpoints": ("http://x/v1",)})]),
        queue=AsyncMock(),
    )
    await RunContext.refresh_endpoints(run)
    run.frozen.check_alive.assert_awaited_once()
    moved = dict.fromkeys(("initial", "past-000000", "past-000001"), ("http://left/v1",))
    run.queue.update_endpoints.assert_awaited_once_with(("http://left/v1",), moved)
