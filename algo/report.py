"""What a run shows: progress while it goes, transcripts and batches to read, a summary at the end."""

import json
import logging
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import fmean
from typing import Any

import torch
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as ProgressBar
from rich.table import Table

from algo.games import PlayedGames, Progress
from algo.trajectories import SeatTrajectory
from algo.triplets import FinishedGame
from store.schema import TRAINED_POLICY

logger = logging.getLogger(__name__)

_LINE_EVERY_SECONDS = 10.0


class Stopwatch:
    """Seconds spent in each named stage, in the order in which the stages first ran."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = defaultdict(float)

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Time a block; several blocks of one name add up."""
        started = time.monotonic()
        try:
            yield
        finally:
            self.seconds[name] += time.monotonic() - started


@contextmanager
def game_progress(step: int, steps: int, games: int) -> Iterator[Any]:
    """Shows a step's games: a bar on a terminal, a line now and then elsewhere. Yields a callback for ``Progress``."""
    title = f"step {step}/{steps}: games"
    if sys.stderr.isatty():
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        with ProgressBar(*columns, console=Console(stderr=True), transient=True) as bar:
            task = bar.add_task(title, total=games)
            yield lambda now: bar.update(task, completed=now.finished + now.failed)
        return
    last_line = time.monotonic()

    def show(now: Progress) -> None:
        nonlocal last_line
        if time.monotonic() - last_line > _LINE_EVERY_SECONDS:
            last_line = time.monotonic()
            logger.info(
                "%s: %d of %d finished, %d playing, %d waiting", title, now.finished, games, now.playing, now.waiting
            )

    yield show


def game_metrics(played: PlayedGames) -> dict[str, float]:
    """Numbers about a step's games, for the log."""
    games = played.finished
    seats = [seat for game in games for seat in game.result.seats]
    turns = sum(seat.turns for seat in seats)
    metrics = {
        "games/finished": float(len(games)),
        **played.failure_metrics(),
        "games/days_mean": fmean(game.result.days for game in games),
        "turns/played": float(sum(game.result.turns for game in games)),
        "turns/per_game": fmean(game.result.turns for game in games),
        "turns/stored": float(played.turns_stored),
        "turns/valid_share": 1.0 - sum(seat.invalid_turns for seat in seats) / turns if turns else 1.0,
        # Of the policy: what opponents do badly is no news of it.
        "decisions/defaulted": float(sum(seat.defaulted_decisions for seat in seats if seat.policy == TRAINED_POLICY)),
    }
    segments = [seat.segments for seat in seats if seat.turns]
    if segments:
        metrics["turns/segments_per_seat"] = fmean(segments)
    asked = sum(game.result.judge_asked for game in games)
    if asked:
        metrics["judge/asked"] = float(asked)
        metrics["judge/judged_share"] = sum(len(game.result.judgements) for game in games) / asked
    for result in ("wolf", "good", "draw"):
        metrics[f"games/{result}_share"] = sum(game.result.result == result for game in games) / len(games)
    return metrics


def trajectory_metrics(trajectories: Sequence[SeatTrajectory]) -> dict[str, float]:
    """Numbers about a step's sequences: tokens; rewards and their dimensions by side and by role.

    Dimensions are means over the seats' own means, not weighed; a seat counts once, however many segments it has.
    """
    metrics: dict[str, float] = {
        "tokens/sequences": float(len(trajectories)),
        "tokens/total": float(sum(len(trajectory.token_ids) for trajectory in trajectories)),
        "tokens/sampled": float(sum(sum(trajectory.loss_mask) for trajectory in trajectories)),
    }
    seats = {(trajectory.game_id, trajectory.seat): trajectory for trajectory in trajectories}
    values: dict[str, list[float]] = defaultdict(list)
    for trajectory in seats.values():
        for kind in (trajectory.side, f"role/{trajectory.role}"):
            values[f"reward/{kind}"].append(trajectory.reward)
            for name, value in trajectory.dimensions.items():
                values[f"reward/dim/{name}/{kind}"].append(value)
    return metrics | {name: fmean(found) for name, found in sorted(values.items())}


def write_transcripts(folder: Path, games: Sequence[FinishedGame], count: int) -> None:
    """Write the first ``count`` games as readable Chinese text."""
    folder.mkdir(parents=True, exist_ok=True)
    for game in games[:count]:
        (folder / f"{game.result.game_id}.txt").write_text(game.result.transcript, encoding="utf-8")


def write_batch(
    path: Path,
    trajectories: Sequence[SeatTrajectory],
    advantages: Sequence[torch.Tensor],
    trainer_logprobs: Sequence[torch.Tensor],
) -> None:
    """Write a training batch as JSON Lines, one trajectory a line, everything aligned with ``token_ids``."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", encoding="utf-8") as file:
        for trajectory, advantage, logprobs in zip(trajectories, advantages, trainer_logprobs, strict=True):
            row = vars(trajectory) | {"advantages": advantage.tolist(), "trainer_logprobs": logprobs.tolist()}
            file.write(json.dumps(row) + "\n")


class RunSummary:
    """Adds up the steps of a run; written as JSON and shown as tables at its end."""

    def __init__(self, run_dir: Path):
        self.run_dir = run_dir
        self._steps: list[dict[str, float]] = []
        self._left_out: Counter[str] = Counter()

    def add_step(self, metrics: dict[str, float], left_out: Counter[str]) -> None:
        """Take a finished step's metrics and its left-out turns by reason."""
        self._steps.append(metrics)
        self._left_out += left_out

    def as_dict(self, stopwatch: Stopwatch, policy_version: int) -> dict[str, Any]:
        """The summary as JSON: totals, the steps one by one, seconds by stage, and where things lie."""
        games, turns = self._total("games/finished"), self._total("turns/played")
        valid = sum(step["turns/valid_share"] * step["turns/played"] for step in self._steps)
        return {
            "steps": len(self._steps),
            "policy_version": policy_version,
            "games": {"finished": int(games), "failed": int(self._total("games/failed"))},
            "turns": {
                "played": int(turns),
                "per_game": turns / games if games else None,
                "stored": int(self._total("turns/stored")),
                "in_batch": int(self._total("turns/in_batch")),
                "left_out": dict(self._left_out),
                "valid_share": valid / turns if turns else None,
            },
            "reward_by_side": {side: [step.get(f"reward/{side}") for step in self._steps] for side in ("wolf", "good")},
            "tokens": {
                "trained_sequences": int(self._total("tokens/trained_sequences")),
                "trained": int(self._total("tokens/trained")),
                "sampled_and_trained": int(self._total("tokens/sampled_and_trained")),
            },
            "seconds_by_stage": {name: round(seconds, 1) for name, seconds in stopwatch.seconds.items()},
            "step_metrics": self._steps,
            "files": {
                "logs": str(self.run_dir / "logs"),
                "metrics": str(self.run_dir / "metrics.jsonl"),
                "transcripts": str(self.run_dir / "transcripts"),
                "checkpoints": str(self.run_dir / "checkpoints"),
                "policy": str(self.run_dir / "policy"),
            },
        }

    def _total(self, name: str) -> float:
        return sum(step.get(name, 0.0) for step in self._steps)


def show_summary(summary: dict[str, Any], console: Console) -> None:
    """Print a summary (``RunSummary.as_dict``) as tables."""
    turns, tokens = summary["turns"], summary["tokens"]
    left_out = ", ".join(f"{count} {reason}" for reason, count in turns["left_out"].items()) or "none"
    overview = Table(title="Run summary", show_header=False, title_justify="left")
    overview.add_row("updates made", f"{summary['policy_version']} in {summary['steps']} steps")
    overview.add_row("games", f"{summary['games']['finished']} finished, {summary['games']['failed']} failed")
    overview.add_row("model calls per game", "-" if turns["per_game"] is None else f"{turns['per_game']:.1f}")
    overview.add_row(
        "model turns", f"{turns['played']} played, {turns['stored']} stored, {turns['in_batch']} trained on"
    )
    overview.add_row("turns left out", left_out)
    overview.add_row("valid replies", "-" if turns["valid_share"] is None else f"{turns['valid_share']:.1%}")
    for side, rewards in summary["reward_by_side"].items():
        shown = " -> ".join("-" if reward is None else f"{reward:+.3f}" for reward in rewards)
        overview.add_row(f"mean reward, {side}", shown)
    sequences = f"{tokens['trained']} in {tokens['trained_sequences']} sequences"
    overview.add_row("tokens trained", f"{sequences}, {tokens['sampled_and_trained']} of them sampled")
    console.print(overview)
    stages = Table(title="Seconds by stage", title_justify="left")
    stages.add_column("stage")
    stages.add_column("seconds", justify="right")
    for name, seconds in summary["seconds_by_stage"].items():
        stages.add_row(name, f"{seconds:.1f}")
    console.print(stages)
    files = Table(title="Files", show_header=False, title_justify="left")
    for name, path in summary["files"].items():
        files.add_row(name, path)
    console.print(files)
