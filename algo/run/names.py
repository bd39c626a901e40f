"""Names of runs. Light to import."""

import re
import shlex

from configs.schema import Config

RUN_FILE = "run.json"
"""In the folder of every run."""

RECIPE_FILE = "recipe.json"
"""In the folder of every recipe, which holds its runs."""

EVALUATION_SUFFIX = "-evaluation"
"""Suffix of the name and folder of an evaluation's run, and of the run name of a training run's evaluation games."""


def run_name(config: Config, resume: bool, suffix: str = "") -> str:
    """The name of the new or, with ``resume``, the resumed run.

    A number is added to a new run's name that is in use. A run that is resumed may be named as its folder is, with
    suffix and number.
    suffix: of the configured name, for other than training runs.
    """
    first, whole = config.run.name + suffix, config.run.name
    if resume and suffix and re.fullmatch(rf".+{re.escape(suffix)}(-\d+)?", whole):
        here, there = ((config.run.dir / name / RUN_FILE).exists() for name in (whole, first))
        if here and not there:
            return whole
    name, number = first, 1
    while not resume and (config.run.dir / name / RUN_FILE).exists():
        number += 1
        name = f"{first}-{number}"
    return name


def resume_options(config: Config, name: str, suffix: str = "") -> str:
    """The options that resume a run, for messages. config, suffix: as for ``run_name``, which returned ``name``."""
    named = "" if name == config.run.name + suffix else f" --set {shlex.quote(f'run.name={name}')}"
    return f"--resume auto{named}"
