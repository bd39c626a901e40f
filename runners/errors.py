"""Errors that prevent a rollout from being played; logged in one line, without a traceback."""


class CannotPlay(RuntimeError):
    """The rollout cannot be played, because of its task, resources or model server; the message names the remedy."""


class PolicyUnavailable(CannotPlay):
    """The server of a policy, trained or frozen, does not answer, or not as vLLM does."""


class EndpointUnavailable(CannotPlay):
    """An endpoint of another model (an opponent, the judge) gave no usable answer."""


class MissingApiKey(CannotPlay):
    """The API key of an endpoint is not set or not allowed on this machine."""


class AddressRefused(CannotPlay):
    """The run's resources contain an address that this runner may not call."""


class RouteRefused(CannotPlay):
    """The policy's server, or a proxy before it, rejects a request.

    status: of the HTTP response; 0 without one. detail: its error message.
    """

    def __init__(self, message: str, status: int = 0, detail: str = ""):
        super().__init__(message)
        self.status = status
        self.detail = detail


class PromptTooLong(RouteRefused):
    """The policy's server does not render a conversation that is longer than its context."""


class MissingResources(CannotPlay):
    """The rollout's resources were not published in time."""


class UnknownPlayer(CannotPlay):
    """A task seats an unknown player."""


class UnusableTask(CannotPlay):
    """A rollout's input is not a valid task, or has an unknown preset."""


class UnusableTokenizer(CannotPlay):
    """The policy's tokenizer is missing on this machine, or cannot be used for training."""
