"""Command-line options of every program that takes a configuration.

Imports are light, so that ``--help``, ``--print-config`` and errors appear at once: programs import verl and other
heavy packages after ``read_configuration``.
"""

import argparse
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from configs.loading import AnyConfig, as_yaml, find_config, load_config
from configs.section import ConfigError


def add_set_option(parser: argparse.ArgumentParser, example: str, what: str = "override one setting") -> None:
    """Add ``--set``, which fills ``overrides``. example: an override to show in the help."""
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="SECTION.KEY=VALUE",
        dest="overrides",
        help=f"{what}, e.g. --set {example}; may be repeated",
    )


def configured_parser(
    module: str,
    description: str,
    example: str,
    default: str | None = "tiny_cpu",
    resume: str | None = None,
) -> argparse.ArgumentParser:
    """A parser for ``python -m MODULE`` with the options of a configuration; the program adds its own.

    example: an override to show in the help. default: the default of ``--config`` in the help; None makes ``--config``
    required. resume: the help of ``--resume auto``; None for no ``--resume``.
    """
    parser = argparse.ArgumentParser(prog=f"python -m {module}", description=description)
    shown = "configuration, or the name of a shipped one" + ("" if default is None else f" (default: {default})")
    parser.add_argument("--config", type=find_config, metavar="FILE", required=default is None, help=shown)
    add_set_option(parser, example)
    parser.add_argument("--print-config", action="store_true", help="print the resulting configuration and exit")
    parser.add_argument(
        "--log-level",
        default="INFO",
        choices=["DEBUG", "INFO", "WARNING", "ERROR"],
        help="verbosity (default: %(default)s)",
    )
    if resume is not None:
        parser.add_argument(
            "--resume",
            choices=["never", "auto"],
            default="never",
            help=f"auto: {resume}; never (default): start a new run, with a number added if run.name is taken",
        )
    return parser


def read_configuration(
    options: argparse.Namespace, schema: type[AnyConfig], check: Callable[[AnyConfig], None]
) -> AnyConfig:
    """The configuration of the command line; exits after ``--print-config``, and as ``exit_on(ConfigError)``.

    options: of ``configured_parser``. schema: the workload's settings. check: raises ConfigError for a configuration
    that cannot run.
    """
    with exit_on(ConfigError):
        config = load_config(options.config, options.overrides, schema)
        if options.print_config:
            print(as_yaml(config), end="")
            raise SystemExit
        check(config)
    return config


@contextmanager
def exit_on(*kinds: type[Exception], before: str = "", status: int = 2) -> Iterator[None]:
    """Print an error of these kinds in one line, after ``before``, and exit.

    status: 2 means that a repetition cannot help (configs/fleet).
    """
    try:
        yield
    except kinds as error:
        if isinstance(error, BrokenPipeError):  # an OSError; of the reader of our output
            raise
        print(f"error: {before}{error}", file=sys.stderr)
        raise SystemExit(status) from None
