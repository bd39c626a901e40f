"""What a short run showed, on a terminal: its first and last evaluation side by side, and one game (``algo.demo``)."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from algo.evaluation.outcomes import Evaluation, read_evaluations
from algo.evaluation.statistics import Estimate
from algo.reports.page_parts import estimate_text
from algo.werewolf.file_names import SUMMARY_FILE
from algo.werewolf.matches import SIDES


def show_before_and_after(
    run_dir: Path, warm_start_dir: Path | None, console: Console, pretrained_dir: Path | None = None
) -> None:
    """Print what was learned, before and after, and one game.

    warm_start_dir: None where nothing was imitated. pretrained_dir: folder of an evaluation before the imitation.
    """
    table = Table(title="What came of it, with 95 % intervals", title_justify="left")
    earlier = [] if pretrained_dir is None else read_evaluations(pretrained_dir)[:1]
    for column in ("", *(("pretrained", "imitated", "trained") if earlier else ("before", "after"))):
        table.add_column(column, no_wrap=True)
    if warm_start_dir is not None:
        losses = json.loads((warm_start_dir / SUMMARY_FILE).read_text(encoding="utf-8"))["held_out_loss"]
        table.add_row("imitation: held-out loss, nats a token", f"{losses[0]:.2f}", f"{losses[-1]:.2f}")
    evaluations = read_evaluations(run_dir)
    if evaluations:
        stage = "evaluation" if earlier else "training"
        for title, *estimates in _compared([*earlier, evaluations[0], evaluations[-1]]):
            table.add_row(f"{stage}: {title}", *map(estimate_text, estimates))
    if table.row_count:
        console.print(table)
    if evaluations:
        games = len(evaluations[-1].games)
        console.print(
            f"{games} held-out games before and after, and few steps between them: how much is learned from more, "
            f"`make learn SIDE=both` shows.",
            highlight=False,
        )
    game = shortest_game(run_dir)
    if game is not None:
        console.rule(str(game))
        console.print(game.read_text(encoding="utf-8"), markup=False, highlight=False)
        console.rule()


def _compared(evaluations: Sequence[Evaluation]) -> list[tuple[Any, ...]]:
    """Rows: a title, then an Estimate or None of each evaluation."""
    found = [evaluation.statistics() for evaluation in evaluations]
    rows: list[tuple[Any, ...]] = [("valid replies", *(_others(each.conduct.invalid_replies) for each in found))]
    for opponent in found[-1].by_opponent:
        for side in SIDES:
            rates = [each.by_opponent[opponent].by_side[side].win_rate for each in found]
            rows.append((f"games won as {side} against {opponent}", *rates))
    return rows


def _others(share: Estimate | None) -> Estimate | None:
    """The share of all others."""
    return None if share is None else Estimate(value=1 - share.value, low=1 - share.high, high=1 - share.low)


def shortest_game(run_dir: Path) -> Path | None:
    """The shortest of the games that the last step wrote out; None if it wrote none."""
    games = sorted((run_dir / "transcripts").glob("step-*/*.txt"))
    last = [game for game in games if game.parent == games[-1].parent]
    return min(last, key=lambda game: len(game.read_text(encoding="utf-8")), default=None)
