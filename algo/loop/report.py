"""What a run shows: progress while it goes, transcripts and batches to read, a summary at the end."""

import json
import logging
import re
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.progress import Progress as ProgressBar
from rich.table import Column, Table

from algo.evaluation.page import PAGE_NAME
from algo.rollouts.queue import PlayedGames, Progress
from algo.rollouts.triplets import FinishedGame
from algo.sequences.trajectories import SeatTrajectory, TrajectorySet
from algo.werewolf.matches import SIDES
from configs.schema import Config
from store.schema import TRAINED_POLICY

if TYPE_CHECKING:
    from algo.loop.update import Update  # brings verl along

logger = logging.getLogger(__name__)

_LINE_EVERY_SECONDS = 10.0
_WIN_RATE = re.compile(r"evaluation/win_rate/(?P<side>wolf|good)/vs/(?P<opponent>[^/]+)")
_REWARDS_SHOWN = 8


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

    def begin_step(self) -> Callable[[], dict[str, float]]:
        """Returns a function that tells the seconds since now: those of the step, and by stage."""
        started, before = time.monotonic(), dict(self.seconds)

        def since() -> dict[str, float]:
            stages = {name: seconds - before.get(name, 0.0) for name, seconds in self.seconds.items()}
            shown = {f"seconds/{name}": seconds for name, seconds in stages.items() if name != "start"}
            return {"seconds/step": time.monotonic() - started, **shown}

        return since


@contextmanager
def step_progress(title: str, steps: int) -> Iterator[Callable[[], None]]:
    """Shows how far a number of optimizer steps are, as ``game_progress`` shows games; yields what each step calls."""
    if sys.stderr.isatty():
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        with ProgressBar(*columns, console=Console(stderr=True), transient=True) as bar:
            task = bar.add_task(title, total=steps)
            yield lambda: bar.advance(task)
        return
    done, last_line = 0, time.monotonic()

    def step() -> None:
        nonlocal done, last_line
        done += 1
        if time.monotonic() - last_line > _LINE_EVERY_SECONDS:
            last_line = time.monotonic()
            logger.info("%s: %d of %d optimizer steps", title, done, steps)

    yield step


@contextmanager
def game_progress(title: str, games: int, steps: tuple[int, int] | None = None) -> Iterator[Any]:
    """Shows how far a number of games are: a bar on a terminal, a line now and then elsewhere.

    steps: those made and all of the run, for a second bar.
    Yields a callback for ``algo.rollouts.queue.Progress``.
    """
    if sys.stderr.isatty():
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        with ProgressBar(*columns, console=Console(stderr=True), transient=True) as bar:
            if steps is not None:
                bar.add_task("steps", completed=steps[0], total=steps[1])
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
    # Of the policy: what opponents do badly is no news of it.
    seats = [seat for game in games for seat in game.result.seats if seat.policy == TRAINED_POLICY]
    turns = sum(seat.turns for seat in seats)
    metrics = {
        "games/finished": float(len(games)),
        **played.failure_metrics(),
        "games/days_mean": fmean(game.result.days for game in games),
        "turns/played": float(sum(game.result.turns for game in games)),
        "turns/per_game": fmean(game.result.turns for game in games),
        "turns/stored": float(played.turns_stored),
        "turns/valid_share": 1.0 - sum(seat.invalid_turns for seat in seats) / turns if turns else 1.0,
        "turns/of_policy": float(turns),
        "decisions/defaulted": float(sum(seat.defaulted_decisions for seat in seats)),
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
    return metrics | _wins_of_policy(games)


def _wins_of_policy(games: Iterable[FinishedGame]) -> dict[str, float]:
    """``policy/<side>/games`` and ``policy/<side>/wins``, of games in which the policy has no seat of the other side.

    Counts and not shares, so that the games of several steps can be pooled. A side without such games has no numbers:
    a win over itself says nothing of the policy.
    """
    metrics = {}
    for side in SIDES:
        ends = [
            game.result.result
            for game in games
            if {seat.side for seat in game.result.seats if seat.policy == TRAINED_POLICY} == {side}
        ]
        if ends:
            metrics |= {f"policy/{side}/games": float(len(ends)), f"policy/{side}/wins": float(ends.count(side))}
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


def batch_metrics(update: "Update | None", found: TrajectorySet, left_out: Counter[str]) -> dict[str, float]:
    """What reached the update and what did not; ``update`` is None where there was none."""
    trained = () if update is None else update.trained
    return {
        "turns/in_batch": float(sum(len(trajectory.turn_ends) for trajectory in trained)),
        "turns/left_out": float(left_out.total()),
        **{f"turns/left_out/{reason}": float(count) for reason, count in left_out.items()},
        "turns/context_breaks": float(found.breaks),
        "tokens/trained_sequences": float(len(trained)),
        "tokens/trained": float(sum(len(trajectory.token_ids) for trajectory in trained)),
        "tokens/sampled_and_trained": float(sum(sum(trajectory.loss_mask) for trajectory in trained)),
    }


def time_metrics(seconds: dict[str, float], calls: Iterable[tuple[float, float]], trainer: float) -> dict[str, float]:
    """Where a step's time went: ``seconds`` (``Stopwatch.begin_step``), and the share that neither vLLM nor verl had.

    calls: start and end of every model call of the step's games, by the runners' clocks; vLLM has the time in which at
        least one is under way, but not more than the step waited for its games.
    trainer: seconds of the step that verl's calls took, up to the push, which is the business of both.
    """
    played = seconds.get("seconds/play", 0.0)
    in_calls = min(_union(calls), played)
    of_both = seconds.get("seconds/push", 0.0)
    learning = sum(seconds.get(f"seconds/{stage}", 0.0) for stage in ("assess", "update"))
    step = played + learning + of_both
    rest = seconds["seconds/step"] - seconds.get("seconds/evaluate", 0.0) - step
    outside = (played - in_calls) + max(learning - trainer, 0.0) + rest
    whole = step + rest
    return seconds | {"seconds/play_in_vllm": in_calls, "time/share_outside_vllm_and_verl": outside / whole}


def _union(intervals: Iterable[tuple[float, float]]) -> float:
    """The length of what the intervals cover together."""
    covered, reached = 0.0, float("-inf")
    for start, end in sorted(intervals):
        if end > reached:
            covered += end - max(start, reached)
            reached = end
    return covered


def log_step(step: int, steps: int, metrics: dict[str, float]) -> None:
    """One readable line about a finished step."""
    rewards = "".join(
        f", mean reward {side} {metrics[name]:+.3f}" for side in SIDES if (name := f"reward/{side}") in metrics
    )
    logger.info(
        "step %d/%d done: %d games, %.0f%% valid replies%s, %d tokens trained, policy version %d",
        step,
        steps,
        metrics["games/finished"],
        100 * metrics["turns/valid_share"],
        rewards,
        metrics["tokens/trained"],
        metrics["policy_version"],
    )


def write_transcripts(config: Config, step: int, games: Sequence[FinishedGame]) -> None:
    """Write the first games of a step as readable Chinese text."""
    folder = config.run_dir / "transcripts" / f"step-{step:04d}"
    folder.mkdir(parents=True, exist_ok=True)
    for game in games[: config.log.transcripts_per_step]:
        (folder / f"{game.result.game_id}.txt").write_text(game.result.transcript, encoding="utf-8")


def write_batch(path: Path, update: "Update") -> None:
    """Write a training batch as JSON Lines, one trajectory a line, everything aligned with ``token_ids``."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", encoding="utf-8") as file:
        for trajectory, advantage, logprobs in zip(update.trained, update.advantages, update.log_probs, strict=True):
            row = vars(trajectory) | {"advantages": advantage.tolist(), "trainer_logprobs": logprobs.tolist()}
            file.write(json.dumps(row) + "\n")


class RunSummary:
    """Adds up the steps of a run; written as JSON and shown as tables at its end.

    steps: the metrics of each step made. before: those of the evaluation before the first.
    """

    def __init__(self, run_dir: Path, state: Mapping[str, Any] | None = None):
        """state: of an earlier process of the run (``state``)."""
        self.run_dir = run_dir
        state = state or {}
        self.steps: list[dict[str, float]] = list(state.get("steps", []))
        self.before: dict[str, float] = dict(state.get("before", {}))
        self._left_out: Counter[str] = Counter(state.get("left_out", {}))
        self._seconds: dict[str, float] = dict(state.get("seconds", {}))

    def state(self, stopwatch: Stopwatch) -> dict[str, Any]:
        """What a resumed run goes on with."""
        return {
            "steps": self.steps,
            "before": self.before,
            "left_out": dict(self._left_out),
            "seconds": self._all_seconds(stopwatch),
        }

    def add_step(self, metrics: dict[str, float], left_out: Counter[str]) -> None:
        """Take a finished step's metrics and its left-out turns by reason."""
        self.steps.append(metrics)
        self._left_out += left_out

    def write(self, stopwatch: Stopwatch, policy_version: int) -> None:
        """Write ``summary.json`` as it stands."""
        text = json.dumps(self.as_dict(stopwatch, policy_version), indent=2) + "\n"
        (self.run_dir / "summary.json").write_text(text, encoding="utf-8")

    def _all_seconds(self, stopwatch: Stopwatch) -> dict[str, float]:
        names = [*self._seconds, *(name for name in stopwatch.seconds if name not in self._seconds)]
        return {name: self._seconds.get(name, 0.0) + stopwatch.seconds.get(name, 0.0) for name in names}

    def as_dict(self, stopwatch: Stopwatch, policy_version: int) -> dict[str, Any]:
        """The summary as JSON: totals, the steps one by one, seconds by stage, and where things lie."""
        games, turns = self._total("games/finished"), self._total("turns/played")
        of_policy = self._total("turns/of_policy")
        valid = sum(step["turns/valid_share"] * step["turns/of_policy"] for step in self.steps)
        return {
            "steps": len(self.steps),
            "policy_version": policy_version,
            "games": {"finished": int(games), "failed": int(self._total("games/failed"))},
            "turns": {
                "played": int(turns),
                "per_game": turns / games if games else None,
                "stored": int(self._total("turns/stored")),
                "in_batch": int(self._total("turns/in_batch")),
                "left_out": dict(self._left_out),
                "valid_share": valid / of_policy if of_policy else None,
            },
            "reward_by_side": {side: [step.get(f"reward/{side}") for step in self.steps] for side in SIDES},
            "tokens": {
                "trained_sequences": int(self._total("tokens/trained_sequences")),
                "trained": int(self._total("tokens/trained")),
                "sampled_and_trained": int(self._total("tokens/sampled_and_trained")),
            },
            "seconds_by_stage": {name: round(seconds, 1) for name, seconds in self._all_seconds(stopwatch).items()},
            "before": self.before,
            "step_metrics": self.steps,
            "files": {
                "logs": str(self.run_dir / "logs"),
                "metrics": str(self.run_dir / "metrics.jsonl"),
                "transcripts": str(self.run_dir / "transcripts"),
                "checkpoints": str(self.run_dir / "checkpoints"),
                "policy": str(self.run_dir / "policy"),
                **({"evaluations": str(self.run_dir / PAGE_NAME)} if _evaluations(self.before, self.steps) else {}),
            },
        }

    def _total(self, name: str) -> float:
        return sum(step.get(name, 0.0) for step in self.steps)


def _evaluations(before: Mapping[str, float], steps: Sequence[Mapping[str, float]]) -> list[Mapping[str, float]]:
    """The metrics that hold an evaluation's numbers, in their order."""
    return [metrics for metrics in (before, *steps) if any(name.startswith("evaluation/") for name in metrics)]


def _win_rate_rows(summary: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """What a summary says of evaluation: win rates of the first and the last one, with their 95 % intervals."""
    evaluations = _evaluations(summary["before"], summary["step_metrics"])
    first_and_last = evaluations[:1] + evaluations[1:][-1:]
    for name in dict.fromkeys(name for metrics in first_and_last for name in metrics):
        if (found := _WIN_RATE.fullmatch(name)) is None:
            continue
        rates = [
            f"{metrics[name]:.0%} ({metrics[f'{name}/low']:.0%} to {metrics[f'{name}/high']:.0%})"
            if name in metrics
            else "-"
            for metrics in first_and_last
        ]
        yield f"win rate, {found['side']} against {found['opponent']}", " -> ".join(rates)


def _reward_rows(summary: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """The mean rewards of each side that was trained: of every step, or of some, evenly spread, of very many."""
    for side, rewards in summary["reward_by_side"].items():
        if all(reward is None for reward in rewards):
            continue
        count = min(len(rewards), _REWARDS_SHOWN)
        steps = [round(i * (len(rewards) - 1) / max(count - 1, 1)) for i in range(count)]
        shown = " -> ".join("-" if rewards[step] is None else f"{rewards[step]:+.3f}" for step in steps)
        which = "" if count == len(rewards) else f" (steps {', '.join(str(step + 1) for step in steps)})"
        yield f"mean reward, {side}", shown + which


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
    for row in _reward_rows(summary):
        overview.add_row(*row)
    for row in _win_rate_rows(summary):
        overview.add_row(*row)
    sequences = f"{tokens['trained']} in {tokens['trained_sequences']} sequences"
    overview.add_row("tokens trained", f"{sequences}, {tokens['sampled_and_trained']} of them sampled")
    console.print(overview)
    stages = Table(title="Seconds by stage", title_justify="left")
    stages.add_column("stage")
    stages.add_column("seconds", justify="right")
    for name, seconds in summary["seconds_by_stage"].items():
        stages.add_row(name, f"{seconds:.1f}")
    console.print(stages)
    files = Table("", Column(overflow="fold"), title="Files", show_header=False, title_justify="left")
    for name, path in summary["files"].items():
        files.add_row(name, path)
    console.print(files)
