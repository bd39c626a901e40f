"""A set of vLLM servers that serve the same weights: all get new ones, and a dead one is started again.

Runners never see this module: they get ``endpoints`` and speak OpenAI's protocol. One server alone is the matter of
``algo.serving.server``; the policies of a run, and which servers have them, that of ``algo.serving.policies``.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from algo.serving.launch import Launch, policy_launches
from algo.serving.preconditions import ServingDied, ServingError, require_servable_model
from algo.serving.server import VllmServer
from algo.serving.weight_files import check_same_tensors
from configs.schema import Config

logger = logging.getLogger(__name__)

_Result = TypeVar("_Result")

# A server counts as dead when it has not answered /health for that long, and so many times in a row.
_UNHEALTHY_SECONDS = 30.0
_UNHEALTHY_ANSWERS = 3
_TAKE_BACK_SECONDS = 30.0
_CACHE_COUNTERS = {"queries": "vllm:prefix_cache_queries_total", "hits": "vllm:prefix_cache_hits_total"}


@dataclass(eq=False)
class _Member:
    """A server of the set.

    in_service: runners know its address, and it has the newest weights.
    coming_back: it is being started again, or checked whether it can be used again.
    """

    server: VllmServer
    endpoint: str
    in_service: bool = True
    coming_back: asyncio.Task[None] | None = None
    unanswered: int = 0
    unanswered_since: float = 0.0
    next_check: float = 0.0


class Servers:
    """Make it with ``open``, ``start`` or ``attach``; use it as an async context manager.

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
        """servers: started, or attached to and checked. public_urls: addresses for runners in place of their URLs."""
        urls = public_urls or [server.base_url for server in servers]
        self._config = config
        self._members = [_Member(server, f"{url.rstrip('/')}/v1") for server, url in zip(servers, urls, strict=True)]
        self._progress = progress
        self._restarts = 0
        self._last_death: ServingError | None = None
        self._asleep = False
        self._adapters: dict[str, Path] = {}
        self._learning: frozenset[str] = frozenset()
        self._bring_up_to_date: Callable[[VllmServer], Awaitable[None]] | None = None
        self._counted: dict[tuple[str, int], dict[str, float]] = {}

    @classmethod
    async def open(
        cls, config: Config, progress: Callable[[str], None] = logger.info, weights_follow: bool = False
    ) -> Self:
        """Start or attach, according to ``serving.mode``."""
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
        public_urls: Sequence[str] = ()
        if launches is None:
            takes_weights = config.model.lora_rank == 0
            require_servable_model(config.model.path, "model.path", config.training.device, takes_weights)
            launches, public_urls = policy_launches(config), config.serving.public_urls
        servers = [VllmServer.to_start(config, launch) for launch in launches]
        serving = cls(config, servers, public_urls, progress)
        return await serving._ready(server.start(progress, weights_follow) for server in servers)

    @classmethod
    async def attach(cls, config: Config) -> Self:
        """Use the vLLM servers that already run at ``serving.urls``.

        Raises ServingError unless each can be used, see ``VllmServer.check_attached``.
        """
        name, adapters = config.serving.served_model_name, config.model.lora_rank > 0
        servers = [VllmServer(config, url, name, takes_adapters=adapters) for url in config.serving.urls]
        serving = cls(config, servers, config.serving.public_urls)
        return await serving._ready(server.check_attached() for server in servers)

    @classmethod
    async def attach_frozen(cls, config: Config, url: str, model: str) -> Self:
        """Use a vLLM that is never given weights. Raises ServingError unless it can play token by token."""
        server = VllmServer(config, url, model)
        return await cls(config, [server])._ready([server.check_attached(takes_weights=False)])

    async def _ready(self, calls: Iterable[Awaitable[None]]) -> Self:
        try:
            await together(calls)
        except BaseException:  # also when cancelled: nothing may stay behind
            await self.stop()
            raise
        return self

    @property
    def endpoints(self) -> tuple[str, ...]:
        """Base URLs for OpenAI clients, ending in ``/v1``, of the servers in service.

        Never empty: while none is in service, those that are coming back, or else all.
        """
        return (
            tuple(member.endpoint for member in self._members if member.in_service)
            or tuple(member.endpoint for member in self._members if member.coming_back)
            or tuple(member.endpoint for member in self._members)
        )

    @property
    def servers(self) -> tuple[VllmServer, ...]:
        return tuple(member.server for member in self._members if member.in_service)

    @property
    def model(self) -> str:
        return self._members[0].server.model

    async def push_weights(self, model_dir: Path | str, version: int) -> float:
        """Serve the weights in ``model_dir`` from now on; returns the seconds it took. See ``push``.

        model_dir: a folder of safetensors that vLLM can read at the same path, with the tensors of
            ``model.path`` (checked first: vLLM keeps the old values of missing tensors without a word); with
            ``model.lora_rank`` a folder of adapters.
        Raises ValueError for weights of another model, before anything is touched.
        """
        folder = Path(model_dir).resolve()
        if self._config.model.lora_rank:
            return await self.push_adapters({self.model: folder}, version)
        check_same_tensors(folder, self._config.model.path)
        return await self.push(version, lambda server: server.reload(folder))

    async def push_adapters(self, folders: Mapping[str, Path], version: int) -> float:
        """Serve these adapters of the policies that learn from now on, all within one pause. See ``push``.

        folders: by their names in requests.
        """
        others = {name: folder for name, folder in self._adapters.items() if name not in self._learning}
        self._learning = frozenset(folders)
        self._adapters = others | {name: folder.resolve() for name, folder in folders.items()}
        return await self.push(version, lambda server: server.serve_adapters(self._adapters, again=self._learning))

    async def push(
        self,
        version: int,
        load: Callable[[VllmServer], Awaitable[None]],
        send: Callable[[Sequence[VllmServer]], Awaitable[None]] | None = None,
    ) -> float:
        """Serve new weights from now on; returns the seconds it took.

        version: their number; every completion carries it from now on.
        load: has a paused server load them; also one that comes back later. send: loads them into all servers together
            instead; what it raises is raised, and leaves the servers paused.
        Replies under way are finished first, or with ``rollout.max_policy_lag`` and whole weights halted meanwhile, and
        carry both versions; requests that arrive meanwhile wait, and get the new weights. Sleeping servers are woken.

        A server that refuses them may hold half of the new weights: it counts as dead, and is started again if that is
        possible. When no server is left and none will come back, raises ServingError with the endpoint, its status and
        its answer.
        """
        started = time.monotonic()

        async def bring_up_to_date(server: VllmServer) -> None:
            await server.stop_answering()
            await load(server)
            await server.answer_as(version)

        self._bring_up_to_date = bring_up_to_date
        for member in self._members:  # those that have been started again are brought up to date with the others
            task = member.coming_back
            if task is not None and task.done() and not task.cancelled() and task.exception() is None:
                member.coming_back, member.in_service = None, True
        if send is None:
            await self._ask(bring_up_to_date, refusal_is_death=True)
        else:
            await self._ask(VllmServer.stop_answering, refusal_is_death=True)
            if self.servers:
                await send(self.servers)
                await self._ask(lambda server: server.answer_as(version), refusal_is_death=True)
        await self._in_service_again()
        return time.monotonic() - started

    async def serve_adapters(self, folders: Mapping[str, Path], now: bool = True) -> None:
        """Serve these adapters next to those of the policies that learn, until the next call.

        folders: by their names in requests. Earlier ones that are not among them are forgotten; replies under way are
        finished. now: False has the next ``push_adapters`` load them, before it lets any request be answered.
        A server that refuses counts as dead, as in ``push``, and comes back with them.
        """
        learning = {name: folder for name, folder in self._adapters.items() if name in self._learning}
        self._adapters = learning | {name: folder.resolve() for name, folder in folders.items()}
        if now:
            await self._ask(lambda server: server.serve_adapters(self._adapters), refusal_is_death=True)
            await self._wait_for_a_server()

    async def score(self, token_ids: Sequence[int]) -> list[float]:
        return (await self.scores(token_ids))[0]

    async def scores(self, token_ids: Sequence[int], model: str | None = None) -> list[list[float]]:
        """Log-probs of a fixed sequence under the weights served now, by each server in service.

        model: name in requests of one of several policies that the servers have as adapters.
        One natural log-prob for each of ``token_ids[1:]``, see ``VllmServer.score``.
        """
        while True:
            answers = await self._ask(lambda server: server.score(token_ids, model))
            if answers:
                return list(answers.values())
            await self._wait_for_a_server()

    async def sleep(self) -> None:
        """Leave the GPUs to the trainer, where both share them (``serving.share_gpus``); replies under way finish."""
        if not self._config.serving.share_gpus:
            return
        # One that starts would take the GPUs in the trainer's midst.
        while any(member.coming_back for member in self._members):
            await self._wait_for_one_to_come_back()
        self._asleep = True
        await self._ask(lambda server: server.sleep())

    async def wake(self) -> None:
        """Take the GPUs again, with the weights of before."""
        if self._asleep:
            await self._ask(_wake_wholly)
            await self._in_service_again()

    async def metrics(self) -> dict[str, float]:
        """What the servers did since the last call, summed over them.

        ``serving/prefix_cache_queries`` and ``serving/prefix_cache_hits`` in tokens of prompts, their ratio
        ``serving/prefix_cache_hit_share`` (absent without queries); ``serving/servers`` in service and
        ``serving/restarts`` of the whole run so far.
        """
        sums = dict.fromkeys(_CACHE_COUNTERS, 0.0)
        for server, totals in (await self._ask(lambda server: server.figures())).items():
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
        return metrics | {"serving/servers": float(len(self.servers)), "serving/restarts": float(self._restarts)}

    async def check_alive(self) -> bool:
        """Restart or give up servers that have died; call it every few seconds while games are played.

        A started server that has ended, or has not answered for long, is started again, and is back in service once it
        has the newest weights. An attached one is taken out, and taken back when it can be used again.
        Returns whether ``endpoints`` have changed. Raises ServingDied when no server is left and none will come back.
        """
        before = self.endpoints
        await together(self._check(member) for member in self._members)
        self._raise_if_none_is_left()
        return self.endpoints != before

    async def stop(self) -> None:
        """End the started servers and all their processes, by force if it takes too long. May be called again.

        Attached servers are left running.
        """
        coming_back = [member.coming_back for member in self._members if member.coming_back]
        for task in coming_back:
            task.cancel()
        await asyncio.gather(*coming_back, return_exceptions=True)
        await asyncio.gather(*(member.server.stop() for member in self._members))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    async def _ask(
        self, call: Callable[[VllmServer], Awaitable[_Result]], refusal_is_death: bool = False
    ) -> dict[VllmServer, _Result]:
        """Call every server in service at once; returns the answers.

        A server that turns out to be dead is taken out and has no answer; an error of one that is alive is raised, or
        with ``refusal_is_death`` counts as its death.
        """
        members = [member for member in self._members if member.in_service]
        outcomes = await asyncio.gather(*(call(member.server) for member in members), return_exceptions=True)
        answers: dict[VllmServer, _Result] = {}
        for member, outcome in zip(members, outcomes, strict=True):
            if not isinstance(outcome, BaseException):
                answers[member.server] = outcome
                continue
            dead = isinstance(outcome, ServingError) and await _is_dead(member.server)
            if dead:
                self._mark_dead(member, member.server.no_longer_answers(outcome))
            elif isinstance(outcome, ServingError) and refusal_is_death:
                self._mark_dead(member, outcome)
            else:
                raise outcome
        return answers

    async def _check(self, member: _Member) -> None:
        if member.coming_back is not None:
            if member.coming_back.done():
                await self._take_back(member)
        elif member.in_service:
            await self._check_health(member)
        elif member.server.launch is None and time.monotonic() >= member.next_check:
            check = member.server.check_attached(takes_weights=self._bring_up_to_date is not None)
            member.coming_back = asyncio.create_task(check)

    async def _check_health(self, member: _Member) -> None:
        try:
            await member.server.check_health()
        except ServingDied as error:
            self._mark_dead(member, error)
        except ServingError as error:
            if not member.unanswered:
                member.unanswered_since = time.monotonic()
            member.unanswered += 1
            silent = time.monotonic() - member.unanswered_since
            if member.unanswered >= _UNHEALTHY_ANSWERS and silent >= _UNHEALTHY_SECONDS:
                self._mark_dead(member, member.server.no_longer_answers(error))
        else:
            member.unanswered = 0

    def _mark_dead(self, member: _Member, error: ServingError) -> None:
        """Take a dead server out, and begin to bring it back if that is possible."""
        was_in_service, member.in_service, member.unanswered = member.in_service, False, 0
        self._last_death = error
        url, most = member.server.base_url, self._config.serving.max_restarts
        if member.server.launch is None:
            member.next_check = time.monotonic() + _TAKE_BACK_SECONDS
            if was_in_service:
                logger.error("%s is taken out of service until it answers again: %s", url, error)
        elif self._asleep:
            logger.error("vLLM on %s died asleep; it is started again when the others wake: %s", url, error)
        elif self._restarts < most:
            self._restarts += 1
            logger.error("starting vLLM on %s again (restart %d of %d): %s", url, self._restarts, most, error)
            start = member.server.start(self._progress, weights_follow=self._bring_up_to_date is not None)
            member.coming_back = asyncio.create_task(start)
        else:
            logger.error("vLLM on %s is not started again (serving.max_restarts is %d): %s", url, most, error)

    async def _take_back(self, member: _Member) -> None:
        """A server has come back, or has failed to: bring it up to date and put it in service, or mark it dead."""
        assert member.coming_back is not None
        outcome, member.coming_back = member.coming_back, None
        try:
            outcome.result()
            if self._bring_up_to_date is not None:
                await self._bring_up_to_date(member.server)
        except ServingError as error:
            self._mark_dead(member, error)
        else:
            member.in_service = True
            logger.info("vLLM on %s is back in service", member.server.base_url)

    async def _in_service_again(self) -> None:
        """After a push or a wake: start what died asleep, and return once a server is in service."""
        if self._asleep:
            self._asleep = False
            for member in self._members:
                if not member.in_service and member.coming_back is None and member.server.launch is not None:
                    assert self._last_death is not None
                    self._mark_dead(member, self._last_death)
        await self._wait_for_a_server()

    async def _wait_for_a_server(self) -> None:
        """Return once a server is in service. Raises ServingDied when none will be."""
        while not self.servers:
            self._raise_if_none_is_left()
            await self._wait_for_one_to_come_back()

    async def _wait_for_one_to_come_back(self) -> None:
        coming_back = [member.coming_back for member in self._members if member.coming_back]
        await asyncio.wait(coming_back, return_when=asyncio.FIRST_COMPLETED)
        for member in self._members:
            if member.coming_back is not None and member.coming_back.done():
                await self._take_back(member)

    def _raise_if_none_is_left(self) -> None:
        if not any(member.in_service or member.coming_back for member in self._members):
            assert self._last_death is not None
            raise self._last_death


async def together(calls: Iterable[Awaitable[Any]]) -> None:
    """Await all; when one fails, the others are cancelled and awaited before its error is raised."""
    tasks = [asyncio.ensure_future(call) for call in calls]
    try:
        await asyncio.gather(*tasks)
    except BaseException:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        raise


async def _is_dead(server: VllmServer) -> bool:
    try:
        await server.check_health()
    except ServingError:
        return True
    return False


async def _wake_wholly(server: VllmServer) -> None:
    await server.wake("weights")
    await server.wake("kv_cache")
