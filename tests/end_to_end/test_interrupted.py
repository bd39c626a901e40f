"""All real parts by one command, interrupted: a vLLM that dies starts again, Ctrl-C ends every process."""

import json
import os
import signal
import sys

import pytest

from tests.support.processes import end, processes_marked, set_options, start_module, wait_until

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(900)]


def test_a_vllm_that_dies_in_mid_game_is_started_again_and_ctrl_c_ends_every_process(tmp_path, tiny_model):
    log = tmp_path / "demo.log"
    settings = {
        "run.dir": tmp_path,
        "run.name": "demo",
        "run.steps": 2,
        "model.path": tiny_model,
        "rollout.rollouts_per_group": 2,
    }
    demo = start_module(log, "algo.werewolf_verl", "--local", "8", *set_options(settings), mark=tmp_path)

    def output():
        return log.read_text(errors="replace")

    def reached(stage):
        assert demo.poll() is None, output()[-3000:]
        return stage in output()

    try:
        wait_until(lambda: reached("playing 4 rollouts"), 400, "the first games")
        running = processes_marked(tmp_path)
        (vllm,) = [pid for pid, command in running.items() if command.startswith(f"{sys.executable} -m vllm.")]
        os.kill(vllm, signal.SIGKILL)
        wait_until(lambda: reached("step 1/2: writing a checkpoint"), 400, "the first step")
        assert len(processes_marked(tmp_path)) > 5
        demo.send_signal(signal.SIGINT)
        assert demo.wait(timeout=120) == 130, output()[-3000:]
        wait_until(lambda: not processes_marked(tmp_path), 20, "the end of every process")
        assert "vLLM exited with code 137" in output() and "interrupted" in output()
        summary = json.loads((tmp_path / "demo" / "summary.json").read_text())
        assert summary["rollouts"] == {"finished": 4, "failed": 0} and summary["policy_version"] == 1
    finally:
        end(demo)
