"""Names of files and folders of runs, and the commands that show them. Light to import."""

import os
import shlex
from pathlib import Path

from configs.schema import Config

WARM_START_SUFFIX = "-warm-start"
"""Suffix of a warm start's name and folder."""

MODEL_FOLDER = "huggingface"
"""In the folder of a warm start."""

SUMMARY_FILE = "summary.json"
"""In the folder of a warm start."""

SPEECH_FILE = "speech.json"
"""In a run's folder: evaluation -> side -> bits per character of the policy's speeches (``algo.speech``)."""

PEOPLE_FILE = "people.json"
"""In a run's folder: results of people against its policy."""

_PORT = 8765  # of `python -m runners.werewolf web`


def how_to_watch(config: Config) -> str:
    """The command that shows runs in a browser, and the address of this run's page."""
    command = ["python", "-m", "runners.werewolf", "web", "--store", config.store.url, "--runs", str(config.run.dir)]
    return f"watch it in a browser: {shlex.join(command)}, then http://127.0.0.1:{_PORT}/run/{config.run.name}"


def how_to_see(runs: Path) -> str:
    """The command that shows a folder of runs after its hub has ended, and the address."""
    return f"see its games and curves in a browser: make web RUNS={shlex.quote(os.path.relpath(runs))}, then http://127.0.0.1:{_PORT}/"
