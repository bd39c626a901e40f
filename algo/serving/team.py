"""Several policies that learn at one table, served: adapters side by side, or whole weights by servers of their own.

To the loop both are what ``Serving`` is for one policy. All policies get their new weights together, under one version.
"""

import contextlib
import logging
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Self

from algo.serving.group import together
from algo.serving.launch import policy_launches
from algo.serving.policy import Serving, reload_server
from algo.serving.preconditions import require_servable_model
from algo.serving.server import VllmServer
from configs.schema import Config
from store.schema import FrozenPolicy

logger = logging.getLogger(__name__)


class AdaptersOfTeam(Serving):
    """Servers that hold every policy of the team as adapters of one base, each under its own name, and no other."""

    _members: Mapping[str, Path] = MappingProxyType({})

    @property
    def model(self) -> str:
        """The first policy's name in requests, which stands for the team to who knows no teams."""
        return next(iter(self._config.team))

    def endpoints_of(self, member: str) -> tuple[str, ...]:
        """Where a policy is served: where all of them are."""
        return self.endpoints

    def model_of(self, member: str) -> str:
        """A policy's name in requests: its own."""
        return member

    async def push_team(self, folders: Mapping[str, Path], version: int) -> float:
        """``push_weights`` for all policies within one pause. folders: of their adapters, by name."""
        self._members = {name: folder.resolve() for name, folder in folders.items()}

        async def reload(server: VllmServer) -> None:
            await reload_server(server, None, version, self._beside_it)

        return await self._push(reload)

    @property
    def _beside_it(self) -> dict[str, Path]:
        return {**self._adapters, **self._members}

    async def score(self, token_ids: Sequence[int]) -> list[float]:
        """``scores`` of the first server, of all policies one after another."""
        return [value for name in self._config.team for value in (await self.scores(token_ids, name))[0]]


class WholeTeam:
    """Whole weights: each policy by vLLM servers of its own."""

    def __init__(self, servings: Mapping[str, Serving]) -> None:
        """servings: by the policies' names, in their order."""
        self._servings = dict(servings)

    @classmethod
    async def start(cls, config: Config, progress: Callable[[str], None], weights_follow: bool) -> Self:
        """Start the servers of every policy on ``config.model.path``.

        Raises as ``Serving.start`` does; nothing is left running then.
        """
        require_servable_model(config.model.path, "model.path", config.training.device, takes_weights=True)
        servings: dict[str, Serving] = {}

        async def start(name: str) -> None:
            servings[name] = await Serving.start(config, progress, policy_launches(config, name), weights_follow)

        try:
            await together(start(name) for name in config.team)
        except BaseException:  # also when cancelled: nothing may stay behind
            await cls(servings).stop()
            raise
        return cls({name: servings[name] for name in config.team})

    @property
    def endpoints(self) -> tuple[str, ...]:
        """Those of the first policy, which stands for the team to who knows no teams."""
        return next(iter(self._servings.values())).endpoints

    @property
    def model(self) -> str:
        """The first policy's name in requests."""
        return next(iter(self._servings.values())).model

    @property
    def beside(self) -> dict[str, FrozenPolicy]:
        """Nothing is served beside whole weights."""
        return {}

    def endpoints_of(self, member: str) -> tuple[str, ...]:
        """Where a policy is served."""
        return self._servings[member].endpoints

    def model_of(self, member: str) -> str:
        """A policy's name in requests."""
        return self._servings[member].model

    async def push_team(self, folders: Mapping[str, Path], version: int) -> float:
        """``Serving.push_weights`` for each policy. folders: of their weights, by name."""
        started = time.monotonic()
        await together(serving.push_weights(folders[name], version) for name, serving in self._servings.items())
        return time.monotonic() - started

    async def score(self, token_ids: Sequence[int]) -> list[float]:
        """``scores`` of each policy's first server, one after another."""
        return [value for name in self._servings for value in (await self.scores(token_ids, name))[0]]

    async def scores(self, token_ids: Sequence[int], member: str) -> list[list[float]]:
        """``Serving.scores`` of one policy."""
        return await self._servings[member].scores(token_ids)

    @contextlib.asynccontextmanager
    async def lend(self, folders: Sequence[Path]) -> AsyncIterator[list[str]]:
        """Nothing: a team lends no servers (``algo.serving.frozen.share_out``)."""
        assert not folders
        yield []

    async def check_alive(self) -> bool:
        """``Serving.check_alive`` of each. Raises ServingDied when one policy is served no more."""
        return any([await serving.check_alive() for serving in self._servings.values()])

    async def sleep(self) -> None:
        """``Serving.sleep`` of each."""
        await together(serving.sleep() for serving in self._servings.values())

    async def wake(self) -> None:
        """``Serving.wake`` of each."""
        await together(serving.wake() for serving in self._servings.values())

    async def metrics(self) -> dict[str, float]:
        """``Serving.metrics`` of all together."""
        found = [await serving.metrics() for serving in self._servings.values()]
        share = "serving/prefix_cache_hit_share"
        sums = {name: sum(metrics[name] for metrics in found) for name in found[0] if name != share}
        if queries := sums["serving/prefix_cache_queries"]:
            sums[share] = sums["serving/prefix_cache_hits"] / queries
        return sums

    async def stop(self) -> None:
        """``Serving.stop`` of each."""
        for serving in self._servings.values():
            await serving.stop()


Team = AdaptersOfTeam | WholeTeam


async def open_policies(
    config: Config, progress: Callable[[str], None] = logger.info, weights_follow: bool = False
) -> Serving | Team:
    """Start or attach to what serves the policy, or the team, as ``serving.mode`` and the configuration say."""
    if not config.team:
        return await Serving.open(config, progress, weights_follow)
    if config.model.lora_rank:
        return await AdaptersOfTeam.open(config, progress, weights_follow)
    return await WholeTeam.start(config, progress, weights_follow)
