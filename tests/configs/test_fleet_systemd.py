"""The systemd recipe: stopping a runner lets it finish its games, and systemd takes the units."""

import os
import shlex
import shutil
import subprocess
import sys
import threading

import pytest

from tests.support.hub import fleet_recipes as recipes
from tests.support.hub.fleet_recipes import FLEET

# A runner that says when it is told to end, and ends when its input does.
RUNNER = """
import signal, sys
signal.signal(signal.SIGTERM, lambda *_: print("told", flush=True))
print("plays", flush=True)
sys.stdin.read()
"""


def test_stopping_a_runner_waits_for_its_end_and_is_no_failure():
    """Nor is it when the runner has left by itself: systemd would start it again."""
    stop = recipes.units()["werewolf-runner@.service"]["Service"]["ExecStop"][0]
    assert stop.startswith("-"), "a drain that takes too long leaves the unit failed"
    command = shlex.split(stop.removeprefix("-"))
    assert command[:2] == ["/bin/sh", "-c"]
    assert subprocess.run(command, env={"PATH": os.defpath}, timeout=60, check=False).returncode == 0
    with subprocess.Popen([sys.executable, "-c", RUNNER], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as runner:
        runner.stdout.readline()
        reaper = threading.Thread(target=runner.wait)
        reaper.start()
        environment = {"PATH": os.defpath, "MAINPID": str(runner.pid)}
        with subprocess.Popen(command, env=environment) as stopping:
            assert runner.stdout.readline() == b"told\n"
            assert stopping.poll() is None, "it does not wait for the games"
            runner.stdin.close()
            assert stopping.wait(60) == 0
        reaper.join()
        assert runner.returncode == 0


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd-analyze on this machine")
def test_systemd_takes_the_units(tmp_path):
    for path in (FLEET / "systemd").glob("werewolf-*"):
        text = path.read_text().replace("/opt/werewolf/.venv/bin/python", sys.executable)
        for program in ("/usr/sbin/nginx", "/usr/bin/curl"):  # which this machine need not have
            text = text.replace(program, "/bin/true")
        (tmp_path / path.name).write_text(text)
    for path in sorted(tmp_path.iterdir()):
        # A template is checked as one of its instances.
        verified = subprocess.run(
            ["systemd-analyze", "verify", "--man=no", str(path).replace("@.", "@1.")],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        ours = [line for line in verified.stderr.splitlines() if "werewolf" in line]
        assert verified.returncode == 0 and not ours, "\n".join(ours) or verified.stderr
