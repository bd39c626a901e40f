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
        row = next((row for row in self._rows(game) if (_SEATS[row["actor"]], row["segment"]) == (seat, segment)), None)
        if not spans and row is None:
            raise NotThere("no tokens were kept of this seat: they are in a hub's spans, or in a run's saved batches")
        data = _from_spans(spans) if spans else _from_batch(row)
        data |= {"batch": None, "advantages": None, "trainer": None}
        if row is not None and list(row["token_ids"]) == data["ids"]:
            data["advantages"], data["trainer"] = _finite(row.get("advantages")), _finite(row.get("trainer_logprobs"))
            data["batch"] = {name: row.get(name) for name in ("reward", "turn_rewards", "dimensions", "file")}
        elif row is not None:
            data["batch"] = {"file": row["file"], "differs": True}
        tokenizer = self._tokenizer_for(game)
        data["texts"] = None if tokenizer is None else texts_of(tokenizer, data["ids"])
        return data

    def turns_of(self, game: ShownGame) -> tuple[ShownTurn, ...]:
        """The turns of a game that a run kept as text, from the run's saved batches; none where it saved none."""
        tokenizer = self._tokenizer_for(game)
        found = []
        for row in self._rows(game):
            for turn in _from_batch(row)["turns"]:
                start, end = turn["start"], turn["end"]
                sampled, logprobs = row["token_ids"][start:end], row["logprobs"][start:end]
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
                        tokens=(start - turn["given"], end - start),
                        logprob=round(fmean(logprobs), 4) if logprobs else None,
                    )
                )
        return tuple(found)

    def _rows(self, game: ShownGame) -> list[Mapping[str, Any]]:
        """The game's trajectories in its run's saved batches, by seat and segment."""
        run = self._runs.run_of(str(game.about.get("run", "")))
        return [] if run is None else self._batches.rows_of(run / "batches", str(game.about.get("game", "")))

    def _tokenizer_for(self, game: ShownGame) -> Tokenizer | None:
        evaluated, run = self._runs.evaluation_of(game), self._runs.run_of(str(game.about.get("run", "")))
        folder = self._tokenizer or (evaluated and evaluated.folder)
        if folder is None and run is not None:
            # Where several policies learn, each has a model, with the tokenizer of all.
            folders = ("checkpoints/*/huggingface", "checkpoints/*/policies/*/huggingface")
            found = [path.parent for folder in folders for path in run.glob(f"{folder}/tokenizer.json")]
            folder = max(found, default=None)
        if folder is None or not (folder / "tokenizer.json").is_file():
            return None
        if folder not in self._loaded:
            self._loaded[folder] = Tokenizer.from_file(str(folder / "tokenizer.json"))
        return self._loaded[folder]


def texts_of(tokenizer: Tokenizer, ids: Sequence[int]) -> list[str]:
    """The text of each token. A character that several tokens make stands with the last; the others are empty."""
    texts: list[str] = []
    waiting: list[int] = []
    for token_id in ids:
        waiting.append(token_id)
        text = tokenizer.decode(waiting, skip_special_tokens=False)
        whole = "\ufffd" not in text or len(waiting) == 4  # no character of UTF-8 has more bytes
        texts.append(text if whole else "")
        waiting = [] if whole else waiting
    return texts


def _from_spans(spans: Sequence[TurnSpan]) -> dict[str, Any]:
    ids: list[int] = []
    sampled: list[int] = []
    logprobs: list[float | None] = []
    turns = []
    complete = True
    for span in spans:
        complete &= span.context_tokens == len(ids)
        given, start = len(ids), len(ids) + len(span.prompt_ids)
        ids += [*span.prompt_ids, *span.response_ids]
        sampled += [0] * len(span.prompt_ids) + [1] * len(span.response_ids)
        known = any(span.logprobs)  # all zeros are a demonstration's, which no policy sampled
        logprobs += [None] * len(span.prompt_ids) + [round(value, 5) if known else None for value in span.logprobs]
        turns.append(
            {"turn": span.turn, "given": given, "start": start, "end": len(ids), "version": span.policy_version}
            | {"finish": span.finish_reason}
            | {name: getattr(span, name) for name in ("decision", "day", "policy", "trainable", "error")}
        )
    return {"ids": ids, "sampled": sampled, "logprobs": logprobs, "turns": turns, "complete": complete}


def _from_batch(row: Mapping[str, Any]) -> dict[str, Any]:
    mask, ids = list(row["loss_mask"]), list(row["token_ids"])
    turns, given = [], 0
    questions = row.get("turn_questions") or [""] * len(row["turn_ends"])
    for number, (end, version, question) in enumerate(
        zip(row["turn_ends"], row["turn_versions"], questions, strict=True)
    ):
        start = end
        while start > given and mask[start - 1]:
            start -= 1
        turn = {"turn": number, "given": given, "start": start, "end": end, "decision": question, "version": version}
        turns.append(turn | {"policy": "policy", "trainable": True})
        given = end
    logprobs = [value if sampled else None for value, sampled in zip(row["logprobs"], mask, strict=True)]
    return {"ids": ids, "sampled": mask, "logprobs": logprobs, "turns": turns, "complete": True}


def _finite(values: Any) -> list[float | None] | None:
    if not isinstance(values, list):
        return None
    known = (isinstance(value, int | float) and math.isfinite(value) for value in values)
    return [round(value, 6) if is_known else None for value, is_known in zip(values, known, strict=True)]


_SEATS = {seat_name(seat): seat for preset in PRESETS.values() for seat in preset.seats}
"""Saved batches name actors, as rooms do that know no game."""


class _Batches:
    """Where each trajectory stands in a run's saved batches: each file is read through once, and again when it grew."""

    def __init__(self) -> None:
        self._read: dict[Path, int] = {}
        self._places: dict[tuple[Path, str], dict[tuple[int, int], tuple[Path, int]]] = {}

    def rows_of(self, folder: Path, game: str) -> list[Mapping[str, Any]]:
        """All trajectories of a game, by seat and segment, each with the name of its ``file``."""
        for path in sorted(folder.glob("step-*.jsonl")):
            self._index(folder, path)
        rows = []
        for _, (path, offset) in sorted(self._places.get((folder, game), {}).items()):
            with path.open("rb") as file:
                file.seek(offset)
                rows.append(json.loads(file.readline(), parse_constant=lambda name: None) | {"file": path.name})
        return rows

    def _index(self, folder: Path, path: Path) -> None:
        start = self._read.get(path, 0)
        if path.stat().st_size <= start:
            return
        with path.open("rb") as file:
            file.seek(start)
            while (line := file.readline()).endswith(b"\n"):
                row = json.loads(line)
                key = _SEATS[row["actor"]], int(row["segment"])
                self._places.setdefault((folder, str(row["task_id"])), {})[key] = (path, start)
                start += len(line)
        self._read[path] = start
