"""Training an agent, whole: real hub, runner, vLLM (attached to) and verl. Kills: of the game, whose loop it shares."""

import asyncio
import json

import pytest

from algo.agents.evaluate import AttemptRow, figures_of, gain
from algo.evaluation.record import Record
from tests.support.hub.hub_process import HubProcess
from tests.support.processes import end, set_options, start_module
from tests.support.real_vllm import WITH_TOOLS, of_length

pytestmark = [pytest.mark.xdist_group("hub"), pytest.mark.timeout(900)]

STEPS, GROUPS, EACH, HELD_OUT = 1, 4, 3, 6


async def test_a_training_tells_what_was_gained(tmp_path, tool_model, lend_vllm):
    folder, vllm = tmp_path, await lend_vllm(tool_model, *of_length(2048, 60), *WITH_TOOLS)
    tasks = [{"question": f"What is {number} + 1?"} for number in range(24)]
    (folder / "tasks.jsonl").write_text("".join(json.dumps(task) + "\n" for task in tasks))
    (folder / "run.yaml").write_text("run: {name: calculating}\n")
    hub = await HubProcess(folder).start()
    settings = dict(setting.split("=") for setting in WITH_TOOLS) | {
        "model.path": tool_model,
        "run.dir": folder / "runs",
        "rollout.context_tokens": 2048,
        "rollout.reply_tokens": 60,
        "rollout.groups_per_step": GROUPS,
        "rollout.rollouts_per_group": EACH,
        "training.max_sequence_tokens": 2048,
        "training.mini_batch_size": 8,
        "evaluation.tasks": HELD_OUT,
        "serving.mode": "attach",
        "serving.urls": f"[{vllm}]",
        "store.url": hub.url,
        "run.steps": STEPS,
        "agents.train": folder / "tasks.jsonl",
        "agents.held_out": 0.25,
        "reward.weights": "{answered: 1, short: 0.1}",
        "log.transcripts_per_step": 1,
        "log.save_batches": "true",
    }
    command = ("algo.agent_verl", "--config", "run.yaml", *set_options(settings))
    playing = ("--agent", "tests.support.agents.calculating:agent", "--n", "8", "--store", hub.url)
    runner = start_module(folder / "runner.log", "runners.agents", *playing, cwd=folder)
    log = folder / "algorithm.log"
    algorithm = start_module(log, *command, cwd=folder)
    try:
        assert await asyncio.to_thread(algorithm.wait, 600) == 0, log.read_text()[-6000:]
    finally:
        end(algorithm, runner)
        hub.kill()
    run = folder / "runs" / "calculating"
    summary = json.loads((run / "summary.json").read_text())
    assert summary["rollouts"] == {"finished": STEPS * GROUPS * EACH, "failed": 0}
    assert summary["turns"]["stored"] == summary["turns"]["in_batch"] + sum(summary["turns"]["left_out"].values())
    assert list(summary["reward_by_side"]) == ["agent"] and summary["policy_version"] >= 1
    evaluations = Record(run, AttemptRow).read()
    assert [found.header.step for found in evaluations] == [0, STEPS]
    assert [len(found.rows) for found in evaluations] == [HELD_OUT, HELD_OUT]
    assert list(figures_of(evaluations[0]))[-2:] == ["reward/answered", "reward/short"]
    assert gain(*evaluations) is not None
    assert (run / "evaluations.html").exists()
    (told,) = (run / "transcripts" / f"evaluation-{STEPS:04d}").iterdir()
    assert "user: What is" in told.read_text() and "assistant:" in told.read_text()
    read = [json.loads(line) for path in sorted((run / "batches").iterdir()) for line in path.read_text().splitlines()]
    assert len({(row["task_id"], row["actor"], row["segment"]) for row in read}) == len(read)
