"""Plays an evaluation: the policy against a panel of opponents that never learn, on deals that are never trained on."""

import hashlib
from collections.abc import Awaitable, Callable
from pathlib import Path

from algo.evaluation.labels import check_label
from algo.evaluation.outcomes import Evaluation, read_evaluations, with_ratings
from algo.rollouts.queue import Progress, RolloutQueue
from algo.werewolf.behaviour import behaviour_of
from algo.werewolf.matches import SIDES, held_out_deals, match_tasks, record_games
from algo.werewolf.samples import sample_games
from configs.werewolf import WerewolfConfig
from store.schema import PLAYERS_WITHOUT_A_MODEL, TRAINED_POLICY, PolicyResources
from store.werewolf import GameTask


async def evaluate(
    config: WerewolfConfig,
    games: RolloutQueue,
    resources: PolicyResources,
    check_alive: Callable[[], Awaitable[object]],
    on_progress: Callable[[Progress], None],
    label: str,
    *,
    resumed: bool = False,
    player: str | None = None,
    model: Path | None = None,
) -> Evaluation:
    """Play an evaluation (section ``evaluation`` of the configuration) with the policy that is served now.

    resources: of that policy; its players and frozen policies must have every opponent that is no built-in one.
    check_alive, on_progress: see ``RolloutQueue.collect``.
    label: what the run calls this evaluation, such as "step 5"; games, and the luck of the sampling, follow from it.
    resumed: take up those of its games that an earlier process of the run enqueued.
    player: the name to rate the policy by; by default its version, as "policy@5".
    model: folder of the policy, where its version does not tell which it is.

    Ratings rest on this evaluation and on those in the run's folder of earlier or equal versions.
    Raises ValueError for no deals, a label that cannot name games, or an opponent that the resources do not have, and
    what ``RolloutQueue.play`` raises.
    """
    settings = config.evaluation
    if not settings.deals:
        raise ValueError("evaluation.deals is 0: there is nothing to play; set it to the deals for each opponent")
    check_label(label)
    model = None if model is None else model.resolve()
    tasks = {opponent: _tasks_against(opponent, config, label, model) for opponent in _opponents(config, resources)}
    # Read before the games are played, which would be lost on a file that cannot be read.
    earlier = [
        other
        for other in read_evaluations(config.run_dir)
        if other.policy_version <= resources.version and other.label != label
    ]
    # By an id of their own: runners remember resources by id, and training's may name other players.
    resources = resources.model_copy(
        update={
            "run_name": f"{resources.run_name}-evaluation",
            "sampling": resources.sampling.model_copy(update={"temperature": temperature_of(config)}),
        }
    )
    all_tasks = [task for of_opponent in tasks.values() for task in of_opponent]
    played = await games.play(all_tasks, resources, check_alive, on_progress, resumed=resumed, mode="val")
    evaluation = Evaluation(
        label=label,
        player=player or f"{TRAINED_POLICY}@{resources.version}",
        policy_version=resources.version,
        preset=config.game.preset,
        seed=settings.seed,
        temperature=temperature_of(config),
        opponents={opponent: len(of_opponent) for opponent, of_opponent in tasks.items()},
        games=tuple(record_games(all_tasks, played.finished)),
        failures=dict(played.failures),
        retried=dict(played.retried),
        behaviour={side: behaviour_of(played.finished, side) for side in SIDES},
        samples=sample_games(tasks.values(), played.finished, config.reward),
    )
    return with_ratings([*earlier, evaluation])[-1]


def temperature_of(config: WerewolfConfig) -> float:
    """The sampling temperature of an evaluation."""
    return config.evaluation.temperature or config.rollout.temperature


def _opponents(config: WerewolfConfig, resources: PolicyResources) -> list[str]:
    known = {*PLAYERS_WITHOUT_A_MODEL, *resources.players, *resources.frozen}
    for opponent in config.evaluation.opponents:
        if opponent not in known:
            raise ValueError(f"evaluation.opponents: {opponent!r} is not served; there are {', '.join(sorted(known))}")
    return list(config.evaluation.opponents)


def _tasks_against(opponent: str, config: WerewolfConfig, label: str, model: Path | None) -> list[GameTask]:
    settings = config.evaluation
    # The games that an earlier process enqueued are known by their name: it stands for everything that they hang on.
    what = f"{settings.seed}/{temperature_of(config)}/{model}"
    digest = hashlib.blake2b(what.encode(), digest_size=4).hexdigest()
    name = f"{config.run.name}-evaluation-{label.replace(' ', '-')}-{digest}"
    deals = held_out_deals(settings.deals, settings.seed)
    return match_tasks(TRAINED_POLICY, opponent, deals, config, name)
