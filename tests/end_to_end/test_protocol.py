"""The protocol as one types it: real hub, runner and vLLMs, the policy against everybody and its own beginning."""

import subprocess
import sys

import pytest

from algo.machine.ports import free_port
from algo.machine.processes import local_processes, start_hub_and_runner
from algo.protocol.report import ProtocolReport

# A minute of both cores; what it puts together is tested part by part in tests/algo/protocol.
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
        settings["store.url"] = start_hub_and_runner(processes, 8, tmp_path)
        command = [sys.executable, "-m", "algo.evaluate", "--protocol", "v1", "--label", "beginning"]
        command += [part for name, value in settings.items() for part in ("--set", f"{name}={value}")]
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=500)
    assert done.returncode == 0, done.stdout[-5000:]
    # What so few games can show is said before the first is played.
    assert 0 < done.stdout.index("1 deals: a win rate") < done.stdout.index("protocol v1: beginning: ")
    (path,) = (tmp_path / "measured-protocol" / "protocol").glob("v1-*-beginning.json")
    report = ProtocolReport.read(path)
    # Either side against five opponents, the reference likewise but once against itself, and a single seat for both.
    assert len(report.games) == report.planned == 10 + 9 + 2 and not report.failures
    figures = report.figures["all"]
    assert all(rate.games == 1 and rate.difference is not None for rate in figures.sides) and len(figures.sides) == 10
    assert report.initial == report.model == str(tiny_model.resolve())
    assert figures.beliefs["policy"].own.answers > 0 and figures.beliefs["policy"].mass > 0
    assert report.digest in (path.parent / "protocol.html").read_text(encoding="utf-8")
