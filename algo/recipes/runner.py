"""Runs a recipe: hub, runner and vLLM on this machine, one stage after another.

Each stage is the process that a user would start by hand. ``stages.jsonl`` in the recipe's folder has a line for each
try, so that a killed recipe resumes its last stage: training and evaluations where they stopped, an imitation from its
beginning.
"""

import json
import os
import shlex
import shutil
import sys
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib import metadata
from itertools import count, dropwhile, takewhile
from pathlib import Path
from typing import Any

from rich.markup import escape

from algo.evaluate import check_matches
from algo.machine.atomic_files import make_private_folder, write_atomically
from algo.machine.disk import disk_full
from algo.machine.ports import free_port, is_taken
from algo.machine.processes import (
    CONSOLE,
    Interrupted,
    Processes,
    local_processes,
    program,
    start_hub,
    start_runner,
)
from algo.recipes.recipe import Recipe, Stage, read_recipe, stage_config
from algo.run.checkpoints import lock_run
from algo.run.local import runner_permissions
from algo.run.names import EVALUATION_SUFFIX, RECIPE_FILE
from algo.werewolf.file_names import MODEL_FOLDER, SPEECH_FILE, SUMMARY_FILE, WARM_START_SUFFIX
from configs.agents import AgentConfig
from configs.loading import CONFIG_DIR, as_override, as_yaml, load_config, settings_in
from configs.schema import Config
from configs.section import ConfigError
from configs.werewolf import WerewolfConfig

STAGES_FILE, REPORT_FILE = "stages.jsonl", "report.html"
"""In the recipe's folder."""
INTERRUPTED_FOLDER = "interrupted"
"""Holds folders of interrupted imitations."""
_LOCKED = "wait for its end"
_PACKAGES = ("agentlightning", "torch", "verl")
_PROGRAMS = {"imitate": "algo.werewolf_sft", "evaluate": "algo.evaluate", "train": "algo.werewolf_verl"}
"""Of the workload werewolf; agents are trained by ``algo.agent_verl``."""
SERVICE_SECONDS = 600.0
"""For an agent's service to listen; it may load a model first."""
_OWN_SETTINGS = {
    "run.seed": "use --seeds",
    **dict.fromkeys(("run.name", "run.dir"), "use --directory"),
    "model.path": "set model in a recipe of your own",
    **dict.fromkeys(("store.url", "serving.port"), "hub and vLLM run on free ports of this machine"),
}
"""Settings that a recipe makes for each stage: setting -> what a user may set instead."""


@dataclass(frozen=True)
class Step:
    """One stage of one seed. seed: None for a build stage.

    run: name of the stage's run. folder: of that run. results: files that exist once the stage is done.
    """

    stage: Stage
    seed: int | None
    run: str
    folder: Path
    model: Path
    results: tuple[Path, ...] = ()

    @property
    def title(self) -> str:
        """Its name on the terminal and in ``stages.jsonl``."""
        return self.stage.name if self.seed is None else f"{self.stage.name} of seed {self.seed}"


@dataclass(frozen=True)
class RecipeFolder:
    """A recipe in its folder.

    commands: the command lines that began and resumed it. versions: of packages, at each of them.
    """

    directory: Path
    recipe: Recipe
    commands: tuple[str, ...]
    versions: tuple[str, ...] = ()

    def config(self, stage: Stage) -> Config:
        """The settings of a stage, as they were when the recipe began."""
        return load_config(self.directory / f"{stage.name}.yaml", schema=self.recipe.schema_of_configs)

    def steps(self) -> list[Step]:
        """All stages of all seeds, in order."""
        directory, recipe = self.directory, self.recipe
        first = (recipe.model or directory / "model").absolute()  # relative in runs of earlier versions
        builds = [stage for stage in recipe.stages if stage.do == "build"]
        steps = [Step(stage, None, stage.name, first, first, (first / "config.json",)) for stage in builds]
        for seed in recipe.seeds:
            model = first
            for stage in recipe.stages:
                run = f"seed-{seed}" if stage.do == "train" else f"seed-{seed}-{stage.name}"
                if stage.do == "imitate":
                    folder = directory / f"{run}{WARM_START_SUFFIX}"
                    learned = folder / MODEL_FOLDER
                    steps.append(
                        Step(stage, seed, run, folder, model, (folder / SUMMARY_FILE, learned / "config.json"))
                    )
                    model = learned
                elif stage.do == "speech":
                    folder = directory / f"seed-{seed}"
                    steps.append(Step(stage, seed, run, folder, first, (folder / SPEECH_FILE,)))
                elif stage.do != "build":
                    folder = directory / (f"{run}{EVALUATION_SUFFIX}" if stage.do == "evaluate" else run)
                    steps.append(Step(stage, seed, run, folder, model))
        return steps

    def done(self) -> set[str]:
        """Titles of the finished steps, by exit status and result files."""
        ended = {try_["step"] for try_ in self.tries() if try_["status"] == 0}
        return {
            step.title
            for step in self.steps()
            # A build is not done by an earlier recipe's files: its program knows whether they are what it would write.
            if (step.title in ended or (step.results and step.stage.do != "build"))
            and all(map(Path.exists, step.results))
        }

    def tries(self) -> list[dict[str, Any]]:
        """Every try of every step, in order: step, began, seconds, status."""
        path = self.directory / STAGES_FILE
        lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
        found = []
        for line in lines:
            with suppress(ValueError):  # incomplete after a kill
                found.append(json.loads(line))
        return found


def begin(
    file: Path,
    overrides: list[str],
    seeds: Sequence[int] | None,
    directory: Path | None,
    runs_dir: Path,
    command: str,
    other: Path | None = None,
) -> RecipeFolder:
    """Make a recipe's folder, with the full settings of every stage. Raises ConfigError.

    other: another run of a recipe, whose stages before training are copied, and not run again.
    """
    seeds = _seeds(seeds)
    for override in overrides:
        for setting in settings_in(override):
            if remedy := _OWN_SETTINGS.get(setting):
                raise ConfigError(f"--set {override}: a recipe sets {setting} itself; {remedy}")
    recipe, below = read_recipe(file, **({"seeds": seeds} if seeds else {}))
    recipe = _with_whole_path(recipe)
    configs = {stage.name: _located(stage_config(recipe, below, stage, overrides)) for stage in recipe.stages}
    _check(recipe, configs)
    directory = directory or runs_dir / time.strftime(f"{recipe.name}-%Y%m%d-%H%M%S")
    if directory.exists() and any(directory.iterdir()):
        remedy = "--resume continues its recipe" if (directory / RECIPE_FILE).exists() else "it holds no recipe"
        raise ConfigError(f"{directory} is not empty; {remedy}, --directory names another folder")
    made = not directory.exists()
    make_private_folder(directory)
    try:
        for name, config in configs.items():
            (directory / f"{name}.yaml").write_text(as_yaml(config), encoding="utf-8")
        opened = RecipeFolder(directory.resolve(), recipe, (command,), (_versions(),))
        if other is not None:
            _copy_stages(opened, other)
        return _write(opened)  # last: until then nothing resumes it, as a recipe that runs the stages itself
    except BaseException as error:  # of a full disk or Ctrl-C, too
        for each in directory.iterdir():  # it was empty
            shutil.rmtree(each) if each.is_dir() else each.unlink()
        if made:
            directory.rmdir()
        if isinstance(error, Exception) and (full := disk_full(error, directory, "Free some space there.")):
            raise full from error
        raise


def read_recipe_folder(directory: Path) -> RecipeFolder:
    """Raises ConfigError for a folder that holds no recipe."""
    path = directory / RECIPE_FILE
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        recipe, commands = Recipe.model_validate(document["recipe"]), tuple(document["commands"])
        return RecipeFolder(directory.resolve(), recipe, commands, tuple(document.get("versions", ())))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ConfigError(f"{directory} holds no recipe: {path}: {error}") from error


def resume(directory: Path, seeds: Sequence[int] | None, command: str) -> RecipeFolder:
    """Open a recipe to resume it. seeds: added to its seeds. Raises ConfigError."""
    opened = read_recipe_folder(directory)
    every = dict.fromkeys((*opened.recipe.seeds, *_seeds(seeds)))
    recipe = opened.recipe.model_copy(update={"seeds": tuple(every)})
    with lock_run(opened.directory, _LOCKED):  # the recipe that runs would judge itself by these seeds
        both = (*opened.commands, command), (*opened.versions, _versions())
        return _write(RecipeFolder(opened.directory, recipe, *both))


def newest(runs_dir: Path, name: str) -> Path:
    """The folder of the recipe of this name that was begun or resumed last. Raises ConfigError if there is none."""
    files = runs_dir.glob(f"*/{RECIPE_FILE}")
    for path in sorted(files, key=lambda path: path.stat().st_mtime_ns, reverse=True):
        with suppress(ConfigError):
            if read_recipe_folder(path.parent).recipe.name == name:
                return path.parent
    raise ConfigError(f"{runs_dir} has no run of the recipe {name!r} to resume; leave out --resume")


def _seeds(given: Sequence[int] | None) -> tuple[int, ...]:
    """Each once. Raises ConfigError."""
    if given and min(given) < 0:
        raise ConfigError(f"--seeds {' '.join(map(str, given))}: seeds must not be negative")
    return tuple(dict.fromkeys(given or ()))


def _versions() -> str:
    return ", ".join(f"{name} {metadata.version(name)}" for name in _PACKAGES)


def _copy_stages(opened: RecipeFolder, other: Path) -> None:
    """Except evaluations under other conditions, which are played again. Copied stages keep their settings.

    Raises ConfigError where a stage of the other is missing or not done for all seeds.
    """
    theirs = read_recipe_folder(other)
    done, ends = theirs.done(), {try_["step"]: try_ for try_ in theirs.tries() if try_["status"] == 0}
    mine, known = {step.title: step for step in opened.steps()}, {step.title for step in theirs.steps()}
    names = {stage.name for stage in theirs.recipe.stages}
    for step in opened.steps():
        if step.stage.do == "imitate" and step.stage.name not in names:
            raise ConfigError(f"--from {other}: its recipe has no stage {step.stage.name!r}; leave out --from")
        if step.stage.do == "imitate" and step.title not in known:
            raise ConfigError(f"--from {other}: it has no stage {step.title!r}; give the same --seeds")
    for step in theirs.steps():
        if step.stage.do in ("train", "speech") or step.title not in mine:
            continue
        if step.title not in done and step.stage.do == "build":
            continue
        if step.title not in done:
            raise ConfigError(f"--from {other}: its stage {step.title!r} is not done")
        if step.stage.do == "evaluate" and not _has_conditions_of(opened, mine[step.title].stage, step.folder):
            continue
        if step.folder.is_relative_to(other.resolve()):
            shutil.copytree(step.folder, mine[step.title].folder)
        shutil.copyfile(*(one.directory / f"{step.stage.name}.yaml" for one in (theirs, opened)))
        if step.title in ends:
            _append(opened, ends[step.title])


def _has_conditions_of(opened: RecipeFolder, stage: Stage, folder: Path) -> bool:
    """Whether the newest evaluation in a folder is comparable with that of a stage."""
    # These take seconds to import.
    from algo.evaluation.games import GameRow
    from algo.evaluation.panel import PANELS, matches_of
    from algo.evaluation.record import Record

    config, found = opened.config(stage), Record(folder, GameRow).read()
    assert isinstance(config, WerewolfConfig)  # no recipe of agents has such a stage
    conditions = matches_of(config, PANELS[stage.panel], "", "", stage.players).digest
    return bool(found) and found[-1].header.digest == conditions


def run(opened: RecipeFolder) -> int:
    """Run the remaining steps, with a hub and a runner; returns 0, or the exit status of the failed process.

    Raises ConfigError where another process runs the recipe.
    """
    started, directory = time.monotonic(), opened.directory
    logs = directory / "logs"
    logs.mkdir(exist_ok=True)
    with lock_run(directory, _LOCKED), local_processes() as processes:
        try:
            status = _run_steps(processes, opened, logs)
        except Interrupted:
            CONSOLE.print("\n[yellow]interrupted; stopping everything[/]")
            status = 130
    minutes = (time.monotonic() - started) / 60
    if status:
        CONSOLE.print(
            f"[red]stopped after {minutes:.1f} minutes[/]; logs: {escape(str(logs))}; to resume: python -m algo.recipe "
            f"--resume --directory {escape(shlex.quote(os.path.relpath(directory)))}",
            soft_wrap=True,
        )
    else:
        CONSOLE.print(f"[green]all stages done in {minutes:.1f} minutes; all processes have ended[/]")
    return status


def _run_steps(processes: Processes, opened: RecipeFolder, logs: Path) -> int:
    steps, done, hub = opened.steps(), opened.done(), ""
    for number, step in enumerate(steps):
        where = f"stage {number + 1} of {len(steps)}: {step.title}"
        if step.title in done:
            CONSOLE.print(f"{where}: done before")
            continue
        if step.stage.do != "build" and not hub:
            hub = start_hub(processes, logs)
            if status := _start_runner(processes, opened, hub, logs):
                return status
        if step.stage.do == "imitate":
            _set_aside(step.folder, opened.directory)
        CONSOLE.print(f"\n[bold]{where}[/]", soft_wrap=True)
        began, clock, status = datetime.now(UTC), time.monotonic(), 130
        try:
            processes.start(step.title, command_of(opened, step, hub), None)
            status = processes.wait_for(step.title)
        finally:
            seconds = round(time.monotonic() - clock, 1)
            _append(opened, {"step": step.title, "began": began.isoformat(), "seconds": seconds, "status": status})
        missing = [str(path) for path in step.results if not path.exists()]
        if status or missing:
            why = f"exit code {status}" if status else f"{', '.join(missing)} was not written"
            log = "" if step.stage.do == "build" else f"; its log: {step.folder / 'logs'}"
            CONSOLE.print(f"the stage {step.title} failed: {why}{log}", style="red", markup=False, soft_wrap=True)
            return status or 1
    return 0


def command_of(opened: RecipeFolder, step: Step, hub: str) -> list[str]:
    """The command line of a step. Ports are chosen late, so that they are still free."""
    stage, directory = step.stage, opened.directory
    if stage.do == "build":
        return command_line(stage.command, {"model": str(step.model)}, f"command of stage {stage.name}")
    if stage.do == "speech":
        return [sys.executable, "-m", "algo.speech", str(step.folder), "--model", str(step.model)]
    settings = {
        "run.name": step.run,
        "run.dir": directory,
        "run.seed": step.seed,
        "store.url": hub,
        "model.path": step.model,
        "serving.port": free_port(),
    }
    options = []
    if stage.do == "train":
        options = ["--resume", "auto"]
    elif stage.do == "evaluate":
        options = ["--resume", "auto", "--label", stage.name, "--panel", stage.panel]
        options += ["--players", *stage.players] if stage.players else []
    module = "algo.agent_verl" if opened.recipe.workload == "agents" else _PROGRAMS[stage.do]
    overrides = [as_override(setting, value) for setting, value in settings.items()]
    return [*program(module, directory / f"{stage.name}.yaml", overrides, *options)]


def _start_runner(processes: Processes, opened: RecipeFolder, hub: str, logs: Path) -> int:
    """Start the runner, and an agent's service before it; 0, or the exit status of a process that ended at once."""
    permissions = runner_permissions(*map(opened.config, opened.recipe.stages))
    if opened.recipe.workload == "werewolf":
        options = ["--n", str(opened.recipe.concurrent_games), *permissions]
        start_runner(processes, "werewolf", hub, options, logs)
        return 0
    config = opened.config(next(stage for stage in opened.recipe.stages if stage.do == "train"))
    assert isinstance(config, AgentConfig)
    port, end = free_port(), time.monotonic() + SERVICE_SECONDS
    values = {"port": str(port), "model": str(opened.steps()[0].model)}
    if config.local.service is not None:
        processes.start("service", command_line(config.local.service, values, "local.service"), logs)
        if status := processes.wait_until(lambda: is_taken(port) or time.monotonic() > end):
            return status
        if not is_taken(port):
            raise ConfigError(
                f"local.service {config.local.service!r} does not listen at {{port}}, 127.0.0.1:{port}, after "
                f"{SERVICE_SECONDS:g} seconds; its log: {logs / 'service.log'}"
            )
    options = command_line(config.local.runner, values, "local.runner")
    start_runner(processes, "agents", hub, [*options, *permissions], logs)
    return 0


def command_line(text: str, values: Mapping[str, str], setting: str) -> list[str]:
    """A configured command as arguments, its placeholders filled in. Raises ConfigError, naming the setting."""
    known = {"python": sys.executable, **values}
    try:
        return [part.format_map(known) for part in shlex.split(text)]
    except (ValueError, KeyError, IndexError) as error:
        placeholders = ", ".join(f"{{{name}}}" for name in known)
        raise ConfigError(
            f"{setting} {text!r} is no valid command line: {error}; placeholders: {placeholders}"
        ) from error


def _check(recipe: Recipe, configs: Mapping[str, Config]) -> None:
    for stage in dropwhile(lambda one: one.do != "train", recipe.stages):
        if stage.do in ("evaluate", "imitate"):
            raise ConfigError(
                f"stage {stage.name} ({stage.do}) stands after train and would use the weights from before it; train "
                "evaluates its result itself (section evaluation)"
            )
    for stage in takewhile(lambda one: one.do != "train", recipe.stages):
        if stage.do == "speech":
            raise ConfigError(f"stage {stage.name} needs a stage train before it: it judges the speeches of its games")
    for stage in recipe.stages:
        if stage.do == "build":
            command_line(stage.command, {"model": "model"}, f"command of stage {stage.name}")
        config = configs[stage.name]
        if stage.do == "evaluate" and isinstance(config, WerewolfConfig):
            check_matches(config, stage.players, f"stage {stage.name}")
        if stage.do != "train":
            continue
        evaluation = config.evaluation
        if not (evaluation.enabled and evaluation.at_start and evaluation.at_end):
            raise ConfigError(
                f"recipe {recipe.name} compares before with after: set evaluation.deals (agents: evaluation.tasks) "
                f"above 0, and evaluation.at_start and at_end to true"
            )
        with ProcessPoolExecutor(1) as process:  # verl takes much memory, and this process lives for hours
            process.submit(_check_training, config).result()
    if recipe.workload == "agents":
        config = configs[next(stage.name for stage in recipe.stages if stage.do == "train")]
        assert isinstance(config, AgentConfig)
        if not config.local.runner:
            raise ConfigError("local.runner must name the agent that `python -m runners.agents` runs")
        for setting, text in (("local.service", config.local.service), ("local.runner", config.local.runner)):
            command_line(text or "", {"port": "0", "model": "model"}, setting)


def _check_training(config: Config) -> None:
    from algo.loop.startup import check_settings

    check_settings(config)  # not only after hours of imitation


def _set_aside(folder: Path, directory: Path) -> None:
    if folder.exists():
        aside = directory / INTERRUPTED_FOLDER
        aside.mkdir(exist_ok=True)
        folder.rename(next(free for n in count(1) if not (free := aside / f"{folder.name}-{n}").exists()))


def _with_whole_path(recipe: Recipe) -> Recipe:
    """With the path of its model from the root, so that it is the same wherever the recipe is resumed.

    A shipped recipe's model is below the repository. Raises ConfigError where no stage builds a model that is missing.
    """
    if recipe.model is None:
        return recipe
    places = [recipe.model.absolute(), CONFIG_DIR.parent / recipe.model]
    found = [place for place in places if (place / "config.json").is_file()]
    if not found and not any(stage.do == "build" for stage in recipe.stages):
        raise ConfigError(f"recipe {recipe.name}: its model {recipe.model} does not exist")
    return recipe.model_copy(update={"model": [*found, *places][0]})


def _located(config: Config) -> Config:
    """With existing folders of further models from the root, so that a resume from another folder finds them."""

    def whole(section: Any) -> Any:
        exists = section.path is not None and section.path.exists()
        return section.model_copy(update={"path": section.path.absolute()}) if exists else section

    frozen = {name: whole(policy) for name, policy in config.frozen.items()}
    return config.model_copy(
        update={"frozen": frozen, "reference": whole(config.reference), "critic": whole(config.critic)}
    )


def _append(opened: RecipeFolder, try_: Mapping[str, Any]) -> None:
    with (opened.directory / STAGES_FILE).open("a", encoding="utf-8") as file:
        # An incomplete line of a killed process stays a line of its own.
        file.write("\n" * (file.tell() > 0) + json.dumps(try_))


def _write(opened: RecipeFolder) -> RecipeFolder:
    document = {
        "recipe": opened.recipe.model_dump(mode="json"),
        "commands": opened.commands,
        "versions": opened.versions,
    }
    write_atomically(opened.directory / RECIPE_FILE, json.dumps(document, ensure_ascii=False, indent=1) + "\n")
    return opened
