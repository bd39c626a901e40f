"""Errors of vLLM servers, and checks before one is started."""

import socket
from pathlib import Path

from tenacity import AsyncRetrying, retry_if_exception_type, stop_after_delay, wait_fixed

from algo.serving.weight_files import is_tied
from configs.model_folder import read_architecture

_PORT_TIMEOUT_SECONDS = 3.0


class ServingError(RuntimeError):
    """A vLLM cannot be used; the message names the endpoint, or the setting, and the remedy."""


class ServingDied(ServingError):
    """vLLM has died; the message has the exit code of a started one (128 + n for signal n), and the end of its log."""


class WeightsSuperseded(Exception):
    """The weights for a server no longer exist: the trainer has newer ones, which it pushes next."""


def require_servable_model(path: Path, setting: str, device: str, takes_weights: bool) -> None:
    """Raise ServingError unless vLLM can serve the model folder.

    setting: the setting with the folder. device: "cpu" or "cuda". takes_weights: it must also load new weights.
    """
    try:
        read_architecture(path)
        tied = takes_weights and device == "cpu" and is_tied(path)
    except ValueError as error:
        raise ServingError(f"{setting}: {error}") from error
    except FileNotFoundError as error:
        raise ServingError(
            f"{setting} {path} has no config.json: name a Hugging Face model folder, or build a tiny model there with "
            f"`python -m algo.tiny_model {path}`"
        ) from error
    if tied:
        # vLLM 0.28.0 on CPU keeps a packed copy of the output head, which a reload does not update.
        raise ServingError(
            f"{setting} {path} has tied embeddings, for which vLLM on CPU cannot load new weights: make an untied copy "
            f"with `python -m algo.untie_model {path} {path}-untied` and use that, or train on a GPU"
        )


async def require_free_port(host: str, port: int) -> None:
    """Raise ServingError unless a server can listen there within three seconds."""
    # A dying vLLM of ours frees its port within moments.
    retries = AsyncRetrying(
        retry=retry_if_exception_type(OSError),
        stop=stop_after_delay(_PORT_TIMEOUT_SECONDS),
        wait=wait_fixed(0.25),
        reraise=True,
    )
    try:
        async for attempt in retries:
            with attempt, socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind((host, port))
    except OSError as error:
        raise ServingError(
            f"vLLM cannot listen on {host}, port {port}: {error.strerror}. "
            f"Choose a free port, e.g. --set serving.port={port + 1 if port < 65535 else 8000}, or attach to the vLLM "
            "there with serving.mode=attach"
        ) from error
