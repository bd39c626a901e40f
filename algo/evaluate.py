"""Evaluation: the policy against a panel of opponents that never learn, on deals that are never trained on.

``python -m algo.evaluate`` plays one for a model folder; the training loop calls ``evaluate`` every few steps.
"""

import re
from collections.abc import Awaitable, Callable, Iterable, Sequence

from algo.evaluation import Evaluation, read_evaluations, with_ratings
from algo.games import Games, Progress
from algo.matches import SIDES, held_out_deals, match_tasks, record_games
from algo.triplets import FinishedGame
from configs.schema import Config
from store.schema import RANDOM_PLAYER, SCRIPTED_PLAYER, TRAINED_POLICY, GameTask, PolicyResources

_LABEL = re.compile(r"\w[\w .+-]*")


async def evaluate(
    config: Config,
    games: Games,
    resources: PolicyResources,
    check_alive: Callable[[], Awaitable[object]],
    on_progress: Callable[[Progress], None],
    label: str,
    *,
    resumed: bool = False,
    player: str | None = None,
) -> Evaluation:
    """Play an evaluation (section ``evaluation`` of the configuration) with the policy that is served now.

    resources: of that policy; its players and frozen policies must have every opponent that is no built-in one.
    check_alive, on_progress: see ``Games.collect``.
    label: what the run calls this evaluation, such as "step 5"; games, and the luck of the sampling, follow from it.
    resumed: take up those of its games that an earlier process of the run enqueued.
    player: the name to rate the policy by; by default its version, as "policy@5".

    Ratings rest on this evaluation and on those in the run's folder of earlier or equal versions.
    Raises ValueError for no deals, a label that cannot name games, or an opponent that the resources do not have, and
    what ``Games.play`` raises.
    """
    settings = config.evaluation
    if not settings.deals:
        raise ValueError("evaluation.deals is 0: there is nothing to play; set it to the deals for each opponent")
    tasks = {opponent: _tasks_against(opponent, config, label) for opponent in _opponents(config, resources)}
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
        transcripts=_samples(tasks.values(), played.finished),
    )
    earlier = [
        other
        for other in read_evaluations(config.run_dir)
        if other.policy_version <= evaluation.policy_version and other.label != label
    ]
    return with_ratings([*earlier, evaluation])[-1]


def temperature_of(config: Config) -> float:
    """The sampling temperature of an evaluation."""
    return config.evaluation.temperature or config.game.temperature


def _opponents(config: Config, resources: PolicyResources) -> list[str]:
    known = {SCRIPTED_PLAYER, RANDOM_PLAYER, *resources.players, *resources.frozen}
    for opponent in config.evaluation.opponents:
        if opponent not in known:
            raise ValueError(f"evaluation.opponents: {opponent!r} is not served; there are {', '.join(sorted(known))}")
    return list(config.evaluation.opponents)


def _tasks_against(opponent: str, config: Config, label: str) -> list[GameTask]:
    if not _LABEL.fullmatch(label):
        raise ValueError(f"{label!r} cannot label an evaluation: use letters, digits, spaces and _ . + -")
    settings = config.evaluation
    name = f"{config.run.name}-evaluation-{label.replace(' ', '-')}"
    deals = held_out_deals(settings.deals, settings.seed)
    return match_tasks(TRAINED_POLICY, opponent, deals, config.game, name)


def _samples(matches: Iterable[Sequence[GameTask]], finished: Iterable[FinishedGame]) -> dict[str, str]:
    """Of each match the first finished game with the policy as either side."""
    transcripts = {game.result.game_id: game.result.transcript for game in finished}
    samples = {}
    for tasks in matches:
        for first in range(len(SIDES)):
            found = [task.game_id for task in tasks[first :: len(SIDES)] if task.game_id in transcripts]
            samples |= {game_id: transcripts[game_id] for game_id in found[:1]}
    return samples
