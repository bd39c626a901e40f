"""The command that a run prints for those who want to see it is one that the pages' own command line takes."""

import os
import shlex
import subprocess
from pathlib import Path

from algo.werewolf.file_names import how_to_see, how_to_watch
from configs.loading import load_config
from runners.werewolf.__main__ import parse_arguments


def test_the_printed_command_opens_the_pages_of_this_run(tmp_path):
    runs = tmp_path / "my runs"
    told = how_to_watch(load_config(None, [f"run.dir={runs}", "run.name=first", "store.url=http://hub:4747"]))
    command, address = told.removeprefix("watch it in a browser: ").split(", then ")
    assert command.startswith("python -m runners.werewolf ")
    options = parse_arguments(shlex.split(command)[3:])
    assert (options.store, options.runs) == ("http://hub:4747", runs)
    assert address == f"http://127.0.0.1:{options.port}/run/first"


def test_the_printed_target_of_make_opens_the_pages_of_these_runs(tmp_path):
    told, runs = how_to_see(tmp_path / "my runs"), Path(os.path.relpath(tmp_path / "my runs"))
    command, address = told.partition(": ")[2].split(", then ")
    # Below `make test` it would tell its folder in a last line.
    typed = ["make", "--dry-run", "--no-print-directory", *shlex.split(command)[1:]]
    shown = subprocess.run(typed, capture_output=True, text=True, check=True)
    options = parse_arguments(shlex.split(shown.stdout.splitlines()[-1])[3:])
    assert options.runs == runs and address == f"http://127.0.0.1:{options.port}/"
