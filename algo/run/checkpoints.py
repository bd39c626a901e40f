"""Checkpoints: what a run goes on from after any end. A checkpoint is either whole or not there.

``step-000012/`` holds ``trainer/`` (weights, optimizer, schedule and random states, by rank), ``huggingface/`` (the
model, for vLLM and transformers), with LoRA ``adapters/`` too, exact where the merged model is rounded, and
``state.json`` (``RunState``). Where several policies learn, ``policies/NAME/`` has these two folders of each. It is
written under another name, flushed to the disk and then renamed; leftovers of a write that was cut short are removed by
the next.

Which deals a group plays and how its tokens are sampled follows from the run's seed and the group's number, so these
numbers are all there is of a position in the data: those of the groups that were in flight, and how many were begun. A
resumed run asks the hub for the games of its next groups by their ids, and goes on with those that are there
(``RolloutQueue.adopt``).
"""

import fcntl
import hashlib
import shutil
from collections.abc import Mapping, Sequence
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
from configs.schema import Config
from configs.section import ConfigError
from configs.sections.policies import SOLE_LEARNER

if TYPE_CHECKING:
    from algo.training.engine import Engine  # brings verl along

STATE_FILE = "state.json"
_CHECKPOINTS = "checkpoints"
_WHEN_FULL = (
    "Free some space there, or have fewer checkpoints kept (checkpoint.keep, checkpoint.keep_best); --resume auto goes "
    "on from the last one"
)

_POLICIES = "policies"
_MAY_CHANGE = ("timeout_seconds", "unresponsive_seconds", "max_attempts", "max_groups_in_flight")
"""Settings of the section rollout that are not fixed within a run."""


class RunState(BaseModel):
    """What a run carries from step to step, besides what the engine saves.

    run_id: names the run's resources and games in the hub, unlike those of any other run.
    step: steps made. policy_version: updates made.
    in_flight: groups that no step has trained on yet. begun: all groups so far; None is those of the steps made.
    probe: token ids of the sequence by which vLLM's weights are compared with the trainer's; None before the first.
    league: who is in the pool of past selves and how the policy fares against them; None without a pool.
    role_baselines: state of the running baselines (``algo.advantages.role_baseline``), where the estimator has them.
    summary: state of the run's summary (``algo.run.summary.RunSummary``).
    score: of the last evaluation, the higher the better; None without one.
    settings: the settings of ``Config.fixed`` as they were, with digests in place of ``fixed_files``.
    resumes: how often the run has been gone on with. resumed_at: the policy version each time.
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
    """The settings that a resumed run must have in common with the run it resumes, by dotted name."""
    found: dict[str, Any] = {}
    for name in config.fixed:
        value = attrgetter(name)(config)
        found[name] = value.model_dump(mode="json") if isinstance(value, BaseModel) else value
    for patience in _MAY_CHANGE:
        del found["rollout"][patience]
    for name, path in config.fixed_files.items():  # where a file lies does not matter, what is in it does
        *sections, key = name.split(".")
        section = reduce(getitem, sections, found)
        section[key] = hashlib.sha256(path.read_bytes()).hexdigest()
    # A list, since the first that matches a seat plays it. Their learning rates may change.
    found[_POLICIES] = [
        {"name": name} | learner.model_dump(mode="json", include={"side", "roles"})
        for name, learner in config.learners.items()
    ]
    return found


def check_same_run(settings: Mapping[str, Any], config: Config, run_dir: Path) -> None:
    """Raise ConfigError, naming the setting, if a run cannot be resumed with this configuration."""
    present = fixed_settings(config)
    if settings.get(_POLICIES) != present.pop(_POLICIES):
        raise ConfigError(
            f"run {run_dir} cannot be resumed with other policies: the checkpoint holds the weights of those that it "
            f"began with, and its games seat them. Keep the section {_POLICIES} as it was, or start a new run"
        )
    for name, value in present.items():
        before = settings.get(name)
        if before == value:
            continue
        changed = name
        if isinstance(value, dict) and isinstance(before, dict):
            changed = ", ".join(f"{name}.{key}" for key in value if value[key] != before.get(key))
        raise ConfigError(
            f"run {run_dir} cannot be resumed with another {changed}: "
            f"{config.fixed.get(name, 'what is in flight was enqueued with them')}. Start a new run instead, from "
            f"model.path={run_dir / _CHECKPOINTS}/step-.../huggingface"
        )


def newest_checkpoint(run_dir: Path) -> Path | None:
    """The checkpoint with the most steps; None if there is none."""
    return max(_complete_checkpoints(run_dir), key=lambda folder: folder.name, default=None)


def load_state(folder: Path) -> RunState:
    """The state in a checkpoint's folder, or in the run's. Raises ConfigError for a file that cannot be read."""
    file = folder / (STATE_FILE if (folder / STATE_FILE).is_file() else RUN_FILE)
    try:
        return RunState.model_validate_json(file.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ConfigError(f"{file} is damaged, or of another version of this program: {error}") from error


def write_run_file(run_dir: Path, state: RunState) -> None:
    """Record how a run began and how often it has been resumed, before anything that a later process has to know of."""
    write_atomically(run_dir / RUN_FILE, state.model_dump_json() + "\n", durable=True)


def save_checkpoint(config: Config, engine: "Engine", state: RunState, exported: Path) -> Path:
    """Write a checkpoint, then drop those that are not to be kept; returns its folder.

    exported: folder of the present weights, if they were written for vLLM already; else they are gathered again.
    """
    folder = config.run_dir / _CHECKPOINTS / f"step-{state.step:06d}"
    for leftover in folder.parent.glob("unfinished-*"):
        shutil.rmtree(leftover)
    with atomic_folder(folder, _WHEN_FULL, durable=True) as unfinished:  # before older ones go
        engine.save(unfinished / "trainer", state.step)
        for learner, folder_of_model in models_in(config, unfinished).items():
            engine.select(learner)
            _save_model(config, engine, config.folder_of(learner, exported), folder_of_model, state)
        state = state.model_copy(update={"settings": fixed_settings(config)})
        write_atomically(unfinished / STATE_FILE, state.model_dump_json() + "\n")
    for old in expired_checkpoints(
        _complete_checkpoints(config.run_dir), config.checkpoint.keep, config.checkpoint.keep_best
    ):
        shutil.rmtree(old)
    return folder


def models_in(config: Config, checkpoint: Path) -> dict[str, Path]:
    """Where a checkpoint has the model of each policy that learns."""
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
        data=f"Reinforcement learning on {played:.0f} rollouts that the policy played in {state.step} steps of this "
        f"run (seed {config.run.seed}), and what its base model was trained on before.",
        results=evaluation_rows(state.summary.get("before", {}), steps),
        compared="first -> last evaluation, with 95 % intervals",
        played=state.probe,
    )


def expired_checkpoints(folders: Sequence[Path], keep: int, keep_best: int) -> list[Path]:
    """The checkpoints that are neither among the newest nor among those with the highest score."""
    newest_first = sorted(folders, key=lambda folder: folder.name, reverse=True)
    scores = {folder: load_state(folder).score for folder in newest_first} if keep_best else {}
    rated = {folder: score for folder, score in scores.items() if score is not None}
    kept = {*newest_first[:keep], *sorted(rated, key=lambda folder: -rated[folder])[:keep_best]}
    return [folder for folder in newest_first if folder not in kept]


def lock_run(run_dir: Path) -> IO[str]:
    """Hold the run for this process, for as long as the returned file is open; ConfigError if another one does."""
    file = (run_dir / ".lock").open("w")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        file.close()
        raise ConfigError(
            f"another process is training the run in {run_dir}; end it, or choose another run.name"
        ) from error
    return file


def _complete_checkpoints(run_dir: Path) -> list[Path]:
    return [folder for folder in (run_dir / _CHECKPOINTS).glob("step-*") if (folder / STATE_FILE).is_file()]
