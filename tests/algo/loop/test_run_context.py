"""When a run looks at itself."""

import asyncio
from functools import partial
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


def test_the_policy_of_the_start_is_scored_when_the_first_step_has_made_a_probe():
    known = []

    async def score(token_ids):
        return [-1.0] * (len(token_ids) - 1)

    async def sleep():
        pass

    run = SimpleNamespace(
        config=load_config(None),
        state=SimpleNamespace(probe=None, policy_version=0),
        serving=SimpleNamespace(score=score, sleep=sleep),
        league=SimpleNamespace(set_log_probs=lambda *given: known.append(given)),
        _served_before=[],
    )
    run._score_probe = partial(RunContext._score_probe, run)
    asyncio.run(RunContext.after_rollouts(run, []))
    assert known == []
    asyncio.run(RunContext.after_rollouts(run, [SimpleNamespace(token_ids=(5, 6, 7))]))
    assert known == [(0, [-1.0, -1.0])]
