"""Runs one command and sees to it that nothing of it outlives the process that asked for it.

vLLM is several processes. Kill its API server and the engine stays behind, holding memory and GPUs;
kill the trainer and all of it stays behind. So the trainer starts this small guard, and the guard
starts vLLM as a process group of its own and ends the whole group when
- the command's first process ends, however it ends;
- the guard is asked to stop (SIGTERM): politely first, by force after the grace period;
- the process that started the guard is gone, even by SIGKILL: by force, at once.

Run by path, with nothing but the standard library, so that it costs milliseconds:
``python child_guard.py PARENT_PID GRACE_SECONDS COMMAND...``. Exits with the command's exit code;
128 + n if signal n ended it. Linux only (PR_SET_PDEATHSIG).
"""

import contextlib
import ctypes
import os
import signal
import subprocess
import sys

_PR_SET_PDEATHSIG = 1
_OF_THE_END = (signal.SIGTERM, signal.SIGHUP)
"""Signals by which the guard learns that the command is to end."""


def _ask_to_be_told_of_parents_death(signal_number: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_PDEATHSIG, signal_number) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG) failed")


def main() -> int:
    """Guard the command in ``sys.argv`` until it has ended; returns its exit code."""
    parent_pid, grace_seconds, *command = sys.argv[1:]
    guard_pid = os.getpid()

    def before_the_command() -> None:
        # Should the guard itself be killed, vLLM's API server takes its engine down on SIGTERM.
        _ask_to_be_told_of_parents_death(signal.SIGTERM)
        if os.getppid() != guard_pid:  # it died before we could ask
            os._exit(1)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _OF_THE_END)

    # They wait until there is a child to end: one that came sooner would end the guard alone.
    signal.pthread_sigmask(signal.SIG_BLOCK, _OF_THE_END)
    child = subprocess.Popen(command, process_group=0, preexec_fn=before_the_command)

    def stop_politely(*_: object) -> None:
        child.terminate()
        signal.setitimer(signal.ITIMER_REAL, float(grace_seconds))

    def stop_at_once(*_: object) -> None:
        child.kill()

    signal.signal(signal.SIGTERM, stop_politely)
    signal.signal(signal.SIGALRM, stop_at_once)
    signal.signal(signal.SIGHUP, stop_at_once)
    _ask_to_be_told_of_parents_death(signal.SIGHUP)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _OF_THE_END)
    if os.getppid() != int(parent_pid):  # it died before we could ask
        child.kill()
    code = child.wait()
    with contextlib.suppress(ProcessLookupError):  # nobody was left in the group
        os.killpg(child.pid, signal.SIGKILL)
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    sys.exit(main())
