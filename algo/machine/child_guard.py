"""Runs one command, and kills its whole process group when the command or the guard's parent process ends.

vLLM is several processes: without its API server the engine would keep its memory and GPUs. The guard kills all
- when the command's first process ends;
- on SIGTERM: by SIGTERM first, by SIGKILL after the grace period; further SIGTERMs are passed on;
- at the end of its standard input, a pipe that closes when the parent ends, even by SIGKILL: by SIGKILL at once.
If the guard itself is killed, the command gets SIGTERM.

Run by path, with the standard library only, it starts in milliseconds: ``python child_guard.py GRACE_SECONDS
COMMAND...``. Exits with the command's exit code; 128 + n after signal n. Linux only (PR_SET_PDEATHSIG).
"""

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import threading
import time

_PR_SET_PDEATHSIG = 1


def main() -> int:
    """Guard the command in ``sys.argv`` until it ends; returns its exit code."""
    grace_seconds, *command = sys.argv[1:]
    terminated = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: terminated.set())
    guard_pid = os.getpid()

    def follow_guard() -> None:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != guard_pid:  # the guard has died already
            os._exit(1)

    child = subprocess.Popen(command, process_group=0, stdin=subprocess.DEVNULL, preexec_fn=follow_guard)

    def pass_on(*_: object) -> None:
        terminated.set()
        child.terminate()

    def end_after_grace() -> None:
        terminated.wait()
        time.sleep(float(grace_seconds))
        child.kill()

    def follow_parent() -> None:
        os.read(0, 1)  # returns when the pipe closes
        child.kill()

    signal.signal(signal.SIGTERM, pass_on)
    if terminated.is_set():  # while the command began
        child.terminate()
    for watch in (end_after_grace, follow_parent):
        threading.Thread(target=watch, daemon=True).start()
    code = child.wait()
    with contextlib.suppress(ProcessLookupError):  # the group is empty
        os.killpg(child.pid, signal.SIGKILL)
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    sys.exit(main())
