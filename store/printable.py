"""Texts of others as a terminal may show them, and the logs of all commands."""

import logging


def printable(text: str) -> str:
    """The text with every character replaced that is not shown but obeyed: escape codes, line ends, bidi controls."""
    return (
        text
        if text.isprintable()
        else "".join(one if one.isprintable() else "\N{REPLACEMENT CHARACTER}" for one in text)
    )


class LogFormatter(logging.Formatter):
    """One printable line a record; a traceback is indented, so that none of its lines passes for a record.

    Hubs, models and people put names and texts into records, and with them whatever a terminal obeys.
    """

    def __init__(self, speaker: str = ""):
        """speaker: stands before the logger's name, e.g. the number of the process."""
        super().__init__(f"%(asctime)s %(levelname).1s {speaker}%(name)s: %(message)s", "%H:%M:%S")

    def formatMessage(self, record: logging.LogRecord) -> str:
        return printable(super().formatMessage(record))

    def formatException(self, ei) -> str:
        return "\n".join(f"  {printable(line)}" for line in super().formatException(ei).split("\n"))


_NOISY = ("httpx", "httpx2", "openai", "agentlightning", "ray", "verl", "LiteLLM", "LiteLLM Proxy", "LiteLLM Router")


def set_up_logging(level: str, *others: logging.Handler, speaker: str = "", force: bool = False) -> None:
    """Log to the terminal, and to other handlers. speaker: see ``LogFormatter``. force: replace handlers set before."""
    handlers = [logging.StreamHandler(), *others]
    for handler in handlers:
        handler.setFormatter(LogFormatter(speaker))
    logging.basicConfig(level=level, handlers=handlers, force=force)
    for name in _NOISY:
        logging.getLogger(name).setLevel(logging.WARNING)
