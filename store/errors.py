"""What can go wrong with the hub: with a request to it, and with running it."""


class UnknownId(ValueError):
    """A rollout, attempt or resources id that the hub does not have; the message names it."""


class Conflict(ValueError):
    """A request that what is stored forbids: a closed rollout started anew, a key used for two different tasks."""


class OneLineError(Exception):
    """The message, one line, tells a person at a terminal what is wrong and what to do about it."""
