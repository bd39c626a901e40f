"""Games and numbers in files: transcripts of ``play``, and what a run leaves in its folder. Read, never written.

Names in an address are looked up among what is there, so that none can lead out of the folder.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from runners.werewolf.web.transcripts import ReadTranscript, UnreadableGame, read_data, read_text
from runners.werewolf.web.views import ShownGame, ShownTurn, number_in, seats_of

_NAME = re.compile(r"[\w.@+-]+")
_LARGEST_FILE = 256 * 1024 * 1024


class NotThere(LookupError):
    """No such game or run."""


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


def read_file(path: Path) -> str:
    """A file's text. Raises UnreadableGame."""
    try:
        if path.stat().st_size > _LARGEST_FILE:
            raise UnreadableGame(f"{path.name} is too large to be a game")
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UnreadableGame(f"{path.name} cannot be read: {error}") from error


def read_game(game_id: str, title: str, text: str) -> ShownGame:
    """A game from what ``play`` wrote, in either format, or from what the web page kept. Raises UnreadableGame."""
    if text.lstrip().startswith("{"):
        try:
            data = json.loads(text)
        except ValueError as error:
            raise UnreadableGame(f"{title} is no JSON: {error}") from error
        players = {int(seat): str(name) for seat, name in (data.get("players") or {}).items() if number_in(str(seat))}
        return as_game(game_id, title, read_data(data), players=players)
    return as_game(game_id, title, read_text(text))


def as_game(game_id: str, title: str, read: ReadTranscript, **fields: Any) -> ShownGame:
    """What a transcript tells, as a game to show."""
    return ShownGame(
        id=game_id,
        title=title,
        preset=read.preset,
        seats=seats_of(read.events, read.roles),
        events=read.events,
        result=read.result,
        seed=read.seed,
        only_view=read.viewer,
        **fields,
    )


class RunFolders:
    """The folder that runs lie in, one folder each. Ids of games: ``run:NAME/step-0001/GAME``, ``run:NAME/eval/…``."""

    def __init__(self, folder: Path | None):
        self._folder = folder
        self._told: dict[Path, tuple[tuple[int, int], list[_Evaluation]]] = {}

    def names(self) -> list[str]:
        """Runs, newest first."""
        if self._folder is None or not self._folder.is_dir():
            return []
        found = [path for path in self._folder.iterdir() if (path / "config.yaml").is_file()]
        return [path.name for path in sorted(found, key=lambda path: path.stat().st_mtime, reverse=True)]

    def run(self, name: str) -> Path:
        """A run's folder. Raises NotThere."""
        if self._folder is None or not _NAME.fullmatch(name) or name.startswith("."):
            raise NotThere(f"no run {name!r}")
        path = self._folder / name
        if not (path / "config.yaml").is_file():
            raise NotThere(f"no run {name!r} in {self._folder.name}")
        return path

    def run_of(self, run_id: str) -> Path | None:
        """The folder of the run that names its games and resources so; None where it is not here."""
        own = run_id.removesuffix("-evaluation")  # evaluations publish their resources under a name of their own
        for name in [run_id, own, own.rpartition("-")[0]]:
            try:
                return self.run(name)
            except NotThere:
                continue
        return None

    def evaluation_of(self, run: Path, game: str) -> "Evaluated | None":
        """What the evaluation evaluated that this game of the run belongs to; None for a game of training."""
        for path in sorted((run / "evaluated").glob("*/evaluated.json")):
            written = json.loads(read_file(path))
            if game.startswith(written["games"]):
                return Evaluated(written["label"], path.parent)
        return None

    def checkpoint_of(self, root: str) -> tuple[Mapping[str, Any], Mapping[str, Any]] | None:
        """(state, configuration) of the checkpoint in which a model's folder lies; None where it lies in none here."""
        path = Path(root).absolute()
        checkpoint, run = path.parent, path.parent.parent.parent
        if self._folder is None or run.parent != self._folder.absolute() or not (checkpoint / "state.json").is_file():
            return None
        return json.loads(read_file(checkpoint / "state.json")), yaml.safe_load(read_file(run / "config.yaml"))

    def samples(self, name: str) -> list[dict[str, Any]]:
        """The games that a run kept: transcripts of its steps, and whole games of its evaluations."""
        run = self.run(name)
        rows = []
        for step in sorted((run / "transcripts").glob("step-*"), reverse=True):
            for path in sorted(step.glob("*.txt")):
                rows.append({"id": f"run:{name}/{step.name}/{path.stem}", "title": path.stem, "group": step.name})
        for told in self._evaluations(run):
            rows += [
                {"id": f"run:{name}/eval/{told.name}/{title}", "title": title, "group": told.about["label"]}
                | {"players": _players_by_side(row), "result": row["result"], "deal": row["cluster"]}
                for title, row in told.samples.items()
            ]
        return rows

    def game(self, game_id: str) -> ShownGame:
        """A kept game. Raises NotThere and UnreadableGame."""
        name, _, rest = game_id.removeprefix("run:").partition("/")
        run, parts = self.run(name), rest.split("/")
        if not all(_NAME.fullmatch(part) and not part.startswith(".") for part in parts):
            raise NotThere(f"no game {game_id}")
        if parts[0] == "eval" and len(parts) == 3:
            for told in self._evaluations(run):
                if told.name == parts[1] and parts[2] in told.samples:
                    return _sample_game(game_id, name, told.about, told.samples[parts[2]])
        elif len(parts) == 2:
            path = run / "transcripts" / parts[0] / f"{parts[1]}.txt"
            if path.is_file():
                read = read_text(read_file(path))
                return as_game(game_id, parts[1], read, about={"run": name, "step": parts[0], "game": parts[1]})
        raise NotThere(f"no game {game_id}")

    def evaluations(self, name: str) -> list[Mapping[str, Any]]:
        """A run's evaluations: what was evaluated, and what was counted as ``figures``."""
        return [told.about | {"figures": told.figures} for told in self._evaluations(self.run(name))]

    def _evaluations(self, run: Path) -> list["_Evaluation"]:
        """The file is read once, since it holds every game, and pages ask again and again."""
        path = run / "evaluations.jsonl"
        if not path.is_file():
            return []
        status = path.stat()
        stamp = (status.st_size, status.st_mtime_ns)
        if path not in self._told or self._told[path][0] != stamp:
            self._told[path] = stamp, _read_evaluations(path)
        return self._told[path][1]


@dataclass(frozen=True)
class Evaluated:
    """A policy that ``algo.evaluate`` evaluated. label: such as "step-000002". folder: has a copy of its tokenizer."""

    label: str
    folder: Path


@dataclass
class _Evaluation:
    """name: in addresses. about: its header. figures: empty until it has ended. samples: whole games by their ids."""

    name: str
    about: Mapping[str, Any]
    figures: Mapping[str, Any]
    samples: dict[str, Mapping[str, Any]]


def _read_evaluations(path: Path) -> list[_Evaluation]:
    """The evaluations in a run's ``evaluations.jsonl``, whose form ``algo.evaluation.record`` says."""
    found: dict[str, _Evaluation] = {}
    for line in path.open(encoding="utf-8"):  # may be long: most rows need not be read
        if '"row": ' in line and '"sample": {' not in line:
            continue
        try:
            entry = json.loads(line)
        except ValueError:
            continue  # being written right now
        if header := entry.get("evaluation"):
            key = "|".join((header["label"], header["digest"], header["model"]))
            name = re.sub(r"[^A-Za-z0-9-]", "-", f"{len(found)}-{header['label']}")
            found.setdefault(key, _Evaluation(name, header, {}, {}))
        elif entry.get("of") in found and "row" in entry and entry["row"].get("sample"):
            found[entry["of"]].samples[entry["row"]["task_id"]] = entry["row"]
        elif entry.get("of") in found and "end" in entry:
            found[entry["of"]].figures = entry["end"]["figures"]
    return list({told.about["label"]: told for told in found.values()}.values())


def _players_by_side(row: Mapping[str, Any]) -> dict[str, str]:
    players: dict[str, dict[str, None]] = {}
    for seat in row["seats"]:
        players.setdefault(seat["side"], {})[seat["player"]] = None
    return {side: "+".join(names) for side, names in players.items()}


def _sample_game(game_id: str, run: str, evaluation: Mapping[str, Any], row: Mapping[str, Any]) -> ShownGame:
    seats = row["seats"]
    players = {seat["seat"]: seat["player"] for seat in seats}
    turns = tuple(
        ShownTurn(
            seat=turn["seat"],
            day=turn["day"],
            decision=turn["decision"],
            reply=turn["reply"],
            thought=turn["thought"],
            error=turn["error"],
            target=turn["target"],
            policy=players[turn["seat"]],
            version=evaluation.get("policy_version") if players[turn["seat"]] == "policy" else None,
        )
        for turn in row["sample"]["turns"]
    )
    return as_game(
        game_id,
        row["task_id"],
        read_text(row["sample"]["transcript"]),
        players=players,
        turns=turns,
        about={
            "run": run,
            "evaluation": str(evaluation.get("label", "")),
            "version": evaluation.get("policy_version"),
            "rewards": {str(seat["seat"]): seat["reward"] for seat in seats if seat["reward"] is not None},
        },
    )
