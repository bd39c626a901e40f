"""All vLLM servers of one policy behind one object: new weights go to all of them, and dead ones are brought back.

The training loop owns one ``Serving``. Runners never see this module: they are told ``endpoints`` and speak OpenAI's
protocol. One server alone is the matter of ``algo.serving.server``, which of them live that of ``algo.serving.group``.
"""

import contextlib
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Self

from algo.serving.group import ServerGroup, together
from algo.serving.launch import Launch, names_beside, policy_launches
from algo.serving.preconditions import ServingDied, ServingError, require_servable_model
from algo.serving.server import VllmServer
from algo.serving.weight_files import check_same_tensors
from configs.schema import Config
from store.schema import FrozenPolicy

__all__ = ["Serving", "ServingDied", "ServingError"]

logger = logging.getLogger(__name__)

_CACHE_COUNTERS = {
    "queries": "vllm:prefix_cache_queries_total",
    "hits": "vllm:prefix_cache_hits_total",
}


class Serving:
    """The servers of one policy. Make it with ``open``, ``start`` or ``attach``; use it as an async context manager.

    Its methods belong to the event loop that made it, one call at a time. A server that dies does not fail a call while
    another one serves, or while a restart is left (``serving.max_restarts``); it comes back with the newest weights.
    """

    def __init__(
        self,
        config: Config,
        servers: Sequence[VllmServer],
        public_urls: Sequence[str] = (),
        progress: Callable[[str], None] = logger.info,
    ) -> None:
        """servers: started, or attached to and checked. public_urls: what runners are told in place of their URLs."""
        self._config = config
        urls = public_urls or [server.base_url for server in servers]
        self._group = ServerGroup(servers, urls, config.serving.max_restarts, progress)
        self._model = servers[0].model
        self._asleep = False
        self._adapters: dict[str, Path] = {}
        self._counted: dict[tuple[str, int], dict[str, float]] = {}

    @classmethod
    async def open(
        cls, config: Config, progress: Callable[[str], None] = logger.info, weights_follow: bool = False
    ) -> Self:
        """Start or attach, as ``serving.mode`` says."""
        if config.serving.mode == "attach":
            return await cls.attach(config)
        return await cls.start(config, progress, weights_follow=weights_follow)

    @classmethod
    async def start(
        cls,
        config: Config,
        progress: Callable[[str], None] = logger.info,
        launches: Sequence[Launch] | None = None,
        weights_follow: bool = False,
    ) -> Self:
        """Start ``serving.servers`` vLLM servers on ``config.model.path`` and wait until all are healthy.

        progress: called with a line when a server is started, every ten seconds, and when it is ready.
        launches: what to start instead. weights_follow: no completion is answered before weights are pushed.
        Raises ServingError and ServingDied, see ``VllmServer.start``; nothing is left running then.
        """
        if launches is None:
            takes_weights = config.model.lora_rank == 0
            require_servable_model(config.model.path, "model.path", config.training.device, takes_weights)
            launches = policy_launches(config)
            public_urls = config.serving.public_urls
        else:
            public_urls = ()
        servers = [VllmServer.to_start(config, launch) for launch in launches]
        serving = cls(config, servers, public_urls, progress)
        try:
            await together(server.start(progress, weights_follow) for server in servers)
        except BaseException:  # also when cancelled: nothing may stay behind
            await serving.stop()
            raise
        return serving

    @classmethod
    async def attach(cls, config: Config) -> Self:
        """Use the vLLM servers that already run at ``serving.urls``.

        Raises ServingError unless each can be used, see ``VllmServer.check_attached``.
        """
        name, adapters = config.serving.served_model_name, config.model.lora_rank > 0
        servers = [VllmServer(config, url, name, takes_adapters=adapters) for url in config.serving.urls]
        serving = cls(config, servers, config.serving.public_urls)
        try:
            await together(server.check_attached() for server in servers)
        except BaseException:
            await serving.stop()
            raise
        return serving

    @property
    def endpoints(self) -> tuple[str, ...]:
        """Base URLs for OpenAI clients, ending in ``/v1``, of the servers in service: what runners are told.

        Never empty: while none is in service, those that are coming back.
        """
        return self._group.endpoints

    @property
    def servers(self) -> tuple[VllmServer, ...]:
        """The servers in service."""
        return self._group.servers

    @property
    def beside(self) -> dict[str, FrozenPolicy]:
        """Frozen policies that these servers serve beside the policy, where that is adapters: its base, and others."""
        names, endpoint = names_beside(self._config), self.endpoints[0]
        return {name: FrozenPolicy(endpoint=endpoint, model=model) for name, model in names.items()}

    @property
    def model(self) -> str:
        """The model's name in requests."""
        return self._model

    async def push_weights(self, model_dir: Path | str, version: int) -> float:
        """Serve the weights in ``model_dir`` from now on; returns the seconds it took.

        model_dir: a folder of safetensors that vLLM can read at the same path, with the tensors of
            ``model.path`` (checked first: vLLM keeps the old values of missing tensors without a word); with
            ``model.lora_rank`` a folder of adapters.
        version: their number, told with every completion from now on.
        Replies under way are finished first, or with ``rollout.max_policy_lag`` and whole weights halted meanwhile and
        told as of both versions; requests that arrive meanwhile wait, and get the new weights. Sleeping servers are
        woken.

        A server that refuses them may hold half of the new weights: it is lost, and started again if that is possible.
        Raises ValueError for weights of another model, before anything is touched, and, when no server is left and
        none will come back, ServingError naming the endpoint, its status and its answer.
        """
        folder = Path(model_dir).resolve()
        if not self._config.model.lora_rank:
            check_same_tensors(folder, self._config.model.path)

        async def reload(server: VllmServer) -> None:
            await reload_server(server, folder, version, self._beside_it)

        return await self._push(reload)

    async def _push(self, reload: Callable[[VllmServer], Awaitable[None]]) -> float:
        """Have ``reload`` bring every server up to date, and each that comes back later; returns the seconds."""
        started = time.monotonic()
        self._group.update = reload
        self._group.take_in_restarted()
        await self._group.ask(reload, loses_refusing=True)
        await self._in_service_again()
        return time.monotonic() - started

    async def serve_beside(self, folders: Mapping[str, Path]) -> None:
        """Serve these adapters beside those of the policy, on every server, until they are told otherwise.

        folders: by their names in requests. Those of before that are not among them can be asked for no more; replies
        under way are finished. A server that refuses is lost, as in ``push_weights``, and comes back with them.
        Only where the policy is adapters, and after ``push_weights``.
        """
        self.serve_beside_from_push(folders)
        await self._group.ask(lambda server: server.serve_beside(self._beside_it), loses_refusing=True)
        await self._group.wait_for_a_server()

    @property
    def _beside_it(self) -> dict[str, Path]:
        """The adapters that servers hold beside those of their own name."""
        return self._adapters

    def serve_beside_from_push(self, folders: Mapping[str, Path]) -> None:
        """``serve_beside`` from the next ``push_weights`` on, before any request is answered with those weights."""
        self._adapters = {name: folder.resolve() for name, folder in folders.items()}

    async def transfer_weights(
        self,
        version: int,
        send: Callable[[Sequence[VllmServer]], Awaitable[None]],
        export: Callable[[], Awaitable[Path]],
    ) -> float:
        """``push_weights`` without a folder: ``send`` hands the weights to servers that take no requests meanwhile.

        export: writes the same weights into a folder, for a server that is started again before the next push.
        Returns the seconds it took. What ``send`` raises is raised, and leaves the servers paused.
        """
        started = time.monotonic()

        async def reload(server: VllmServer) -> None:
            await reload_server(server, await export(), version)

        self._group.update = reload
        self._group.take_in_restarted()
        await self._group.ask(_make_ready, loses_refusing=True)
        if self.servers:
            await send(self.servers)
            await self._group.ask(lambda server: _serve_as(server, version), loses_refusing=True)
        await self._in_service_again()
        return time.monotonic() - started

    @contextlib.asynccontextmanager
    async def lend(self, folders: Sequence[Path]) -> AsyncIterator[list[str]]:
        """Have a server for each folder serve those weights, which must be shaped like the policy's, for a while.

        Yields their base URLs for OpenAI clients; ``endpoints`` are the others meanwhile. Nothing may be in flight that
        was told of them as the policy's. Leaving the context gives them the policy's weights again; an error does not.
        Raises ServingError where no server would be left, or weights cannot be read.
        """
        if not folders:
            yield []
            return
        if self._group.update is None:  # what they started with
            self._group.update = partial(reload_server, folder=self._config.model.path.resolve(), version=0)
        lent = dict(zip(self._group.lend(len(folders)), folders, strict=True))
        await together(reload_server(server, folder.resolve(), 0) for server, folder in lent.items())
        yield [f"{server.base_url}/v1" for server in lent]
        await self._group.give_back()

    async def score(self, token_ids: Sequence[int]) -> list[float]:
        """``scores`` of the first server."""
        return (await self.scores(token_ids))[0]

    async def scores(self, token_ids: Sequence[int], member: str | None = None) -> list[list[float]]:
        """Log-probs of a fixed sequence under the weights served now, by each server in service.

        member: of this policy, where it is one of several adapters (``algo.serving.team``).
        One natural log-prob for each of ``token_ids[1:]``, see ``VllmServer.score``.
        """
        while True:
            answers = await self._group.ask(lambda server: server.score(token_ids, member))
            if answers:
                return list(answers.values())
            await self._group.wait_for_a_server()

    async def check_alive(self) -> bool:
        """See to servers that have died; to be called every few seconds while games are played.

        A started server that has ended, or has not answered for long, is started again, and is back in service once it
        has the newest weights. An attached one is taken out, and taken back when it can be used again.
        Returns whether ``endpoints`` have changed. Raises ServingDied when no server is left and none will come back.
        """
        before = self.endpoints
        await self._group.check_alive()
        return self.endpoints != before

    async def sleep(self) -> None:
        """Leave the GPUs to the trainer, where both share them (``serving.share_gpus``); replies under way finish."""
        if not self._config.serving.share_gpus:
            return
        # One that starts would take the GPUs in the trainer's midst.
        await self._group.wait_until_none_is_coming_back()
        self._group.hold_starts()
        self._asleep = True
        await self._group.ask(lambda server: server.sleep())

    async def wake(self) -> None:
        """Take the GPUs again, with the weights of before."""
        if self._asleep:
            await self._group.ask(_wake_wholly)
            await self._in_service_again()

    async def metrics(self) -> dict[str, float]:
        """What the servers did since the last call, summed over them.

        ``serving/prefix_cache_queries`` and ``serving/prefix_cache_hits`` in tokens of prompts, their ratio
        ``serving/prefix_cache_hit_share`` (absent without queries); ``serving/servers`` in service and
        ``serving/restarts`` of the whole run so far.
        """
        sums = dict.fromkeys(_CACHE_COUNTERS, 0.0)
        for server, totals in (await self._group.ask(lambda server: server.figures())).items():
            # A server that was started again counts from zero.
            counted = self._counted.setdefault((server.base_url, server.starts), {})
            for name, counter in _CACHE_COUNTERS.items():
                total = totals.get(counter, 0.0)
                before = counted.get(name, 0.0)
                sums[name] += total - before if total >= before else total
                counted[name] = total
        metrics = {f"serving/prefix_cache_{name}": value for name, value in sums.items()}
        if sums["queries"]:
            metrics["serving/prefix_cache_hit_share"] = sums["hits"] / sums["queries"]
        return metrics | {"serving/servers": float(len(self.servers)), "serving/restarts": float(self._group.restarts)}

    async def stop(self) -> None:
        """End the started servers and all their processes, by force if it takes too long. May be called again.

        Attached servers are left running.
        """
        await self._group.stop()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    async def _in_service_again(self) -> None:
        """After a push or a wake: start what died asleep, and return once a server is in service."""
        if self._asleep:
            self._asleep = False
            self._group.allow_starts()
        await self._group.wait_for_a_server()


async def reload_server(
    server: VllmServer, folder: Path | None, version: int, adapters: Mapping[str, Path] | None = None
) -> None:
    """Have a server answer with new weights, as this version.

    folder: None where all of its policies are among the adapters.
    adapters: that it is to serve beside the policy's; None leaves these as they are.
    """
    await _make_ready(server)
    if adapters is not None:
        await server.serve_beside(adapters)
    if folder is not None:
        await server.reload(folder)
    await _serve_as(server, version)


async def _make_ready(server: VllmServer) -> None:
    """Have a server take new weights: it answers no request meanwhile."""
    if server.asleep:
        await server.wake("weights")
    else:
        await server.pause()


async def _serve_as(server: VllmServer, version: int) -> None:
    """Have a server answer with its new weights."""
    await server.forget_old_weights(version)
    if server.asleep:
        await server.wake("kv_cache")
    else:
        await server.resume()


async def _wake_wholly(server: VllmServer) -> None:
    await server.wake("weights")
    await server.wake("kv_cache")
