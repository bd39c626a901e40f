"""The supervisor of several runner processes: what it is told it hands on, what dies it starts again."""

import asyncio
import contextlib
import os
import re
import signal
import subprocess
import sys

import pytest

from runners.processes import EXIT_INTERRUPTED
from tests.support.hub.hub_process import HubProcess

# A process of the fleet: says what it is and what it is told, and ends when it is told to hand back, or at once with
# its status of those behind its number, unless that is "stays". One that is deaf does not listen yet. What it is told
# it waits for: a handler would miss what comes between the look for signals and the pause.
PROCESS = """
import os, signal, sys
def say(*words):
    os.write(1, (" ".join(map(str, words)) + "\\n").encode())
number, statuses = int(sys.argv[1]), sys.argv[2:]
told = {signal.SIGUSR1, signal.SIGHUP} if statuses != ["deaf"] else {signal.SIGHUP}
told = {name for name in told if signal.getsignal(name) is not signal.SIG_IGN}
signal.pthread_sigmask(signal.SIG_BLOCK, told)
say(number, "runs", os.getpid())
if statuses not in ([], ["deaf"]) and statuses[number - 1] != "stays":
    os._exit(int(statuses[number - 1]))
while signal.sigwait(told) == signal.SIGUSR1:
    say(number, "drains")
say(number, "hands back")
"""

SUPERVISOR = """
import logging, sys
from runners.processes import Fleet
logging.basicConfig(level="INFO", format="%(message)s", stream=sys.stdout)
count, delays, *statuses = sys.argv[2:]
fleet = Fleet(
    lambda number: ["/nowhere" if "missing" in statuses[number - 1 : number] else sys.executable, "-c", sys.argv[1],
                    str(number), *statuses], int(count), eval(delays)
)
sys.exit(fleet.run())
"""


class Supervisor:
    """A supervisor as a process in a session of its own, as in a terminal, and all that it and its processes say."""

    def __init__(self, count, delays=(0.01,) * 3, statuses=(), nohup=False):
        arguments = [PROCESS, str(count), repr(delays), *map(str, statuses)]
        self.process = subprocess.Popen(
            [sys.executable, "-c", SUPERVISOR, *arguments],
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
            # Whoever runs the tests may have been started by nohup, and would hand that on.
            preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN if nohup else signal.SIG_DFL),
        )
        self.lines = []

    def wait_for(self, pattern):
        """The groups of the first line, of those not read yet, that the pattern matches."""
        for line in self.process.stdout:
            self.lines.append(line.rstrip())
            if match := re.fullmatch(pattern, line.rstrip()):
                return match.groups()
        raise AssertionError(f"never said {pattern!r}: {self.lines}")

    def pids(self, count):
        return {int(number): int(pid) for number, pid in (self.wait_for(r"(\d) runs (\d+)") for _ in range(count))}

    def end(self):
        """(exit status, all that was said); the pipe ends when the supervisor and all its processes have."""
        self.lines += [line.rstrip() for line in self.process.stdout]
        return self.process.wait(), self.lines


@pytest.fixture
def start():
    started = []

    def start(*arguments, **options):
        started.append(Supervisor(*arguments, **options))
        return started[-1]

    yield start
    for supervisor in started:  # whose processes end with it
        supervisor.process.kill()
        supervisor.process.wait()
        supervisor.process.stdout.close()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_first_signal_drains_and_the_second_hands_back(start, number):
    supervisor = start(2)
    supervisor.pids(2)
    os.killpg(supervisor.process.pid, number)  # as a terminal does: to all in its foreground
    assert {supervisor.wait_for(r"(\d) drains")[0] for _ in range(2)} == {"1", "2"}
    os.killpg(supervisor.process.pid, number)
    status, said = supervisor.end()
    assert status == 0 and {"1 hands back", "2 hands back"} <= set(said)
    assert sum("drains" in line for line in said) == 2


def test_a_process_that_is_killed_is_started_again_and_the_others_play_on(start):
    supervisor = start(2)
    first = supervisor.pids(2)
    os.kill(first[1], signal.SIGKILL)
    supervisor.wait_for(r"process 1 died \(killed by SIGKILL\); restart in 0.01 s")
    (again,) = supervisor.pids(1).items()
    assert again[0] == 1 and again[1] != first[1]
    supervisor.process.send_signal(signal.SIGHUP)
    status, said = supervisor.end()
    assert status == 0 and sum("2 runs" in line for line in said) == 1


def test_a_process_that_dies_while_the_games_are_finished_is_not_started_again(start):
    supervisor = start(2)
    pids = supervisor.pids(2)
    supervisor.process.terminate()
    supervisor.wait_for(r"1 drains|2 drains")
    os.kill(pids[1], signal.SIGKILL)
    supervisor.wait_for(r"process 1 exited \(killed by SIGKILL\)")
    supervisor.process.terminate()
    status, said = supervisor.end()
    assert status == 128 + signal.SIGKILL and sum("runs" in line for line in said) == 2


def test_stopping_does_not_wait_for_a_process_that_was_to_be_started_again(start):
    supervisor = start(1, delays=(3600.0,))
    os.kill(supervisor.pids(1)[1], signal.SIGKILL)
    supervisor.wait_for(r"process 1 died .*")
    supervisor.process.terminate()
    assert supervisor.end()[0] == 0


@pytest.mark.parametrize("nohup", [False, True])
def test_no_process_outlives_a_supervisor_that_is_killed(start, nohup):
    supervisor = start(2, nohup=nohup)
    supervisor.pids(2)
    supervisor.process.kill()
    _, said = supervisor.end()
    assert {"1 hands back", "2 hands back"} <= set(said)


def test_a_supervisor_under_nohup_stays_when_the_terminal_is_closed(start):
    supervisor = start(1, nohup=True)
    supervisor.pids(1)
    supervisor.process.send_signal(signal.SIGHUP)
    supervisor.process.terminate()
    supervisor.wait_for("1 drains")


IN_VAIN = (os.EX_UNAVAILABLE,) * 3


@pytest.mark.parametrize(
    ("delays", "statuses", "status", "starts"),
    [
        ((), (0, 0), 0, [1, 1]),
        ((), (0, 2), 2, [1, 1]),
        ((), (EXIT_INTERRUPTED, EXIT_INTERRUPTED), EXIT_INTERRUPTED, [1, 1]),
        ((0.0, 0.01), (1, 0), 1, [3, 1]),  # cannot live
        ((0.0, 0.01), ("missing", 0), os.EX_OSERR, [0, 1]),
        ((3600.0,), IN_VAIN, os.EX_UNAVAILABLE, [1, 1, 1]),  # none waits for the hour after which it was to start again
    ],
)
def test_which_processes_that_end_are_started_again(start, delays, statuses, status, starts):
    ended, said = start(len(statuses), delays, statuses).end()
    assert ended == status
    assert [sum(f"{number} runs" in line for line in said) for number in range(1, len(statuses) + 1)] == starts


def test_a_process_that_has_waited_in_vain_is_started_again_while_another_runs(start):
    supervisor = start(2, delays=(0.0, 0.01), statuses=(os.EX_UNAVAILABLE, "stays"))
    supervisor.wait_for(r"process 1 died \(exit status 69\); restart in 0.01 s")
    supervisor.wait_for(r"process 1 died again \(exit status 69\): no more restarts")
    supervisor.process.send_signal(signal.SIGHUP)
    status, said = supervisor.end()
    assert status == os.EX_UNAVAILABLE and "2 hands back" in said
    assert sum("1 runs" in line for line in said) == 3


def test_a_process_stopped_before_it_listens_counts_as_interrupted(start):
    """A runner needs some seconds before it can take a signal."""
    supervisor = start(1, statuses=("deaf",))
    supervisor.pids(1)
    supervisor.process.terminate()
    assert supervisor.end()[0] == EXIT_INTERRUPTED


@pytest.mark.slow  # three processes import all that a runner does
async def test_the_real_runner_in_two_processes(tmp_path):
    """One of them is killed, and is there again; their names differ; SIGTERM ends both."""
    hub = await HubProcess(tmp_path).start()
    arguments = ["--store", hub.url, "--n", "2", "--processes", "2", "--worker-id", "fleet"]
    runner = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "runners.werewolf", *arguments, stderr=asyncio.subprocess.PIPE
    )
    said = []

    async def said_line(pattern):
        while line := (await runner.stderr.readline()).decode():
            said.append(line)
            if match := re.search(pattern, line):
                return match
        raise AssertionError("".join(said))

    try:
        victim = int((await said_line(r"process 1 started \(pid (\d+)\)"))[1])
        os.kill(victim, signal.SIGKILL)  # while it still imports, so that all imports overlap
        await said_line(r"process 1 died \(killed by SIGKILL\)")
        names = {(await said_line(r"\[(\d)\] runners.worker: (fleet-\1): ready"))[2] for _ in range(2)}
        assert names == {"fleet-1", "fleet-2"}
        runner.terminate()
        said.append((await runner.stderr.read()).decode())
        assert await runner.wait() == 0, "".join(said)
    finally:
        with contextlib.suppress(ProcessLookupError):
            runner.kill()
        await runner.wait()
        hub.kill()
