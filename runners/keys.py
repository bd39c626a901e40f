"""API keys of other models' endpoints, and the origins that each may be sent to.

A run's resources contain the environment variable of a key, so any client that writes to the hub chooses variable and
address. The runner's command line therefore lists both; it reads and sends no other key.
"""

import os
from collections.abc import Iterable
from pathlib import Path
from urllib.parse import urlsplit

from runners.errors import MissingApiKey
from store.addresses import leads_to_loopback

_PORTS = {"https": 443, "http": 80}


class ApiKeys:
    """The allowed keys.

    allowed: texts like ``NAME=https://host``, an environment variable and an origin that may receive it. Raises
    ValueError for others, which may be keys: not quoted.
    """

    def __init__(self, allowed: Iterable[str] = ()):
        self._places: dict[str, set[str]] = {}
        for text in allowed:
            name, separator, url = text.strip().partition("=")
            if not separator or not name.isidentifier():
                raise ValueError("an entry is not NAME=https://host, e.g. OPENAI_API_KEY=https://api.openai.com")
            if not _may_carry_keys(url):
                raise ValueError(
                    f"the entry of {name} must name the address that may receive the key (https, or this machine); the "
                    f"key itself stays in the environment variable {name}"
                )
            self._places.setdefault(name, set()).add(origin_of(url))

    @classmethod
    def read(cls, options: Iterable[str], file: Path | None) -> "ApiKeys":
        """From options and a file with one per line (# begins a comment). Raises OSError, ValueError."""
        lines = file.read_text(encoding="utf-8").splitlines() if file else []
        return cls([*options, *(line for line in lines if line.strip() and not line.lstrip().startswith("#"))])

    def key(self, name: str, url: str) -> str:
        """The key in the environment variable ``name``, for ``url``. Raises MissingApiKey, naming the remedy."""
        origin = origin_of(url)
        if origin not in self._places.get(name, ()):
            raise MissingApiKey(
                f"the key in {name} is not allowed for {origin}: start the runner with --api-key {name}={origin} to "
                f"allow it"
            )
        key = os.environ.get(name, "").strip()
        # HTTP clients quote invalid header values in their errors.
        if not key or not key.isascii() or not key.isprintable():
            raise MissingApiKey(
                f"the environment variable {name} must hold the key for {origin}, but it "
                f"{'is not set' if not key else 'has characters that are invalid in a key'}; set it where the runner "
                f"starts"
            )
        return key


def origin_of(url: str) -> str:
    """Scheme, host and port of a URL, normalized."""
    parts = urlsplit(url)
    host = (parts.hostname or "").rstrip(".")
    shown = f"[{host}]" if ":" in host else host
    port = "" if parts.port in (None, _PORTS.get(parts.scheme)) else f":{parts.port}"
    return f"{parts.scheme}://{shown}{port}"


def _may_carry_keys(url: str) -> bool:
    parts = urlsplit(url)
    return bool(parts.hostname) and (parts.scheme == "https" or (parts.scheme == "http" and leads_to_loopback(url)))
