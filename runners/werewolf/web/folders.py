"""Games and numbers in files: what ``play`` wrote, and what a run leaves in its folder. Read, never written.

Names in an address are looked up among what is there, so that none can lead out of the folder.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from runners.werewolf.web.views import ShownGame, ShownTurn, UnreadableGame, number_in, read_game

_NAME = re.compile(r"[\w@+-][\w.@+-]*")
_LARGEST_FILE = 256 * 1024 * 1024


class NotThere(LookupError):
    """No such game or run."""


def read_file(path: Path) -> Any:
    """What a JSON file holds. Raises UnreadableGame."""
    try:
        if path.stat().st_size > _LARGEST_FILE:
            raise UnreadableGame(f"{path.name} is too large to be read")
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise UnreadableGame(f"{path.name} is no JSON: {error}") from error


class GameFiles:
    """Games that the command line named, one file each. Ids: ``file:1``, …"""

    def __init__(self, paths: Sequence[Path]):
        self._paths = tuple(paths)

    def rows(self) -> list[dict[str, Any]]:
        """What can be opened."""
        return [{"id": f"file:{number}", "title": path.name} for number, path in enumerate(self._paths, start=1)]

    def game(self, game_id: str) -> ShownGame:
        """One of them. Raises NotThere and UnreadableGame."""
        number = number_in(game_id.removeprefix("file:")) or 0
        if not 1 <= number <= len(self._paths):
            raise NotThere(f"no game {game_id}")
        path = self._paths[number - 1]
        return read_game(game_id, path.name, read_file(path))


@dataclass(frozen=True)
class Evaluated:
    """A policy that ``algo.evaluate`` evaluated. label: such as "step-000002". folder: has a copy of its tokenizer."""

    label: str
    folder: Path


class RunFolders:
    """The folder that runs lie in, one folder each. Ids of games: ``run:NAME/step-0001/GAME``, ``run:NAME/eval/…``."""

    def __init__(self, folder: Path | None):
        self._folder = folder
        self._read: dict[Path, tuple[tuple[int, int], list[dict[str, Any]]]] = {}

    def names(self) -> list[str]:
        """Runs, newest first."""
        if self._folder is None or not self._folder.is_dir():
            return []
        found = [path for path in self._folder.iterdir() if (path / "config.yaml").is_file()]
        return [path.name for path in sorted(found, key=lambda path: path.stat().st_mtime, reverse=True)]

    def run(self, name: str) -> Path:
        """A run's folder. Raises NotThere."""
        path = None if self._folder is None or not _NAME.fullmatch(name) else self._folder / name
        if path is None or not (path / "config.yaml").is_file():
            raise NotThere(f"no run {name!r}")
        return path

    def run_of(self, run_id: str) -> Path | None:
        """The folder of the run that names its games and resources so; None where it is not here."""
        own = run_id.removesuffix("-evaluation")  # evaluations publish their resources under a name of their own
        for name in (run_id, own, own.rpartition("-")[0]):
            try:
                return self.run(name)
            except NotThere:
                continue
        return None

    def evaluation_of(self, game: ShownGame) -> Evaluated | None:
        """What the evaluation evaluated that the game belongs to; None for a game of training."""
        run = self.run_of(str(game.about.get("run", "")))
        for path in [] if run is None else sorted((run / "evaluated").glob("*/evaluated.json")):
            written = read_file(path)
            if str(game.about.get("game", "")).startswith(written["games"]):
                return Evaluated(written["label"], path.parent)
        return None

    def checkpoint_of(self, root: str) -> tuple[Mapping[str, Any], Mapping[str, Any]] | None:
        """(state, configuration) of the checkpoint in which a model's folder lies; None where it lies in none here."""
        path = Path(root).absolute()
        checkpoint, run = path.parent, path.parent.parent.parent
        if self._folder is None or run.parent != self._folder.absolute() or not (checkpoint / "state.json").is_file():
            return None
        return read_file(checkpoint / "state.json"), yaml.safe_load((run / "config.yaml").read_text(encoding="utf-8"))

    def samples(self, name: str) -> list[dict[str, Any]]:
        """The games that a run kept: of its steps, and whole games of its evaluations."""
        run = self.run(name)
        rows = [
            {"id": f"run:{name}/{path.parent.name}/{path.stem}", "title": path.stem, "group": path.parent.name}
            for step in sorted((run / "transcripts").glob("step-*"), reverse=True)
            for path in sorted(step.glob("*.json"))
        ]
        for evaluation in self._evaluations(run):
            for title, row in evaluation["samples"].items():
                about = {"players": _players_by_side(row), "result": row["result"], "deal": row["cluster"]}
                game_id = f"run:{name}/eval/{evaluation['name']}/{title}"
                rows.append({"id": game_id, "title": title, "group": evaluation["label"]} | about)
        return rows

    def game(self, game_id: str) -> ShownGame:
        """A kept game. Raises NotThere and UnreadableGame."""
        name, _, rest = game_id.removeprefix("run:").partition("/")
        run, parts = self.run(name), rest.split("/")
        if not all(_NAME.fullmatch(part) for part in parts):
            raise NotThere(f"no game {game_id}")
        if parts[0] == "eval" and len(parts) == 3:
            for evaluation in self._evaluations(run):
                if evaluation["name"] == parts[1] and parts[2] in evaluation["samples"]:
                    return _sample_game(game_id, name, evaluation, evaluation["samples"][parts[2]])
        elif len(parts) == 2 and (path := run / "transcripts" / parts[0] / f"{parts[1]}.json").is_file():
            about = {"run": name, "step": parts[0], "game": parts[1]}
            return read_game(game_id, parts[1], read_file(path), about=about)
        raise NotThere(f"no game {game_id}")

    def evaluations(self, name: str) -> list[Mapping[str, Any]]:
        """A run's evaluations, without their games, and what was counted in them as ``figures``."""
        return [
            {field: value for field, value in evaluation.items() if field != "samples"}
            for evaluation in self._evaluations(self.run(name))
        ]

    def _evaluations(self, run: Path) -> list[dict[str, Any]]:
        """The file is read once, since it holds every game, and pages ask again and again."""
        path = run / "evaluations.jsonl"
        if not path.is_file():
            return []
        status = path.stat()
        stamp = (status.st_size, status.st_mtime_ns)
        if path not in self._read or self._read[path][0] != stamp:
            self._read[path] = stamp, _read_evaluations(path)
        return self._read[path][1]


def _read_evaluations(path: Path) -> list[dict[str, Any]]:
    """The evaluations in a run's ``evaluations.jsonl``, whose form ``algo.evaluation.record`` says.

    Each is its header with name (in addresses), figures (empty until it has ended), and samples: rows of the games that
    were kept whole, by their ids.
    """
    found: dict[str, dict[str, Any]] = {}
    with path.open(encoding="utf-8") as lines:
        for line in lines:  # many: most rows need not be read
            if '"row": ' in line and '"sample": {' not in line:
                continue
            try:
                entry = json.loads(line)
            except ValueError:
                continue  # being written right now
            if header := entry.get("evaluation"):
                key = "|".join((header["label"], header["digest"], header["model"]))
                name = re.sub(r"[^A-Za-z0-9-]", "-", f"{len(found)}-{header['label']}")
                found.setdefault(key, {**header, "name": name, "figures": {}, "samples": {}})
            elif (evaluation := found.get(entry.get("of", ""))) and "row" in entry:
                evaluation["samples"][entry["row"]["task_id"]] = entry["row"]
            elif evaluation and "end" in entry:
                evaluation["figures"] = entry["end"]["figures"]
    return list({evaluation["label"]: evaluation for evaluation in found.values()}.values())


def _players_by_side(row: Mapping[str, Any]) -> dict[str, str]:
    players: dict[str, dict[str, None]] = {}
    for seat in row["seats"]:
        players.setdefault(seat["side"], {})[seat["player"]] = None
    return {side: "+".join(names) for side, names in players.items()}


def _sample_game(game_id: str, run: str, evaluation: Mapping[str, Any], row: Mapping[str, Any]) -> ShownGame:
    seats, version = row["seats"], evaluation.get("policy_version")
    players = {seat["seat"]: seat["player"] for seat in seats}
    turns = tuple(
        ShownTurn(
            seat=turn["seat"],
            policy=players[turn["seat"]],
            version=version if players[turn["seat"]] == "policy" else None,
            **{name: turn[name] for name in ("day", "decision", "reply", "thought", "error", "target")},
        )
        for turn in row["sample"]["turns"]
    )
    about = {
        "run": run,
        "game": row["task_id"],
        "evaluation": str(evaluation.get("label", "")),
        "version": version,
        "rewards": {str(seat["seat"]): seat["reward"] for seat in seats if seat["reward"] is not None},
    }
    data = {
        "preset": evaluation["terms"].get("preset"),
        "seed": row["cluster"],
        "result": row["result"],
        "players": {str(seat): player for seat, player in players.items()},
        "events": row["sample"]["events"],
    }
    return read_game(game_id, row["task_id"], data, turns=turns, about=about)
