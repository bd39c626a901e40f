"""``python -m algo.learning.report LEARN_DIR``: write the report of a learning run (``algo.learning.page``).

Of several a table is printed that compares them (``algo.learning.comparison``).
"""

import argparse
import sys
from pathlib import Path

from algo.learning.record import LearningRecord
from algo.reports.terminal import wide_console
from configs.section import ConfigError


def main(arguments: list[str] | None = None) -> int:
    """Entry point; the exit status is 0 only if the report was written."""
    parser = argparse.ArgumentParser(
        prog="python -m algo.learning.report",
        description="Write the report of a learning run: what it taught its policy, as one page with figures. Of "
        "several learning runs, print a table that compares the later ones with the first.",
    )
    parser.add_argument(
        "folders",
        type=Path,
        nargs="+",
        metavar="LEARN_DIR",
        help="what `python -m algo.learn` wrote; to be compared, any folder whose seed-N are trainings will do",
    )
    parser.add_argument(
        "--side", choices=["wolf", "good"], help="whose games are compared (default: what the first one trained)"
    )
    options = parser.parse_args(arguments)
    if options.side and len(options.folders) == 1:
        parser.error("--side says whose games are compared: name two folders or more, or leave it out")
    try:
        # matplotlib and agentlightning take many seconds to import
        if len(options.folders) > 1:
            from algo.learning.comparison import compare_runs, show_comparison

            show_comparison(compare_runs(options.folders, options.side), wide_console())
        else:
            LearningRecord.read(options.folders[0])
            from algo.learning.page import write_report

            print(write_report(options.folders[0]))
    except (ValueError, ConfigError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
