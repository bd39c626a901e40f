"""Games and numbers in files: transcripts of ``play``, and what a run leaves in its folder. Read, never written.

Names in an address are looked up among what is there, so that none can lead out of the folder.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
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
        self._told: dict[Path, tuple[tuple[int, int], _Evaluation]] = {}

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
        for path, told in self._evaluations(run):
            rows += [row | {"id": f"run:{name}/eval/{path.stem}/{row['title']}"} for row in told.samples]
        return rows

    def game(self, game_id: str) -> ShownGame:
        """A kept game. Raises NotThere and UnreadableGame."""
        name, _, rest = game_id.removeprefix("run:").partition("/")
        run, parts = self.run(name), rest.split("/")
        if not all(_NAME.fullmatch(part) and not part.startswith(".") for part in parts):
            raise NotThere(f"no game {game_id}")
        if parts[0] == "eval" and len(parts) == 3:
            path = run / "evaluations" / f"{parts[1]}.json"
            evaluation = json.loads(read_file(path)).get("evaluation") if path.is_file() else None
            for sample in (evaluation or {}).get("samples", ()):
                if sample["game_id"] == parts[2]:
                    return _sample_game(game_id, name, evaluation, sample)
        elif len(parts) == 2:
            path = run / "transcripts" / parts[0] / f"{parts[1]}.txt"
            if path.is_file():
                read = read_text(read_file(path))
                return as_game(game_id, parts[1], read, about={"run": name, "step": parts[0], "game": parts[1]})
        raise NotThere(f"no game {game_id}")

    def evaluations(self, name: str) -> list[Mapping[str, Any]]:
        """A run's evaluations, without their games, and what was counted in them as ``statistics``."""
        return [told.kept for _, told in self._evaluations(self.run(name))]

    def _evaluations(self, run: Path) -> Iterator[tuple[Path, "_Evaluation"]]:
        """Each file is read once, since it holds every game, and pages ask again and again."""
        for path in sorted((run / "evaluations").glob("*.json")):
            status = path.stat()
            stamp = (status.st_size, status.st_mtime_ns)
            if path not in self._told or self._told[path][0] != stamp:
                self._told[path] = stamp, _evaluation(path)
            yield path, self._told[path][1]


@dataclass(frozen=True)
class Evaluated:
    """A policy that ``algo.evaluate`` evaluated. label: such as "step-000002". folder: has a copy of its tokenizer."""

    label: str
    folder: Path


@dataclass(frozen=True)
class _Evaluation:
    """kept: the evaluation without its games. samples: rows for the games that it kept whole."""

    kept: Mapping[str, Any]
    samples: tuple[dict[str, Any], ...]


def _evaluation(path: Path) -> _Evaluation:
    read = json.loads(read_file(path))
    evaluation = read.get("evaluation")
    if not isinstance(evaluation, dict):
        return _Evaluation({}, ())
    kept = {name: value for name, value in evaluation.items() if name not in ("games", "samples")}
    group = str(evaluation.get("label", path.stem))
    told = ("players", "result", "deal")
    rows = tuple(
        {"title": sample["game_id"], "group": group} | {name: sample.get(name) for name in told}
        for sample in evaluation.get("samples", ())
    )
    return _Evaluation(kept | {"statistics": read.get("statistics") or {}}, rows)


def _sample_game(game_id: str, run: str, evaluation: Mapping[str, Any], sample: Mapping[str, Any]) -> ShownGame:
    seats = sample["seats"]
    turns = tuple(
        ShownTurn(
            seat=seat["seat"],
            day=turn["day"],
            decision=turn["decision"],
            reply=turn["reply"],
            thought=turn["thought"],
            error=turn["error"],
            target=turn["target"],
            policy=seat["policy"],
            version=evaluation.get("policy_version") if seat["policy"] == "policy" else None,
        )
        for seat in seats
        for turn in seat["turns"]
    )
    return as_game(
        game_id,
        sample["game_id"],
        read_text(sample["transcript"]),
        players={seat["seat"]: seat["policy"] for seat in seats},
        turns=turns,
        about={
            "run": run,
            "game": sample["game_id"],
            "evaluation": str(evaluation.get("label", "")),
            "version": evaluation.get("policy_version"),
            "rewards": {str(seat["seat"]): seat["reward"] for seat in seats if seat["reward"] is not None},
        },
    )
