"""All real parts by one command, interrupted: a vLLM that dies starts again, Ctrl-C ends every process."""

import json
import os
import signal
import subprocess
import sys

import pytest

from tests.support.processes import marked_environment, processes_marked, wait_until

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(900)]


def start_demo(folder, *options):
    log = (folder / "demo.log").open("wb")
    settings = (f"run.dir={folder}", "run.name=demo", *options)
    command = [sys.executable, "-m", "algo.werewolf_verl", "--local", "8"]
    command += [part for setting in settings for part in ("--set", setting)]
    return subprocess.Popen(
        command, stdout=log, stderr=subprocess.STDOUT, start_new_session=True, env=marked_environment(folder)
    )


def demo_output(folder):
    return (folder / "demo.log").read_text(errors="replace")


def end_of_demo(demo, folder, timeout=120):
    code = demo.wait(timeout=timeout)
    wait_until(lambda: not processes_marked(folder), 20, "the end of every process")
    return code


def test_a_vllm_that_dies_in_mid_game_is_started_again_and_ctrl_c_ends_every_process(tmp_path, tiny_model):
    demo = start_demo(tmp_path, f"model.path={tiny_model}", "run.steps=2")

    def reached(stage):
        assert demo.poll() is None, demo_output(tmp_path)[-3000:]
        return stage in demo_output(tmp_path)

    try:
        wait_until(lambda: reached("playing 8 rollouts"), 400, "the first games")
        servers = [
            process
            for process, command in processes_marked(tmp_path).items()
            if command.startswith(f"{sys.executable} -m vllm.")
        ]
        assert len(servers) == 1
        os.kill(servers[0], signal.SIGKILL)
        wait_until(lambda: reached("step 1/2: writing a checkpoint"), 400, "the first step")
        assert len(processes_marked(tmp_path)) > 5
        demo.send_signal(signal.SIGINT)
        assert end_of_demo(demo, tmp_path) == 130, demo_output(tmp_path)[-3000:]
        output = demo_output(tmp_path)
        assert "vLLM exited with code 137" in output and "interrupted" in output
        (summary,) = (json.loads(path.read_text()) for path in tmp_path.glob("*/summary.json"))
        assert summary["games"] == {"finished": 8, "failed": 0} and summary["policy_version"] == 1
    finally:
        if demo.poll() is None:
            demo.kill()
