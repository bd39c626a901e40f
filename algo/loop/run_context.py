"""A run's processes and connections while it goes: what ``algo.loop.train`` acts through."""

import logging
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Any

import torch
from tensordict import TensorDict
from verl.utils.tracking import Tracking

from algo.league.league import League
from algo.loop.agreement import PROBE_TOKENS, probe_of, score_probe
from algo.loop.startup import open_tracking, start_league, start_policy
from algo.loop.weight_transfer import push_policy
from algo.loop.workload import Workload
from algo.rollouts.played import PlayedRollouts
from algo.rollouts.queue import RolloutQueue
from algo.rollouts.resources import policy_resources
from algo.run.checkpoints import RunState
from algo.run.folder import OpenedRun
from algo.run.memory_plan import make_plan, other_servers
from algo.run.summary import RunSummary
from algo.sequences.batch import build_batch
from algo.sequences.trajectories import Trajectory
from algo.serving.policies import PolicyServers, frozen_with_own_server, open_frozen
from algo.training.engine import Engine
from algo.training.thread import TrainerThread
from configs.schema import Config
from store.client import connect
from store.endpoints import ServedPolicy
from store.schema import PolicyResources

logger = logging.getLogger(__name__)


@dataclass
class RunContext:
    """Everything that a run talks to, and where it stands (``state``, which the loop moves on).

    serving: policies that learn, and their past selves. frozen: policies with servers of their own.
    is_resumed: an earlier process of the run may have left rollouts in the hub.
    league: the pool of past selves; None without one.
    """

    config: Config
    workload: Workload
    state: RunState
    is_resumed: bool
    serving: PolicyServers
    frozen: Sequence[ServedPolicy]
    engine: Engine
    trainer: TrainerThread
    queue: RolloutQueue
    tracking: Tracking
    published: Mapping[str, Any]
    league: League | None = None
    _served_before: list[float] = field(default_factory=list)

    def resources(self) -> PolicyResources:
        """What runners are told about the policies as they stand."""
        past = self.league.policies() if self.league else []
        policies = [*self.serving.learners(), *self.serving.frozen(), *self.frozen, *past]
        serving, state = self.serving, self.state
        return policy_resources(
            self.config,
            state.run_id,
            serving.model,
            serving.endpoints,
            state.policy_version,
            policies,
            **self.published,
        )

    async def refresh_endpoints(self) -> None:
        """Tell runners where the policies are served now. Raises ServingDied when no server is left."""
        if await self.serving.check_alive():
            learners = {policy.name: policy.endpoints for policy in self.serving.learners()}
            await self.queue.update_endpoints(self.serving.endpoints, learners)

    async def select_past_selves(self) -> None:
        """Before a step's games: see who is in the pool of past selves, and have whom they may meet served."""
        if self.league:
            await self.league.prepare(self.state.step, self.state.policy_version, self._score_probe)

    async def _score_probe(self) -> Sequence[float]:
        """How vLLM scores the probe under the present weights; empty without a probe."""
        if self.state.probe is not None and not self._served_before:
            self._served_before = await self.serving.score(self.state.probe)
        return self._served_before

    def record_matches(self, played: PlayedRollouts) -> dict[str, float]:
        """After a step's games: what they say of the policy beside its past; numbers for the log."""
        if self.league is None:
            return {}
        matches = list(self.workload.matches(played))
        return self.league.count(matches, self.state.policy_version, len(played.finished))

    async def after_rollouts(self, trajectories: Sequence[Trajectory]) -> None:
        """Have vLLM score the probe, so that ``push`` can tell whether the weights have changed; then free its GPUs.

        The probe is the beginning of the run's first sequence. GPUs are freed where the trainer shares them.
        """
        if self.state.probe is None and trajectories:
            # Scoring asks for one token more than the probe has.
            length = min(PROBE_TOKENS, self.config.rollout.context_tokens - 1)
            self.state.probe = list(trajectories[0].token_ids[:length])
        if (probed := await self._score_probe()) and self.league:
            self.league.know(self.state.policy_version, probed)
        await self.serving.sleep()

    async def push(self) -> dict[str, float]:
        """Give the trainer's weights to vLLM, and make sure that it serves them. Raises LogProbMismatch."""
        await push_policy(self.config, self.serving, self.engine, self.trainer, self.state.policy_version)
        assert self.state.probe is not None  # something was trained on
        batch = build_batch([probe_of(self.state.probe)], temperature=1.0)
        found: list[float] = []
        metrics: dict[str, float] = {}
        for learner in self.config.learners:  # all by one sequence, since any tells weights from others
            (expected,) = await self.trainer.run(log_probs_of, self.engine, learner, batch)
            served, difference = await score_probe(self.config, self.serving, self.state.probe, expected, learner)
            before = self._served_before[len(found) :][: len(served)]
            change = max(abs(new - old) for new, old in zip(served, before, strict=True))
            found += served
            own = {"serving/probe_difference": difference, "serving/probe_change": change}
            metrics |= self.config.metrics_of(learner, own)
        self._served_before = found
        return metrics

    def evaluation_is_due(self) -> bool:
        """Whether the policy is to be evaluated now, before the first step or after the present one."""
        settings, step, steps = self.config.evaluation, self.state.step, self.config.run.steps
        if not settings.enabled:
            return False
        if step == 0:
            return settings.at_start
        regularly = settings.every_steps is not None and step % settings.every_steps == 0
        return regularly or (step == steps and settings.at_end)

    async def evaluate(self) -> dict[str, float]:
        """Play what is held out and write what it shows; returns numbers for the log."""
        # Later evaluations are of weights that were made by this process.
        resumed = self.is_resumed and self.state.step == 0
        metrics = await self.workload.evaluate(self, self.state.step, resumed)
        self.state.score = metrics.get(self.workload.score)
        return metrics


def log_probs_of(engine: Engine, learner: str, batch: TensorDict) -> list[torch.Tensor]:
    """``Engine.log_probs`` of one of the policies that learn."""
    engine.select(learner)
    return engine.log_probs(batch)


async def start(opened: OpenedRun, workload: Workload, summary: RunSummary, stack: AsyncExitStack) -> RunContext:
    """Connect to the hub, start vLLM and the trainer; all of it ends when ``stack`` closes.

    summary: of what the run has done before.
    """
    config = opened.config
    published = workload.published()
    client = connect(config.store.url, config.store.retry_seconds)
    stack.push_async_callback(client.close)
    await client.wait_until_reachable()
    names = workload.frozen_names()
    plan = make_plan(config, other_servers(config, names))
    logger.info("planned: %s", "; ".join(map(plan.line, plan.memories)))
    plan.check(config)
    serving, engine, trainer = await start_policy(opened, stack)
    frozen_at = await stack.enter_async_context(open_frozen(config, frozen_with_own_server(config, names)))
    league = await start_league(opened, serving, engine, trainer)
    queue = RolloutQueue(client, workload.kind, config.rollout, opened.resumption)
    stack.push_async_callback(queue.cancel_open)
    tracking = open_tracking(config, summary)
    stack.callback(tracking.finish)
    return RunContext(
        config=config,
        workload=workload,
        state=opened.state,
        is_resumed=opened.is_resumed,
        serving=serving,
        frozen=frozen_at,
        engine=engine,
        trainer=trainer,
        queue=queue,
        tracking=tracking,
        published=published,
        league=league,
    )
