"""Warm start: supervised fine-tuning on demonstrations before reinforcement learning (``python -m algo.werewolf_sft``).

Games are played by scripted players or by any model of the sections players and frozen, recorded as the policy's
turns, or read from the hub (``--from-run``, ``--from-people``). The model imitates the replies of selected seats; the
result is a model folder from which ``algo.werewolf_verl`` starts. With ``probes.listening`` above zero it also learns
the true roles (``algo.werewolf.listening``). With a strong model behind an API this is distillation with rejection
sampling, with a run's own games expert iteration.
"""

import asyncio
import json
import logging
import math
import shlex
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from itertools import compress
from pathlib import Path
from statistics import fmean
from typing import Any

from rich.console import Console
from tensordict import TensorDict
from transformers import AutoTokenizer

from algo.loop.startup import check_log_backends, open_tracking, start_trainer
from algo.machine.atomic_files import write_atomically
from algo.machine.progress import game_progress, step_progress
from algo.rollouts.queue import PlayedRollouts, RolloutQueue
from algo.rollouts.resources import policy_resources
from algo.rollouts.triplets import FinishedRollout
from algo.run.checkpoints import load_state
from algo.run.export import write_card
from algo.run.folder import OpenedRun, cancel_on_signals
from algo.run.memory_plan import make_plan
from algo.run.metrics import Stopwatch
from algo.run.names import RUN_FILE
from algo.run.records import write_transcripts
from algo.run.summary import RunSummary
from algo.sequences.batch import build_batch
from algo.sequences.targets import TargetRow
from algo.sequences.trajectories import Trajectory, synthetic_trajectory
from algo.serving.policies import open_frozen
from algo.training.engine import Engine
from algo.training.verl_configs import check_engine
from algo.werewolf.demonstrations import (
    CUT_REPLY,
    Demonstrations,
    StoredGames,
    demonstration_tasks,
    demonstrations_of,
    split_by_deal,
    stored_games,
)
from algo.werewolf.file_names import MODEL_FOLDER, SUMMARY_FILE
from algo.werewolf.listening import listening_of
from algo.werewolf.resources import game_resources
from configs.loading import as_override
from configs.section import ConfigError
from configs.sections.league import LeagueConfig
from configs.sections.training import AdvantageConfig, CriticConfig, ReferenceConfig
from configs.sections.warm_start import WarmStartConfig
from configs.werewolf import WerewolfConfig
from store.client import StoreClient, connect
from store.werewolf import GAME

logger = logging.getLogger("algo.werewolf_sft")
_CUT_SHARE_TO_WARN_OF = 0.1
_ANSWER_LOSS = "imitation/held_out_answer_loss"


async def warm_start(opened: OpenedRun, stored: StoredGames | None) -> dict[str, Any]:
    """Play or read games, select replies, fine-tune, export; writes and returns the summary.

    stored: games of the hub; None plays new ones.
    """
    config = opened.config
    settings, stopwatch = config.warm_start, Stopwatch()
    cancel_on_signals()
    with stopwatch.stage("play"):
        played = await _games(opened, stored)
    write_transcripts(config, 0, played.finished)
    learn_from, measured_by = split_by_deal(played.finished, settings.held_out_games, config.run.seed)
    of_whom = None if stored is None else stored.demonstrator
    who = ", ".join(settings.demonstrators) if stored is None else of_whom or f"run {stored.run_id}"
    learned, held_out = (demonstrations_of(games, config, of_whom) for games in (learn_from, measured_by))
    logger.info(
        "imitating %d replies (%d tokens) of %d games; %d replies of %d games are held out; left out: %s",
        *(learned.turns, learned.reply_tokens, len(learn_from), held_out.turns, len(measured_by)),
        dict(learned.left_out + held_out.left_out),
    )
    if learned.left_out[CUT_REPLY] > _CUT_SHARE_TO_WARN_OF * learned.turns:
        logger.warning(
            "%d replies exceed rollout.reply_tokens (%d) and are not imitated: raise it, here and in training",
            *(learned.left_out[CUT_REPLY], config.rollout.reply_tokens),
        )
    probes, held_out_probes = (listening_of(games, config) for games in (learn_from, measured_by))
    if probes:
        logger.info("learning from %d probe answers; %d are held out", len(probes), len(held_out_probes))
    batch = imitation_batch(learned, settings, probes, config.probes.listening)
    sequences = len(batch)
    steps = settings.epochs * math.ceil(sequences / config.training.mini_batch_size)
    async with AsyncExitStack() as stack:
        tracking = open_tracking(config, RunSummary(config.run_dir))
        stack.callback(tracking.finish)
        with stopwatch.stage("start"):
            engine, trainer = await start_trainer(imitation_config(config, steps), stack)
        cancel_on_signals()  # again: Ray replaces the handlers by one that ends the process at once

        losses: list[float] = []
        answers: list[float] = []

        async def measure(epoch: int, metrics: Mapping[str, float]) -> None:
            measured = await trainer.run(held_out_losses, engine, held_out, held_out_probes)
            losses.append(measured["imitation/held_out_loss"])
            answers.extend([measured[_ANSWER_LOSS]] if _ANSWER_LOSS in measured else [])
            tracking.log({**metrics, **measured}, step=epoch)

        await measure(0, {})
        logger.info("before: held-out loss %.4f nats per token", losses[0])
        for epoch in range(1, settings.epochs + 1):
            with stopwatch.stage("imitate"):
                after_step = step_progress(f"imitation, epoch {epoch}", steps // settings.epochs)
                metrics = await trainer.run(engine.imitate, batch, after_step)
                await measure(epoch, metrics)
            logger.info(
                "epoch %d/%d: loss %.4f, held-out loss %.4f nats per token%s",
                *(epoch, settings.epochs, metrics["imitation/loss"], losses[-1]),
                f", {answers[-1]:.4f} an answer (before: {answers[0]:.4f})" if answers else "",
            )
        with stopwatch.stage("export"):
            await trainer.run(engine.export, config.run_dir / MODEL_FOLDER, config.model.dtype)
    write_card(
        config.run_dir / MODEL_FOLDER,
        config,
        title=config.run.name,
        data=f"Imitation of {learned.turns} replies of {len(learn_from)} games of {who} (seed {config.run.seed}).",
        results=[("loss, nats per token", f"{losses[0]:.3f} -> {losses[-1]:.3f}")],
        compared=f"before -> after {settings.epochs} epochs",
        played=list(learned.trajectories[0].token_ids),
    )
    if losses[-1] > (least := min(losses)):
        after = f"after epoch {losses.index(least)}"
        logger.warning("the held-out loss was lowest %s: use fewer epochs or a lower learning rate", after)
    summary = {
        "run": config.run.name,
        "games_of_run": None if stored is None else stored.run_id,
        "demonstrator": who,
        "games": {"learned_from": len(learn_from), "held_out": len(measured_by), "failed": dict(played.failures)},
        "replies": {"learned_from": learned.turns, "held_out": held_out.turns},
        "turns_left_out": dict(played.left_out + learned.left_out + held_out.left_out),
        "reply_tokens": {"learned_from": learned.reply_tokens, "held_out": held_out.reply_tokens},
        "held_out_loss": losses,
        **({"answers": len(probes), "held_out_answer_loss": answers} if answers else {}),
        "optimizer_steps": steps,
        "seconds": dict(stopwatch.seconds),
        "model": str(config.run_dir / MODEL_FOLDER),
    }
    write_atomically(config.run_dir / SUMMARY_FILE, json.dumps(summary, indent=2, ensure_ascii=False))
    return summary


def imitation_config(config: WerewolfConfig, steps: int) -> WerewolfConfig:
    """The engine's configuration: the policy alone, with learning rate and length of the imitation.

    steps: optimizer steps in all, over which the learning rate is scheduled.
    """
    training = {"learning_rate": config.warm_start.learning_rate, "epochs": 1}
    dtype = config.warm_start.dtype or config.model.dtype
    return config.model_copy(
        update={
            "run": config.run.model_copy(update={"steps": steps}),
            "training": config.training.model_copy(update=training),
            "model": config.model.model_copy(update={"dtype": dtype}),
            "reference": ReferenceConfig(),
            "critic": CriticConfig(),
            "advantage": AdvantageConfig(),
            "policies": {},
            "frozen": {},
            "league": LeagueConfig(),
            "serving": config.serving.model_copy(update={"mode": "attach", "share_gpus": False}),  # nothing is served
        }
    )


def imitation_batch(
    demonstrations: Demonstrations,
    settings: WarmStartConfig,
    answers: Sequence[TargetRow] = (),
    answer_weight: float = 0,
) -> TensorDict:
    """Input of ``Engine.imitate``, with token weights by ``settings``.

    Leaves out sequences without a weight above 0; raises ConfigError if none is left.
    answers, answer_weight: probe answers, and the weight of one relative to a reply (``weigh=token``: to a token).
    """
    answered = {question for trajectory in demonstrations.trajectories for question in trajectory.turn_questions}
    if unasked := sorted(settings.question_weights.keys() - answered):
        logger.warning(
            "warm_start.question_weights names %s, which no imitated reply answers; they answer: %s",
            *(", ".join(unasked), ", ".join(sorted(answered))),
        )
    trajectories = [*demonstrations.trajectories, *map(_as_trajectory, answers)]
    weights = []
    for trajectory, flawed in zip(demonstrations.trajectories, demonstrations.flawed, strict=True):
        of_replies = trajectory.turn_shares() if settings.weigh == "reply" else trajectory.loss_mask
        row = [settings.prompt_weight] * len(trajectory.token_ids)
        row[0] = 0.0
        for start, end in flawed:
            row[start:end] = [0.0] * (end - start)
        for (start, end), question in zip(trajectory.turn_spans(), trajectory.turn_questions, strict=True):
            for place in compress(range(start, end), trajectory.loss_mask[start:end]):
                row[place] = of_replies[place] * settings.question_weights.get(question, 1.0)
        weights.append(row)
    weights += [[answer_weight * weight / sum(row.weights) for weight in row.weights] for row in answers]
    # A mini-batch of weight 0 would have no mean loss.
    weighed = [any(row) for row in weights]
    if not any(weighed):
        raise ConfigError("warm_start.question_weights and warm_start.prompt_weight weigh no token above 0: raise one")
    return build_batch(
        [*compress(trajectories, weighed)], temperature=1.0, imitation_weights=[*compress(weights, weighed)]
    )


def held_out_losses(engine: Engine, demonstrations: Demonstrations, answers: Sequence[TargetRow]) -> dict[str, float]:
    """Cross entropy under the current weights, in nats: mean per token of the replies; mean per answer."""
    replies = _summed_log_probs(engine, demonstrations.trajectories)
    losses = {"imitation/held_out_loss": -math.fsum(replies) / demonstrations.reply_tokens}
    if answers:
        losses[_ANSWER_LOSS] = -fmean(_summed_log_probs(engine, list(map(_as_trajectory, answers))))
    return losses


def _summed_log_probs(engine: Engine, trajectories: Sequence[Trajectory]) -> list[float]:
    """For each trajectory, over the tokens of its loss mask."""
    log_probs = engine.log_probs(build_batch(trajectories, temperature=1.0))
    return [
        math.fsum(compress(row.tolist(), trajectory.loss_mask))
        for row, trajectory in zip(log_probs, trajectories, strict=True)
    ]


def _as_trajectory(row: TargetRow) -> Trajectory:
    """Marks the answer as sampled, so that its log-probs are computed."""
    return synthetic_trajectory("asked", row.token_ids, tuple(int(weight > 0) for weight in row.weights))


async def _games(opened: OpenedRun, stored: StoredGames | None) -> PlayedRollouts:
    config, settings = opened.config, opened.config.warm_start
    async with AsyncExitStack() as stack:
        client = connect(config.store.url, config.store.retry_seconds)
        stack.push_async_callback(client.close)
        await client.wait_until_reachable()
        if stored is None:
            return await _play(opened, client, stack)
        logger.info("reading the games of %s", stored.run_id or "people")
        played = await stored_games(client, stored, settings.games + settings.held_out_games)
        return replace(played, finished=await asyncio.to_thread(games_in_tokens_of, config.model.path, played.finished))


def games_in_tokens_of(model: Path, games: Sequence[FinishedRollout]) -> tuple[FinishedRollout, ...]:
    """The games whose replies the tokenizer in the folder ``model`` decodes as recorded; others are left out.

    Raises ConfigError if none is left. Single replies may differ by control tokens, so half of a game's must agree.
    """
    tokenizer = AutoTokenizer.from_pretrained(model, local_files_only=True)

    def agrees(game: FinishedRollout) -> bool:
        replies = [triplet for triplet in game.triplets if triplet.metadata["trainable"]]
        agreeing = sum(
            triplet.metadata["reply"] in tokenizer.decode(triplet.response["token_ids"], skip_special_tokens=True)
            for triplet in replies
        )
        return agreeing >= len(replies) / 2

    found = tuple(filter(agrees, games))
    if not found:
        raise ConfigError(
            f"the games were played with another tokenizer than that of model.path {model}: it decodes the replies of "
            f"none of {len(games)} games as recorded; set model.path to a model with that run's tokenizer"
        )
    if len(found) < len(games):
        logger.warning(
            "%d of %d games were played with another tokenizer than that of model.path %s and are left out",
            *(len(games) - len(found), len(games), model),
        )
    return found


async def _play(opened: OpenedRun, client: StoreClient, stack: AsyncExitStack) -> PlayedRollouts:
    config, tasks = opened.config, demonstration_tasks(opened.config)
    demonstrators = config.warm_start.demonstrators
    frozen = await stack.enter_async_context(open_frozen(config, demonstrators.keys() & config.frozen.keys()))
    # Runners need the policy's tokenizer, no server; and no judge, since imitation uses no rewards.
    model, published = str(config.model.path.absolute()), game_resources(config) | {"judge": None}
    resources = policy_resources(config, opened.state.run_id, model, policies=frozen.policies, **published)
    queue = RolloutQueue(client, GAME, config.rollout)
    stack.push_async_callback(queue.cancel_open)
    logger.info("playing %d games of %s", len(tasks), ", ".join(demonstrators))
    return await queue.play(tasks, resources, frozen.check_alive, game_progress("demonstrations", len(tasks)))


def run_id_of(config: WerewolfConfig, run: str) -> str:
    """The id of a run in the hub. run: name of its folder under ``run.dir``, or the id."""
    folder = config.run.dir / run
    return load_state(folder).run_id if (folder / RUN_FILE).is_file() else run


def check_warm_start(config: WerewolfConfig, stored: StoredGames | None) -> None:
    """Checks that start nothing. Raises ConfigError."""
    imitation = imitation_config(config, steps=1)
    check_engine(imitation)
    check_log_backends(config)
    demonstrated = stored is None or stored.demonstrator is not None
    if demonstrated and config.rollout.thinking:
        raise ConfigError(
            "rollout.thinking is true, and demonstrations have no thoughts: the policy would learn not to think. Set "
            "rollout.thinking=false, or use games of a run with thoughts by --from-run"
        )
    make_plan(imitation).check(imitation)


def show_summary(summary: dict[str, Any], config: Path | None, console: Console) -> None:
    """Print the result and the command of the next step. config: file of the settings; overrides are left out."""
    same = "" if config is None else f" --config {shlex.quote(str(config))}"
    losses, next_model = summary["held_out_loss"], as_override("model.path", summary["model"])
    console.print(
        f"imitated {summary['replies']['learned_from']} replies of {summary['games']['learned_from']} games; held-out "
        f"loss {losses[0]:.3f} before, {losses[-1]:.3f} after, in nats per token\n{summary['model']}\n"
        f"next: python -m algo.werewolf_verl{same} --set {shlex.quote(next_model)}",
        highlight=False,
        markup=False,
        soft_wrap=True,
    )
