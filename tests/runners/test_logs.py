"""What a log looks like, whatever is put into it."""

import argparse
import logging

from runners.command_line import log_to_terminal


def test_a_record_is_one_printable_line_and_libraries_are_quiet(monkeypatch, capsys):
    root = logging.getLogger()
    monkeypatch.setattr(root, "handlers", [])  # as a process begins
    monkeypatch.setattr(root, "level", root.level)  # which is set below
    log_to_terminal(argparse.Namespace(process_number=2, log_level="INFO"))
    logging.getLogger("runners.worker").info("%s: done", "game\n23:59:59 I runners.worker: forged\x1b[2J")
    logging.getLogger("LiteLLM Proxy").info("Current GC thresholds")
    (line,) = capsys.readouterr().err.splitlines()
    assert line.isprintable() and "[2] runners.worker: game" in line
