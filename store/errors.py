"""Errors of the hub: of a request to it, and of running it."""


class UnknownId(ValueError):
    """A rollout, attempt or resources id that the hub does not have; the message names it."""


class Conflict(ValueError):
    """A request that contradicts stored data: a new attempt at a closed rollout, one key for two different tasks."""


class OneLineError(Exception):
    """An error with a one-line message for the terminal, which names the problem and the remedy."""
