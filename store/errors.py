"""What can be wrong with a request to the hub; each is a ValueError, as agentlightning's contract asks."""


class UnknownId(ValueError):
    """A rollout, attempt or resources id that the hub does not have; the message names it."""


class Conflict(ValueError):
    """A request that what is stored forbids: a closed rollout started anew, a key used for two different tasks."""
