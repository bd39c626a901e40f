"""Processes that are started and ended together, with small stand-ins for hub, runner and algorithm."""

import os
import signal
import sys
import threading
import time
from pathlib import Path

import pytest

from algo.machine import processes as machine_processes
from algo.machine.processes import Interrupted, local_processes, start_runner

FOREVER = [sys.executable, "-c", "import time; print('up', flush=True); time.sleep(600)"]


def ending(code):
    return [sys.executable, "-c", f"raise SystemExit({code})"]


def is_alive(pid):
    """Whether a process of ours runs; one that has ended and was waited for is gone."""
    return Path(f"/proc/{pid}").exists()


def pids_of(processes):
    return [process.pid for process in processes._running.values()]


def test_stages_may_follow_each_other_while_others_go_on():
    with local_processes() as processes:
        processes.start("hub", FOREVER, None)
        for code in (0, 3):
            processes.start("stage", ending(code), None)
            assert processes.wait_for("stage") == code
        pids = pids_of(processes)
        assert len(pids) == 1
    assert not any(map(is_alive, pids))


@pytest.mark.parametrize(("code", "told"), [(0, 1), (4, 4)])
def test_the_end_of_another_process_ends_the_wait(code, told, capsys):
    with local_processes() as processes:
        processes.start("hub", ending(code), None)
        processes.start("stage", FOREVER, None)
        pids = pids_of(processes)
        assert processes.wait_for("stage") == told
    assert f"the hub ended with exit code {code} while the stage was running" in capsys.readouterr().err
    assert not any(map(is_alive, pids))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_the_wait_and_everything_that_was_started(number):
    def ours(*_):
        pass

    before = signal.signal(number, ours)
    with pytest.raises(Interrupted), local_processes() as processes:
        processes.start("stage", FOREVER, None)
        pids = pids_of(processes)
        assert all(map(is_alive, pids))
        os.kill(os.getpid(), number)
        processes.wait_for("stage")
    assert not any(map(is_alive, pids))
    assert signal.signal(number, before) is ours


@pytest.mark.timeout(30)
def test_a_second_signal_reaches_the_process_whose_end_is_awaited(tmp_path):
    """The command ends at its second SIGTERM, as an algorithm that writes a checkpoint."""
    begun, first = tmp_path / "begun", tmp_path / "first"
    command = (
        "import signal, sys, time\n"
        "from pathlib import Path\n"
        "def again(*_): sys.exit()\n"
        f"def once(*_): signal.signal(signal.SIGTERM, again); Path({str(first)!r}).touch()\n"
        f"signal.signal(signal.SIGTERM, once); Path({str(begun)!r}).touch()\n"
        "while True: time.sleep(0.1)\n"
    )

    def interrupt_when_the_first_has_come():
        while not first.exists():
            time.sleep(0.05)  # the file is another process's
        os.kill(os.getpid(), signal.SIGINT)

    with local_processes() as processes:
        processes.start("stage", [sys.executable, "-c", command], None)
        assert processes.wait_until(begun.exists) == 0
        threading.Thread(target=interrupt_when_the_first_has_come).start()
        pids = pids_of(processes)
    assert not any(map(is_alive, pids))


@pytest.mark.timeout(30)
def test_a_runner_whose_games_go_on_does_not_delay_the_end(tmp_path, monkeypatch):
    monkeypatch.setattr(machine_processes, "_RUNNER_GRACE_SECONDS", 0.1)
    runner = tmp_path / "runners"
    runner.mkdir()
    (runner / "__init__.py").touch()
    (runner / "busy.py").write_text(
        "import signal, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\nprint('up', flush=True)\ntime.sleep(600)\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    log = tmp_path / "runner.log"
    with local_processes() as processes:
        start_runner(processes, "busy", "http://hub", [], tmp_path)
        assert processes.wait_until(lambda: log.read_text() == "up\n") == 0
        pids = pids_of(processes)
    assert not any(map(is_alive, pids))
