"""``python -m algo.recipe FILE``: run a recipe on this machine: build, imitate, train, evaluate, report.

Hub, runner, vLLM and trainer are started and stopped here. ``make demo``, ``make learn``, ``make agents`` and ``make
real`` are recipes (configs/recipes).
"""

import argparse
import shlex
import sys
from pathlib import Path

from algo.recipes.recipe import read_recipe
from algo.recipes.runner import begin, copy_stages, newest, resume, run
from configs.command_line import add_set_option
from configs.section import ConfigError


def parse_arguments(arguments: list[str] | None = None) -> argparse.Namespace:
    """The command line; exits with a usage message when it cannot be used."""
    parser = argparse.ArgumentParser(
        prog="python -m algo.recipe",
        description="Run a recipe's stages one after another, each a process of its own, and write a report. A recipe "
        "that was interrupted, or killed, goes on with --resume: stages that are done are skipped.",
    )
    parser.add_argument("file", type=Path, nargs="?", metavar="FILE", help="e.g. demo, or a recipe file of your own")
    add_set_option(parser, "run.steps=10", "override one setting in all stages")
    parser.add_argument("--seeds", type=int, nargs="+", metavar="SEED", help="one run for each (default: the recipe's)")
    parser.add_argument("--resume", action="store_true", help="go on with the newest run of FILE, or in --directory")
    parser.add_argument("--directory", type=Path, metavar="DIR", help="the run's folder (default: runs/NAME-TIME)")
    parser.add_argument("--runs-dir", type=Path, default=Path("runs"), help="where new folders go (default: runs)")
    parser.add_argument(
        "--from",
        dest="taken",
        type=Path,
        metavar="DIR",
        help="begin with what another run of a recipe did before it trained, so that only the training differs",
    )
    parser.add_argument(
        "--compare",
        type=Path,
        nargs="+",
        metavar="DIR",
        help="run nothing: write the reports of these runs; of several, print how the later ones differ from the first",
    )
    options = parser.parse_args(arguments)
    if options.compare is None and options.file is None and not (options.resume and options.directory):
        parser.error("name a recipe, e.g. demo")
    if options.resume and (options.overrides or options.taken):
        parser.error("--resume goes on with the settings that the run began with: leave out --set and --from")
    return options


def main() -> int:
    """Entry point; the exit status is 0 only if every stage was done and the report written."""
    options = parse_arguments()
    command = shlex.join(["python", "-m", "algo.recipe", *sys.argv[1:]])
    try:
        if options.compare is not None:
            return _report(options.compare)
        if options.resume:
            folder = options.directory or newest(options.runs_dir, read_recipe(options.file)[0].name)
            opened = resume(folder, options.seeds, command)
        else:
            given = (options.file, options.overrides, options.seeds, options.directory, options.runs_dir)
            opened = begin(*given, command)
            if options.taken is not None:
                copy_stages(opened, options.taken)
        return run(opened) or _report([opened.directory])
    except (ConfigError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2


def _report(folders: list[Path]) -> int:
    # matplotlib takes seconds to import.
    from algo.evaluation.page import show_tables, wide_console
    from algo.recipes.comparison import comparison_table
    from algo.recipes.report import write_report
    from algo.recipes.results import read_run
    from algo.werewolf.file_names import how_to_see

    console, runs = wide_console(), [read_run(folder) for folder in folders]
    for one in runs:
        path, page = write_report(one)
        if len(runs) == 1:
            show_tables([table for section in page.sections[:2] for table in section.tables], console)
            console.print(page.verdict, highlight=False, markup=False)
        console.print(str(path), highlight=False, markup=False, soft_wrap=True)
        console.print(how_to_see(one.opened.directory), highlight=False, markup=False, soft_wrap=True)
    if len(runs) > 1:
        show_tables([comparison_table(runs)], console)
    return 0


if __name__ == "__main__":
    sys.exit(main())
