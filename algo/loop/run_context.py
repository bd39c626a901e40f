"""The processes and connections of a running training run, for ``algo.loop.train``."""

import logging
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Any

import torch
from tensordict import TensorDict
from verl.utils.tracking import Tracking

from algo.evaluation.record import Record, UnreadRow
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
from algo.run.names import EVALUATION_SUFFIX
from algo.run.records import remove_later
from algo.run.summary import RunSummary
from algo.sequences.batch import build_batch
from algo.sequences.trajectories import Trajectory
from algo.serving.launch import pool_servers
from algo.serving.policies import FrozenServers, PolicyServers, check_public, frozen_with_own_server, open_frozen
from algo.training.engine import Engine
from algo.training.thread import TrainerThread
from configs.schema import Config
from store.client import connect
from store.schema import PolicyResources

logger = logging.getLogger(__name__)


@dataclass
class RunContext:
    """The processes and connections of a run, and its state, which the loop advances.

    serving: learning policies and past selves. frozen: policies with servers of their own.
    is_resumed: an earlier process of the run may have left rollouts in the hub.
    league: the pool of past selves; None without one.
    """

    config: Config
    workload: Workload
    state: RunState
    is_resumed: bool
    serving: PolicyServers
    frozen: FrozenServers
    engine: Engine
    trainer: TrainerThread
    queue: RolloutQueue
    tracking: Tracking
    published: Mapping[str, Any]
    league: League | None = None
    _served_before: list[float] = field(default_factory=list)

    def resources(self) -> PolicyResources:
        """The resources of the current policies, for runners."""
        past = self.league.policies() if self.league else []
        policies = [*self.serving.learners(), *self.serving.frozen(), *self.frozen.policies, *past]
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
        """Publish changed endpoints of the policies. Raises ServingDied when one has no server left."""
        await self.frozen.check_alive()
        if await self.serving.check_alive():
            # Adapters of other policies are served by the policy's servers.
            earlier = self.league.in_flight() if self.league else []
            policies = {policy.name: policy.endpoints for policy in (*earlier, *self.resources().policies)}
            await self.queue.update_endpoints(self.serving.endpoints, policies)

    async def select_past_selves(self) -> None:
        """Before a step's rollouts: update the pool of past selves, and serve those of the step."""
        if self.league:
            await self.league.prepare(self.state.step, self.state.policy_version, self._score_probe)

    async def _score_probe(self) -> Sequence[float]:
        """vLLM's scores of the probe under the current weights; empty without a probe."""
        if self.state.probe is not None and not self._served_before:
            self._served_before = await self.serving.score(self.state.probe)
        return self._served_before

    def record_matches(self, played: PlayedRollouts) -> dict[str, float]:
        """After a step's rollouts: add their matches to the league; returns metrics."""
        if self.league is None:
            return {}
        matches = list(self.workload.matches(played))
        return self.league.count(matches, self.state.policy_version, len(played.finished))

    async def after_rollouts(self, trajectories: Sequence[Trajectory]) -> None:
        """Score the probe with vLLM, so that ``push`` can detect a change of weights; then free shared GPUs.

        The probe is the beginning of the run's first sequence.
        """
        if self.state.probe is None and trajectories:
            # Scoring needs one token more than the probe has.
            length = min(PROBE_TOKENS, self.config.rollout.context_tokens - 1)
            self.state.probe = list(trajectories[0].token_ids[:length])
        if (probed := await self._score_probe()) and self.league:
            self.league.set_log_probs(self.state.policy_version, probed)
        await self.serving.sleep()

    async def push(self) -> dict[str, float]:
        """Push the trainer's weights to vLLM, and check its log-probs. Raises LogProbMismatch."""
        await push_policy(self.config, self.serving, self.engine, self.trainer, self.state.policy_version)
        assert self.state.probe is not None  # something was trained on
        batch = build_batch([probe_of(self.state.probe)], temperature=1.0)
        found: list[float] = []
        metrics: dict[str, float] = {}
        for learner in self.config.learners:  # one sequence serves for all
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
        """Whether an evaluation is due, before the first step or after the current one."""
        settings, step, steps = self.config.evaluation, self.state.step, self.config.run.steps
        if not settings.enabled:
            return False
        if step == 0:
            return settings.at_start
        regularly = settings.every_steps is not None and step % settings.every_steps == 0
        return regularly or (step == steps and settings.at_end)

    async def evaluate(self) -> dict[str, float]:
        """Evaluate on held-out tasks; returns metrics."""
        # Later evaluations are of this process's own weights.
        resumed = self.is_resumed and self.state.step == 0
        metrics = await self.workload.evaluate(self, self.state.step, resumed)
        self.state.score = metrics.get(self.workload.score)
        return metrics


def log_probs_of(engine: Engine, learner: str, batch: TensorDict) -> list[torch.Tensor]:
    """``Engine.log_probs`` of one learning policy."""
    engine.select(learner)
    return engine.log_probs(batch)


async def start(opened: OpenedRun, workload: Workload, summary: RunSummary, stack: AsyncExitStack) -> RunContext:
    """Connect to the hub, start vLLM and the trainer; ``stack`` closes all of it.

    summary: of the run's earlier steps.
    """
    config = opened.config
    published = workload.published()
    client = connect(config.store.url, config.store.retry_seconds)
    stack.push_async_callback(client.close)
    await client.wait_until_reachable()
    queue = RolloutQueue(client, workload.kind, config.rollout, opened.resumption)
    if opened.is_resumed:  # games and results of lost weights, and games of evaluations; those of step 0 are adopted
        run_id, version = opened.state.run_id, opened.state.policy_version
        await queue.cancel_later({run_id: version, run_id + EVALUATION_SUFFIX: -1 if opened.state.step else version})
        remove_later(config.run_dir, opened.state.step)
        Record(config.run_dir, UnreadRow).forget_later(opened.state.step)
    names = workload.frozen_names()
    own_server = frozen_with_own_server(config, names)
    check_public(config, own_server, pool_servers(config))
    plan = make_plan(config, other_servers(config, names))
    logger.info("planned: %s", "; ".join(map(plan.line, plan.memories)))
    plan.check(config)
    serving, engine, trainer = await start_policy(opened, stack)
    frozen = await stack.enter_async_context(open_frozen(config, own_server))
    league = await start_league(opened, serving, engine, trainer)
    stack.push_async_callback(queue.cancel_open)  # before servers and trainer stop
    tracking = open_tracking(config, summary)
    stack.callback(tracking.finish)
    return RunContext(
        config=config,
        workload=workload,
        state=opened.state,
        is_resumed=opened.is_resumed,
        serving=serving,
        frozen=frozen,
        engine=engine,
        trainer=trainer,
        queue=queue,
        tracking=tracking,
        published=published,
        league=league,
    )
