"""When a run looks at itself, and what it keeps of steps whose weights are lost."""

from contextlib import AsyncExitStack
from types import SimpleNamespace
from unittest.mock import AsyncMock, Mock

import pytest

from algo.evaluation.games import GameRow
from algo.evaluation.record import EVALUATIONS_FILE, Record
from algo.loop import run_context
from algo.loop.run_context import RunContext, start
from algo.run.checkpoints import RunState
from algo.run.folder import OpenedRun
from configs.loading import load_config
from store.endpoints import ServedPolicy
from tests.support.algo.made_games import made_evaluation, made_row


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


class Started(Exception):
    """Ends the start before vLLM and the trainer."""


@pytest.mark.parametrize("is_resumed", [True, False])
async def test_a_resumed_run_keeps_no_results_of_steps_after_its_checkpoint(tmp_path, monkeypatch, is_resumed):
    config = load_config(None, [f"run.dir={tmp_path}", "run.name=mine"])
    folder = config.run_dir
    record, steps = Record(folder, GameRow), (0, 10, 15)
    for step in steps:
        for kind in ("step", "evaluation"):
            (folder / "transcripts" / f"{kind}-{step:04d}").mkdir(parents=True)
            (folder / "transcripts" / f"{kind}-{step:04d}" / "game.txt").touch()
        (folder / "batches").mkdir(exist_ok=True)
        (folder / "batches" / f"step-{step:04d}.jsonl").touch()
        found = made_evaluation([made_row()], f"step {step}", step=step)
        record.begin(found.header)
        record.add(found.header, found.rows)
        record.end(found.header, {}, {}, {})
    (folder / "transcripts" / "mine-0099").mkdir()
    with (folder / EVALUATIONS_FILE).open("a") as file:
        file.write('{"of": "cut by a k')
    monkeypatch.setattr(run_context, "frozen_with_own_server", Mock(side_effect=Started))
    monkeypatch.setattr(run_context, "connect", Mock(return_value=AsyncMock()))
    monkeypatch.setattr(run_context, "RolloutQueue", Mock(return_value=AsyncMock()))
    opened = OpenedRun(config, RunState(run_id="run-1", step=10), None, is_resumed, lock=None)
    async with AsyncExitStack() as stack:
        with pytest.raises(Started):
            await start(opened, Mock(), None, stack)
    kept = steps[:2] if is_resumed else steps
    assert [one.header.step for one in record.read()] == list(kept)
    assert {path.name for path in (folder / "transcripts").iterdir()} == {
        *(f"{kind}-{step:04d}" for kind in ("step", "evaluation") for step in kept), "mine-0099"
    }  # fmt: skip
    assert sorted(path.name for path in (folder / "batches").iterdir()) == [f"step-{step:04d}.jsonl" for step in kept]
