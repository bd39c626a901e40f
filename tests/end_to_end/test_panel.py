"""The fixed panel as one types it: real hub, runner and vLLMs, the policy against everybody and its own beginning."""

import subprocess
import sys

import pytest

from algo.evaluation.figures import figures_of
from algo.evaluation.games import GameRow
from algo.evaluation.record import Record
from algo.machine.ports import free_port
from algo.machine.processes import local_processes, runner_command, start_hub, start_logged

# A minute of both cores; what it puts together is tested part by part in tests/algo/evaluation.
pytestmark = [pytest.mark.vllm, pytest.mark.soak, pytest.mark.timeout(600)]


def test_a_policy_is_measured_as_it_began(tiny_model, tmp_path):
    settings = {
        "run.name": "measured",
        "run.dir": tmp_path,
        "evaluation.deals": 1,
        "model.path": tiny_model,
        "serving.port": free_port(),
        "rollout.reply_tokens": 24,
    }
    with local_processes() as processes:
        settings["store.url"] = hub = start_hub(processes, tmp_path)
        start_logged(processes, "runner", runner_command("werewolf", hub, "--n", "8"), tmp_path)
        command = [sys.executable, "-m", "algo.evaluate", "--panel", "v3", "--label", "beginning"]
        command += [part for name, value in settings.items() for part in ("--set", f"{name}={value}")]
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=500)
    assert done.returncode == 0, done.stdout[-5000:]
    assert "1 deals: a win rate" in done.stdout
    (found,) = Record(tmp_path / "measured-evaluation", GameRow).read()
    # Either side against five opponents, the reference likewise but once against itself, and a single seat for both.
    assert len(found.rows) == sum(found.header.planned.values()) == 10 + 9 + 2 and not found.failures
    figures = figures_of(found)
    scores = [score for against in figures.opponents.values() for score in against.by_side.values()]
    assert all(score.games == 1 and score.difference is not None for score in scores) and len(scores) == 10
    assert found.header.initial == found.header.model == str(tiny_model.resolve())
    assert figures.beliefs["policy"].own.answers > 0 and figures.beliefs["policy"].mass > 0
    assert found.header.digest in (tmp_path / "measured-evaluation" / "evaluations.html").read_text(encoding="utf-8")
