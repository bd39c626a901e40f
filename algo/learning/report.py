"""``python -m algo.learning.report LEARN_DIR``: write the report of a learning run (``algo.learning.page``)."""

import argparse
import sys
from pathlib import Path

from algo.learning.record import LearningRecord
from configs.section import ConfigError


def main(arguments: list[str] | None = None) -> int:
    """Entry point; the exit status is 0 only if the report was written."""
    parser = argparse.ArgumentParser(
        prog="python -m algo.learning.report",
        description="Write the report of a learning run: what it taught its policy, as one page with figures.",
    )
    parser.add_argument("folder", type=Path, metavar="LEARN_DIR", help="what `python -m algo.learn` wrote")
    options = parser.parse_args(arguments)
    try:
        LearningRecord.read(options.folder)
        from algo.learning.page import write_report  # matplotlib and agentlightning take many seconds to import

        print(write_report(options.folder))
    except (ValueError, ConfigError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
