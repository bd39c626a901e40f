"""``python -m algo.evaluate``: evaluate a policy against fixed opponents on held-out deals.

The implementation is ``algo.evaluation``; the training loop runs the same evaluations every few steps. ``--panel``
selects the matches (``algo.evaluation.panel``): ``v3`` is fixed, and its figures are comparable across runs and models.
"""

import argparse
import json
import logging
import re
import shutil
from collections.abc import Sequence
from pathlib import Path

from algo.run.local import add_local_option, run_locally
from algo.run.names import EVALUATION_SUFFIX, RECIPE_FILE, resume_options
from configs.command_line import configured_parser, exit_on, read_configuration
from configs.model_folder import check_model_folder
from configs.section import ConfigError
from configs.sections.opponents import INITIAL_POLICY, unknown_player
from configs.werewolf import WerewolfConfig
from store.players import NAMES_WITHOUT_A_MODEL
from store.printable import set_up_logging
from store.program import run_program

logger = logging.getLogger("algo.evaluate")

EVALUATED_FOLDER = "evaluated"
"""Folder in the run's folder, with a folder for each label."""

PANELS = ("run", "cross", "training", "held-out", "v3")
"""As in ``algo.evaluation.panel``, which takes seconds to import."""
DEFAULT_PLAYERS = ("random", "scripted", "policy")


def parse_arguments(arguments: list[str] | None = None) -> argparse.Namespace:
    """Parse the command line; exits with a usage message for an invalid one."""
    parser = configured_parser(
        "algo.evaluate",
        "Evaluate a policy: games on held-out deals through the hub and its runners, each deal on every side in "
        "game.train_sides, against the opponents in evaluation.opponents.",
        example="evaluation.deals=50",
        resume="add to the evaluations of this run.name, and continue those of this label",
    )
    parser.add_argument(
        "--model",
        type=Path,
        metavar="FOLDER",
        help="model to evaluate, e.g. a checkpoint's huggingface folder (default: model.path, or with "
        "serving.mode=attach the served model)",
    )
    parser.add_argument(
        "--panel",
        choices=PANELS,
        default="run",
        help="run (default): the policy against evaluation.opponents, on the sides in game.train_sides; cross: each of "
        "--players against every other and itself, as either side; training: against scripted, timid and patient; "
        "held-out: against expert, poser and follower, which no shipped recipe trains against; v3: fixed opponents, "
        "the policy as whole sides and in single seats, votes and beliefs, each figure also without games that have "
        "errors. All but cross also play evaluation.opponents. evaluation.deals is the number of deals",
    )
    parser.add_argument(
        "--players",
        nargs="+",
        metavar="NAME",
        help=f"for --panel cross: policy, {NAMES_WITHOUT_A_MODEL}, initial (the weights in model.path), or names "
        f"in the sections players and frozen (default: {' '.join(DEFAULT_PLAYERS)})",
    )
    parser.add_argument(
        "--label",
        help="name of the evaluation (default: names of the run and its checkpoint, or of the model's folder)",
    )
    parser.add_argument(
        "--people",
        metavar="RUN",
        help="play no games: score the evaluation games in the hub that people played in a browser against this run's "
        "policy; RUN is its folder under run.dir",
    )
    add_local_option(parser)
    options = parser.parse_args(arguments)
    if options.players and options.panel != "cross":
        parser.error("--players needs --panel cross; otherwise set evaluation.opponents")
    options.players = options.players or (DEFAULT_PLAYERS if options.panel == "cross" else ())
    if options.local and options.people is not None:
        parser.error("--local starts an empty hub; --people needs the hub with the games")
    return options


def default_label(model: Path) -> str:
    """Names of a recipe's folder, run, checkpoint and policy, as far as there are such, or of the model's folder."""
    model = model.resolve()
    place = model.parent if model.name == "huggingface" else model
    names = [place.name]
    if place.parent.name == "policies":
        place = place.parents[1]
        names.insert(0, place.name)
    if place.parent.name == "checkpoints":
        run = place.parents[1]
        names.insert(0, run.name)
        if (run.parent / RECIPE_FILE).is_file():
            names.insert(0, run.parent.name)
    name = " ".join(names)
    return re.sub(r"[^\w .+-]", "-", name).lstrip(" .+-") or "model"


def check_matches(config: WerewolfConfig, players: Sequence[str], where: str) -> None:
    """Raise ConfigError without deals, and for unknown or repeated players of the panel cross, set at ``where``."""
    if not config.evaluation.deals:
        raise ConfigError(f"{where}: evaluation.deals is 0; set a number of deals, e.g. --set evaluation.deals=20")
    for name in players:
        if name != INITIAL_POLICY and (problem := unknown_player(name, [*config.players, *config.frozen])):
            raise ConfigError(f"{where}: {problem}")
    if len(set(players)) < len(players):
        raise ConfigError(f"{where}: names must be distinct, not {' '.join(players)}")


def _check(config: WerewolfConfig, options: argparse.Namespace) -> None:
    if options.people is not None:
        if not (config.run.dir / options.people / "run.json").is_file():
            raise ConfigError(f"--people: {config.run.dir} has no run {options.people!r}")
        return
    check_matches(config, options.players, "--players" if options.players else f"panel {options.panel}")
    if options.label is not None:
        from algo.evaluation.record import check_label  # takes seconds

        check_label(options.label)
    if "policy" in (options.players or ("policy",)) and (options.model is not None or config.serving.mode == "start"):
        check_model_folder(options.model or config.model.path, "--model" if options.model else "model.path")


def main() -> int:
    """Entry point; the exit status is 0 only for an evaluation with at least one finished game."""
    options = parse_arguments()
    config = read_configuration(options, WerewolfConfig, lambda config: _check(config, options))
    if options.local:
        return run_locally("algo.evaluate", config, options, EVALUATION_SUFFIX, "werewolf")
    return _run(config, options) if options.people is None else run_people(config, options)


def _run(config: WerewolfConfig, options: argparse.Namespace) -> int:
    # These take seconds to import.
    from algo.evaluation.page import show_tables, wide_console
    from algo.evaluation.play import evaluate_model
    from algo.evaluation.record import EVALUATIONS_FILE, PAGE_FILE
    from algo.evaluation.report import tables_of
    from algo.run.command_line import begin_run, run_to_completion

    label = options.label or default_label(options.model or config.model.path)
    resume = options.resume == "auto"
    opened = begin_run(config, options.log_level, suffix=EVALUATION_SUFFIX, log="evaluation.log", resume=resume)
    run_dir, resuming = opened.config.run_dir, resume_options(config, opened.config.run.name, EVALUATION_SUFFIX)
    with exit_on(ConfigError):
        keep_evaluated(opened.config, options.model, label)
    found = run_to_completion(
        evaluate_model(opened, options.model, label, panel=options.panel, players=options.players),
        opened.config,
        logger,
        f"interrupted; finished games are recorded, and {resuming} continues with the others",
        {},
    )
    console = wide_console()
    show_tables(tables_of(found), console)
    files = f"{run_dir / EVALUATIONS_FILE}\n{run_dir / PAGE_FILE}"
    console.print(f"{found.header.notes}\n{files}", highlight=False, markup=False, soft_wrap=True)
    return 0


def keep_evaluated(config: WerewolfConfig, model: Path | None, label: str) -> None:
    """Save the policy's label and tokenizer in the run's folder, for the web page. model: see ``--model``.

    Raises ConfigError for another label that games have in the same form, and for another tokenizer.
    """
    from algo.machine.atomic_files import write_atomically

    in_names = label.replace(" ", "-")
    folder, source = config.run_dir / EVALUATED_FOLDER / in_names, (model or config.model.path).resolve()
    file = folder / "evaluated.json"
    if file.is_file() and (other := json.loads(file.read_bytes())["label"]) != label:
        raise ConfigError(
            f"--label {label!r}: games of {other!r} in {config.run_dir} have the same names; choose another"
        )
    tokenizer = source / "tokenizer.json"
    for kept in config.run_dir.glob(f"{EVALUATED_FOLDER}/*/tokenizer.json"):
        if tokenizer.is_file() and kept.read_bytes() != tokenizer.read_bytes():
            raise ConfigError(
                f"{source} has another tokenizer than {kept.parent.name!r} of run {config.run.name}, and runners keep "
                "the tokenizer of a run: choose another run.name"
            )
    about = {"label": label, "model": str(source), "games": f"{config.run.name}-evaluation-{in_names}-"}
    write_atomically(file, json.dumps(about, ensure_ascii=False))
    if tokenizer.is_file():
        shutil.copyfile(tokenizer, folder / tokenizer.name)


def run_people(config: WerewolfConfig, options: argparse.Namespace) -> int:
    """Count and show people's games; returns the exit status."""
    from algo.evaluation.page import show_tables, wide_console
    from algo.evaluation.people import count_people
    from algo.run.checkpoints import load_state
    from algo.run.command_line import run_to_completion
    from algo.werewolf.demonstrations import NoUsableGames

    run_dir = config.run.dir / options.people
    set_up_logging(options.log_level)
    with exit_on(ConfigError):
        counting = count_people(config, load_state(run_dir).run_id, run_dir)
    scores, path = run_to_completion(counting, config, logger, "interrupted", {NoUsableGames: "{}"})
    console = wide_console()
    show_tables([scores.table], console)
    console.print(str(path), highlight=False, markup=False, soft_wrap=True)
    return 0


if __name__ == "__main__":
    run_program(main)
