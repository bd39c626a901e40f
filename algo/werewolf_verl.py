"""``python -m algo.werewolf_verl``: train a policy to play Werewolf by reinforcement learning.

One step: enqueue games -> wait until the runners have played them -> spans to triplets to trajectories ->
advantages -> update through verl -> new weights into vLLM -> evaluate -> checkpoint. ``train`` below is that loop, top
to bottom; the modules it calls are one room each. Whatever ends the process, ``--resume auto`` goes on from the newest
checkpoint, with the games that were in flight.
"""

import argparse
import logging
import sys
from contextlib import AsyncExitStack
from typing import Any

from ray.exceptions import RayError
from rich.console import Console

from algo.advantages.estimators import seat_advantages
from algo.advantages.role_baseline import RoleBaselines
from algo.loop.agreement import WeightsNotServed
from algo.loop.checkpoints import save_checkpoint
from algo.loop.command_line import add_configuration_options, begin_run, run_to_its_end
from algo.loop.dry_run import dry_run
from algo.loop.report import (
    RunSummary,
    Stopwatch,
    batch_metrics,
    game_metrics,
    game_progress,
    log_step,
    show_summary,
    time_metrics,
    trajectory_metrics,
    write_batch,
    write_transcripts,
)
from algo.loop.run_folder import OpenedRun, cancel_on_signals
from algo.loop.running import start
from algo.loop.startup import check_before_starting
from algo.loop.update import assess, update
from algo.loop.weight_transfer import policy_folder
from algo.sequences.selection import STALE, select_sequences
from algo.sequences.trajectories import build_trajectories
from algo.werewolf.tasks import step_tasks
from store.schema import GameTask

logger = logging.getLogger("algo.werewolf_verl")


async def train(opened: OpenedRun) -> dict[str, Any]:
    """Make the run's steps, from where it stands to ``run.steps``; returns its summary (``RunSummary.as_dict``)."""
    config, state = opened.config, opened.state
    stopwatch = Stopwatch()
    summary = RunSummary(config.run_dir, state.summary)
    role_baselines = RoleBaselines.from_state(state.role_baselines, config.advantage.role_baseline_decay)
    in_flight: dict[int, list[GameTask]] = {}
    adopting = opened.began_before  # the hub may hold games of the next steps
    cancel_on_signals()
    async with AsyncExitStack() as stack:
        with stopwatch.stage("start"):
            run = await start(opened, summary, stack)
            cancel_on_signals()  # again: Ray puts a handler of its own in place, which ends the process at once
        if state.step == 0 and run.evaluation_is_due():
            with stopwatch.stage("evaluate"):
                summary.before = await run.evaluate()
            run.tracking.log(summary.before, step=0)

        for step in range(state.step + 1, config.run.steps + 1):
            title = f"step {step}/{config.run.steps}"
            seconds_of_step, trainer_before = stopwatch.begin_step(), run.trainer.seconds

            # Play. With game.max_policy_lag the games of later steps are in flight, too, and go on meanwhile.
            with stopwatch.stage("play"):
                for ahead in range(step, min(step + config.game.max_policy_lag, config.run.steps) + 1):
                    if ahead not in in_flight:
                        in_flight[ahead] = step_tasks(config.game, config.run.name, config.run.seed, ahead)
                        known = await run.games.enqueue(in_flight[ahead], run.resources(), resumed=adopting)
                        adopting = adopting and known > 0  # steps are enqueued in order: nothing lies beyond a gap
                tasks = in_flight.pop(step)
                logger.info("%s: playing %d games", title, len(tasks))
                with game_progress(f"{title}: games", len(tasks), (step - 1, config.run.steps)) as on_progress:
                    played = await run.games.collect(tasks, run.keep_serving, on_progress)
            write_transcripts(config, step, played.finished)

            # Spans -> one token sequence per seat and segment -> an advantage for each of its sampled tokens.
            found = build_trajectories(played.finished, config.reward, config.training.max_sequence_tokens)
            await run.rest_serving(found.trajectories)
            with stopwatch.stage("assess"):
                assessed = await run.trainer.run(assess, config, run.engine, found.trajectories)
            advantages = seat_advantages(
                found.trajectories,
                config.advantage,
                role_baselines=role_baselines,
                kl_penalties=assessed.kl_penalties,
                values=assessed.values,
            )
            selected = select_sequences(
                found.trajectories,
                advantages.informative,
                config.selection,
                config.run.seed,
                oldest_version_allowed=state.policy_version - config.game.max_policy_lag,
            )
            metrics = game_metrics(played) | trajectory_metrics(found.trajectories) | advantages.metrics
            left_out = played.left_out + found.left_out + selected.left_out

            # Update, and give the new weights to vLLM.
            made = None
            trains_policy = step > config.critic.warmup_steps
            if selected.rows:
                logger.info("%s: updating on %d sequences", title, len(selected.rows))
                with stopwatch.stage("update"):
                    made = await run.trainer.run(
                        update,
                        config,
                        run.engine,
                        selected.of(found.trajectories),
                        selected.of(advantages.per_token),
                        selected.of(advantages.returns),
                        selected.of(assessed.values),
                        state.policy_version,
                        trains_policy,
                    )
                left_out += made.left_out
                metrics |= made.metrics
            in_trainer = run.trainer.seconds - trainer_before
            learned = made is not None and bool(made.trained)
            if not learned:
                logger.warning("%s: nothing to learn from; its turns were left out: %s", title, dict(left_out))
            if learned and trains_policy:
                state.policy_version += 1
                logger.info("%s: giving version %d to vLLM", title, state.policy_version)
                with stopwatch.stage("push"):
                    metrics |= await run.push()
            elif STALE in selected.left_out:
                # Nothing in flight is older than it may be: some vLLM has started again with older weights unnoticed.
                metrics |= await run.push()
            else:
                await run.serving.wake()
            if made is not None and config.log.save_batches:
                write_batch(config.run_dir / "batches" / f"step-{step:04d}.jsonl", made)
            metrics |= batch_metrics(made, found, left_out) | await run.serving.metrics()

            # Look at it, and keep it.
            state.step, state.win_rate = step, None
            if run.evaluation_is_due():
                with stopwatch.stage("evaluate"):
                    metrics |= await run.evaluate()
            metrics |= time_metrics(seconds_of_step(), played.calls, in_trainer)
            metrics["policy_version"] = float(state.policy_version)
            summary.add_step(metrics, left_out)
            run.tracking.log(metrics, step=step)
            log_step(step, config.run.steps, metrics)
            summary.write(stopwatch, state.policy_version)
            state.role_baselines, state.summary = role_baselines.state(), summary.state(stopwatch)
            if step % config.checkpoint.every_steps == 0 or step == config.run.steps:
                logger.info("%s: writing a checkpoint", title)
                with stopwatch.stage("checkpoint"):
                    exported = policy_folder(config, state.policy_version)
                    await run.trainer.run(save_checkpoint, config, run.engine, state, exported)
        summary.write(stopwatch, state.policy_version)
    return summary.as_dict(stopwatch, state.policy_version)


def parse_arguments(arguments: list[str] | None = None) -> argparse.Namespace:
    """The command line; exits with a usage message when it cannot be used."""
    parser = argparse.ArgumentParser(
        prog="python -m algo.werewolf_verl",
        description="Train a policy to play Werewolf: games through the hub, updates through verl, serving by vLLM.",
    )
    add_configuration_options(parser, example="run.steps=5")
    parser.add_argument(
        "--resume",
        choices=["never", "auto"],
        default="never",
        help="auto: go on with the run of this name, from its newest checkpoint and with its games in flight, or begin "
        "it if there is none; never (default): begin a run, under a name with a number if the name is taken",
    )
    parser.add_argument(
        "--dry-run",
        action="store_true",
        help="play one game, print everything that would reach the update, train nothing",
    )
    options = parser.parse_args(arguments)
    if options.dry_run and options.resume != "never":
        parser.error("--dry-run trains nothing that could be resumed")
    return options


def main() -> int:
    """Entry point; the exit status is 0 only for a run that made all its steps."""
    options = parse_arguments()
    opened = begin_run(
        options,
        check_before_starting,
        suffix="-dry-run" if options.dry_run else "",
        log="algorithm.log",
        resume=options.resume == "auto",
    )
    if isinstance(opened, int):
        return opened
    config = opened.config
    logger.info("run %s; everything it writes lies in %s", config.run.name, config.run_dir)
    if opened.state.step >= config.run.steps:
        logger.info("the run has made its %d steps; set run.steps higher to go on", opened.state.step)
        return 0
    status, summary = run_to_its_end(
        dry_run(opened, Console()) if options.dry_run else train(opened),
        config,
        logger,
        f"interrupted; finished games stay in the hub, checkpoints in {config.run_dir / 'checkpoints'}; "
        f"--resume auto goes on from there",
        {
            WeightsNotServed: "{}",
            RayError: "the trainer's Ray workers failed: {}. --resume auto goes on from the last checkpoint",
        },
    )
    if summary is not None:
        show_summary(summary, Console())
    return status


if __name__ == "__main__":
    sys.exit(main())
