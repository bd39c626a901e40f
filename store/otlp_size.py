"""How many spans an OTLP request has, before anything is made of them: an empty one is two bytes, then a kilobyte."""

from collections.abc import Iterator

_MOST_SPANS = 20_000
_LEVELS = (1, 2, 2)
"""Field numbers on the way down: resource_spans, scope_spans, spans."""


def check_number_of_spans(body: bytes) -> None:
    """ValueError for a request of very many spans, or of groups of them; what is no protobuf is left to its parser."""
    if len(body) <= 2 * _MOST_SPANS:
        return
    found = 0
    try:
        for _ in _messages(memoryview(body), _LEVELS):
            found += 1
            if found > _MOST_SPANS:
                raise ValueError(f"a request may have {_MOST_SPANS} spans; send less at a time")
    except IndexError:
        return


def _messages(body: memoryview, levels: tuple[int, ...]) -> Iterator[None]:
    """One for each message of the given fields, those inside of them included. IndexError at a broken end."""
    position = 0
    while position < len(body):
        tag, position = _varint(body, position)
        match tag & 7:
            case 0:
                _, position = _varint(body, position)
            case 1:
                position += 8
            case 2:
                length, position = _varint(body, position)
                if tag >> 3 == levels[0]:
                    yield
                    if len(levels) > 1:
                        yield from _messages(body[position : position + length], levels[1:])
                position += length
            case 5:
                position += 4
            case _:
                raise IndexError


def _varint(body: memoryview, position: int) -> tuple[int, int]:
    """(value, position behind it)."""
    value = shift = 0
    while True:
        byte = body[position]
        position += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, position
        shift += 7
        if shift > 63:
            raise IndexError
