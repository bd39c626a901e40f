"""How programs end: with a status, and without a traceback."""

import os
import signal
import subprocess
import sys

import pytest

BEGIN = (
    "import os, signal, sys, tempfile\n"
    "from store.program import run_program\n"
    "signal.signal(signal.SIGHUP, signal.SIG_DFL)\n"  # nohup ignores it, also in these tests
)


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ("pass", 0),
        ("return 3", 3),
        ("os.kill(os.getpid(), signal.SIGINT)", 130),
        ("raise SystemExit(2)", 2),
    ],
)
def test_the_status_is_that_of_the_end_and_there_is_no_traceback(body, status):
    program = f"{BEGIN}def main():\n    {body}\nrun_program(main)"
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True)
    assert (ended.returncode, ended.stderr) == (status, b"")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_to_end_removes_temporary_folders(tmp_path, number):
    body = f"with tempfile.TemporaryDirectory(dir={str(tmp_path)!r}): os.kill(os.getpid(), {int(number)})"
    ended = subprocess.run([sys.executable, "-c", f"{BEGIN}def main():\n    {body}\nrun_program(main)"])
    assert ended.returncode == 128 + number and not any(tmp_path.iterdir())


def test_a_terminal_without_chinese_or_no_output_at_all_ends_nothing():
    program = f"{BEGIN}def main():\n    print('狼人杀 –')\n    sys.stdout.isatty()\nrun_program(main)"
    environment = {**os.environ, "PYTHONIOENCODING": "latin-1"}
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, env=environment)
    assert (ended.returncode, ended.stderr) == (0, b"") and rb"\u72fc" in ended.stdout
    closed = subprocess.run(["sh", "-c", '"$0" -c "$1" >&-', sys.executable, program], stderr=subprocess.PIPE)
    assert (closed.returncode, closed.stderr) == (0, b"")


def test_another_broken_pipe_is_an_error():
    program = f"{BEGIN}def main():\n    raise BrokenPipeError('of a hub')\nrun_program(main)"
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True)
    assert ended.returncode == 1 and b"of a hub" in ended.stderr


def test_output_that_nobody_reads_is_no_error_of_ours():
    read, write = os.pipe()
    os.close(read)
    program = f"{BEGIN}def main():\n    print('x' * 100_000)\nrun_program(main)"
    ended = subprocess.run([sys.executable, "-c", program], stdout=write, stderr=subprocess.PIPE)
    os.close(write)
    assert (ended.returncode, ended.stderr) == (1, b"")
