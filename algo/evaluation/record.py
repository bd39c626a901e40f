"""``evaluations.jsonl``: every evaluation of a run, one line for each game or task, appended as it ends.

A line has one of ``evaluation`` (begun), ``row``, ``end`` and ``forgotten`` (restarted). A killed process loses at most
an incomplete last line, which the next one removes. A task with a row is not played again.
"""

import json
import re
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Generic, TypeVar

from pydantic import Field

from algo.evaluation.statistics import Frozen
from algo.machine.progress import game_progress
from algo.rollouts.played import NoFinishedRollouts, Progress
from algo.rollouts.queue import RolloutQueue
from algo.rollouts.triplets import FinishedRollout
from algo.run.names import EVALUATION_SUFFIX
from configs.section import ConfigError
from store.schema import PolicyResources, Task

EVALUATIONS_FILE = "evaluations.jsonl"
PAGE_FILE = "evaluations.html"
"""Both in the run's folder."""
_LABEL = re.compile(r"\w[\w .+-]*")


class Row(Frozen):
    """One finished game or task. number: its index among the evaluation's tasks, from 0.

    cluster: deal or task; rows of one cluster are resampled together.
    """

    number: int = Field(ge=0)
    task_id: str
    cluster: int


class UnreadRow(Row, extra="allow"):
    """Of any workload, for readers of headers alone."""


AnyRow = TypeVar("AnyRow", bound=Row)


class Header(Frozen):
    """Policy, matches and conditions of an evaluation.

    label: such as "step 5". player: the policy's name in tables. step: updates made; None if unknown.
    model, initial: folders of the policy, and of the weights that the run began with. weights: digest of the policy's,
    where its version does not identify them.
    panel: who plays whom (``algo.evaluation.panel``); empty for agents. conditions: settings that must be equal for
    two evaluations to be comparable, without the model. digest: of the conditions.
    seed: of the games, and of the resampling behind intervals. planned: name of the match -> its tasks.
    notes: detectable differences, computed before the games.
    """

    label: str
    player: str
    step: int | None = None
    policy_version: int = Field(ge=0)
    model: str = ""
    weights: str = ""
    initial: str = ""
    panel: str = ""
    conditions: dict[str, Any]
    digest: str
    seed: int
    planned: dict[str, int]
    notes: str = ""

    @property
    def key(self) -> str:
        """Identifies the rows; equal when an evaluation is resumed."""
        return f"{self.label}|{self.digest}|{self.model}{self.weights and f'|{self.weights}'}"


class Evaluation(Frozen, Generic[AnyRow]):
    """One evaluation, finished or not. rows: in the order of their tasks.

    failures, retried: reason -> number of tasks without a row, and of repeated attempts.
    """

    header: Header
    rows: tuple[AnyRow, ...]
    failures: dict[str, int] = Field(default_factory=dict)
    retried: dict[str, int] = Field(default_factory=dict)
    ended: bool = False

    @property
    def not_finished(self) -> int:
        """Number of planned tasks without a row."""
        return sum(self.header.planned.values()) - len(self.rows)

    def missing(self) -> dict[str, int]:
        """Match -> planned tasks without a row."""
        found, first = {}, 0
        for name, planned in self.header.planned.items():
            found[name] = planned - sum(first <= row.number < first + planned for row in self.rows)
            first += planned
        return found


class Record(Generic[AnyRow]):
    """The file of one run. A later evaluation replaces an earlier one of the same label."""

    def __init__(self, run_dir: Path, row: type[AnyRow]):
        self.path = run_dir / EVALUATIONS_FILE
        self._row = row

    def read(self) -> list[Evaluation[AnyRow]]:
        """The newest evaluation of each label, in order of their begin. Raises ConfigError, naming the invalid line."""
        evaluations = self._read_all()
        newest = {one.header.label: one.header.key for one in evaluations}
        return [one for one in evaluations if newest[one.header.label] == one.header.key]

    def _read_all(self) -> list[Evaluation[AnyRow]]:
        headers: dict[str, Header] = {}
        rows: dict[str, dict[str, AnyRow]] = {}
        ends: dict[str, dict[str, Any]] = {}
        # Bytes: a line that a killed process left incomplete may end within a character.
        written = self.path.read_bytes() if self.path.exists() else b""
        for number, line in enumerate(written.split(b"\n")[:-1], 1):
            try:
                document = json.loads(line)
                if "evaluation" in document:
                    header = Header.model_validate(document["evaluation"])
                    headers.pop(header.key, None)  # one that is repeated is the newest of its label again
                    headers[header.key] = header
                elif "row" in document:
                    row = self._row.model_validate(document["row"])
                    rows.setdefault(document["of"], {}).setdefault(row.task_id, row)
                elif "forgotten" in document:
                    for found in (headers, rows, ends):
                        found.pop(document["of"], None)
                else:
                    end = document["end"]
                    ends[document["of"]] = {"failures": end["failures"], "retried": end["retried"], "ended": True}
            except (ValueError, KeyError, TypeError) as error:
                raise ConfigError(f"{self.path}, line {number}, is invalid: {error}") from error
        return [
            Evaluation[self._row](  # type: ignore[name-defined]
                header=header,
                rows=tuple(sorted(rows.get(key, {}).values(), key=lambda row: row.number)),
                **ends.get(key, {}),
            )
            for key, header in headers.items()
        ]

    def begin(self, header: Header) -> set[str]:
        """Write the header unless it is the newest of its label; returns the ids of tasks with a row."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("ab+") as file:  # removes the incomplete line of a killed process
            file.seek(0)
            file.truncate(file.read().rfind(b"\n") + 1)
        of_label = [one for one in self._read_all() if one.header.label == header.label]
        if not of_label or of_label[-1].header.key != header.key:
            self._append({"evaluation": header.model_dump(mode="json")})
        return {row.task_id for one in of_label if one.header.key == header.key for row in one.rows}

    def add(self, header: Header, rows: Iterable[AnyRow]) -> None:
        for row in rows:
            self._append({"of": header.key, "row": row.model_dump(mode="json")})

    def end(self, header: Header, failures: Mapping[str, int], retried: Mapping[str, int], figures: Any) -> None:
        """Append the end. figures: as JSON, for readers without this code."""
        document = {"failures": dict(failures), "retried": dict(retried), "figures": figures}
        self._append({"of": header.key, "end": document})

    def forget(self, header: Header) -> None:
        """Discard all rows so far: the evaluation restarts."""
        self._append({"of": header.key, "forgotten": True})

    def forget_later(self, step: int) -> None:
        """Discard the evaluations of later steps."""
        for evaluation in self._read_all():
            if (evaluation.header.step or 0) > step:
                self.begin(evaluation.header)  # removes an incomplete line
                self.forget(evaluation.header)

    def _append(self, document: Mapping[str, Any]) -> None:
        with self.path.open("ab") as file:
            file.write(json.dumps(document, ensure_ascii=False).encode() + b"\n")


async def play_and_record(
    record: Record[AnyRow],
    header: Header,
    tasks: Sequence[Task],
    queue: RolloutQueue,
    resources: PolicyResources,
    check_alive: Callable[[], Awaitable[object]],
    to_row: Callable[[int, FinishedRollout], AnyRow],
    *,
    resumed: bool,
    figures: Callable[[Evaluation[AnyRow]], Any],
) -> Evaluation[AnyRow]:
    """Play the tasks without a row, and append a row as each ends; returns the evaluation.

    resources: of the policy; the tasks get them without a judge, and with the temperature of the conditions.
    check_alive: see ``RolloutQueue.watch``. to_row: of a finished rollout and its task's number.
    resumed: an earlier process of the run may have enqueued some of the tasks, with the same weights; else rows of an
        earlier process, of weights that are lost, are discarded. figures: for ``Record.end``.
    Raises ConfigError for an invalid label, NoFinishedRollouts if no task has a row.
    """
    check_label(header.label)
    recorded = record.begin(header)
    if recorded and not resumed:
        record.forget(header)
        recorded = record.begin(header)
    numbers = {task.task_id: number for number, task in enumerate(tasks)}
    missing = [task for task in tasks if task.task_id not in recorded]
    waiting = {task.task_id for task in missing}
    finished, failures, retried = len(tasks) - len(missing), Counter[str](), Counter[str]()
    show = game_progress(f"evaluation of {header.label}", len(tasks))

    def on_look(now: Progress) -> None:
        nonlocal finished
        ended = queue.take_ended(waiting)
        record.add(header, [to_row(numbers[rollout.outcome.task], rollout) for rollout in ended.finished])
        finished += len(ended.finished)
        failures.update(ended.failures)
        retried.update(ended.retried)
        show(Progress(finished, failures.total(), now.playing, now.waiting))

    if missing:
        sampling = resources.sampling.model_copy(update={"temperature": header.conditions["temperature"]})
        # An id of their own: runners cache resources by id, and those of training may name other players.
        own = {"run_name": resources.run_name + EVALUATION_SUFFIX, "sampling": sampling, "judge": None}
        await queue.enqueue(missing, resources.model_copy(update=own), resumed, mode="val")
        await queue.watch(waiting, lambda: finished + failures.total() >= len(tasks), check_alive, on_look)
    if not finished:
        reasons = "; ".join(f"{count}x {reason}" for reason, count in failures.most_common(3))
        raise NoFinishedRollouts(f"none of {len(tasks)} rollouts is usable: {reasons}. See the runners' logs")
    played = next(one for one in record.read() if one.header.key == header.key)
    if missing or not played.ended:
        record.end(header, failures, retried, figures(played))
        played = played.model_copy(update={"failures": dict(failures), "retried": dict(retried), "ended": True})
    return played


def check_label(label: str) -> None:
    """Raise ConfigError for a label that is no part of a file name."""
    if not _LABEL.fullmatch(label):
        raise ConfigError(f"{label!r} is no valid label of an evaluation: use letters, digits, spaces and _ . + -")
