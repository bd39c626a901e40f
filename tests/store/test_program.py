"""How programs end: with a status, and without a traceback."""

import os
import signal
import subprocess
import sys

import pytest

BEGIN = "import os, signal, tempfile\nfrom store.program import run_program\n"


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


def test_sigterm_removes_temporary_folders(tmp_path):
    body = f"with tempfile.TemporaryDirectory(dir={str(tmp_path)!r}): os.kill(os.getpid(), signal.SIGTERM)"
    ended = subprocess.run([sys.executable, "-c", f"{BEGIN}def main():\n    {body}\nrun_program(main)"])
    assert ended.returncode == 128 + signal.SIGTERM and not any(tmp_path.iterdir())


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
