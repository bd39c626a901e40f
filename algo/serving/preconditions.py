"""Errors of vLLM servers, and checks before one is started."""

import socket
from pathlib import Path

from tenacity import AsyncRetrying, retry_if_exception_type, stop_after_delay, wait_fixed

from configs.model_folder import read_architecture

_PORT_PATIENCE_SECONDS = 3.0


class ServingError(RuntimeError):
    """A vLLM cannot be used; the message names the endpoint, or the setting and the remedy."""


class ServingDied(ServingError):
    """vLLM is gone; the message has the exit code of a started one (128 + n for signal n), and the end of its log."""


class WeightsSuperseded(Exception):
    """The weights that a server is to have are gone: the trainer holds newer ones, and their push is next."""


def require_servable_model(path: Path, setting: str, device: str, takes_weights: bool) -> None:
    """Raise ServingError unless vLLM can serve the model folder, and load new weights for it where it takes some.

    setting: the configuration's name for the folder. device: "cpu" or "cuda".
    """
    try:
        architecture = read_architecture(path)
    except ValueError as error:
        raise ServingError(f"{setting}: {error}") from error
    except FileNotFoundError as error:
        raise ServingError(
            f"{setting} {path} holds no config.json: name a Hugging Face model folder, or build a tiny model "
            f"there with `python -m algo.tiny_model {path}`"
        ) from error
    if takes_weights and device == "cpu" and architecture.get("tie_word_embeddings"):
        # vLLM 0.28.0 on CPU keeps a packed copy of the first output head, which a reload does not renew.
        raise ServingError(
            f"{setting} {path} has tied embeddings, for which vLLM on CPU cannot load new weights: make an "
            f"untied copy with `python -m algo.untie_model {path} {path}-untied` and name that, or train on a GPU"
        )


async def require_free_port(host: str, port: int) -> None:
    """Raise ServingError unless a server can listen there, at once or within moments."""
    # A vLLM of ours that is being killed frees the port within moments.
    patience = AsyncRetrying(
        retry=retry_if_exception_type(OSError),
        stop=stop_after_delay(_PORT_PATIENCE_SECONDS),
        wait=wait_fixed(0.25),
        reraise=True,
    )
    try:
        async for attempt in patience:
            with attempt, socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind((host, port))
    except OSError as error:
        raise ServingError(
            f"vLLM cannot listen on {host}, port {port}: {error.strerror}. "
            f"Choose a free port, e.g. --set serving.port={port + 1 if port < 65535 else 8000}, "
            "or use the vLLM that runs there with serving.mode=attach"
        ) from error
