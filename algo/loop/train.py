"""The training loop for any workload.

One step: enqueue rollouts -> wait for the runners -> spans to triplets to trajectories -> advantages -> update through
verl -> push to vLLM -> evaluate -> checkpoint. However the process ends, ``--resume auto`` continues from the newest
checkpoint, with the rollouts in flight.
"""

import asyncio
import logging
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from algo.advantages.baseline import RoleBaselines
from algo.advantages.branching import branch_credit
from algo.loop.policy_update import by_learner, compute_advantages, update_policies
from algo.loop.run_context import start
from algo.loop.weight_transfer import policy_folder
from algo.loop.workload import Workload
from algo.machine.progress import game_progress
from algo.rollouts.in_flight import InFlight
from algo.rollouts.played import NO_ROLLOUTS
from algo.rollouts.schedule import Schedule
from algo.run.checkpoints import save_checkpoint
from algo.run.folder import OpenedRun, cancel_on_signals
from algo.run.metrics import batch_metrics, branch_metrics, recent_spreads, time_metrics, trajectory_metrics
from algo.run.records import write_batch, write_transcripts
from algo.run.summary import RunSummary, log_step
from algo.run.watch import watch
from algo.sequences.selection import STALE
from algo.sequences.trajectories import build_trajectories

logger = logging.getLogger(__name__)

_SAVE_SECONDS = 120.0
"""For a checkpoint at an early end; systemd and compose kill the algorithm after three minutes (``configs/fleet``)."""


async def train(opened: OpenedRun, workload: Workload) -> dict[str, Any]:
    """Run the remaining steps up to ``run.steps``; returns the summary (``RunSummary.as_dict``)."""
    config, state = opened.config, opened.state
    summary = RunSummary(config.run_dir, state.summary)
    stopwatch = summary.stopwatch
    role_baselines = RoleBaselines.from_state(state.role_baselines, config.advantage.role_baseline_decay)
    per_step = config.rollout.groups_per_step - config.branched_groups
    lag, most = config.rollout.max_policy_lag, config.rollout.max_groups_in_flight
    if lag and config.training.rollout_correction.rollout_is is None:
        logger.warning(
            "rollout.max_policy_lag=%d trains on replies of older weights as if the current ones had sampled them: set "
            "training.rollout_correction.rollout_is to token",
            lag,
        )
    # Without lag, no group is in flight after its step.
    begun = state.step * per_step if state.begun is None or not lag else state.begun
    schedule = Schedule(per_step, lag, config.run.steps * per_step, state.in_flight, begun, most)
    saving: asyncio.Future[Path] | None = None
    cancel_on_signals()
    async with AsyncExitStack() as stack:
        with stopwatch.stage("start"):
            run = await start(opened, workload, summary, stack)
            cancel_on_signals()  # again, since Ray replaces the handlers
        stack.push_async_callback(lambda: _finish(saving))  # before the trainer stops
        in_flight = InFlight(run.queue, schedule, per_step, workload.tasks, adopting=opened.is_resumed)
        if state.step == 0 and run.evaluation_is_due():
            with stopwatch.stage("evaluate"):
                summary.before = await run.evaluate()
            run.tracking.log(summary.before, step=0)

        began = state.step
        for step in range(began + 1, config.run.steps + 1):
            title = f"step {step}/{config.run.steps}"
            seconds_of_step = stopwatch.begin_step()

            # Rollouts. With rollout.max_policy_lag more groups are in flight than a step needs: it takes those that
            # finish first.
            with stopwatch.stage("play"):
                await run.select_past_selves()
                per_group = config.rollout.rollouts_per_group
                logger.info("%s: playing %d rollouts", title, per_step * per_group)
                most_in_flight = (len(schedule.open) + schedule.room) * per_group
                on_progress = game_progress(f"{title}: rollouts", most_in_flight)
                made_of = await in_flight.play_step(
                    state.policy_version, run.resources(), run.refresh_endpoints, on_progress
                )
                played, branched = made_of.rollouts, NO_ROLLOUTS
                points = workload.branch_points(step, played.finished, recent_spreads(summary.steps))
                if points:
                    tasks = [task for point in points for task in point.tasks]
                    logger.info("%s: playing %d branches of %d decisions", title, len(tasks), len(points))
                    on_progress = game_progress(f"{title}: branches", len(tasks))
                    branched = await in_flight.play_further(tasks, run.resources(), run.refresh_endpoints, on_progress)

            # Spans -> one token sequence per actor and segment -> an advantage per sampled token.
            finished = (*played.finished, *branched.finished)
            found = build_trajectories(finished, workload.rewards_of, config.training.max_sequence_tokens)
            by_policy = by_learner(config, found.trajectories)  # before vLLM and the trainer see an unusable one
            await run.after_rollouts(found.trajectories)
            with stopwatch.stage("checkpoint"):
                # The trainer is busy until then, and the error of a failed checkpoint must come first.
                await _written(saving)
            trainer_before = run.trainer.seconds
            with stopwatch.stage("advantages"):
                branches = {rollout.outcome.task: rollout for rollout in branched.finished}
                credit = branch_credit(point.decision(branches, workload.rewards_of) for point in points)
                shares = await compute_advantages(run, by_policy, role_baselines, credit)
            write_transcripts(config, step, played.finished, credit.worths)
            metrics = workload.metrics(played) | trajectory_metrics(found.trajectories, branches)
            if points:
                metrics |= branch_metrics(branched, credit.spreads)
                metrics["turns/stored"] += branched.turns_stored
                metrics["turns/played"] += sum(rollout.outcome.turns for rollout in branched.finished)
            left_out = played.left_out + branched.left_out + found.left_out
            for share in shares:
                metrics |= config.metrics_of(share.learner, share.advantages.metrics)
                left_out += share.selected.left_out
            metrics |= run.record_matches(played)

            # Update and push.
            made = None
            if any(share.selected.rows for share in shares):
                with stopwatch.stage("update"):
                    made = await update_policies(run, shares, played, title)
                left_out += made.left_out
                metrics |= made.metrics
            in_trainer = run.trainer.seconds - trainer_before
            if made is not None and made.trained:
                state.policy_version += 1
                logger.info("%s: pushing version %d to vLLM", title, state.policy_version)
                with stopwatch.stage("push"):
                    metrics |= await run.push()
            else:
                logger.warning("%s: no update, all turns were left out: %s", title, dict(left_out))
                if any(STALE in share.selected.left_out for share in shares):
                    # The schedule prevents stale rollouts: an attached vLLM has restarted with old weights.
                    metrics |= await run.push()
                else:
                    await run.serving.wake()
            if made is not None and config.log.save_batches:
                path = config.run_dir / "batches" / f"step-{step:04d}.jsonl"
                write_batch(path, made.trained, made.advantages, made.log_probs)
            metrics |= batch_metrics(made.trained if made else (), left_out) | await run.serving.metrics()

            # Evaluation, metrics, checkpoint.
            state.step, state.score = step, None
            if run.evaluation_is_due():
                with stopwatch.stage("evaluate"):
                    metrics |= await run.evaluate()
            metrics |= time_metrics(seconds_of_step(), [*played.calls, *branched.calls], in_trainer)
            metrics["policy_version"] = float(state.policy_version)
            metrics["groups/in_flight"] = float(made_of.in_flight)
            summary.add_step(metrics, left_out, made_of.groups)
            run.tracking.log(metrics, step=step)
            log_step(step, config.run.steps, metrics, played.own_failures)
            summary.write(state.policy_version)
            # A resumed run is judged by its own steps: the ones before may have led to a stop.
            watch(summary.steps[began:], config.watch, type(config).model_fields["watch"].default)
            state.role_baselines, state.summary = role_baselines.state(), summary.state()
            state.in_flight, state.begun = schedule.open, schedule.begun
            if step % config.checkpoint.every_steps == 0 or step == config.run.steps:
                logger.info("%s: writing a checkpoint", title)
                with stopwatch.stage("checkpoint"):
                    exported = policy_folder(config, state.policy_version)
                    # During the next step's rollouts; its update waits for the trainer's thread.
                    saving = run.trainer.submit(
                        save_checkpoint, config, run.engine, state.model_copy(deep=True), exported
                    )
        with stopwatch.stage("checkpoint"):
            await _written(saving)
        summary.write(state.policy_version)
    return summary.as_dict(state.policy_version)


async def _written(saving: asyncio.Future[Path] | None) -> None:
    """Await the writing of a checkpoint; raises its error."""
    if saving is not None:
        await asyncio.shield(saving)


async def _finish(saving: asyncio.Future[Path] | None) -> None:
    """At an early end, wait for a checkpoint that is being written; a second Ctrl-C ends the wait."""
    if saving is None or saving.done():
        return
    logger.info("a checkpoint is being written: waiting up to %.0f s", _SAVE_SECONDS)
    await asyncio.wait([saving], timeout=_SAVE_SECONDS)
    if not saving.done():
        logger.error("the checkpoint is not written after %.0f s and is lost", _SAVE_SECONDS)
    elif error := saving.exception():
        logger.error("the checkpoint could not be written: %s", error)
