"""A seat's tokens as the model saw and sampled them, joined with what training made of them.

The hub's spans say what was given and sampled, with log-probs and versions; a run that saved its batches says what each
token's advantage was and what the trainer recomputed. What neither says is None, and the page says so.
"""

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from tokenizers import Tokenizer

from runners.werewolf.game import PRESETS
from runners.werewolf.language.replies import split_thought
from runners.werewolf.web.folders import NotThere, RunFolders
from runners.werewolf.web.views import ShownGame, ShownTurn
from store.werewolf import TurnSpan, seat_name

_BatchKey = tuple[str, int, int]


class TokenRows:
    """Tokens by seat and segment. tokenizer: folder with a ``tokenizer.json``; None takes the run's newest model."""

    def __init__(self, runs: RunFolders, tokenizer: Path | None):
        self._runs = runs
        self._tokenizer = tokenizer
        self._loaded: dict[Path, Tokenizer] = {}
        self._batches = _Batches()

    def of(self, game: ShownGame, spans: Sequence[TurnSpan], seat: int, segment: int) -> dict[str, Any]:
        """One segment: its tokens' ids and texts, and everything known of each, aligned.

        spans: the seat's turns of this segment, in order; none where only a batch holds them. Raises NotThere.
        """
        row = self._batch_row(game, seat, segment)
        if not spans and row is None:
            raise NotThere("no tokens were kept of this seat: they are in a hub's spans, or in a run's saved batches")
        data = _from_spans(spans) if spans else _from_batch(row)
        data["batch"] = None
        data["advantages"] = data["trainer"] = None
        if row is not None and list(row["token_ids"]) == data["ids"]:
            data["advantages"], data["trainer"] = row.get("advantages"), row.get("trainer_logprobs")
            data["batch"] = {name: row.get(name) for name in ("reward", "turn_rewards", "dimensions", "file")}
        elif row is not None:
            data["batch"] = {"file": row.get("file"), "differs": True}
        tokenizer = self._tokenizer_for(game)
        data["texts"] = None if tokenizer is None else texts_of(tokenizer, data["ids"])
        return data

    def turns_of(self, game: ShownGame) -> tuple[ShownTurn, ...]:
        """The turns of a game that a run kept as text, from the run's saved batches; none where it saved none."""
        run, name = game.about.get("run"), game.about.get("game")
        folder = self._runs.run_of(str(run)) if run and name else None
        if folder is None:
            return ()
        tokenizer = self._tokenizer_for(game)
        found = []
        for row in self._batches.rows_of(folder / "batches", str(name)):
            for turn in _from_batch(row)["turns"]:
                sampled = row["token_ids"][turn["start"] : turn["end"]]
                logprobs = row["logprobs"][turn["start"] : turn["end"]]
                text = "" if tokenizer is None else tokenizer.decode(list(sampled), skip_special_tokens=True)
                thought, reply = split_thought(text)
                found.append(
                    ShownTurn(
                        seat=_SEATS[row["actor"]],
                        day=None,
                        decision=turn["decision"],
                        reply=reply,
                        thought=thought,
                        number=turn["turn"],
                        segment=row["segment"],
                        policy=turn["policy"],
                        version=turn["version"],
                        trainable=True,
                        tokens=(turn["start"] - turn["given"], turn["end"] - turn["start"]),
                        logprob=round(fmean(logprobs), 4) if logprobs else None,
                    )
                )
        return tuple(found)

    def _batch_row(self, game: ShownGame, seat: int, segment: int) -> Mapping[str, Any] | None:
        run, name = game.about.get("run"), game.about.get("game")
        folder = self._runs.run_of(str(run)) if run and name else None
        if folder is None:
            return None
        return self._batches.row(folder / "batches", (str(name), seat, segment))

    def _tokenizer_for(self, game: ShownGame) -> Tokenizer | None:
        evaluated = self._runs.evaluation_of(game)
        folder = self._tokenizer or (evaluated and evaluated.folder)
        run = game.about.get("run")
        if folder is None and run:
            found = self._runs.run_of(str(run))
            folder = None if found is None else _newest_model(found)
        if folder is None or not (folder / "tokenizer.json").is_file():
            return None
        if folder not in self._loaded:
            self._loaded[folder] = Tokenizer.from_file(str(folder / "tokenizer.json"))
        return self._loaded[folder]


def _newest_model(run: Path) -> Path | None:
    # Where several policies learn, each has a model, with the tokenizer of all.
    folders = ("checkpoints/*/huggingface", "checkpoints/*/policies/*/huggingface")
    found = [path.parent for folder in folders for path in run.glob(f"{folder}/tokenizer.json")]
    return max(found, default=None)


def texts_of(tokenizer: Tokenizer, ids: Sequence[int]) -> list[str]:
    """The text of each token. A character that several tokens make stands with the last; the others are empty."""
    texts: list[str] = []
    waiting: list[int] = []
    for token_id in ids:
        waiting.append(token_id)
        text = tokenizer.decode(waiting, skip_special_tokens=False)
        whole = "\ufffd" not in text
        if whole or len(waiting) == 4:  # no character of UTF-8 has more bytes
            texts.append(text)
            waiting = []
        else:
            texts.append("")
    return texts


def _from_spans(spans: Sequence[TurnSpan]) -> dict[str, Any]:
    ids: list[int] = []
    sampled: list[int] = []
    logprobs: list[float | None] = []
    turns = []
    complete = True
    for span in spans:
        complete &= span.context_tokens == len(ids)
        start = len(ids) + len(span.prompt_ids)
        ids += [*span.prompt_ids, *span.response_ids]
        sampled += [0] * len(span.prompt_ids) + [1] * len(span.response_ids)
        known = any(span.logprobs)  # all zeros are a demonstration's, which no policy sampled
        logprobs += [None] * len(span.prompt_ids) + [round(value, 5) if known else None for value in span.logprobs]
        turns.append(
            {
                "turn": span.turn,
                "given": start - len(span.prompt_ids),
                "start": start,
                "end": len(ids),
                "decision": span.decision,
                "day": span.day,
                "policy": span.policy,
                "version": span.policy_version,
                "trainable": span.trainable,
                "error": span.error,
                "finish": span.finish_reason,
            }
        )
    return {"ids": ids, "sampled": sampled, "logprobs": logprobs, "turns": turns, "complete": complete}


def _from_batch(row: Mapping[str, Any]) -> dict[str, Any]:
    mask, ids = list(row["loss_mask"]), list(row["token_ids"])
    turns, given = [], 0
    for number, end in enumerate(row["turn_ends"]):
        start = end
        while start > given and mask[start - 1]:
            start -= 1
        questions = row.get("turn_questions") or ()
        turns.append(
            {
                "turn": number,
                "given": given,
                "start": start,
                "end": end,
                "decision": questions[number] if number < len(questions) else "",
                "version": row["turn_versions"][number],
                "policy": "policy",
                "trainable": True,
            }
        )
        given = end
    logprobs = [value if sampled else None for value, sampled in zip(row["logprobs"], mask, strict=True)]
    return {"ids": ids, "sampled": mask, "logprobs": logprobs, "turns": turns, "complete": True}


_SEATS = {seat_name(seat): seat for preset in PRESETS.values() for seat in preset.seats}
"""Saved batches name actors, as rooms do that know no game."""


class _Batches:
    """Where each trajectory stands in a run's saved batches: each file is read through once, and again when it grew."""

    def __init__(self) -> None:
        self._read: dict[Path, int] = {}
        self._places: dict[tuple[Path, _BatchKey], tuple[Path, int]] = {}

    def row(self, folder: Path, key: _BatchKey) -> Mapping[str, Any] | None:
        """A trajectory with its numbers, and the name of its file; None where no batch has it."""
        for path in sorted(folder.glob("step-*.jsonl")):
            self._index(folder, path)
        place = self._places.get((folder, key))
        if place is None:
            return None
        path, offset = place
        with path.open("rb") as file:
            file.seek(offset)
            row = json.loads(file.readline(), parse_constant=lambda name: None)
        for name in ("advantages", "trainer_logprobs"):
            values = row.get(name)
            if isinstance(values, list):
                row[name] = [
                    round(value, 6) if isinstance(value, int | float) and math.isfinite(value) else None
                    for value in values
                ]
        return row | {"file": path.name}

    def rows_of(self, folder: Path, game: str) -> list[Mapping[str, Any]]:
        """All trajectories of a game, by seat and segment."""
        for path in sorted(folder.glob("step-*.jsonl")):
            self._index(folder, path)
        keys = sorted(key for of_folder, key in self._places if of_folder == folder and key[0] == game)
        return [row for key in keys if (row := self.row(folder, key)) is not None]

    def _index(self, folder: Path, path: Path) -> None:
        start = self._read.get(path, 0)
        if path.stat().st_size <= start:
            return
        with path.open("rb") as file:
            file.seek(start)
            while (line := file.readline()).endswith(b"\n"):
                row = json.loads(line)
                key = (str(row["task_id"]), _SEATS[row["actor"]], int(row["segment"]))
                self._places[folder, key] = (path, start)
                start += len(line)
        self._read[path] = start
