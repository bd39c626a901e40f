"""The game so far as a conversation of many speakers, for models that are called by messages."""

from collections.abc import Iterator

from runners.werewolf.prompts_zh.names import REFEREE, seat_name
from runners.werewolf.prompts_zh.quoting import quote_speech

HISTORY_PROMPT = "到目前为止的对局，每行冒号前是说话的人：\n"
"""Precedes the history, which AgentScope puts between tags."""

_ANSWER_CHARS = 300


def said_lines(text: str) -> Iterator[tuple[str, str]]:
    """(speaker, text) of each line in the format of ``record`` and ``questions``.

    The speaker is the referee, or a seat with the kind of its speech (``3号遗言``). Only the referee writes the text
    before a line's first colon, so no player can speak under another's name.
    """
    for line in text.splitlines():
        if line.startswith(REFEREE):
            yield REFEREE, line.removeprefix(REFEREE)
        else:
            who, _, what = line.partition("：")
            yield who, what


def answer_line(seat: int, reply: str) -> tuple[str, str]:
    """A seat's invalid reply, as shown to the seat in a re-ask."""
    return f"{seat_name(seat)}回答", quote_speech(reply, _ANSWER_CHARS)
