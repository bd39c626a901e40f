"""Opponents for people: a run's policy, a vLLM's model, chat models from the command line.

If a vLLM serves a checkpoint in the folder of runs, games are recorded as against that run and step, with its training
prompts.
"""

import hashlib
import logging
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp

from runners.addresses import Addresses
from runners.keys import ApiKeys, origin_of
from runners.werewolf.web.folders import RunFolders
from store.client import StoreClient, describe_error
from store.players import PLAYERS_WITHOUT_A_MODEL
from store.schema import TRAINED_POLICY, VERSION_SEPARATOR, ChatEndpoint, PolicyResources, Sampling
from store.werewolf import PERSON

_CHAT_MODEL = re.compile(r"(?P<name>[A-Za-z][\w-]*)=(?P<model>[^@]+)@(?P<url>https?://\S+)")
_NOBODYS = "web"
"""Run name of a model without a run."""

logger = logging.getLogger(__name__)
_NO_ANSWER = (aiohttp.ClientError, ConnectionError, TimeoutError)


@dataclass(frozen=True)
class Practice:
    """The games that a policy trained with: preset, rules that differ from the preset's, and the sides it trained."""

    preset: str
    rules: Mapping[str, bool | int | str] = field(default_factory=dict)
    sides: tuple[str, ...] = ("wolf", "good")


class Opponents:
    """client: of the hub, or None. run: folder name or id of the run of the policy; None: the hub's newest.
    model_url, model: a vLLM and the policy's name there; None: the first. chat_models: ``NAME=MODEL@URL`` each.
    hub: its URL. allowed: further addresses of the hub's models. Raises ValueError for an invalid model or address, and
    for a key that would be sent unencrypted.
    """

    def __init__(
        self,
        client: StoreClient | None = None,
        runs: RunFolders | None = None,
        run: str | None = None,
        model_url: str | None = None,
        model: str | None = None,
        chat_models: Sequence[str] = (),
        hub: str = "",
        allowed: Sequence[str] = (),
    ):
        self._client = client
        self._runs = runs or RunFolders()
        self._run = run
        self._url = None if model_url is None else model_url.rstrip("/").removesuffix("/v1") + "/v1"
        self._model = model
        self._chat_models = dict(map(_chat_model, chat_models))
        models = self._chat_models.values()
        # Addresses on the command line are allowed, and each key for its own.
        self.addresses = Addresses(hub, [*allowed, *filter(None, [self._url, *(model.endpoint for model in models)])])
        self.keys = ApiKeys(f"{one.api_key_env}={origin_of(one.endpoint)}" for one in models if one.api_key_env)

    async def newest(self) -> PolicyResources:
        """Resources for players with a model; without endpoints if no policy is known.

        Raises ValueError if the vLLM of ``--model-url`` does not answer or does not serve the model.
        """
        resources = await self._published()
        if self._url is not None:
            resources = await self._served(self._url, resources)
        if resources is None:
            resources = PolicyResources(run_name=_NOBODYS, version=0, endpoints=(), model="")
        # Keys of the hub's players and judge are those of its runners.
        keyless = {name: one for name, one in resources.players.items() if one.api_key_env is None}
        return resources.model_copy(update={"players": {**keyless, **self._chat_models}, "judge": None})

    def practice(self, resources: PolicyResources) -> Practice | None:
        """The games that the policy trained with; None without its run's folder."""
        game = (self._runs.config_of(resources.run_name) or {}).get("game") or {}
        if "preset" not in game:
            return None
        rules = {name: value for name, value in (game.get("rules") or {}).items() if value is not None}
        return Practice(game["preset"], rules, tuple(game.get("train_sides") or ("wolf", "good")))

    async def _published(self) -> PolicyResources | None:
        if self._client is None:
            return None
        try:
            if self._run is None:
                update = await self._client.get_latest_resources()
                return None if update is None else PolicyResources.decode(update)
            found = await self._client.query_resources(resources_id_contains=self._run, sort_by="update_time")
            for update in reversed(found):
                run_id = update.resources_id.rpartition(VERSION_SEPARATOR)[0]
                if self._run in (run_id, run_id.rpartition("-")[0]):
                    return PolicyResources.decode(update)
            logger.warning("the hub has no policy of the run %s (--policy)", self._run)
        except aiohttp.ClientResponseError as error:
            logger.warning("the hub's policy is not offered as an opponent: %s", describe_error(error))
        except (ValueError, *_NO_ANSWER):
            pass  # no hub, or another workload's: only players without a model remain
        return None

    async def _served(self, url: str, published: PolicyResources | None) -> PolicyResources:
        model, root = await _model_card(url, self._model)  # each time: the server may restart with other weights
        if published is not None and (self._run is not None or url in published.endpoints):
            others = tuple(policy for policy in published.policies if policy.seated_as != TRAINED_POLICY)
            return published.model_copy(update={"endpoints": (url,), "model": model, "policies": others})
        # The folder is part of the name: connections and tokenizers are kept by run.
        of_folder = hashlib.blake2b(root.encode(), digest_size=4).hexdigest()
        return self._checkpoint(model, root) or PolicyResources(
            run_name=f"{_NOBODYS}-{of_folder}", version=0, endpoints=(url,), model=model
        )

    def _checkpoint(self, model: str, root: str) -> PolicyResources | None:
        """Resources of a run's checkpoint; None for another folder."""
        found = self._runs.checkpoint_of(root)
        if found is None:
            return None
        state, config = found
        rollout = config.get("rollout") or {}
        prompts = (config.get("game") or {}).get("prompts") or {}
        return PolicyResources(
            run_name=str(state["run_id"]),
            version=int(state["policy_version"]),
            endpoints=(self._url,),
            model=model,
            sampling=Sampling(temperature=rollout.get("temperature", 1.0), thinking=rollout.get("thinking", False)),
            prompt_templates={name: Path(path).read_text(encoding="utf-8").strip() for name, path in prompts.items()},
        )


async def _model_card(url: str, wanted: str | None) -> tuple[str, str]:
    """(name, folder) of the model at the vLLM ``url``. Raises ValueError."""
    try:
        async with (
            aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=10.0), trust_env=False) as session,
            session.get(f"{url}/models") as response,
        ):
            response.raise_for_status()
            cards = {str(card["id"]): str(card.get("root") or "") for card in (await response.json())["data"]}
    except (*_NO_ANSWER, LookupError, TypeError, ValueError) as error:
        raise ValueError(f"--model-url: no vLLM answers at {url} ({type(error).__name__}: {error})") from error
    name = wanted or next(iter(cards), "")
    if name not in cards:
        raise ValueError(f"--model {name!r}: the server at {url} serves {', '.join(cards) or 'nothing'}")
    return name, cards[name]


def _chat_model(text: str) -> tuple[str, ChatEndpoint]:
    match = _CHAT_MODEL.fullmatch(text)
    if match is None:
        raise ValueError(f"--chat-model must be NAME=MODEL@URL, got {text!r}")
    if match["name"] in (TRAINED_POLICY, PERSON, *PLAYERS_WITHOUT_A_MODEL):
        raise ValueError(f"--chat-model: {match['name']} is a built-in player, choose another name")
    key = f"{match['name'].upper().replace('-', '_')}_API_KEY"
    return match["name"], ChatEndpoint(
        endpoint=match["url"], model=match["model"], api_key_env=key if key in os.environ else None
    )
