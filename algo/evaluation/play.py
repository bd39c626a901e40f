"""Evaluates a policy; rows are appended as the games end (``algo.evaluation.record``)."""

import logging
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

from algo.evaluation.figures import figures_of, metrics_of
from algo.evaluation.games import GameEvaluation, GameRow, row_of
from algo.evaluation.panel import PANELS, RUN, matches_of, power_text
from algo.evaluation.players import serve_players
from algo.evaluation.record import Header, Record, play_and_record
from algo.evaluation.report import write_page
from algo.loop.workload import EvaluatedPolicy
from algo.rollouts.queue import RolloutQueue
from algo.rollouts.triplets import FinishedRollout
from algo.run.checkpoints import digest_of_weights
from algo.run.folder import OpenedRun
from configs.roles_and_decks import DECKS
from configs.werewolf import WerewolfConfig
from store.players import TRAINED_POLICY
from store.schema import PolicyResources

logger = logging.getLogger("algo.evaluate")


async def evaluate_in_training(
    config: WerewolfConfig, policy: EvaluatedPolicy, step: int, resumed: bool
) -> dict[str, float]:
    """Play held-out deals with the policy after ``step``; returns metrics."""
    evaluation = await evaluate(
        config, policy.queue, policy.resources(), policy.refresh_endpoints, f"step {step}", resumed=resumed, step=step
    )
    return metrics_of(evaluation, figures_of(evaluation))


async def evaluate_model(
    opened: OpenedRun, model: Path | None, label: str, *, panel: str, players: Sequence[str]
) -> GameEvaluation:
    """Serve a model folder and evaluate it through the hub and the runners.

    model: the folder; None for ``model.path`` or, with ``serving.mode=attach``, the served model.
    panel, players: see ``evaluate``. Frozen policies among the players are served, too; "initial" is
    ``model.path``. Raises StoreUnreachable, ServingError, NoFinishedRollouts, ConfigError.
    """
    config = opened.config
    served_players = players or (TRAINED_POLICY, *PANELS[panel].opponents, *config.evaluation.opponents)
    async with serve_players(opened, served_players, model) as served:
        return await evaluate(
            config,
            served.games,
            served.resources,
            served.check_alive,
            label,
            resumed=opened.is_resumed,
            model=model or config.model.path,
            panel=panel,
            players=players,
        )


async def evaluate(
    config: WerewolfConfig,
    queue: RolloutQueue,
    resources: PolicyResources,
    check_alive: Callable[[], Awaitable[object]],
    label: str,
    *,
    panel: str = RUN,
    players: Sequence[str] = (),
    resumed: bool = False,
    model: Path | None = None,
    step: int | None = None,
) -> GameEvaluation:
    """Play an evaluation (section ``evaluation`` of the configuration) with the served policy.

    resources: of that policy, with every opponent that is not built in.
    label: such as "step 5". panel, players: see ``panel.matches_of``. resumed: an earlier process of the run may
    have begun it. model: folder of the policy, where its version does not identify it. step: updates made.
    Raises as ``play_and_record``.
    """
    chosen, folder = PANELS[panel], "" if model is None else str(model.resolve())
    weights = "" if model is None else digest_of_weights(model)
    prefix = f"{config.run.name}-evaluation-{label.replace(' ', '-')}"
    matches = matches_of(config, chosen, prefix, f"{folder} {weights}".strip(), players)
    power = power_text(chosen, config.evaluation.deals, DECKS[config.game.preset])
    logger.info("evaluation of %s, panel %s, conditions %s: %s", label, panel, matches.digest, power)
    header = Header(
        label=label,
        player=f"{TRAINED_POLICY}@{label if model else resources.version}",
        step=step,
        policy_version=resources.version,
        model=folder,
        weights=weights,
        initial=str(config.model.path.resolve()),
        panel=panel,
        conditions=matches.conditions,
        digest=matches.digest,
        seed=config.evaluation.seed,
        planned={name: len(tasks) for name, tasks in matches.by_name.items()},
        notes=power,
    )
    tasks = matches.tasks

    def to_row(number: int, rollout: FinishedRollout) -> GameRow:
        task = tasks[number]
        policy_plays = any(TRAINED_POLICY in rule.players for rule in task.seating)
        whole = policy_plays and task.seed in matches.deals[: config.evaluation.sample_deals]
        return row_of(number, task, rollout, config.reward, whole=whole)

    evaluation = await play_and_record(
        Record(config.run_dir, GameRow),
        header,
        tasks,
        queue,
        resources,
        check_alive,
        to_row,
        resumed=resumed,
        figures=lambda played: figures_of(played).model_dump(mode="json"),
    )
    write_page(config.run_dir)
    return evaluation
