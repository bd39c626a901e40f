"""How a run's folder is named. Light to import."""

from configs.schema import Config

RUN_FILE = "run.json"
"""In the folder of every run."""


def run_name(config: Config, resume: bool, suffix: str = "") -> str:
    """The name of the run that a program begins or, with ``resume``, goes on with.

    A new run whose name is taken gets a number, so that nothing is overwritten.
    suffix: added to the configured name, for what is not a training run.
    """
    first = config.run.name + suffix
    name, number = first, 1
    while not resume and (config.run.dir / name / RUN_FILE).exists():
        number += 1
        name = f"{first}-{number}"
    return name
