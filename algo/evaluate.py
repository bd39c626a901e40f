"""``python -m algo.evaluate``: a policy against a panel of opponents that never learn, on deals never trained on.

``algo.evaluation`` does the work; the training loop plays the same evaluations every few steps. ``--protocol v1`` plays
the evaluation protocol instead (``algo.protocol``), whose figures are comparable across runs and models.
"""

import argparse
import json
import logging
import shutil
import sys
from pathlib import Path

from algo.evaluation.labels import check_label, default_label
from algo.run.local import add_local_option, run_locally
from configs.command_line import add_configuration_options, read_configuration
from configs.model_folder import check_model_folder
from configs.section import ConfigError
from configs.werewolf import WerewolfConfig

logger = logging.getLogger("algo.evaluate")

EVALUATED_FOLDER = "evaluated"
"""In the run's folder; has a folder for each label."""

PROTOCOLS = ("v1",)
"""Versions in ``algo.protocol.panel``, which takes seconds to import."""


def parse_arguments(arguments: list[str] | None = None) -> argparse.Namespace:
    """The command line; exits with a usage message when it cannot be used."""
    parser = argparse.ArgumentParser(
        prog="python -m algo.evaluate",
        description="Evaluate a policy without training it: games on held-out deals through the hub and its runners, "
        "each deal with sides swapped, against the opponents in evaluation.opponents.",
    )
    add_configuration_options(parser, example="evaluation.deals=50")
    parser.add_argument(
        "--model",
        type=Path,
        metavar="FOLDER",
        help="what to evaluate, e.g. a checkpoint's huggingface folder (default: model.path, or with "
        "serving.mode=attach what is served there)",
    )
    parser.add_argument(
        "--protocol",
        choices=list(PROTOCOLS),
        help="play a version of the protocol instead: its own panel of opponents, whole sides and single seats, votes, "
        "beliefs, every figure with and without games that have errors; evaluation.deals says on how "
        "many deals, and evaluation.opponents adds to the panel",
    )
    parser.add_argument("--label", help="name of the evaluation (default: the folder's, or the checkpoint's)")
    parser.add_argument(
        "--people",
        metavar="RUN",
        help="play nothing: count the games that people played in a browser against this run's policy and kept in the "
        "hub as evaluations; RUN is the name of its folder under run.dir",
    )
    parser.add_argument(
        "--resume",
        choices=["never", "auto"],
        default="never",
        help="auto: add to the evaluations of this run.name, and go on with the games of this label; never (default): "
        "begin a folder, under a name with a number if the name is taken",
    )
    add_local_option(parser)
    options = parser.parse_args(arguments)
    if options.local and options.people is not None:
        parser.error("--local: its hub is empty; --people needs the hub that has the games")
    return options


def _kind(options: argparse.Namespace) -> str:
    return "evaluation" if options.protocol is None else "protocol"


def _label(config: WerewolfConfig, options: argparse.Namespace) -> str:
    return options.label or default_label(options.model or config.model.path)


def _check(config: WerewolfConfig, options: argparse.Namespace) -> None:
    if options.people is not None:
        if not (config.run.dir / options.people / "run.json").is_file():
            raise ConfigError(f"--people: {config.run.dir} has no run {options.people!r}")
        return
    if not config.evaluation.deals:
        raise ConfigError("evaluation.deals is 0; name a number of deals, e.g. --set evaluation.deals=20")
    check_label(_label(config, options))
    if options.model is not None or config.serving.mode == "start":
        check_model_folder(options.model or config.model.path, "--model" if options.model else "model.path")


def main() -> int:
    """Entry point; the exit status is 0 only for an evaluation of which at least one game finished."""
    options = parse_arguments()
    config = read_configuration(options, WerewolfConfig, lambda config: _check(config, options))
    if isinstance(config, int):
        return config
    if options.local:
        return run_locally("algo.evaluate", config, options, f"-{_kind(options)}", "werewolf")
    return run(config, options) if options.people is None else run_people(config, options)


def run(config: WerewolfConfig, options: argparse.Namespace) -> int:
    """Play and show the evaluation, by a protocol if one is named; returns the exit status."""
    # agentlightning takes many seconds to import.
    from algo.reports.terminal import wide_console
    from algo.run.command_line import begin_run, run_to_its_end

    kind = _kind(options)
    opened = begin_run(config, options.log_level, suffix=f"-{kind}", log=f"{kind}.log", resume=options.resume == "auto")
    if isinstance(opened, int):
        return opened
    label = _label(opened.config, options)
    keep_evaluated(opened.config, options.model, label, "" if options.protocol else "-evaluation")
    if options.protocol is None:
        from algo.evaluation.model_folder import evaluate_model, show_evaluation

        playing, show = evaluate_model(opened, options.model, label), show_evaluation
    else:
        from algo.protocol.page import show_report
        from algo.protocol.play import run_protocol

        playing, show = run_protocol(opened, options.protocol, options.model, label), show_report
    status, done = run_to_its_end(
        playing,
        opened.config,
        logger,
        "interrupted; finished games stay in the hub, and --resume auto goes on with them",
        {},
    )
    if done is None:
        return status
    found, path, page = done
    console = wide_console()
    show(found, console)
    console.print(f"{path}\n{page}", highlight=False, markup=False, soft_wrap=True)
    return 0


def keep_evaluated(config: WerewolfConfig, model: Path | None, label: str, part: str) -> None:
    """Keep, in the run's folder, what the web page needs to show the games: the policy's label and its tokenizer.

    model: see ``--model``. part: of the games' ids, between the run's name and the label.
    """
    from algo.machine.whole_files import write_whole

    in_names = label.replace(" ", "-")
    folder, source = config.run_dir / EVALUATED_FOLDER / in_names, (model or config.model.path).resolve()
    about = {"label": label, "model": str(source), "games": f"{config.run.name}{part}-{in_names}-"}
    write_whole(folder / "evaluated.json", json.dumps(about, ensure_ascii=False))
    if (source / "tokenizer.json").is_file():
        shutil.copyfile(source / "tokenizer.json", folder / "tokenizer.json")


def run_people(config: WerewolfConfig, options: argparse.Namespace) -> int:
    """Count and show people's games; returns the exit status."""
    from algo.evaluation.people import count_people, show_people
    from algo.reports.terminal import wide_console
    from algo.run.checkpoints import load_state
    from algo.run.command_line import run_to_its_end
    from algo.werewolf.demonstrations import NothingToImitate

    run_dir = config.run.dir / options.people
    logging.basicConfig(level=options.log_level)
    counting = count_people(config, load_state(run_dir).run_id, run_dir)
    status, done = run_to_its_end(counting, config, logger, "interrupted", {NothingToImitate: "{}"})
    if done is not None:
        scores, path = done
        console = wide_console()
        show_people(scores, console)
        console.print(str(path), highlight=False, markup=False, soft_wrap=True)
    return status


if __name__ == "__main__":
    sys.exit(main())
