"""``python -m algo.recipe FILE``: run a recipe on this machine: build, imitate, train, evaluate, report.

It starts and stops hub, runner, vLLM and trainer. ``make demo``, ``make learn``, ``make agents`` and ``make real`` are
recipes (configs/recipes).
"""

import argparse
import shlex
import sys
from pathlib import Path

from algo.recipes.recipe import read_recipe, shipped_recipes
from algo.recipes.runner import begin, newest, resume, run
from configs.command_line import add_set_option, exit_on
from configs.section import ConfigError
from store.program import run_program


def parse_arguments(arguments: list[str] | None = None) -> argparse.Namespace:
    """Parse the command line; exits with a usage message for an invalid one."""
    parser = argparse.ArgumentParser(
        prog="python -m algo.recipe",
        description="Run a recipe's stages one after another, each in its own process, and write a report. --resume "
        "continues an interrupted recipe and skips finished stages.",
    )
    text = f"a recipe file of your own, or of configs/recipes: {shipped_recipes()}"
    parser.add_argument("file", type=Path, nargs="?", metavar="FILE", help=text)
    add_set_option(parser, "run.steps=10", "override one setting in all stages")
    parser.add_argument("--seeds", type=int, nargs="+", metavar="SEED", help="one run per seed (default: the recipe's)")
    parser.add_argument("--resume", action="store_true", help="resume the newest run of FILE, or that in --directory")
    parser.add_argument("--directory", type=Path, metavar="DIR", help="the run's folder (default: runs/NAME-TIME)")
    parser.add_argument("--runs-dir", type=Path, default=Path("runs"), help="parent of new folders (default: runs)")
    parser.add_argument(
        "--from",
        dest="taken",
        type=Path,
        metavar="DIR",
        help="reuse another run's stages up to training, so that only the training differs",
    )
    parser.add_argument(
        "--compare",
        type=Path,
        nargs="+",
        metavar="DIR",
        help="run no stages: write the reports of these runs, and compare the later ones with the first",
    )
    options = parser.parse_args(arguments)
    others = (options.file, options.resume, options.directory, options.seeds, options.overrides, options.taken)
    if options.compare is not None and any(others):
        parser.error("--compare runs no stages: give it only folders of recipe runs")
    if options.compare is None and options.file is None and not (options.resume and options.directory):
        parser.error("name a recipe, e.g. demo")
    if options.resume and (options.overrides or options.taken):
        parser.error("--resume uses the settings of the run: omit --set and --from")
    return options


def main() -> int:
    """Entry point; the exit status is 0 only after all stages and the report."""
    options = parse_arguments()
    command = shlex.join(["python", "-m", "algo.recipe", *sys.argv[1:]])
    with exit_on(ConfigError, OSError):
        if options.compare is not None:
            return _report(options.compare)
        if options.resume:
            folder = options.directory or newest(options.runs_dir, read_recipe(options.file)[0].name)
            opened = resume(folder, options.seeds, command)
        else:
            given = (options.file, options.overrides, options.seeds, options.directory, options.runs_dir)
            opened = begin(*given, command, options.taken)
        return run(opened) or _report([opened.directory])


def _report(folders: list[Path]) -> int:
    # matplotlib takes seconds to import.
    from algo.evaluation.page import show_tables, wide_console
    from algo.recipes.comparison import comparison_tables
    from algo.recipes.report import write_report
    from algo.recipes.results import read_run
    from algo.werewolf.file_names import how_to_see

    console, runs = wide_console(), [read_run(folder) for folder in folders]
    compared = comparison_tables(runs) if len(runs) > 1 else []
    for one in runs:
        try:
            path, page = write_report(one)
        except OSError as error:
            if len(runs) == 1:
                raise
            # Another's run, which may still be compared.
            console.print(f"no report is written: {error}", highlight=False, markup=False, soft_wrap=True)
            continue
        if len(runs) == 1:
            show_tables([table for section in page.sections[:2] for table in section.tables], console)
            console.print(page.verdict, highlight=False, markup=False)
        console.print(str(path), highlight=False, markup=False, soft_wrap=True)
        console.print(how_to_see(one.opened.directory), highlight=False, markup=False, soft_wrap=True)
    show_tables(compared, console)
    return 0


if __name__ == "__main__":
    run_program(main)
