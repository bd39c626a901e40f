"""Removes tokens and keys from the environments of child processes."""

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

_SECRET = re.compile(r"(^|_)(TOKEN|KEY|SECRET)$|PASSWORD$")  # PGPASSWORD, too


def environment_without_secrets(environment: Mapping[str, str]) -> dict[str, str]:
    """A copy without variables named like secrets: the hub token, API keys."""
    return {name: value for name, value in environment.items() if not _SECRET.search(name)}


@contextmanager
def without_secrets() -> Iterator[None]:
    """Remove secrets from this process's environment while it starts children that inherit it."""
    taken = {name: os.environ.pop(name) for name in list(os.environ) if _SECRET.search(name)}
    try:
        yield
    finally:
        os.environ.update(taken)
