"""Where a run can be seen in a browser: the pages are the runners', and read what runs write."""

import shlex

from configs.schema import Config

_PORT = 8765  # of `python -m runners.werewolf web`


def how_to_watch(config: Config) -> str:
    """The command that opens the pages, and the address of the run's own."""
    command = ["python", "-m", "runners.werewolf", "web", "--store", config.store.url, "--runs", str(config.run.dir)]
    return f"watch it in a browser: {shlex.join(command)}, then http://127.0.0.1:{_PORT}/run/{config.run.name}"
