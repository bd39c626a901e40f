"""The policies of a run and their vLLM servers.

| policies | whole weights | LoRA adapters (``model.lora_rank``) |
|---|---|---|
| learning (``config.learners``) | own servers for each | all of the policy's servers |
| frozen: initial, ``config.frozen`` | an own or a running server for each | the same, if base or adapters |
| past selves (``league``) | ``league.servers`` servers, one past self each | the same |
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from algo.serving.launch import BASE_NAME, Launch, frozen_adapters, frozen_launch, policy_launches, pool_servers
from algo.serving.preconditions import ServingError, require_servable_model
from algo.serving.server_group import ServerGroup, gather_or_cancel, sum_metrics
from algo.serving.vllm_server import VllmServer
from configs.schema import Config
from configs.section import ConfigError
from configs.sections.opponents import INITIAL_POLICY
from configs.sections.policies import SOLE_LEARNER
from configs.sections.serving import FrozenPolicyConfig
from store.endpoints import ServedPolicy
from store.players import TRAINED_POLICY


class PolicyServers:
    """The servers of learning policies and past selves.

    learning: servers by policy name; with adapters all policies share one group.
    """

    def __init__(self, config: Config, learning: Mapping[str, ServerGroup]) -> None:
        self._config = config
        self._learning = dict(learning)
        self._sets = list(dict.fromkeys(self._learning.values()))
        self._pool: list[ServerGroup] = []
        self._held: list[int] = []

    @classmethod
    async def open(cls, config: Config, version: int | None = 0) -> Self:
        """Open the servers of the learning policies; see ``ServerGroup.open``."""
        if config.model.lora_rank or len(config.learners) == 1:
            return cls(config, dict.fromkeys(config.learners, await ServerGroup.open(config, version)))
        require_servable_model(config.model.path, "model.path", config.training.device, takes_weights=True)
        launches = {name: policy_launches(config, name, version) for name in config.learners}
        return cls(config, await _start_all({name: ServerGroup.start(config, own) for name, own in launches.items()}))

    async def start_pool(self) -> None:
        """Start the servers of past selves with whole weights, on ``model.path``, if the run has a pool."""
        config = self._config
        if settings := pool_servers(config):
            require_servable_model(config.model.path, "model.path", config.training.device, takes_weights=True)
            starting = {
                f"past-{number}": ServerGroup.start(config, [frozen_launch(f"past-{number}", policy)])
                for number, policy in enumerate(settings, start=1)
            }
            self._pool = [*(await _start_all(starting)).values()]
            self._held = [0] * len(self._pool)

    @property
    def endpoints(self) -> tuple[str, ...]:
        """Base URLs of the first policy's servers, for runners with a single policy."""
        return self._sets[0].endpoints

    @property
    def model(self) -> str:
        """The first policy's name in requests."""
        return self._model_of(next(iter(self._learning)))

    def learners(self) -> list[ServedPolicy]:
        """Resources of the learning policies; empty for a sole one, which has no name of its own."""
        return [
            self._row(name, TRAINED_POLICY, self._learning[name].endpoints, self._model_of(name))
            for name in self._learning
            if name != SOLE_LEARNER
        ]

    def frozen(self) -> list[ServedPolicy]:
        """Resources of the frozen policies on the policy's servers: with adapters, the base and other adapters."""
        names = frozen_names_on_policy_servers(self._config)
        return [ServedPolicy(name=name, endpoints=self.endpoints[:1], model=model) for name, model in names.items()]

    async def push(self, folders: Mapping[str, Path], version: int) -> None:
        """``ServerGroup.push`` of all learning policies, under one version. folders: by policy name."""
        if self._config.model.lora_rank:
            await self._sets[0].push_weights({self._model_of(name): folders[name] for name in self._learning}, version)
        else:
            await gather_or_cancel(
                servers.push_weights(folders[name], version) for name, servers in self._learning.items()
            )

    async def transfer(
        self,
        version: int,
        send: Callable[[Sequence[VllmServer]], Awaitable[None]],
        export: Callable[[], Awaitable[Path]],
    ) -> None:
        """``push`` of a sole policy from GPU to GPU, see ``ServerGroup.push``.

        export: writes the same weights into a folder, for a server that restarts before the next push.
        """

        async def load(server: VllmServer) -> None:
            await server.reload(await export())

        await self._sets[0].push(version, load, send)

    async def scores(self, token_ids: Sequence[int], learner: str) -> list[list[float]]:
        return await self._learning[learner].scores(token_ids, self._model_of(learner))

    async def score(self, token_ids: Sequence[int]) -> list[float]:
        """Scores of each policy's first server, concatenated."""
        return [value for name in self._learning for value in (await self.scores(token_ids, name))[0]]

    async def serve_past_selves(
        self, folders: Mapping[str, Path], held: Sequence[tuple[int, Path]], now: bool = True
    ) -> None:
        """Serve past selves. folders: adapters by name.

        held: (version, folder) of the past self for each server of the pool; pushed when it changes.
        now: see ``ServerGroup.serve_adapters``.
        """
        if self._config.model.lora_rank:
            adapters = {
                self._past_model(name, learner): self._config.folder_of(learner, folder)
                for name, folder in folders.items()
                for learner in self._learning
            }
            await self._sets[0].serve_adapters(adapters, now)
        for number, (version, folder) in enumerate(held):
            if self._held[number] != version:
                await self._pool[number].push_weights(folder, version)
                self._held[number] = version

    def past(self, shares: Mapping[str, float], held: Iterable[str]) -> list[ServedPolicy]:
        """Resources of past selves. shares: by name. held: names, by server of the pool."""
        if self._pool:
            at = dict(zip(held, self._pool, strict=True))
            return [
                ServedPolicy(name=name, endpoints=at[name].endpoints[:1], model=at[name].model, share=share)
                for name, share in shares.items()
            ]
        # Each on one of the policy's servers, so that its games share a prefix cache.
        endpoints = self.endpoints
        return [
            self._row(learner, name, (endpoints[number % len(endpoints)],), self._past_model(name, learner), share)
            for number, (name, share) in enumerate(shares.items())
            for learner in self._learning
        ]

    def _past_model(self, name: str, learner: str) -> str:
        return name if learner == SOLE_LEARNER else f"{name}-{learner}"

    def _row(
        self, learner: str, player: str, endpoints: tuple[str, ...], model: str, share: float = 0.0
    ) -> ServedPolicy:
        """The resource of a learning policy or a past self, with the seats that it plays."""
        settings = self._config.learners[learner]
        return ServedPolicy(
            name=learner if player == TRAINED_POLICY else model,
            player=player,
            side=settings.side,
            roles=settings.roles,
            endpoints=endpoints,
            model=model,
            share=share,
        )

    async def check_alive(self) -> bool:
        """``ServerGroup.check_alive`` of all; returns whether endpoints of learning policies have changed."""
        changed = [await servers.check_alive() for servers in (*self._sets, *self._pool)]
        return any(changed[: len(self._sets)])

    async def sleep(self) -> None:
        await gather_or_cancel(servers.sleep() for servers in self._sets)

    async def wake(self) -> None:
        await gather_or_cancel(servers.wake() for servers in self._sets)

    async def metrics(self) -> dict[str, float]:
        return sum_metrics([await servers.metrics() for servers in self._sets])

    async def stop(self) -> None:
        await asyncio.gather(*(servers.stop() for servers in (*self._sets, *self._pool)))

    def _model_of(self, learner: str) -> str:
        """A policy's name in requests: adapters on shared servers have their own."""
        named = self._config.model.lora_rank and learner != SOLE_LEARNER
        return learner if named else self._learning[learner].model


def frozen_names_on_policy_servers(config: Config) -> dict[str, str]:
    """Frozen policies on the policy's servers, with adapters: name -> name in requests."""
    if not config.model.lora_rank:
        return {}
    return {INITIAL_POLICY: BASE_NAME} | {name: name for name in frozen_adapters(config)}


def frozen_with_own_server(config: Config, names: Iterable[str]) -> dict[str, FrozenPolicyConfig]:
    """The frozen policies among ``names`` that need their own server, started here or running already."""
    # The defaults of the section limit the memory of the initial policy.
    known = {**config.frozen, INITIAL_POLICY: FrozenPolicyConfig(path=config.model.path)}
    return {name: known[name] for name in sorted({*names} - frozen_names_on_policy_servers(config).keys())}


def check_public(config: Config, names: Iterable[str], pool: Sequence[Launch] = ()) -> None:
    """Raise ConfigError if ``serving.public_urls`` lacks servers that are started here.

    names: of the frozen policies that are served here or attached to. pool: servers of past selves.
    """
    if not config.serving.public_urls:
        return
    own = sorted(name for name in names if name not in config.frozen or config.frozen[name].path is not None)
    if own or pool:
        who = f"the frozen policies {', '.join(own)}" if own else "past selves (league)"
        raise ConfigError(
            f"serving.public_urls has no address of the servers of {who}, which listen on this machine only; runners "
            f"elsewhere would play no game. Serve them yourself (frozen.NAME.url), train adapters (model.lora_rank), "
            f"which the policy's servers serve, too, or leave them out (game.opponent, game.seating, "
            f"evaluation.opponents, league)"
        )


@dataclass(frozen=True)
class FrozenServers:
    """The servers of frozen policies. by_name: of each policy."""

    by_name: Mapping[str, ServerGroup]

    @property
    def policies(self) -> list[ServedPolicy]:
        """Their resources; a restarted server keeps its address."""
        return [
            ServedPolicy(name=name, endpoints=servers.endpoints[:1], model=servers.model)
            for name, servers in self.by_name.items()
        ]

    async def check_alive(self) -> None:
        """Raises ServingDied when a policy has no server left."""
        for servers in self.by_name.values():
            await servers.check_alive()


@contextlib.asynccontextmanager
async def open_frozen(config: Config, names: Iterable[str]) -> AsyncIterator[FrozenServers]:
    """Serve frozen policies within the context.

    names: keys of ``config.frozen``, and "initial" for the weights in ``model.path``. A policy with a path gets its own
    vLLM, one with a URL is attached to. Raises ServingError, see ``ServerGroup``, and what ``check_public`` does.
    """
    names = [*names]
    check_public(config, names)
    policies = {name: config.frozen.get(name) or FrozenPolicyConfig(path=config.model.path) for name in names}
    opened = await _start_all({name: _open(config, name, policy) for name, policy in policies.items()})
    try:
        yield FrozenServers(opened)
    finally:
        await asyncio.gather(*(servers.stop() for servers in opened.values()))


async def _open(config: Config, name: str, policy: FrozenPolicyConfig) -> ServerGroup:
    if policy.path is not None:
        if (policy.path / "adapter_config.json").is_file():
            raise ServingError(
                f"frozen.{name}.path: {policy.path} holds adapters, which only a training run with model.lora_rank "
                f"serves; name a folder with merged weights"
            )
        require_servable_model(policy.path, f"frozen.{name}.path", config.training.device, takes_weights=False)
        return await ServerGroup.start(config, [frozen_launch(name, policy)])
    assert policy.url is not None
    return await ServerGroup.attach_frozen(config, policy.url, policy.model)


async def _start_all(opening: Mapping[str, Awaitable[ServerGroup]]) -> dict[str, ServerGroup]:
    """Open all concurrently; if one fails, stop the others and raise its error."""
    tasks = {name: asyncio.ensure_future(one) for name, one in opening.items()}
    try:
        await gather_or_cancel(tasks.values())
    except BaseException:
        for task in tasks.values():
            if not task.cancelled() and task.exception() is None:
                await task.result().stop()
        raise
    return {name: task.result() for name, task in tasks.items()}
