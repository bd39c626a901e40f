"""``python -m algo.werewolf_verl``: train a policy to play Werewolf by reinforcement learning.

One step: publish the policy and enqueue games -> wait until the runners have played them -> spans to
triplets to trajectories -> advantages -> update through verl -> new weights into vLLM -> checkpoint.
``train`` below is that loop, top to bottom; the modules it calls are one room each.
"""

import argparse
import asyncio
import json
import logging
import os
import secrets
import shutil
import sys
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import aiohttp
from ray.exceptions import RayError
from rich.console import Console
from verl.utils.tracking import Tracking

from algo.advantages import seat_advantages
from algo.agreement import WeightsNotServed, check_agreement, logprob_agreement, probe_of, score_probe
from algo.batch import build_batch
from algo.dry_run import dry_run
from algo.engine import Engine
from algo.games import Games, NoGamesFinished
from algo.report import (
    RunSummary,
    Stopwatch,
    game_metrics,
    game_progress,
    show_summary,
    trajectory_metrics,
    write_batch,
    write_transcripts,
)
from algo.selection import select_sequences
from algo.serving import ServingError
from algo.startup import (
    as_yaml,
    cancel_on_signals,
    check_before_starting,
    new_run_folder,
    policy_resources,
    read_prompts,
    set_up_logging,
    start_policy,
)
from algo.tasks import step_tasks
from algo.trajectories import build_trajectories
from configs.loading import load_config
from configs.schema import Config
from configs.section import ConfigError
from store.client import StoreUnreachable, connect

logger = logging.getLogger("algo.werewolf_verl")


async def train(config: Config) -> dict[str, Any]:
    """Make ``run.steps`` steps; returns the run's summary (``algo.report.RunSummary``)."""
    stopwatch = Stopwatch()
    summary = RunSummary(config.run_dir)
    prompts = read_prompts(config)
    cancel_on_signals()
    async with AsyncExitStack() as stack:
        with stopwatch.stage("start"):
            client = connect(config.store.url, config.store.patience_seconds)
            stack.push_async_callback(client.close)
            await client.wait_until_reachable()
            serving, engine, trainer = await start_policy(config, stack)
            cancel_on_signals()  # again: Ray puts a handler of its own in place, which ends the process at once
        games = Games(client, config.game)
        stack.push_async_callback(games.cancel_open)
        tracking = open_tracking(config)
        stack.callback(tracking.finish)
        # Runners cache resources by id, and several runs may share a hub: names alone could collide.
        run_id = f"{config.run.name}-{secrets.token_hex(4)}"
        version, probe, served_before, seconds_before = 0, None, [], {}

        for step in range(1, config.run.steps + 1):
            with stopwatch.stage("play"), game_progress(step, config.run.steps, _games_per_step(config)) as on_progress:
                resources = policy_resources(config, serving, run_id, version, prompts)
                tasks = step_tasks(config.game, config.run.name, config.run.seed, step)
                played = await games.play(tasks, resources, serving.check_alive, on_progress)

            found = build_trajectories(played.finished, config.reward, config.training.max_sequence_tokens)
            advantages = seat_advantages(found.trajectories, config.advantage)
            selected = select_sequences(
                found.trajectories, advantages.informative, config.selection.max_sequences_per_game, config.run.seed
            )
            trained = [found.trajectories[row] for row in selected.rows]
            trained_advantages = [advantages.per_token[row] for row in selected.rows]
            turns_in_batch = sum(len(trajectory.turn_ends) for trajectory in trained)
            left_out = played.left_out + found.left_out + selected.left_out
            metrics = game_metrics(played) | trajectory_metrics(found.trajectories) | advantages.metrics
            metrics |= {
                "policy_version": float(version),
                "turns/in_batch": float(turns_in_batch),
                "turns/left_out": float(left_out.total()),
                "turns/context_breaks": float(found.breaks),
                "tokens/trained_sequences": float(len(trained)),
                "tokens/trained": float(sum(len(trajectory.token_ids) for trajectory in trained)),
                "tokens/sampled_and_trained": float(sum(sum(trajectory.loss_mask) for trajectory in trained)),
            }
            write_transcripts(
                config.run_dir / "transcripts" / f"step-{step:04d}", played.finished, config.log.transcripts_per_step
            )

            if trained:
                if probe is None:
                    probe = probe_of(trained[0])
                    (probe_logprobs,) = await trainer.run(engine.log_probs, build_batch([probe], temperature=1.0))
                    served_before, _ = await score_probe(config, serving, probe, probe_logprobs)
                logger.info("step %d/%d: updating on %d sequences", step, config.run.steps, len(trained))
                with stopwatch.stage("update"):
                    batch = build_batch(trained, temperature=config.game.temperature)
                    trainer_logprobs = await trainer.run(engine.log_probs, batch)
                    metrics |= logprob_agreement(trained, trainer_logprobs)
                    check_agreement(
                        config, metrics["logprobs/rollout_difference_max"], "log-probs of the sampled tokens"
                    )
                    batch = build_batch(
                        trained,
                        trained_advantages,
                        temperature=config.game.temperature,
                        old_log_probs=trainer_logprobs,
                    )
                    metrics |= await trainer.run(engine.update, batch)
                    version += 1
                if config.log.save_batches:
                    write_batch(
                        config.run_dir / "batches" / f"step-{step:04d}.jsonl",
                        trained,
                        trained_advantages,
                        trainer_logprobs,
                    )
                with stopwatch.stage("push"):
                    folder = policy_folder(config, version)
                    await trainer.run(engine.export, folder)
                    await serving.push_weights(folder)
                    drop_old_policies(config)
                    (probe_logprobs,) = await trainer.run(engine.log_probs, build_batch([probe], temperature=1.0))
                    served, difference = await score_probe(config, serving, probe, probe_logprobs)
                    metrics["serving/probe_difference"] = difference
                    metrics["serving/probe_change"] = max(
                        abs(new - old) for new, old in zip(served, served_before, strict=True)
                    )
                    served_before = served
            else:
                logger.warning("step %d: nothing to learn from; its turns were left out: %s", step, dict(left_out))

            if step % config.checkpoint.every_steps == 0 or step == config.run.steps:
                with stopwatch.stage("checkpoint"):
                    await trainer.run(save_checkpoint, config, engine, step, version)
            metrics |= {
                f"seconds/{name}": seconds - seconds_before.get(name, 0.0)
                for name, seconds in stopwatch.seconds.items()
            }
            seconds_before = dict(stopwatch.seconds)
            tracking.log(metrics, step=step)
            summary.add_step(metrics, left_out)
            log_step(step, config.run.steps, metrics)
            (config.run_dir / "summary.json").write_text(
                json.dumps(summary.as_dict(stopwatch, version), indent=2) + "\n", encoding="utf-8"
            )
    return summary.as_dict(stopwatch, version)


def policy_folder(config: Config, version: int) -> Path:
    """Folder of one version's weights, as pushed to vLLM."""
    return config.run_dir / "policy" / f"version-{version:06d}"


def drop_old_policies(config: Config) -> None:
    """Keep the two newest versions' weights: vLLM has long read the older ones."""
    for old in sorted((config.run_dir / "policy").glob("version-*"))[:-2]:
        shutil.rmtree(old)


def save_checkpoint(config: Config, engine: Engine, step: int, version: int) -> None:
    """Write the trainer's state and the exported model, then drop the oldest checkpoints."""
    folder = config.run_dir / "checkpoints" / f"step-{step:06d}"
    unfinished = folder.with_name(f"unfinished-{folder.name}")
    engine.save(unfinished / "trainer", step)
    exported = policy_folder(config, version)
    if exported.is_dir():  # gathered and written for the push already
        shutil.copytree(exported, unfinished / "huggingface")
    else:  # no update yet
        engine.export(unfinished / "huggingface")
    state = {"step": step, "policy_version": version}
    (unfinished / "state.json").write_text(json.dumps(state) + "\n", encoding="utf-8")
    unfinished.rename(folder)  # so that a checkpoint is either whole or not there
    for old in sorted(folder.parent.glob("step-*"))[: -config.checkpoint.keep]:
        shutil.rmtree(old)


def open_tracking(config: Config) -> Tracking:
    """verl's Tracking, its files inside the run's folder."""
    os.environ["VERL_FILE_LOGGER_PATH"] = str(config.run_dir / "metrics.jsonl")
    os.environ["TENSORBOARD_DIR"] = str(config.run_dir / "tensorboard")
    return Tracking("werewolf", config.run.name, list(config.log.backends), config.model_dump(mode="json"))


def log_step(step: int, steps: int, metrics: dict[str, float]) -> None:
    """One readable line about a finished step."""
    logger.info(
        "step %d/%d done: %d games, %.0f%% valid replies, mean reward wolf %+.3f good %+.3f, %d tokens trained, "
        "policy version %d",
        step,
        steps,
        metrics["games/finished"],
        100 * metrics["turns/valid_share"],
        metrics.get("reward/wolf", float("nan")),
        metrics.get("reward/good", float("nan")),
        metrics["tokens/trained"],
        metrics["policy_version"] + (metrics["tokens/trained"] > 0),
    )


def _games_per_step(config: Config) -> int:
    return config.game.groups_per_step * config.game.games_per_group


def parse_arguments(arguments: list[str] | None = None) -> argparse.Namespace:
    """The command line; exits with a usage message when it cannot be used."""
    parser = argparse.ArgumentParser(
        prog="python -m algo.werewolf_verl",
        description="Train a policy to play Werewolf: games through the hub, updates through verl, serving by vLLM.",
    )
    parser.add_argument("--config", type=Path, metavar="FILE", help="configuration (default: configs/tiny_cpu.yaml)")
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="SECTION.KEY=VALUE",
        dest="overrides",
        help="override one setting, e.g. --set run.steps=5; may be repeated",
    )
    parser.add_argument(
        "--dry-run",
        action="store_true",
        help="play one game, print everything that would reach the update, train nothing",
    )
    parser.add_argument("--print-config", action="store_true", help="print the resulting configuration and exit")
    parser.add_argument(
        "--log-level", default="INFO", choices=["DEBUG", "INFO", "WARNING", "ERROR"], help="verbosity (default: INFO)"
    )
    return parser.parse_args(arguments)


def main() -> int:
    """Entry point; the exit status is 0 only for a run that made all its steps."""
    options = parse_arguments()
    try:
        config = load_config(options.config, options.overrides)
        if options.print_config:
            print(as_yaml(config), end="")
            return 0
        check_before_starting(config)
        config = new_run_folder(config, "-dry-run" if options.dry_run else "")
    except ConfigError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except OSError as error:
        print(f"error: cannot write the run's folder under run.dir {config.run.dir}: {error}", file=sys.stderr)
        return 2
    set_up_logging(options.log_level, config.run_dir / "logs" / "algorithm.log")
    logger.info("run %s; everything it writes lies in %s", config.run.name, config.run_dir)
    try:
        if options.dry_run:
            asyncio.run(dry_run(config, Console()))
            return 0
        summary = asyncio.run(train(config))
    except asyncio.CancelledError:
        logger.warning("interrupted; finished games stay in the hub, checkpoints in %s", config.run_dir / "checkpoints")
        return 130
    except (StoreUnreachable, ServingError, NoGamesFinished, WeightsNotServed, ConfigError) as error:
        logger.error("%s", error)
        return 1
    except aiohttp.ClientResponseError as error:
        hint = "; AGL_TOKEN holds the hub's token" if error.status == 401 else ""
        logger.error("the hub at %s refused a request: %d %s%s", config.store.url, error.status, error.message, hint)
        return 1
    except (aiohttp.ClientError, TimeoutError) as error:
        logger.error("the hub at %s stopped answering: %r", config.store.url, error)
        return 1
    except RayError as error:
        logger.error("the trainer's Ray workers failed: %s. The last checkpoint is in %s", error, config.run_dir)
        return 1
    except Exception:  # a bug: say so here, where the log file gets it too
        logger.exception("the run ended with an unexpected error")
        return 1
    show_summary(summary, Console())
    return 0


if __name__ == "__main__":
    sys.exit(main())
