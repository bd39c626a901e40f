"""The command that a run prints for those who want to see it is one that the pages' own command line takes."""

import shlex

from algo.werewolf.file_names import how_to_watch
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
