"""An evaluation of a model folder (``python -m algo.evaluate``); the training loop calls ``play.evaluate`` itself."""

from pathlib import Path

from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table

from algo.evaluation.outcomes import EVALUATIONS_FOLDER, Evaluation
from algo.evaluation.page import write_page
from algo.evaluation.play import evaluate
from algo.evaluation.players import serve_players
from algo.machine.progress import game_progress
from algo.reports.page_parts import counts_text, estimate_text
from algo.run.folder import OpenedRun
from algo.werewolf.matches import SIDES
from store.schema import TRAINED_POLICY


async def evaluate_model(opened: OpenedRun, model: Path | None, label: str) -> tuple[Evaluation, Path, Path]:
    """Serve a model folder, evaluate it through the hub and the runners, and write what was found.

    Policies with frozen weights among the opponents are served beside it; "initial" is ``model.path``.
    model: the folder; None for ``model.path`` or, with ``serving.mode=attach``, whatever is served there.
    Returns the evaluation, its file, and the page over all evaluations of the run. Raises StoreUnreachable,
    ServingError, NothingFinished, ConfigError, and ValueError as ``evaluate`` does.
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
