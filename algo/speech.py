"""``python -m algo.speech RUN``: show how the policy speaks in a run's evaluations, before and after training."""

import argparse
from pathlib import Path

from algo.evaluation.record import EVALUATIONS_FILE
from configs.command_line import exit_on
from store.program import run_program


def main(arguments: list[str] | None = None) -> int:
    """Print the table, and write ``speech.json`` for the report; the exit status is 0 with speeches and a model."""
    parser = argparse.ArgumentParser(
        prog="python -m algo.speech",
        description="Print variety, repetition and share of Chinese of the policy's speeches in a run's evaluations, "
        "and their bits per character under a reference model: a private language has more bits after training.",
    )
    parser.add_argument("run", type=Path, metavar="RUN", help=f"folder of a run, with {EVALUATIONS_FILE}")
    parser.add_argument(
        "--model",
        type=Path,
        metavar="FOLDER",
        help="the reference model, such as the untrained one (default: the weights that the run started from)",
    )
    options = parser.parse_args(arguments)

    from algo.evaluation.games import GameRow
    from algo.evaluation.page import show_tables, wide_console
    from algo.evaluation.record import Record
    from algo.evaluation.speech import score_speeches, speech_table, write_bits
    from configs.model_folder import check_model_folder
    from configs.section import ConfigError

    with exit_on(ConfigError):
        evaluations = [one for one in Record(options.run, GameRow).read() if any(row.spoken for row in one.rows)]
        if not evaluations:
            raise ConfigError(f"{options.run / EVALUATIONS_FILE} has no speech of a policy")
        model = options.model or Path(evaluations[0].header.initial)
        check_model_folder(model, "--model")
    with exit_on(OSError, ValueError, before=f"--model {model}: "):
        bits = score_speeches(evaluations, model)
    show_tables([speech_table(evaluations, bits)], wide_console())
    with exit_on(OSError):
        write_bits(options.run, bits)
    return 0


if __name__ == "__main__":
    run_program(main)
