"""What was said in an attempt, for a person to read."""

from collections.abc import Sequence

from runners.agents.gateway.requests import Message

_LONGEST_TEXT, _LONGEST_TRANSCRIPT = 2_000, 40_000


class Transcript:
    """Lines in the order in which calls ended; of a conversation that goes on only what is new."""

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._said: dict[tuple[str, int], int] = {}  # messages of an actor's sequence that stand there already
        self._length = 0

    def add(self, actor: str, segment: int, messages: Sequence[Message], reply: Message) -> None:
        said = self._said.get((actor, segment), 0)
        if not said:
            self._write(f"== {actor}, conversation {segment + 1}")
        elif len(self._said) > 1:
            self._write(f"== {actor}, conversation {segment + 1}, goes on")
        for message in messages[said:]:
            self._write(_line(message))
        self._write(_line(reply))
        self._said[actor, segment] = len(messages) + 1

    def text(self, failure: str = "") -> str:
        """The whole of it, or its beginning where it is very long; and what the agent failed with, if it did."""
        return "\n".join([*self._lines, *([f"== failed: {failure}"] if failure else [])])

    def _write(self, line: str) -> None:
        if self._length > _LONGEST_TRANSCRIPT:
            return
        self._length += len(line)
        self._lines.append(line if self._length <= _LONGEST_TRANSCRIPT else "… (too long to be told whole)")


def _line(message: Message) -> str:
    content = (message.get("content") or "").strip()
    if len(content) > _LONGEST_TEXT:
        content = f"{content[:_LONGEST_TEXT]} … ({len(content)} characters)"
    parts = [f"({message['reasoning'].strip()})"] if message.get("reasoning", "").strip() else []
    parts += [content] if content else []
    parts += [
        f"-> {call['function']['name']}({call['function'].get('arguments') or ''})"
        for call in message.get("tool_calls") or ()
    ]
    return f"{message['role']}: " + " ".join(parts)
