"""Names of runs. Light to import."""

from configs.schema import Config

RUN_FILE = "run.json"
"""In the folder of every run."""


def run_name(config: Config, resume: bool, suffix: str = "") -> str:
    """The name of the new or, with ``resume``, the resumed run.

    A number is added to a new run's name that is in use.
    suffix: of the configured name, for other than training runs.
    """
    first = config.run.name + suffix
    name, number = first, 1
    while not resume and (config.run.dir / name / RUN_FILE).exists():
        number += 1
        name = f"{first}-{number}"
    return name
