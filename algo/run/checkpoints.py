"""Checkpoints, written atomically, to resume a run.

``step-000012/`` has ``trainer/`` (weights, optimizer, schedule and random states, by rank), ``huggingface/`` (the
model, for vLLM and transformers), with LoRA also ``adapters/``, exact where the merged model is rounded, and
``state.json`` (``RunState``). With several learning policies, ``policies/NAME/`` has the model folders of each. A
checkpoint is written under a temporary name, flushed to the disk and then renamed; the next one removes leftovers of an
interrupted write.

The run's seed and a group's number determine its deals and sampling, so the position in the data is the numbers of the
groups in flight, and the number of started groups. A resumed run adopts the rollouts of its next groups from the hub by
their ids (``HubRollouts.adopt``).
"""

import fcntl
import hashlib
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import reduce
from operator import attrgetter, getitem
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict

from algo.league.pool import LeagueState
from algo.machine.atomic_files import write_atomically
from algo.machine.disk import atomic_folder
from algo.rollouts.schedule import Group
from algo.run.export import write_card
from algo.run.names import RUN_FILE
from algo.run.summary import evaluation_rows
from configs.loading import as_override
from configs.schema import Config
from configs.section import ConfigError
from configs.sections.policies import SOLE_LEARNER

if TYPE_CHECKING:
    from algo.training.engine import Engine  # imports verl

STATE_FILE = "state.json"
_CHECKPOINTS = "checkpoints"
_WHEN_FULL = (
    "Free some space there, or keep fewer checkpoints (checkpoint.keep, checkpoint.keep_best); --resume auto continues "
    "from the last one"
)

_POLICIES = "policies"
_MAY_CHANGE = ("timeout_seconds", "unresponsive_seconds", "max_attempts", "max_groups_in_flight")
"""Settings of the section rollout that a resumed run may change."""
_WEIGHTS, _SAMPLES, _SAMPLE_BYTES = "weights", 64, 2**14
"""Name of the digest of the weights, of samples of each file."""
_MODEL_FILES = ("config.json", "tokenizer.json")
"""Files of ``model.path`` that stay the same within a run: its token ids are those of that tokenizer."""


class RunState(BaseModel):
    """The state of a run between steps, besides that of the engine.

    run_id: unique name of the run's resources and rollouts in the hub.
    step: finished steps. policy_version: number of updates.
    in_flight: groups in flight. begun: number of started groups; None for those of the finished steps.
    probe: token ids of the sequence for comparing vLLM's log-probs with the trainer's; None before the first step.
    league: the pool of past selves and its match results; None without a pool.
    role_baselines: state of ``algo.advantages.baseline.RoleBaselines``.
    summary: state of the run's summary (``algo.run.summary.RunSummary``).
    score: of the last evaluation, higher is better; None without one.
    settings: those of ``Config.fixed``, with digests instead of ``fixed_files`` and of files of ``model.path``.
    resumes: number of resumes. resumed_at: the policy version at each.
    """

    model_config = ConfigDict(extra="forbid")

    run_id: str
    step: int = 0
    policy_version: int = 0
    in_flight: list[Group] = []
    begun: int | None = None
    probe: list[int] | None = None
    league: LeagueState | None = None
    role_baselines: dict[str, Any] = {}
    summary: dict[str, Any] = {}
    score: float | None = None
    settings: dict[str, Any] = {}
    resumes: int = 0
    resumed_at: list[int] = []


def fixed_settings(config: Config) -> dict[str, Any]:
    """The settings that a resumed run must not change, by dotted name."""
    found: dict[str, Any] = {}
    for name in config.fixed:
        value = attrgetter(name)(config)
        found[name] = value.model_dump(mode="json") if isinstance(value, BaseModel) else value
    for key in _MAY_CHANGE:
        del found["rollout"][key]
    for name, path in config.fixed_files.items():  # the content of a file matters, not its path
        *sections, key = name.split(".")
        section = reduce(getitem, sections, found)
        section[key] = _digest(path)
    # A checkpoint has the weights, so the folder may be lost when the run resumes.
    del found["model"]["path"]  # the folder may move
    found |= {name: _digest(file) for name in _MODEL_FILES if (file := config.model.path / name).is_file()}
    if weights := digest_of_weights(config.model.path):
        found[_WEIGHTS] = weights
    # A list, since their order matters. Learning rates may change.
    found[_POLICIES] = [
        {"name": name} | learner.model_dump(mode="json", include={"side", "roles"})
        for name, learner in config.learners.items()
    ]
    return found


def digest_of_weights(folder: Path) -> str:
    """Of samples of a model folder's weights; empty for a folder without any."""
    digest, files = hashlib.sha256(), sorted(folder.glob("*.safetensors"))
    for path in files:
        size = path.stat().st_size
        with path.open("rb") as file:
            for number in range(_SAMPLES):
                file.seek(size * number // _SAMPLES)
                digest.update(file.read(_SAMPLE_BYTES))
    return digest.hexdigest() if files else ""


def _digest(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


def check_same_run(settings: Mapping[str, Any], config: Config, run_dir: Path) -> None:
    """Raise ConfigError, naming the setting, if a run cannot be resumed with this configuration."""
    present = fixed_settings(config)
    if settings.get(_POLICIES) != present.pop(_POLICIES):
        raise ConfigError(
            f"run {run_dir} cannot be resumed with other policies: restore the section {_POLICIES}, or start a new run"
        )
    for name in (*_MODEL_FILES, _WEIGHTS):
        now = present.pop(name, None)
        if now is not None and settings.get(name, now) != now:  # earlier versions recorded none
            raise ConfigError(
                f"run {run_dir} cannot be resumed with another model in model.path: {config.model.path} has other "
                f"{name} than at its start. Restore the folder, or start a new run with another run.name"
            )
    for name, value in present.items():
        before = settings.get(name)
        if isinstance(value, dict) and isinstance(before, dict):
            # Earlier versions have fewer settings.
            defaults = type(attrgetter(name)(config)).model_construct().model_dump(mode="json")
            before = {key: defaults[key] for key in value.keys() - before.keys() if key in defaults} | before
        if before == value:
            continue
        changed = {name: before}
        if isinstance(value, dict) and isinstance(before, dict):
            differ = (key for key in before | value if value.get(key) != before.get(key))
            changed = {f"{name}.{key}": before.get(key) for key in differ}
        as_before = "".join(
            f", or set {as_override(setting, old)}"
            for setting, old in changed.items()
            # Of files there is only a digest.
            if len(changed) == 1 and name in settings and setting not in config.input_files
        )
        raise ConfigError(
            f"run {run_dir} cannot be resumed with another {', '.join(changed)}: "
            f"{config.fixed.get(name, 'rollouts in flight use it')}. Start a new run instead, with "
            f"model.path={run_dir / _CHECKPOINTS}/step-.../huggingface{as_before}"
        )


def newest_checkpoint(run_dir: Path) -> Path | None:
    """The checkpoint with the most steps; None if there is none."""
    return max(_complete_checkpoints(run_dir), key=lambda folder: folder.name, default=None)


def checkpoint_at(run_dir: Path, step: int | None = None) -> Path:
    """The checkpoint of a step, or the newest. Raises ConfigError without one."""
    if step is None:
        found = newest_checkpoint(run_dir)
    else:
        named = run_dir / _CHECKPOINTS / f"step-{step:06d}"
        found = named if (named / STATE_FILE).is_file() else None
    if found is None:
        if not run_dir.is_dir():
            raise ConfigError(f"{run_dir} does not exist: name the folder of a run")
        if runs := sorted(folder.parent.name for folder in run_dir.glob(f"*/{_CHECKPOINTS}")):
            raise ConfigError(f"{run_dir} holds the runs {', '.join(runs)}: name one of them")
        which = "no checkpoint" if step is None else f"no checkpoint of step {step}"
        raise ConfigError(f"{run_dir} has {which} (checkpoint.every_steps)")
    return found


def load_state(folder: Path) -> RunState:
    """The state in a checkpoint's or a run's folder. Raises ConfigError for an invalid file."""
    file = folder / (STATE_FILE if (folder / STATE_FILE).is_file() else RUN_FILE)
    try:
        return RunState.model_validate_json(file.read_text(encoding="utf-8"))
    except ValueError as error:
        remedy = "move its folder away to resume from the checkpoint before it"
        if file.name == RUN_FILE:
            remedy = "start a new run with another run.name"
        raise ConfigError(f"{file} is damaged, or from another version of this program: {remedy}. {error}") from error


def saved_states(run_dir: Path) -> Iterator[RunState]:
    """The states of all checkpoints; expired ones may be deleted meanwhile. Raises ConfigError for an invalid file."""
    for folder in _complete_checkpoints(run_dir):
        with suppress(FileNotFoundError):
            yield load_state(folder)


def write_run_file(run_dir: Path, state: RunState) -> None:
    """Record the initial state and the resumes of a run, before any other effect."""
    write_atomically(run_dir / RUN_FILE, state.model_dump_json() + "\n", durable=True)


def save_checkpoint(config: Config, engine: "Engine", state: RunState, exported: Path) -> Path:
    """Write a checkpoint, then delete expired ones; returns its folder.

    exported: folder of the current weights from a push; if it does not exist, they are gathered again.
    """
    folder = config.run_dir / _CHECKPOINTS / f"step-{state.step:06d}"
    for leftover in folder.parent.glob("unfinished-*"):
        shutil.rmtree(leftover)
    with atomic_folder(folder, _WHEN_FULL, durable=True) as unfinished:  # before older ones are deleted
        engine.save(unfinished / "trainer", state.step)
        for learner, folder_of_model in models_in(config, unfinished).items():
            engine.select(learner)
            _save_model(config, engine, config.folder_of(learner, exported), folder_of_model, state)
        write_atomically(unfinished / STATE_FILE, state.model_dump_json() + "\n")
    for old in expired_checkpoints(
        _complete_checkpoints(config.run_dir), config.checkpoint.keep, config.checkpoint.keep_best
    ):
        # Under this name, what a kill leaves of it is deleted by the next checkpoint.
        shutil.rmtree(old.rename(old.with_name(f"unfinished-{old.name}")))
    return folder


def models_in(config: Config, checkpoint: Path) -> dict[str, Path]:
    """Folder of each learning policy's model in a checkpoint."""
    named = checkpoint / _POLICIES
    return {name: checkpoint if name == SOLE_LEARNER else named / name for name in config.learners}


def _save_model(config: Config, engine: "Engine", exported: Path, folder: Path, state: RunState) -> None:
    if exported.is_dir():
        shutil.copytree(exported, folder / ("adapters" if config.model.lora_rank else "huggingface"))
    if config.model.lora_rank or not exported.is_dir():
        engine.export(folder / "huggingface")
    steps = state.summary.get("steps", [])
    played = sum(metrics.get("rollouts/finished", 0.0) for metrics in steps)
    write_card(
        folder / "huggingface",
        config,
        title=f"{config.run.name}, step {state.step}",
        data=f"Reinforcement learning on {played:.0f} rollouts of the policy in {state.step} steps of this run (seed "
        f"{config.run.seed}), after the training of its base model.",
        results=evaluation_rows(state.summary.get("before", {}), steps),
        compared="first -> last evaluation, with 95 % intervals",
        played=state.probe,
    )


def expired_checkpoints(folders: Sequence[Path], keep: int, keep_best: int) -> list[Path]:
    """The checkpoints that are neither among the ``keep`` newest nor among the ``keep_best`` with the highest score."""
    newest_first = sorted(folders, key=lambda folder: folder.name, reverse=True)
    scores = {folder: load_state(folder).score for folder in newest_first} if keep_best else {}
    rated = {folder: score for folder, score in scores.items() if score is not None}
    kept = {*newest_first[:keep], *sorted(rated, key=lambda folder: -rated[folder])[:keep_best]}
    return [folder for folder in newest_first if folder not in kept]


class RunLocked(ConfigError):
    """Another process has locked the run."""


def lock_run(run_dir: Path, remedy: str = "choose another run.name") -> IO[str]:
    """Lock the run while the returned file is open. Raises RunLocked."""
    file = (run_dir / ".lock").open("w")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        file.close()
        raise RunLocked(f"another process has locked the run in {run_dir}: stop it, or {remedy}") from error
    return file


def _complete_checkpoints(run_dir: Path) -> list[Path]:
    return [folder for folder in (run_dir / _CHECKPOINTS).glob("step-*") if (folder / STATE_FILE).is_file()]
