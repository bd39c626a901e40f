"""A seat's tokens as the model saw and sampled them, joined with training data.

The hub's spans hold prompts and samples, with log-probs and versions; saved batches of a run hold advantages and the
trainer's log-probs. Missing values are None.
"""

import json
import re
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from runners.werewolf.game import PRESETS
from runners.werewolf.web.folders import NotThere, RunFolders
from runners.werewolf.web.views import ShownGame, ShownTurn, number_in
from store.werewolf import TurnSpan, seat_name

_Segment = tuple[int, int]
"""(seat, segment)"""
_TOKENIZERS = 4
"""Kept in memory: every evaluation and checkpoint has a folder of its own."""
_Place = tuple[Path, int]
"""(file, byte offset of the line)"""


class TokenRows:
    """Tokens by seat and segment. tokenizer: folder with a ``tokenizer.json``; None: the run's newest model."""

    def __init__(self, runs: RunFolders, tokenizer: Path | None):
        self._runs = runs
        self._tokenizer = tokenizer
        self._loaded: dict[Path, Tokenizer] = {}
        self._read: dict[Path, tuple[int, int]] = {}
        self._found: dict[tuple[Path, str], dict[_Segment, _Place]] = {}
        self._reading = threading.Lock()

    def of(self, game: ShownGame, spans: Sequence[TurnSpan], seat: int, segment: int) -> dict[str, Any]:
        """One segment: token ids, texts and their data, aligned.

        spans: the seat's turns of this segment, in order; empty if only a batch holds them. Raises NotThere.
        """
        place = self._places(game).get((seat, segment))
        row = None if place is None else _row_at(*place)
        if not spans and row is None:
            raise NotThere("no tokens of this seat: they are in a hub's spans, or in saved batches (log.save_batches)")
        turns = [turn for turn in game.turns if _segment(turn) == (seat, segment)]
        data = _from_spans(spans) if spans else _from_batch(row, turns)
        data |= {"batch": None, "advantages": None, "trainer": None}
        if row is not None and list(row["token_ids"]) == data["ids"]:
            data["advantages"], data["trainer"] = _rounded(row["advantages"]), _rounded(row["trainer_logprobs"])
            data["batch"] = {"reward": row["reward"], "file": row["file"]}
        elif row is not None:
            data["batch"] = {"file": row["file"], "differs": True}
        tokenizer = self._tokenizer_for(game)
        data["texts"] = None if tokenizer is None else texts_of(tokenizer, data["ids"])
        return data

    def without_lost(self, game: ShownGame) -> ShownGame:
        """The game without token counts of turns that no batch holds."""
        places = self._places(game)
        turns = [turn if _segment(turn) in places else turn | {"tokens": None} for turn in game.turns]
        return game.model_copy(update={"turns": turns})

    def _places(self, game: ShownGame) -> Mapping[_Segment, _Place]:
        """The places of the game's trajectories in saved batches.

        A file is read again when it has changed: a resumed run writes the batch of a repeated step anew.
        """
        run, name = self._runs.run_of(str(game.about.get("run", ""))), str(game.about.get("game", ""))
        step = str(game.about.get("step", ""))
        evaluated = "evaluation" in game.about or game.about.get("mode") == "val" or step.startswith("evaluation-")
        if run is None or evaluated:  # such games are never trained on
            return {}
        with self._reading:  # several requests must not read the same files
            for path in _may_hold(sorted((run / "batches").glob("step-*.jsonl")), name, step):
                self._read_batch(run, path)
                if places := self._found.get((run, name)):  # batches may have hundreds of megabytes each
                    return places
        return {}

    def _read_batch(self, run: Path, path: Path) -> None:
        now = path.stat()
        state = now.st_mtime_ns, now.st_size
        if self._read.get(path) == state:
            return
        if path in self._read:
            for key, places in self._found.items():
                self._found[key] = {segment: place for segment, place in places.items() if place[0] != path}
        start = 0
        with path.open("rb") as file:
            while (line := file.readline()).endswith(b"\n"):  # the last one may be incomplete
                with suppress(ValueError, LookupError, TypeError):  # a damaged line
                    row = json.loads(line)
                    segment = _SEATS[row["actor"]], int(row["segment"])
                    self._found.setdefault((run, str(row["task_id"])), {})[segment] = path, start
                start += len(line)
        self._read[path] = state

    def _tokenizer_for(self, game: ShownGame) -> Tokenizer | None:
        evaluated, run = self._runs.evaluation_of(game), self._runs.run_of(str(game.about.get("run", "")))
        folder = self._tokenizer or (evaluated and evaluated[1])
        if folder is None and run is not None:
            # Each of several learning policies has a model folder, with the same tokenizer.
            folders = ("checkpoints/*/huggingface", "checkpoints/*/policies/*/huggingface")
            found = [path.parent for folder in folders for path in run.glob(f"{folder}/tokenizer.json")]
            folder = max(found, default=None)
        if folder is None or not (folder / "tokenizer.json").is_file():
            return None
        if folder not in self._loaded:
            while len(self._loaded) >= _TOKENIZERS:
                del self._loaded[next(iter(self._loaded))]
            self._loaded[folder] = Tokenizer.from_file(str(folder / "tokenizer.json"))
        return self._loaded[folder]


def _may_hold(batches: list[Path], game: str, step: str) -> list[Path]:
    """The batches that may hold a game: of its step, if its transcript names one (a step without an update has none),
    else from the step that queued it on.

    batches: in order of steps. game: its task's id, which has the step that queued it, ``run-step0007-deal03-…``.
    """
    if step.startswith("step-"):
        return [path for path in batches if path.stem == step]
    queued = re.search(r"-step(\d+)-deal", game)
    if queued is None:
        return batches
    return [path for path in batches if (number_in(path.stem.removeprefix("step-")) or 0) >= int(queued[1])]


def texts_of(tokenizer: Tokenizer, ids: Sequence[int]) -> list[str]:
    """The text of each token. A character of several tokens is at the last one; the others are empty."""
    texts: list[str] = []
    waiting: list[int] = []
    for token_id in ids:
        waiting.append(token_id)
        text = tokenizer.decode(waiting, skip_special_tokens=False)
        whole = "\ufffd" not in text or len(waiting) == 4  # a UTF-8 character has at most 4 bytes
        texts.append(text if whole else "")
        waiting = [] if whole else waiting
    return texts


_FIELDS = ("turn", "decision", "day", "policy", "policy_version", "error")


def _segment(turn: ShownTurn) -> _Segment:
    return turn["seat"], turn.get("segment", 0)


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
        known = any(span.logprobs)  # all zeros: a demonstration, which was not sampled
        logprobs += [None] * len(span.prompt_ids) + [round(value, 5) if known else None for value in span.logprobs]
        fields = {name: getattr(span, name) for name in _FIELDS}
        turns.append(fields | {"given": given, "start": start, "end": len(ids), "finish": span.finish_reason})
    return {"ids": ids, "sampled": sampled, "logprobs": logprobs, "turns": turns, "complete": complete}


def _from_batch(row: Mapping[str, Any], of_game: Sequence[ShownTurn]) -> dict[str, Any]:
    """of_game: the segment's turns without tokens."""
    mask, ids = list(row["loss_mask"]), list(row["token_ids"])
    turns, given = [], 0
    for turn, end, version in zip(of_game, row["turn_ends"], row["turn_versions"], strict=False):
        start = end
        while start > given and mask[start - 1]:
            start -= 1
        known = {name: turn.get(name) for name in _FIELDS} | {"policy_version": version}
        turns.append(known | {"given": given, "start": start, "end": end})
        given = end
    logprobs = [value if sampled else None for value, sampled in zip(row["logprobs"], mask, strict=True)]
    return {"ids": ids, "sampled": mask, "logprobs": logprobs, "turns": turns, "complete": True}


def _rounded(values: Sequence[float | None]) -> list[float | None]:
    return [None if value is None else round(value, 6) for value in values]


_SEATS = {seat_name(seat): seat for preset in PRESETS.values() for seat in preset.seats}
"""Saved batches have actors' names."""


def _row_at(path: Path, offset: int) -> Mapping[str, Any]:
    with path.open("rb") as file:
        file.seek(offset)
        return json.loads(file.readline(), parse_constant=lambda name: None) | {"file": path.name}  # NaN is None
