"""A readable transcript of an attempt."""

from collections.abc import Sequence

from runners.agents.gateway.requests import Message

_LONGEST_TEXT, _LONGEST_TRANSCRIPT = 2_000, 40_000


class Transcript:
    """Lines in the order in which calls ended; only new messages of a continued conversation."""

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._said: dict[tuple[str, int], int] = {}  # messages of a sequence that are written already
        self._length = 0

    def add(self, actor: str, segment: int, messages: Sequence[Message], reply: Message) -> None:
        said = self._said.get((actor, segment), 0)
        if not said:
            self._write(f"== {actor}, conversation {segment + 1}")
        elif len(self._said) > 1:
            self._write(f"== {actor}, conversation {segment + 1}, continued")
        for message in messages[said:]:
            self._write(_line(message))
        self._write(_line(reply))
        self._said[actor, segment] = len(messages) + 1

    def text(self, failure: str = "") -> str:
        """The transcript, truncated if it is very long, with the agent's failure."""
        return "\n".join([*self._lines, *([f"== failed: {failure}"] if failure else [])])

    def _write(self, line: str) -> None:
        if self._length > _LONGEST_TRANSCRIPT:
            return
        self._length += len(line)
        self._lines.append(line if self._length <= _LONGEST_TRANSCRIPT else "… (truncated)")


def _line(message: Message) -> str:
    content, thought = (_shortened(message.get(part)) for part in ("content", "reasoning"))
    parts = [f"({thought})"] if thought else []
    parts += [content] if content else []
    parts += [
        f"-> {call['function']['name']}({_shortened(call['function'].get('arguments'))})"
        for call in message.get("tool_calls") or ()
    ]
    return f"{message['role']}: " + " ".join(parts)


def _shortened(text: str | None) -> str:
    text = (text or "").strip()
    return text if len(text) <= _LONGEST_TEXT else f"{text[:_LONGEST_TEXT]} … ({len(text)} characters)"
