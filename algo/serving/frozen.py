"""vLLM servers of policies with frozen weights, which sit at the table beside the trained one."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Iterable
from pathlib import Path

from algo.serving.group import together
from algo.serving.launch import frozen_launch, names_beside
from algo.serving.policy import Serving
from algo.serving.preconditions import ServingDied, require_servable_model
from algo.serving.server import VllmServer
from algo.serving.weight_files import check_same_tensors
from configs.schema import Config
from configs.sections.opponents import INITIAL_POLICY
from configs.sections.serving import FrozenPolicyConfig
from store.schema import FrozenPolicy

logger = logging.getLogger(__name__)

_CHECK_SECONDS = 5.0


@contextlib.asynccontextmanager
async def open_frozen(config: Config, names: Iterable[str]) -> AsyncIterator[dict[str, FrozenPolicy]]:
    """Serve frozen policies until the context is left; yields where each is served, by name.

    names: keys of ``config.frozen``, and "initial" for the weights in ``model.path``. A policy with a path gets a vLLM
    of its own, which is started again when it dies (at most ``serving.max_restarts`` times), one with a URL is used
    where it runs. Raises ServingError as ``Serving.start`` does, or when the vLLM at a URL cannot play token by token.
    """
    policies = {name: _policy(config, name) for name in names}
    opening = {name: asyncio.ensure_future(_open(config, name, policy)) for name, policy in policies.items()}
    async with contextlib.AsyncExitStack() as stack:
        try:
            await together(opening.values())
        finally:
            for started in opening.values():
                if not started.cancelled() and started.exception() is None:
                    stack.push_async_callback(started.result().stop)
        servings = {name: started.result() for name, started in opening.items()}
        watchers = [asyncio.create_task(_keep_alive(name, serving)) for name, serving in servings.items()]
        for watcher in watchers:
            watcher.add_done_callback(_tell_of_end)
        try:
            yield {
                name: FrozenPolicy(endpoint=serving.endpoints[0], model=serving.model)
                for name, serving in servings.items()
            }
        finally:
            for watcher in watchers:
                watcher.cancel()
            await asyncio.gather(*watchers, return_exceptions=True)  # each has told of its end (``_tell_of_end``)


def share_out(config: Config, playing: Iterable[str], evaluated: Iterable[str]) -> tuple[list[str], dict[str, Path]]:
    """Which frozen policies need a server of their own, and the folders of those that the policy's servers are lent to.

    playing, evaluated: names that rollouts and that evaluations seat. What the policy's servers have beside it needs
    nothing. For an evaluation they can be lent (``Serving.lend``) where there are several, nothing is in flight then
    (``rollout.max_policy_lag`` 0), the weights are shaped like the policy's, and neither a port nor GPUs are set.
    Several policies that learn lend no server.
    """
    beside = names_beside(config).keys()
    playing, evaluated = set(playing) - beside, set(evaluated) - beside
    lent = {}
    for name in sorted(evaluated - playing):
        policy = _policy(config, name)
        if policy.path is not None and policy.port is None and policy.devices is None:
            with contextlib.suppress(ValueError):  # of another shape
                if policy.path.resolve() != config.model.path.resolve():
                    check_same_tensors(policy.path, config.model.path)
                lent[name] = policy.path
    if config.team or config.rollout.max_policy_lag or len(lent) >= config.serving.server_count:
        lent = {}
    return sorted(playing | evaluated - lent.keys()), lent


def with_own_server(config: Config, names: Iterable[str]) -> list[FrozenPolicyConfig]:
    """Those of them that get a vLLM started here."""
    return [policy for policy in (_policy(config, name) for name in names) if policy.path is not None]


def _policy(config: Config, name: str) -> FrozenPolicyConfig:
    # Which has the defaults of a section, so that it takes little of what the trained policy's servers have left.
    return FrozenPolicyConfig(path=config.model.path) if name == INITIAL_POLICY else config.frozen[name]


async def _open(config: Config, name: str, policy: FrozenPolicyConfig) -> Serving:
    if policy.path is not None:
        require_servable_model(policy.path, f"frozen.{name}.path", config.training.device, takes_weights=False)
        return await Serving.start(config, launches=[frozen_launch(config, name, policy)])
    assert policy.url is not None
    server = VllmServer(config, policy.url, policy.model)
    serving = Serving(config, [server])
    try:
        await server.check_attached(takes_weights=False)
    except BaseException:
        await serving.stop()
        raise
    return serving


async def _keep_alive(name: str, serving: Serving) -> None:
    """Look after a policy's server; once it is gone for good, its games fail and say so."""
    try:
        while True:
            await asyncio.sleep(_CHECK_SECONDS)
            await serving.check_alive()
    except ServingDied as error:
        logger.error("the frozen policy %r is not served any more: %s", name, error)


def _tell_of_end(watcher: asyncio.Task[None]) -> None:
    if not watcher.cancelled() and (error := watcher.exception()) is not None:
        logger.error("a frozen policy's server is looked after no more", exc_info=error)
