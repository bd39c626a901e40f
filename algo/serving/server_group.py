"""A group of vLLM servers with the same weights: all load new ones, and a dead server is restarted.

One server: ``algo.serving.vllm_server``. The policies of a run and their servers: ``algo.serving.policies``.
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Self, TypeVar

from algo.serving.launch import HOST, Launch, policy_launches
from algo.serving.preconditions import ServingDied, ServingError, WeightsSuperseded, require_servable_model
from algo.serving.vllm_server import VllmServer
from algo.serving.weight_files import check_same_tensors
from configs.schema import Config
from configs.sections.policies import SOLE_LEARNER

logger = logging.getLogger(__name__)

_Result = TypeVar("_Result")

_CHECK_SECONDS = 5.0
_UNHEALTHY_SECONDS = 30.0
_FEWEST_UNANSWERED = 3
"""A server that has not answered /health for so long, and so often, is dead."""
_TAKE_BACK_SECONDS = 30.0
_CACHE_COUNTERS = {"queries": "vllm:prefix_cache_queries_total", "hits": "vllm:prefix_cache_hits_total"}


class ServerGroup(contextlib.AbstractAsyncContextManager["ServerGroup"]):
    """Created by ``open``, ``start`` or ``attach_frozen``; an async context manager.

    For one event loop, one call at a time. A task per server supervises it: a started server that dies is restarted
    with the newest weights, at most ``serving.max_restarts`` times in all for this policy; an attached one returns to
    service when it is healthy again. Meanwhile calls go to the other servers, or wait.
    """

    def __init__(self, config: Config, servers: Sequence[VllmServer]) -> None:
        self._config = config
        self._all = tuple(servers)
        self._restarts = 0
        self._last_death: ServingError | None = None
        self._watchers: list[asyncio.Task[None]] = []
        self._loading = asyncio.Lock()
        self._awake = asyncio.Event()
        self._awake.set()
        self._changed = asyncio.Event()
        self._next_push = asyncio.Event()
        self._reported = self.endpoints
        self._learner_adapters: dict[str, Path] = {}
        self._other_adapters: dict[str, Path] = {}
        self._update_server: Callable[[VllmServer], Awaitable[None]] | None = None
        self._counted: dict[tuple[str, int], dict[str, float]] = {}

    @classmethod
    async def open(cls, config: Config, version: int | None = 0, *, takes_weights: bool = True) -> Self:
        """The servers of the trained policy, started or attached to by ``serving.mode``.

        version: see ``Launch``. takes_weights: whether weights will be pushed to attached ones.
        """
        settings, takes_adapters = config.serving, config.model.lora_rank > 0
        if settings.mode == "start":
            require_servable_model(config.model.path, "model.path", config.training.device, not takes_adapters)
            return await cls.start(config, policy_launches(config, version=version))
        public = settings.public_urls or settings.urls
        servers = [
            VllmServer(config, url, SOLE_LEARNER, takes_adapters=takes_adapters, public_url=endpoint)
            for url, endpoint in zip(settings.urls, public, strict=True)
        ]
        return await cls(config, servers)._ready(server.check_attached(takes_weights) for server in servers)

    @classmethod
    async def start(cls, config: Config, launches: Sequence[Launch]) -> Self:
        """Start vLLM servers and wait until all are healthy; see ``VllmServer.start``. On an error all are stopped."""
        servers = []
        for number, launch in enumerate(launches):
            public = config.serving.public_urls[number] if launch.learns and config.serving.public_urls else None
            adapters = launch.learns and config.model.lora_rank > 0
            url = f"http://{HOST}:{launch.port}"
            servers.append(
                VllmServer(config, url, launch.served_name, launch, takes_adapters=adapters, public_url=public)
            )
        return await cls(config, servers)._ready(server.start() for server in servers)

    @classmethod
    async def attach_frozen(cls, config: Config, url: str, model: str) -> Self:
        """Attach to a vLLM with frozen weights. Raises ServingError unless it returns token ids and log-probs."""
        server = VllmServer(config, url, model)
        return await cls(config, [server])._ready([server.check_attached(takes_weights=False)])

    async def _ready(self, calls: Iterable[Awaitable[None]]) -> Self:
        try:
            await gather_or_cancel(calls)
        except BaseException:  # also when cancelled
            await self.stop()
            raise
        self._watchers = [asyncio.create_task(self._supervise(server)) for server in self._all]
        for watcher in self._watchers:
            watcher.add_done_callback(self._on_watcher_end)
        return self

    @property
    def endpoints(self) -> tuple[str, ...]:
        """Base URLs for OpenAI clients, ending in ``/v1``, of the servers in service.

        Never empty: without a server in service, those that restart, or else all.
        """
        restarting = tuple(server for server in self._all if server.restarting)
        return tuple(server.endpoint for server in self.servers or restarting or self._all)

    @property
    def servers(self) -> tuple[VllmServer, ...]:
        return tuple(server for server in self._all if server.in_service)

    @property
    def model(self) -> str:
        return self._all[0].model

    async def push_weights(self, weights: Path | Mapping[str, Path], version: int) -> None:
        """``push`` of a folder that vLLM can read at the same path: safetensors, or adapters with ``model.lora_rank``.

        weights: the folder; or the folders of all learning policies' adapters, by their names in requests.
        Raises ValueError for weights that do not fit ``model.path``, before any change.
        """
        given = weights if isinstance(weights, Mapping) else {self.model: weights}
        learned = {name: folder.resolve() for name, folder in given.items()}
        if not self._config.model.lora_rank:
            (folder,) = learned.values()
            check_same_tensors(folder, self._config.model.path)
            await self.push(version, lambda server: server.reload(folder))
            return

        # Until this push succeeds, a server that returns to service loads the adapters of the last one.
        async def load(server: VllmServer) -> None:
            await server.serve_adapters(self._other_adapters | learned, again=frozenset(learned))

        await self.push(version, load)
        self._learner_adapters = learned

    async def push(
        self,
        version: int,
        load: Callable[[VllmServer], Awaitable[None]],
        send: Callable[[Sequence[VllmServer]], Awaitable[None]] | None = None,
    ) -> None:
        """Update the weights of all servers: pause, load, resume.

        version: of the new weights, in the header of every later completion.
        load: loads them into a paused server, also into one that returns to service later; it may then raise
            WeightsSuperseded, and the server waits for the next push.
        send: loads them into all servers at once instead, from GPU to GPU; after an error the servers stay paused.
        Open replies are finished first, or with ``rollout.max_policy_lag`` and whole weights interrupted, and have both
        versions; new requests wait for the new weights. Sleeping servers wake.

        A server with an error may have half of the new weights, and counts as dead. Raises ServingError when no server
        is left and none restarts.
        """

        async def update_server(server: VllmServer) -> None:
            await server.pause()
            await load(server)
            await server.resume(version)

        async with self._loading:
            self._update_server = update_server
            await self._call_all(VllmServer.pause, errors_kill=True)
            if send is None:
                await self._call_all(load, errors_kill=True)
            elif self.servers:
                await send(self.servers)
            await self._call_all(lambda server: server.resume(version), errors_kill=True)
            self._awake.set()
            self._next_push.set()
            self._next_push = asyncio.Event()
        await self._wait_for_server()

    async def serve_adapters(self, folders: Mapping[str, Path], now: bool = True) -> None:
        """Serve these adapters in addition to those of the learning policies, until the next call.

        folders: by their names in requests. Other ones are unloaded; open replies are finished. now: False leaves the
        loading to the next push. A server with an error counts as dead, as in ``push``.
        """
        self._other_adapters = {name: folder.resolve() for name, folder in folders.items()}
        if now:
            async with self._loading:
                adapters = self._other_adapters | self._learner_adapters
                await self._call_all(lambda server: server.serve_adapters(adapters), errors_kill=True)
            await self._wait_for_server()

    async def scores(self, token_ids: Sequence[int], model: str | None = None) -> list[list[float]]:
        """``VllmServer.score`` by each server in service."""
        while True:
            answers = await self._call_all(lambda server: server.score(token_ids, model))
            if answers:
                return list(answers.values())
            await self._wait_for_server()

    async def sleep(self) -> None:
        """Free the GPUs for the trainer with ``serving.share_gpus``, after the open replies."""
        if not self._config.serving.share_gpus:
            return
        # A starting server would use the GPUs at the same time as the trainer.
        while any(server.restarting for server in self._all):
            self._raise_if_all_dead()
            await self._wait_for_change()
        self._awake.clear()
        await self._call_all(lambda server: server.sleep())

    async def wake(self) -> None:
        """Use the GPUs again, with the same weights."""
        if not self._awake.is_set():
            await self._call_all(lambda server: server.wake("weights", "kv_cache"))
            self._awake.set()
            await self._wait_for_server()

    async def metrics(self) -> dict[str, float]:
        """Queries and hits of the prefix cache since the last call, in tokens, and their ratio.

        Also ``serving/servers`` in service, and ``serving/restarts`` by this process. A server that does not answer is
        left out: a run must not end for lack of a statistic.
        """
        sums = {f"serving/prefix_cache_{name}": 0.0 for name in _CACHE_COUNTERS}
        for server, totals in (await self._call_all(_counters)).items():
            if totals is None:
                continue
            # A restarted server counts from zero.
            counted = self._counted.setdefault((server.base_url, server.starts), {})
            for name, counter in _CACHE_COUNTERS.items():
                total, before = totals.get(counter, 0.0), counted.get(name, 0.0)
                sums[f"serving/prefix_cache_{name}"] += total - before if total >= before else total
                counted[name] = total
        return sum_metrics(
            [sums | {"serving/servers": float(len(self.servers)), "serving/restarts": float(self._restarts)}]
        )

    async def check_alive(self) -> bool:
        """Whether ``endpoints`` have changed since the last call.

        Raises ServingDied when no server is left and none restarts.
        """
        self._raise_if_all_dead()
        before, self._reported = self._reported, self.endpoints
        return self._reported != before

    async def stop(self) -> None:
        """Stop the started servers; attached ones are left running. May be called again."""
        for watcher in self._watchers:
            watcher.cancel()
        try:
            await asyncio.gather(*self._watchers, return_exceptions=True)
        finally:  # a second Ctrl-C may cancel the first wait
            await asyncio.gather(*(server.stop() for server in self._all))

    async def __aexit__(self, *error: object) -> None:
        await self.stop()

    async def _call_all(
        self, call: Callable[[VllmServer], Awaitable[_Result]], errors_kill: bool = False
    ) -> dict[VllmServer, _Result]:
        """Call every server in service concurrently; returns the results.

        A dead server leaves service; an error of a live one is raised, or with ``errors_kill`` it counts as dead.
        """
        servers = [(server, server.starts) for server in self.servers]
        outcomes = await asyncio.gather(*(call(server) for server, _ in servers), return_exceptions=True)
        answers: dict[VllmServer, _Result] = {}
        for (server, starts), outcome in zip(servers, outcomes, strict=True):
            if not isinstance(outcome, BaseException):
                answers[server] = outcome
                continue
            if not isinstance(outcome, ServingError):
                raise outcome
            is_dead = await _is_dead(server)
            if server.starts != starts:
                continue  # restarted meanwhile
            if is_dead:
                self._mark_dead(server, server.as_death(outcome))
            elif errors_kill:
                self._mark_dead(server, outcome)
            else:
                raise outcome
        return answers

    def _mark_dead(self, server: VllmServer, error: ServingError) -> None:
        """Take a dead server out of service, unless another call has; ``_supervise`` restores it."""
        if server.in_service:
            self._record_death(server, error)

    def _record_death(self, server: VllmServer, error: ServingError) -> None:
        was_in_service, server.in_service = server.in_service, False
        self._last_death = error
        url, most = server.base_url, self._config.serving.max_restarts
        server.restarting = server.launch is not None and self._restarts < most
        if server.restarting:
            self._restarts += 1
            logger.error("restarting vLLM on %s (restart %d of %d): %s", url, self._restarts, most, error)
        elif server.launch is not None:
            logger.error("vLLM on %s is not restarted (serving.max_restarts is %d): %s", url, most, error)
        elif was_in_service:
            logger.error("%s is out of service until it responds again: %s", url, error)
        server.out.set()
        self._changed.set()

    async def _supervise(self, server: VllmServer) -> None:
        """Watch a server and restore it whenever it dies; returns when it has no restarts left."""
        while True:
            await self._watch(server)
            try:
                if server.launch is None:
                    await asyncio.sleep(_TAKE_BACK_SECONDS)
                    await server.check_attached(takes_weights=self._update_server is not None)
                elif server.restarting:
                    await self._awake.wait()
                    if self._update_server is not None:
                        server.launch = replace(server.launch, version=None)
                    await server.start()
                else:
                    return
                await self._return_to_service(server)
            except ServingError as error:
                self._record_death(server, error)
            else:
                logger.info("vLLM on %s is back in service", server.base_url)
                self._changed.set()

    async def _return_to_service(self, server: VllmServer) -> None:
        while not server.in_service:
            async with self._loading:
                next_push = self._next_push
                try:
                    if self._update_server is not None:
                        await self._update_server(server)
                except WeightsSuperseded:
                    logger.info("vLLM on %s waits for the next push of weights", server.base_url)
                else:
                    server.in_service, server.restarting = True, False
                    server.out.clear()
                    return
            await next_push.wait()

    def _on_watcher_end(self, watcher: asyncio.Task[None]) -> None:
        if not watcher.cancelled() and (error := watcher.exception()):
            logger.error("the supervisor of a vLLM server failed", exc_info=error)
        self._changed.set()

    async def _watch(self, server: VllmServer) -> None:
        """Return when a server is out of service: after a failed call, or after a timeout of its health check."""
        silent_since: float | None = None
        unanswered = 0  # also counted, since this process may have been blocked
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_CHECK_SECONDS):
                    await server.out.wait()
            if not server.in_service:
                return
            if self._loading.locked():  # its response may take long, and the push detects its death
                continue
            try:
                await server.check_health()
            except ServingDied as error:
                self._mark_dead(server, error)
            except ServingError as error:
                silent_since, unanswered = silent_since or time.monotonic(), unanswered + 1
                if unanswered >= _FEWEST_UNANSWERED and time.monotonic() - silent_since >= _UNHEALTHY_SECONDS:
                    self._mark_dead(server, server.as_death(error))
            else:
                silent_since, unanswered = None, 0

    async def _wait_for_server(self) -> None:
        """Return once a server is in service. Raises ServingDied when none is left."""
        while not self.servers:
            self._raise_if_all_dead()
            await self._wait_for_change()

    async def _wait_for_change(self) -> None:
        self._changed.clear()
        await self._changed.wait()

    def _raise_if_all_dead(self) -> None:
        for watcher in self._watchers:
            if watcher.done():
                watcher.result()  # raises an unexpected error
        if not any(server.in_service or server.restarting for server in self._all):
            assert self._last_death is not None
            raise self._last_death


def sum_metrics(found: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """The sums of ``ServerGroup.metrics`` of several groups, with the share of hits in all queries."""
    sums = {name: sum(metrics[name] for metrics in found) for name in found[0] if not name.endswith("_share")}
    if queries := sums["serving/prefix_cache_queries"]:
        sums["serving/prefix_cache_hit_share"] = sums["serving/prefix_cache_hits"] / queries
    return sums


async def gather_or_cancel(calls: Iterable[Awaitable[Any]]) -> None:
    """Await all; if one fails, cancel and await the others before raising its error."""
    tasks = [asyncio.ensure_future(call) for call in calls]
    try:
        await asyncio.gather(*tasks)
    except BaseException:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        raise


async def _counters(server: VllmServer) -> dict[str, float] | None:
    """``VllmServer.read_metrics``; None if a living server does not give them."""
    try:
        return await server.read_metrics()
    except (ServingError, ValueError) as error:
        if isinstance(error, ServingError) and await _is_dead(server):
            raise
        logger.warning("no metrics of vLLM on %s: %s", server.base_url, error)
        return None


async def _is_dead(server: VllmServer) -> bool:
    try:
        await server.check_health()
    except ServingError:
        return True
    return False
