"""Tokens and keys stay out of the environment of processes that have no use for them."""

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

_SECRET = re.compile(r"(^|_)(TOKEN|KEY|SECRET|PASSWORD)$")


def environment_without_secrets(environment: Mapping[str, str]) -> dict[str, str]:
    """A copy without the variables that hold a secret by their name: the hub's token, an endpoint's key."""
    return {name: value for name, value in environment.items() if not _SECRET.search(name)}


@contextmanager
def without_secrets() -> Iterator[None]:
    """Takes them out of this process's environment for as long as children are started that inherit it."""
    taken = {name: os.environ.pop(name) for name in list(os.environ) if _SECRET.search(name)}
    try:
        yield
    finally:
        os.environ.update(taken)
