"""When a run looks at itself."""

from functools import partial
from types import SimpleNamespace
from unittest.mock import AsyncMock

import pytest

from algo.loop.run_context import RunContext
from algo.serving.policies import open_frozen
from algo.serving.preconditions import ServingDied
from configs.loading import load_config
from store.endpoints import ServedPolicy
from tests.support.algo.fake_vllm import port_of
from tests.support.waiting import until


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


async def test_a_frozen_policy_without_a_server_ends_the_run(configure, fakes, watched_closely, tiny_model):
    config = configure(max_restarts=0, frozen={"older": {"path": tiny_model}})
    run = SimpleNamespace(serving=SimpleNamespace(check_alive=AsyncMock(return_value=False)))
    async with open_frozen(config, ["older"]) as run.frozen:
        (older,) = run.frozen.policies
        await RunContext.refresh_endpoints(run)
        fakes.kill(port_of(older.endpoints[0]))
        with pytest.raises(ServingDied, match="exited with code 137"):
            await until(partial(RunContext.refresh_endpoints, run))


async def test_past_selves_and_the_base_move_with_the_servers_that_are_left():
    others = [ServedPolicy(name=name, endpoints=("http://left/v1",), model=name) for name in ("initial", "past-000001")]
    run = SimpleNamespace(
        frozen=AsyncMock(),
        serving=SimpleNamespace(
            check_alive=AsyncMock(return_value=True), endpoints=("http://left/v1",), learners=lambda: []
        ),
        resources=lambda: SimpleNamespace(policies=others),
        queue=AsyncMock(),
    )
    await RunContext.refresh_endpoints(run)
    moved = dict.fromkeys(("initial", "past-000001"), ("http://left/v1",))
    run.queue.update_endpoints.assert_awaited_once_with(("http://left/v1",), moved)
