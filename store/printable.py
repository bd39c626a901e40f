"""Escapes foreign texts for a terminal, and sets up the logs of all commands."""

import logging


def printable(text: str) -> str:
    """The text with unprintable characters replaced: escape codes, line ends, bidi controls."""
    return (
        text
        if text.isprintable()
        else "".join(one if one.isprintable() else "\N{REPLACEMENT CHARACTER}" for one in text)
    )


class LogFormatter(logging.Formatter):
    """One printable line per record, with an indented traceback, so that foreign text cannot forge a record."""

    def __init__(self, speaker: str = ""):
        """speaker: prefix of the logger's name, e.g. the number of the process."""
        super().__init__(f"%(asctime)s %(levelname).1s {speaker}%(name)s: %(message)s", "%H:%M:%S")

    def formatMessage(self, record: logging.LogRecord) -> str:
        return printable(super().formatMessage(record))

    def formatException(self, ei) -> str:
        return "\n".join(f"  {printable(line)}" for line in super().formatException(ei).split("\n"))


_NOISY = ("httpx", "httpx2", "openai", "agentlightning", "ray", "verl", "LiteLLM", "LiteLLM Proxy", "LiteLLM Router")


def set_up_logging(level: str, *others: logging.Handler, speaker: str = "", force: bool = False) -> None:
    """Log to the terminal, and to other handlers. speaker: see ``LogFormatter``. force: replace existing handlers."""
    handlers = [logging.StreamHandler(), *others]
    for handler in handlers:
        handler.setFormatter(LogFormatter(speaker))
    logging.basicConfig(level=level, handlers=handlers, force=force)
    for name in _NOISY:
        logging.getLogger(name).setLevel(logging.WARNING)
