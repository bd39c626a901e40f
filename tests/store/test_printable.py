"""What a hub, a model or a person says, in a log: one line a record, and nothing that a terminal obeys."""

import io
import logging

from store.printable import LogFormatter

FORGED = "game\n23:59:59 I runners.worker: all is well\x1b[2J\u202e"


def logged(log):
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(LogFormatter("[2] "))
    logger = logging.Logger("runners.worker")
    logger.addHandler(handler)
    log(logger)
    return stream.getvalue()


def test_a_record_is_one_line_whatever_is_in_it():
    text = logged(lambda logger: logger.info("%s: done", FORGED))
    assert text.count("\n") == 1 and text[:-1].isprintable() and "[2] runners.worker: game" in text


def test_no_line_of_a_traceback_passes_for_a_record():
    def fail(logger):
        try:
            raise ValueError(FORGED)
        except ValueError:
            logger.exception("rollout failed")

    first, *rest = logged(fail).splitlines()
    assert first.endswith("rollout failed") and all(line.startswith("  ") and line.isprintable() for line in rest)
    assert any("all is well" in line for line in rest)
