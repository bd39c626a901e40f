"""Which keys of other models' endpoints a runner has, and where each of them may be sent.

A run's resources name a key by its environment variable, and come from a hub: whoever can write to the hub chooses the
name and the address. So a runner is told both when it is started, and reads and sends nothing else.
"""

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from urllib.parse import urlsplit

from runners.errors import MissingApiKey
from store.addresses import leads_to_loopback

_PORTS = {"https": 443, "http": 80}


class ApiKeys:
    """The keys that may be used. places: name of the environment variable -> where it may go, as ``https://host``."""

    def __init__(self, places: Mapping[str, frozenset[str]] | None = None):
        self._places = dict(places or {})

    @classmethod
    def of(cls, allowed: Iterable[str]) -> "ApiKeys":
        """From texts like ``NAME=https://host``; ValueError names one that cannot be used."""
        places: dict[str, frozenset[str]] = {}
        for text in allowed:
            name, separator, url = text.strip().partition("=")
            if not separator or not name.isidentifier():
                raise ValueError(f"{text!r} is not NAME=https://host, e.g. OPENAI_API_KEY=https://api.openai.com")
            if not _may_carry_keys(url):
                raise ValueError(f"{text!r}: a key goes over https alone, or to this machine itself")
            places[name] = places.get(name, frozenset()) | {origin_of(url)}
        return cls(places)

    @classmethod
    def read(cls, options: Iterable[str], file: Path | None) -> "ApiKeys":
        """From a command line's texts and a file with one a line (# begins a comment). Raises OSError, ValueError."""
        lines = file.read_text(encoding="utf-8").splitlines() if file else []
        return cls.of([*options, *(line for line in lines if line.strip() and not line.lstrip().startswith("#"))])

    def key(self, name: str, url: str) -> str:
        """The key in the environment variable ``name``, for ``url``. Raises MissingApiKey, which names the remedy."""
        origin = origin_of(url)
        if origin not in self._places.get(name, ()):
            raise MissingApiKey(
                f"this runner was not told that the key in {name} may go to {origin}: start it with --api-key "
                f"{name}={origin} if that is what you want"
            )
        key = os.environ.get(name, "").strip()
        # What no header may hold, the packages that send it would quote in their errors.
        if not key or not key.isascii() or not key.isprintable():
            raise MissingApiKey(
                f"the environment variable {name} must hold the key for {origin} where this runner is started, and "
                f"{'holds none' if not key else 'holds characters that no key has'}"
            )
        return key


def origin_of(url: str) -> str:
    """Scheme, host and port of a URL, in one spelling."""
    parts = urlsplit(url)
    host = (parts.hostname or "").rstrip(".")
    shown = f"[{host}]" if ":" in host else host
    port = "" if parts.port in (None, _PORTS.get(parts.scheme)) else f":{parts.port}"
    return f"{parts.scheme}://{shown}{port}"


def _may_carry_keys(url: str) -> bool:
    parts = urlsplit(url)
    return bool(parts.hostname) and (parts.scheme == "https" or (parts.scheme == "http" and leads_to_loopback(url)))
