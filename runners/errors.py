"""Why a game cannot be played: reasons outside the game, told to the user in one line, without a traceback."""


class CannotPlay(RuntimeError):
    """The game's task, resources or model server do not allow it to be played; the message names the remedy."""


class PolicyUnavailable(CannotPlay):
    """The server of a policy, trained or frozen, does not answer, or not as vLLM would."""


class EndpointUnavailable(CannotPlay):
    """An endpoint of a model that is not trained (an opponent, the judge) gave no usable answer, or refused to."""


class MissingApiKey(CannotPlay):
    """The environment variable that should hold an endpoint's key is not set on this machine."""


class AddressRefused(CannotPlay):
    """The run's resources name an address that this runner does not call."""


class RouteRefused(CannotPlay):
    """The policy's server, or a proxy before it, does not offer a route, or not for what was sent.

    status: of the HTTP answer; 0 where there is none. detail: what it says is wrong.
    """

    def __init__(self, message: str, status: int = 0, detail: str = ""):
        super().__init__(message)
        self.status = status
        self.detail = detail


class MissingResources(CannotPlay):
    """The resources that a game names did not appear in time."""


class UnknownPlayer(CannotPlay):
    """A task seats a player that this runner does not know."""


class UnusableTask(CannotPlay):
    """A rollout's input is no task of ours, or names a preset that this runner does not know."""


class UnusableTokenizer(CannotPlay):
    """The policy's tokenizer is not on this machine, or cannot be used for training."""
