"""``python -m algo.learn`` (``make learn``): does the system make a policy better? From a random model to a report.

For each seed a tiny random model, or another, learns by imitation of scripted players, is placed in a cross table, and
then learns by reinforcement against a frozen opponent, evaluated before and after on deals that are never trained on.
Before the imitation that ends where reinforcement begins may come others, of easier games: a curriculum (Bengio et
al., ICML 2009, https://doi.org/10.1145/1553374.1553380).
Hub, runner and each of these stages are processes of their own, the same ones that the README's terminals start. A
report over all seeds comes last. A learning run that was interrupted goes on with the stage that it was in.
"""

import argparse
import os
import shlex
import shutil
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from rich.console import Console

from algo.learning.record import (
    CONFIG_FILE,
    RECORD_FILE,
    REPORT_FILE,
    TINY_MODEL,
    WARM_START_CONFIG_FILE,
    LearningRecord,
    StageRun,
    cross_table_folder,
    installed_versions,
    lesson_config_file,
    lesson_folder,
    training_folder,
    warm_start_folder,
)
from algo.machine.ports import free_port
from algo.machine.processes import Interrupted, Processes, local_processes, program, start_hub_and_runner
from algo.machine.whole_files import make_private
from algo.werewolf.file_names import CROSS_TABLE_FILE, MODEL_FOLDER, SUMMARY_FILE, WARM_START_SUFFIX
from configs.command_line import add_set_option
from configs.loading import CONFIG_DIR, as_yaml, find_config, load_config
from configs.model_folder import check_model_folder
from configs.section import ConfigError
from configs.sections.training import ModelConfig
from configs.werewolf import WerewolfConfig

DEFAULT_SIDE = "good"
CROSS_TABLE_DEALS = 100
GAMES_AT_ONCE = 32
CROSS_TABLE = "cross table"
INTERRUPTED_FOLDER = "interrupted"
"""What a stage that cannot be gone on with had written when it was interrupted."""

_DEFAULT_WARM_STARTS = ("learn_warm_start.yaml",)
_WARM_STARTS = {
    "good": ("learn_warm_start_good.yaml",),
    "wolf": ("learn_warm_start_bold.yaml", "learn_warm_start_wolf.yaml"),
}
"""Of sides that begin with players that vote with reasons."""
_SHARED_SETTINGS = {"game": ("preset", "rules", "prompts"), "rollout": ("context_tokens", "reply_tokens", "thinking")}
_console = Console(stderr=True, highlight=False)


@dataclass(frozen=True)
class Stage:
    """One process of a learning run, and how to know that it has done its work.

    seed: None for a stage of all seeds. serves: it starts a vLLM, and is given a free port for it.
    logs: where to look when it fails; None where it says everything on the terminal.
    results: files that are there once it is done; empty for a stage that finds out by itself.
    folder: what an unfinished try has left, to be put aside before the next; None where that goes on with it.
    """

    kind: str
    seed: int | None
    command: tuple[str, ...]
    serves: bool = False
    logs: Path | None = None
    results: tuple[Path, ...] = ()
    folder: Path | None = None

    @property
    def title(self) -> str:
        """What it is called on the terminal."""
        return self.kind if self.seed is None else f"{self.kind} of seed {self.seed}"

    def is_done(self) -> bool:
        """Whether an earlier try has finished its work."""
        return bool(self.results) and all(path.exists() for path in self.results)

    def full_command(self) -> list[str]:
        """The command line; a port is chosen at the last moment, so that it is still free."""
        port = ["--set", f"serving.port={free_port()}"] if self.serves else []
        return [*self.command, *port]


def stages_of(directory: Path, record: LearningRecord, hub: str) -> list[Stage]:
    """All stages of a learning run, in order. directory: its folder; hub: the hub's address."""
    model = record.model_folder(directory)
    build = Stage(
        "tiny model",
        None,
        _python("algo.tiny_model", str(model), "--layers", str(record.tiny_layers)),
        results=(model / "model.safetensors",),
    )
    stages = [build] if record.model is None else []
    for seed in record.seeds:
        training, warm = training_folder(directory, seed), warm_start_folder(directory, seed)
        crossed, config = cross_table_folder(directory, seed), directory / CONFIG_FILE
        shared = (f"run.dir={directory}", f"run.seed={seed}", f"store.url={hub}")
        lessons = [(f"lesson {n}", lesson_config_file(n), lesson_folder(directory, seed, n)) for n in record.lessons]
        learned = model
        for kind, settings, folder in (*lessons, ("warm start", WARM_START_CONFIG_FILE, warm)):
            name = folder.name.removesuffix(WARM_START_SUFFIX)
            from_before = (f"run.name={name}", *shared, f"model.path={learned}")
            learned = folder / MODEL_FOLDER
            stages.append(
                Stage(
                    kind,
                    seed,
                    program("algo.werewolf_sft", directory / settings, from_before),
                    logs=folder / "logs",
                    results=(folder / SUMMARY_FILE, learned / "config.json"),
                    folder=folder,
                )
            )
        from_imitation = (f"run.name={training.name}", *shared, f"model.path={learned}")
        stages += [
            Stage(
                CROSS_TABLE,
                seed,
                program("algo.cross_table", config, from_imitation, "--deals", str(record.cross_table_deals)),
                serves=True,
                logs=crossed / "logs",
                results=(crossed / CROSS_TABLE_FILE,),
                folder=crossed,
            ),
            Stage(
                "training",
                seed,
                program("algo.werewolf_verl", config, from_imitation, "--resume", "auto"),
                serves=True,
                logs=training / "logs",
            ),
        ]
    return [*stages, Stage("report", None, _python("algo.learning.report", str(directory)))]


def _python(module: str, *arguments: str) -> tuple[str, ...]:
    return (sys.executable, "-m", module, *arguments)


def run_stages(processes: Processes, stages: Sequence[Stage], directory: Path) -> int:
    """Run what is not done yet, one after the other; 0, or the exit status of the stage that failed.

    Every try is entered in the learning run's record. Raises Interrupted.
    """
    started = time.monotonic()
    for number, stage in enumerate(stages):
        where = f"stage {number + 1} of {len(stages)}: {stage.title}"
        minutes = f"{(time.monotonic() - started) / 60:.1f} minutes so far"
        if stage.is_done():
            _console.print(f"{where}: done before")
            continue
        _put_aside(stage, directory)
        following = next((later.title for later in stages[number + 1 :] if not later.is_done()), None)
        coming = f"then {following}" if following else "the last one"
        _console.print(f"\n[bold]{where}[/] ({minutes}; {coming})", soft_wrap=True)
        began, clock = datetime.now(UTC), time.monotonic()
        status = 130
        try:
            processes.start(stage.title, stage.full_command(), None)
            status = processes.wait_for(stage.title)
        finally:
            record = LearningRecord.read(directory)
            seconds = round(time.monotonic() - clock, 1)
            tried = StageRun(stage=stage.kind, seed=stage.seed, began=began, seconds=seconds, exit_status=status)
            record.model_copy(update={"stages": (*record.stages, tried)}).write(directory)
        missing = [str(path) for path in stage.results if not path.exists()]
        if status or missing:
            why = f"exit code {status}" if status else f"{', '.join(missing)} was not written"
            logs = "" if stage.logs is None else f"; its log: {stage.logs}"
            _console.print(
                f"[red]the {stage.title} failed: {why}{logs}[/]; logs of hub and runner: {directory / 'logs'}",
                soft_wrap=True,
            )
            return status or 1
    return 0


def _put_aside(stage: Stage, directory: Path) -> None:
    if stage.folder is None or not stage.folder.exists():
        return
    aside = directory / INTERRUPTED_FOLDER
    aside.mkdir(exist_ok=True)
    number = 1
    while (target := aside / f"{stage.folder.name}-{number}").exists():
        number += 1
    stage.folder.rename(target)


def begin(options: argparse.Namespace, arguments: Sequence[str]) -> Path:
    """Make a learning run's folder, or take one up; returns it. Raises ConfigError.

    arguments: of the command line, for the record.
    """
    command = shlex.join(["python", "-m", "algo.learn", *arguments])
    directory = options.directory
    if directory is None and options.resume:
        directory = _newest(options.runs_dir, options.side)
    if directory is not None and (directory / RECORD_FILE).exists():
        return _take_up(directory.resolve(), options, command)
    if options.resume:
        raise ConfigError(f"{directory} is no learning run to go on with: it has no {RECORD_FILE}")
    if directory is not None and directory.exists() and any(directory.iterdir()):
        raise ConfigError(f"--directory {directory} holds something that is no learning run; name another folder")
    seeds, taken = _different(options.seeds or [1]), options.warm_starts_of
    side = None if options.config else options.side or DEFAULT_SIDE
    file = options.config or CONFIG_DIR / f"learn_{side}.yaml"
    imitation_files = options.warm_start or [CONFIG_DIR / name for name in _WARM_STARTS.get(side, _DEFAULT_WARM_STARTS)]
    if taken is not None:
        imitation_files = _finished_warm_starts(taken, seeds)
    config = load_config(file, options.overrides)
    imitations = [load_config(one, options.overrides if taken is None else ()) for one in imitation_files]
    *lessons, warm_start = imitations
    check_configurations(config, warm_start, lessons)
    *lesson_configurations, warm_start_configuration = map(os.path.relpath, imitation_files)
    trained = config.game.train_sides[0] if len(set(config.game.train_sides)) == 1 else "both"
    record = LearningRecord(
        commands=(command,),
        side=trained,
        configuration=os.path.relpath(file),
        warm_start_configuration=warm_start_configuration,
        lesson_configurations=tuple(lesson_configurations),
        overrides=tuple(options.overrides),
        seeds=seeds,
        steps=config.run.steps,
        deals=config.evaluation.deals,
        cross_table_deals=options.cross_table_deals or CROSS_TABLE_DEALS,
        versions=installed_versions(),
        cpus=os.cpu_count() or 1,
        model=_model_that_is_there(imitations[0]),
        tiny_layers=imitations[0].model.tiny_layers,
    )
    if directory is None:
        directory = options.runs_dir / time.strftime(f"learn-{trained}-%Y%m%d-%H%M%S")
    make_private(directory)
    # Written out, so that a learning run that is gone on with later has the settings that it began with.
    (directory / CONFIG_FILE).write_text(as_yaml(config), encoding="utf-8")
    (directory / WARM_START_CONFIG_FILE).write_text(as_yaml(warm_start), encoding="utf-8")
    for number, lesson in enumerate(lessons, 1):
        (directory / lesson_config_file(number)).write_text(as_yaml(lesson), encoding="utf-8")
    if taken is not None:
        _take_warm_starts(taken, directory, seeds)
    record.write(directory)
    return directory.resolve()


def _model_that_is_there(imitation: WerewolfConfig) -> str | None:
    """The folder of the model to begin with; None where a tiny one is built. Raises ConfigError where it holds none.

    imitation: the first.
    """
    if imitation.model.path == ModelConfig().path:
        return None
    check_model_folder(imitation.model.path)
    return str(imitation.model.path.absolute())


def _finished_warm_starts(other: Path, seeds: Sequence[int]) -> list[Path]:
    """The settings with which another learning run imitated. Raises ConfigError unless it has done so for all seeds."""
    settings = other / WARM_START_CONFIG_FILE
    if not settings.is_file():
        raise ConfigError(f"--warm-starts-of {other}: that is no learning run, it has no {WARM_START_CONFIG_FILE}")
    record = LearningRecord.read(other).model_copy(update={"seeds": tuple(seeds)})
    for stage in stages_of(other, record, hub=""):
        if stage.results and stage.kind != CROSS_TABLE and not stage.is_done():
            raise ConfigError(f"--warm-starts-of {other}: its {stage.title} is not finished")
    return [*(other / lesson_config_file(number) for number in record.lessons), settings]


def _take_warm_starts(other: Path, directory: Path, seeds: Sequence[int]) -> None:
    """Copy what training begins with, how it came about, and its cross tables; copied stages are not run again."""
    lessons = LearningRecord.read(other).lessons
    folders = [other / TINY_MODEL]
    for seed in seeds:
        folders += [lesson_folder(other, seed, number) for number in lessons]
        folders += [warm_start_folder(other, seed), cross_table_folder(other, seed)]
    for folder in filter(Path.exists, folders):
        shutil.copytree(folder, directory / folder.name)


def _newest(runs_dir: Path, side: str | None) -> Path:
    folders = sorted(runs_dir.glob(f"learn-{side or '*'}-*"), key=lambda folder: folder.name.split("-")[-2:])
    found = [folder for folder in folders if (folder / RECORD_FILE).exists()]
    if not found:
        raise ConfigError(f"{runs_dir} has no learning run to go on with; leave out --resume to begin one")
    return found[-1]


def _take_up(directory: Path, options: argparse.Namespace, command: str) -> Path:
    record = LearningRecord.read(directory)
    given = (options.config, options.warm_start, options.warm_starts_of, options.overrides, options.cross_table_deals)
    if any(given) or options.side not in (None, record.side):
        raise ConfigError(
            f"{directory} goes on with the settings that it began with, which lie in {CONFIG_FILE} and "
            f"{WARM_START_CONFIG_FILE} there: leave out --side, --config, --warm-start, --warm-starts-of, --set and "
            f"--cross-table-deals, or begin another learning run"
        )
    seeds = _different([*record.seeds, *(seed for seed in options.seeds or [] if seed not in record.seeds)])
    record.model_copy(update={"seeds": seeds, "commands": (*record.commands, command)}).write(directory)
    return directory


def _different(seeds: Sequence[int]) -> tuple[int, ...]:
    if len(set(seeds)) < len(seeds) or min(seeds) < 0:
        raise ConfigError(f"--seeds {' '.join(map(str, seeds))}: seeds are different numbers, none below 0")
    return tuple(seeds)


def check_configurations(
    config: WerewolfConfig, warm_start: WerewolfConfig, lessons: Sequence[WerewolfConfig] = ()
) -> None:
    """Raise ConfigError unless they can belong to one learning run, and can show what was learned.

    lessons: imitations before the warm start, which may play other games.
    """
    evaluation = config.evaluation
    if not (evaluation.deals and evaluation.at_start and evaluation.at_end):
        raise ConfigError(
            "a learning run compares before with after: set evaluation.deals above 0, and evaluation.at_start and "
            "at_end to true"
        )
    for section, names in _SHARED_SETTINGS.items():
        for name in names:
            trained, imitated = (getattr(getattr(settings, section), name) for settings in (config, warm_start))
            if trained != imitated:
                raise ConfigError(
                    f"{section}.{name} is {imitated!r} in the warm start and {trained!r} after it: what is imitated "
                    f"would not be what is played"
                )
    if config.model.model_copy(update={"path": warm_start.model.path}) != warm_start.model:
        raise ConfigError("the sections model of the warm start and after it differ in more than path")
    if any(lesson.model != warm_start.model for lesson in lessons):
        raise ConfigError("the sections model of the imitations of a curriculum differ: one model goes through all")


def run_learning(directory: Path) -> int:
    """Run a learning run's stages, with a hub and a runner beside them; returns the exit status."""
    started = time.monotonic()
    logs = directory / "logs"
    logs.mkdir(exist_ok=True)
    with local_processes() as processes:
        try:
            hub = start_hub_and_runner(processes, GAMES_AT_ONCE, logs)
            _console.print(f"hub {hub} (agl store), a runner with {GAMES_AT_ONCE} games at a time; their logs: {logs}")
            status = run_stages(processes, stages_of(directory, LearningRecord.read(directory), hub), directory)
        except Interrupted:
            _console.print("\n[yellow]interrupted; stopping everything[/]")
            status = 130
    minutes = (time.monotonic() - started) / 60
    if status:
        _console.print(
            f"[red]stopped after {minutes:.1f} minutes[/]; to go on: make learn RESUME=1, or python -m algo.learn "
            f"--directory {os.path.relpath(directory)}",
            soft_wrap=True,
        )
    else:
        _console.print(f"[green]done in {minutes:.1f} minutes[/]: {directory / REPORT_FILE}", soft_wrap=True)
    return status


def parse_arguments(arguments: Sequence[str]) -> argparse.Namespace:
    """The command line; exits with a usage message when it cannot be used."""
    parser = argparse.ArgumentParser(
        prog="python -m algo.learn",
        description="Show that a policy gets better: a tiny random model (or the one that the settings of the warm "
        "start name) learns by imitation, then by reinforcement against a frozen opponent, evaluated before and after "
        "on held-out deals; with a report at the end. Hub, runner and vLLM are started and stopped on this machine.",
    )
    which = parser.add_mutually_exclusive_group()
    which.add_argument(
        "--side",
        choices=["good", "wolf", "both"],
        help=f"what is trained, with the settings of configs/learn_SIDE.yaml: the good side or both with five players, "
        f"the wolves with seven (default: {DEFAULT_SIDE})",
    )
    which.add_argument("--config", type=find_config, metavar="FILE", help="settings of training and evaluation instead")
    imitation = parser.add_mutually_exclusive_group()
    imitation.add_argument(
        "--warm-start",
        type=find_config,
        nargs="+",
        metavar="FILE",
        help="settings of the warm start (default: configs/learn_warm_start_good.yaml; with --side wolf "
        "learn_warm_start_bold.yaml and learn_warm_start_wolf.yaml; with --side both, and with --config whatever file "
        "that is, learn_warm_start.yaml alone). Several are a curriculum: each begins with what the one before has "
        "learned, and only the last has to play what the training plays",
    )
    imitation.add_argument(
        "--warm-starts-of",
        type=Path,
        metavar="DIR",
        help="begin with the warm starts of another learning run, which has finished those of all --seeds, so that "
        "only the training differs; --set is then of the training alone. `python -m algo.learning.report DIR DIR ...` "
        "compares such runs",
    )
    add_set_option(parser, "run.steps=10", "override one setting in all of them")
    parser.add_argument("--seeds", type=int, nargs="+", metavar="SEED", help="one run for each, in turn (default: 1)")
    parser.add_argument(
        "--cross-table-deals", type=int, metavar="N", help=f"deals in each cell (default: {CROSS_TABLE_DEALS})"
    )
    parser.add_argument(
        "--directory",
        type=Path,
        metavar="DIR",
        help="the learning run's folder; one that was begun before is gone on with: what is done is skipped, and "
        "further --seeds are added (default: a new runs/learn-SIDE-TIME)",
    )
    parser.add_argument("--resume", action="store_true", help="go on with the newest learning run under --runs-dir")
    parser.add_argument("--runs-dir", type=Path, default=Path("runs"), help="where new folders go (default: runs)")
    options = parser.parse_args(arguments)
    if options.cross_table_deals is not None and options.cross_table_deals < 1:
        parser.error("--cross-table-deals must be at least 1")
    return options


def main() -> int:
    """Entry point; the exit status is 0 only for a learning run with its report."""
    options = parse_arguments(sys.argv[1:])
    try:
        directory = begin(options, sys.argv[1:])
    except (ConfigError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return run_learning(directory)


if __name__ == "__main__":
    sys.exit(main())
