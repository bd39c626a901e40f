"""Inserts values and players' words into a text without a change of its meaning."""

import re
import unicodedata

from runners.werewolf.prompts_zh.names import SILENCE

# Any identifier, so that a misspelt name is an error; {"json": 1}, {x: 1} and {} are no names.
_NAME = r"\{([^\W\d]\w*)\}"
_ESCAPED_OR_NAME = re.compile(rf"\{{{_NAME}\}}|{_NAME}")


def fill(template: str, /, **values: object) -> str:
    """``template`` with each ``{name}`` replaced, in one pass, so that braces inside values stay.

    ``{{name}}`` gives a literal ``{name}``; other braces stay. ValueError for a name without value.
    """

    def value_of(match: re.Match[str]) -> str:
        if match[1] is not None:
            return f"{{{match[1]}}}"
        if match[2] not in values:
            raise ValueError(f"template uses unknown {match[0]}; known: {', '.join(sorted(values))}")
        return str(values[match[2]])

    return _ESCAPED_OR_NAME.sub(value_of, template)


def placeholders(template: str) -> frozenset[str]:
    """The names that ``fill`` replaces in ``template``."""
    return frozenset(match[2] for match in _ESCAPED_OR_NAME.finditer(template) if match[2] is not None)


def one_line(text: str) -> str:
    """``text`` on one line: whitespace collapsed; control, invisible and unencodable characters removed."""
    visible = (" " if c.isspace() else "" if unicodedata.category(c) in ("Cc", "Cf", "Cs") else c for c in text)
    return " ".join("".join(visible).split())


_LOOKALIKES = str.maketrans({"【": "〔", "】": "〕", "<": "＜", ">": "＞"})


def disarm(text: str) -> str:
    """``text`` without the brackets of the referee, of tags and of special tokens."""
    return text.translate(_LOOKALIKES)


def quote_speech(text: str, speech_chars: int | None = None) -> str:
    """A player's words as one line that cannot be taken for the referee's.

    speech_chars: greatest length, including the ellipsis of a cut; 0 leaves the ellipsis alone; None: unlimited.
    """
    words = disarm(one_line(text))
    if not words:
        return f"（{SILENCE}）"
    if speech_chars is None or len(words) <= speech_chars:
        return words
    return words[: max(speech_chars - 1, 0)] + "…"
