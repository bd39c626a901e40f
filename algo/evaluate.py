"""Evaluation: the policy against a panel of opponents that never learn, on deals that are never trained on.

``python -m algo.evaluate`` plays one with a model folder; the training loop calls ``evaluate`` every few steps.
"""

import argparse
import hashlib
import logging
import re
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table

from algo.evaluation.outcomes import EVALUATIONS_FOLDER, Evaluation, read_evaluations, with_ratings
from algo.evaluation.page import counts_text, estimate_text, write_page
from algo.loop.command_line import add_configuration_options, begin_run, run_to_its_end
from algo.loop.report import game_progress
from algo.loop.run_folder import OpenedRun
from algo.rollouts.queue import Games, Progress
from algo.serving.players import serve_players
from algo.werewolf.behaviour import behaviour_of
from algo.werewolf.matches import SIDES, held_out_deals, match_tasks, record_games
from algo.werewolf.samples import sample_games
from configs.schema import Config
from configs.section import ConfigError
from store.schema import PLAYERS_WITHOUT_A_MODEL, TRAINED_POLICY, GameTask, PolicyResources

logger = logging.getLogger("algo.evaluate")

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
    model: Path | None = None,
) -> Evaluation:
    """Play an evaluation (section ``evaluation`` of the configuration) with the policy that is served now.

    resources: of that policy; its players and frozen policies must have every opponent that is no built-in one.
    check_alive, on_progress: see ``Games.collect``.
    label: what the run calls this evaluation, such as "step 5"; games, and the luck of the sampling, follow from it.
    resumed: take up those of its games that an earlier process of the run enqueued.
    player: the name to rate the policy by; by default its version, as "policy@5".
    model: folder of the policy, where its version does not tell which it is.

    Ratings rest on this evaluation and on those in the run's folder of earlier or equal versions.
    Raises ValueError for no deals, a label that cannot name games, or an opponent that the resources do not have, and
    what ``Games.play`` raises.
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


def check_label(label: str) -> None:
    """Raise ConfigError for a label that cannot name games and files."""
    if not _LABEL.fullmatch(label):
        raise ConfigError(f"{label!r} cannot label an evaluation: use letters, digits, spaces and _ . + -")


def temperature_of(config: Config) -> float:
    """The sampling temperature of an evaluation."""
    return config.evaluation.temperature or config.game.temperature


def _opponents(config: Config, resources: PolicyResources) -> list[str]:
    known = {*PLAYERS_WITHOUT_A_MODEL, *resources.players, *resources.frozen}
    for opponent in config.evaluation.opponents:
        if opponent not in known:
            raise ValueError(f"evaluation.opponents: {opponent!r} is not served; there are {', '.join(sorted(known))}")
    return list(config.evaluation.opponents)


def _tasks_against(opponent: str, config: Config, label: str, model: Path | None) -> list[GameTask]:
    settings = config.evaluation
    # The games that an earlier process enqueued are known by their name: it stands for everything that they hang on.
    what = f"{settings.seed}/{temperature_of(config)}/{model}"
    digest = hashlib.blake2b(what.encode(), digest_size=4).hexdigest()
    name = f"{config.run.name}-evaluation-{label.replace(' ', '-')}-{digest}"
    deals = held_out_deals(settings.deals, settings.seed)
    return match_tasks(TRAINED_POLICY, opponent, deals, config.game, name)


async def evaluate_model(opened: OpenedRun, model: Path | None, label: str) -> tuple[Evaluation, Path, Path]:
    """Serve a model folder, evaluate it through the hub and the runners, and write what was found.

    Policies with frozen weights among the opponents are served beside it; "initial" is ``model.path``.
    model: the folder; None for ``model.path`` or, with ``serving.mode=attach``, whatever is served there.
    Returns the evaluation, its file, and the page over all evaluations of the run. Raises StoreUnreachable,
    ServingError, NoGamesFinished, ConfigError, and ValueError as ``evaluate`` does.
    """
    config = opened.config
    async with serve_players(opened, [TRAINED_POLICY, *config.evaluation.opponents], model) as served:
        count = 2 * config.evaluation.deals * len(config.evaluation.opponents)
        with game_progress(f"evaluation of {label}", count) as on_progress:
            evaluation = await evaluate(
                config,
                served.games,
                served.resources,
                served.check_alive,
                on_progress,
                label,
                resumed=opened.began_before,
                player=f"{TRAINED_POLICY}@{label}",
                model=model or config.model.path,
            )
    path = file_of(config.run_dir, label)
    evaluation.write(path)
    return evaluation, path, write_page(config.run_dir)


def show_evaluation(evaluation: Evaluation, console: Console) -> None:
    """Print an evaluation as tables."""
    found = evaluation.statistics()
    rates = _table(f"Win rate of {evaluation.player}, with 95 % intervals", "against", "as wolves", "as good", "both")
    for column in ("games", "draws", "not finished"):
        rates.add_column(column, justify="right")
    for opponent, against in found.by_opponent.items():
        scores = (*(against.by_side[side] for side in SIDES), against.both_sides)
        counts = (against.both_sides.games, against.both_sides.draws, against.not_finished)
        rates.add_row(opponent, *(estimate_text(score.win_rate) for score in scores), *map(str, counts))
    console.print(rates)
    conduct = found.conduct
    overview = _table(f"Conduct of {evaluation.player}", "", "")
    overview.show_header = False
    overview.add_row("replies that could not be used", estimate_text(conduct.invalid_replies))
    overview.add_row("decisions taken by default", str(conduct.defaulted_decisions))
    overview.add_row("games with an identity leak", estimate_text(conduct.games_with_leak))
    overview.add_row("days a game", "–" if conduct.days is None else f"{conduct.days:.1f}")
    overview.add_row("replies a game", "–" if conduct.turns_per_game is None else f"{conduct.turns_per_game:.1f}")
    console.print(overview)
    if any(behaviour.counts() for behaviour in evaluation.behaviour.values()):
        deeds = Table("side", "of", "shares", title="Behaviour", title_justify="left", box=SIMPLE)
        for side, behaviour in evaluation.behaviour.items():
            for name, counts in behaviour.counts().items():
                deeds.add_row(side, name, counts_text(counts))
        console.print(deeds)
    ratings = _table("Ratings, with 95 % intervals", "player", "rating", "interval", "games")
    for name, rating in evaluation.ratings.items():
        ratings.add_row(name, f"{rating.mu:.1f}", f"{rating.low:.1f} to {rating.high:.1f}", str(rating.games))
    console.print(ratings)
    for reason, games in evaluation.failures.items():
        console.print(f"{games} games failed: {reason}", style="red", markup=False, highlight=False)


def _table(title: str, first: str, *others: str) -> Table:
    table = Table(title=title, title_justify="left", box=SIMPLE)
    table.add_column(first)
    for column in others:
        table.add_column(column, justify="right", no_wrap=True)
    return table


def file_of(run_dir: Path, label: str) -> Path:
    """The file of the evaluation with this label; for a new one, a name that sorts behind all others."""
    files = sorted((run_dir / EVALUATIONS_FOLDER).glob("*.json"))
    for file in files:
        if Evaluation.read(file).label == label:
            return file
    return run_dir / EVALUATIONS_FOLDER / f"{len(files):04d}-{label.replace(' ', '-')}.json"


def default_label(model: Path) -> str:
    """What to call a model: its folder's name, or that of the checkpoint that it lies in."""
    model = model.resolve()
    name = model.parent.name if model.name == "huggingface" else model.name
    return re.sub(r"[^\w .+-]", "-", name).lstrip(" .+-") or "model"


def parse_arguments(arguments: list[str] | None = None) -> argparse.Namespace:
    """The command line; exits with a usage message when it cannot be used."""
    parser = argparse.ArgumentParser(
        prog="python -m algo.evaluate",
        description="Evaluate a policy without training it: games on held-out deals through the hub and its runners, "
        "each deal with sides swapped, against the opponents in evaluation.opponents.",
    )
    add_configuration_options(parser, example="evaluation.deals=50")
    parser.add_argument(
        "--model",
        type=Path,
        metavar="FOLDER",
        help="what to evaluate, e.g. a checkpoint's huggingface folder (default: model.path, or with "
        "serving.mode=attach what is served there)",
    )
    parser.add_argument("--label", help="name of the evaluation (default: the folder's, or the checkpoint's)")
    parser.add_argument(
        "--resume",
        choices=["never", "auto"],
        default="never",
        help="auto: add to the evaluations of this run.name, and go on with the games of this label; never (default): "
        "begin a folder, under a name with a number if the name is taken",
    )
    return parser.parse_args(arguments)


def _label(config: Config, options: argparse.Namespace) -> str:
    return options.label or default_label(options.model or config.model.path)


def _check(config: Config, options: argparse.Namespace) -> None:
    if not config.evaluation.deals:
        raise ConfigError("evaluation.deals is 0; name a number of deals, e.g. --set evaluation.deals=20")
    if options.model is not None and not options.model.is_dir():
        raise ConfigError(f"--model {options.model} is no folder")
    check_label(_label(config, options))


def main() -> int:
    """Entry point; the exit status is 0 only for an evaluation of which at least one game finished."""
    options = parse_arguments()
    opened = begin_run(
        options,
        lambda config: _check(config, options),
        suffix="-evaluation",
        log="evaluation.log",
        resume=options.resume == "auto",
    )
    if isinstance(opened, int):
        return opened
    status, done = run_to_its_end(
        evaluate_model(opened, options.model, _label(opened.config, options)),
        opened.config,
        logger,
        "interrupted; finished games stay in the hub, and --resume auto goes on with them",
        {},
    )
    if done is None:
        return status
    evaluation, path, page = done
    console = Console()
    show_evaluation(evaluation, console)
    console.print(f"{path}\n{page}", highlight=False, markup=False, soft_wrap=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
