"""Whom people can play against: what the hub's newest run publishes, and models that the command line names."""

import os
import re
from collections.abc import Sequence

import aiohttp

from store.client import PatientStoreClient
from store.schema import ChatEndpoint, PolicyResources, Sampling

_CHAT_MODEL = re.compile(r"(?P<name>[A-Za-z][\w-]*)=(?P<model>[^@]+)@(?P<url>https?://\S+)")


class Opponents:
    """client: the hub; None without one. endpoint, model: a policy that a vLLM serves, instead of the hub's.

    chat_models: ``NAME=MODEL@URL`` each. Raises ValueError for one that cannot be read.
    """

    def __init__(
        self, client: PatientStoreClient | None, endpoint: str | None, model: str | None, chat_models: Sequence[str]
    ):
        self._client = client
        self._endpoint, self._model = endpoint, model
        self._chat_models = dict(map(_chat_model, chat_models))

    async def newest(self) -> PolicyResources | None:
        """What players besides the scripted ones are played with; None where there are none."""
        resources = await self._published()
        if self._endpoint is not None:
            endpoint = self._endpoint.rstrip("/")
            resources = PolicyResources(
                run_name="web",
                version=0,
                endpoints=(endpoint if endpoint.endswith("/v1") else f"{endpoint}/v1",),
                model=self._model or "",
                sampling=Sampling(),
            )
        if not self._chat_models:
            return resources
        if resources is None:
            resources = PolicyResources(run_name="web", version=0, endpoints=(), model="")
        return resources.model_copy(update={"players": {**resources.players, **self._chat_models}})

    async def _published(self) -> PolicyResources | None:
        if self._client is None:
            return None
        try:
            update = await self._client.get_latest_resources()
            return None if update is None else PolicyResources.decode(update)
        except (ValueError, aiohttp.ClientError, ConnectionError, TimeoutError):
            return None  # no hub, or another workload's: scripted players need neither


def _chat_model(text: str) -> tuple[str, ChatEndpoint]:
    match = _CHAT_MODEL.fullmatch(text)
    if match is None:
        raise ValueError(f"--chat-model must be NAME=MODEL@URL, got {text!r}")
    key = f"{match['name'].upper().replace('-', '_')}_API_KEY"
    return match["name"], ChatEndpoint(
        endpoint=match["url"], model=match["model"], api_key_env=key if key in os.environ else None
    )
