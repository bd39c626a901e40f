"""How values and players' words get into a text without changing what the text means."""

import re
import unicodedata

from runners.werewolf.prompts_zh.names import SILENCE

# Any identifier, so that a misspelt name is noticed instead of shown; {"json": 1}, {x: 1} and {} are no names.
_NAME = r"\{([^\W\d]\w*)\}"
_ESCAPED_OR_NAME = re.compile(rf"\{{{_NAME}\}}|{_NAME}")


def fill(template: str, /, **values: object) -> str:
    """``template`` with each ``{name}`` replaced, in one pass, so that braces inside values stay what they are.

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
    """``text`` without the referee's brackets, and without those that spell tags and special tokens."""
    return text.translate(_LOOKALIKES)


def quote_speech(text: str, speech_chars: int | None = None) -> str:
    """A player's words, safe to show: one line that cannot pass for the referee's.

    speech_chars: the most characters shown, a mark for the cut included; 0 shows the mark alone. None: all.
    """
    words = disarm(one_line(text))
    if not words:
        return f"（{SILENCE}）"
    if speech_chars is None or len(words) <= speech_chars:
        return words
    return words[: max(speech_chars - 1, 0)] + "…"
