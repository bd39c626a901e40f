"""Reads games and evaluations from run folders.

Names in URLs are validated and looked up, so that none can leave the folder.
"""

import json
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import yaml

from runners.werewolf.web.views import ShownGame, UnreadableGame, card_of, number_in, read_game

_NAME = re.compile(r"[\w@+-][\w.@+-]*")
_RECIPE = "recipe.json"  # in a recipe's folder, next to its runs
_LARGEST_FILE = 256 * 1024 * 1024


class NotThere(LookupError):
    """No such game, run or report."""


def read_file(path: Path) -> Any:
    """The content of a JSON file. Raises UnreadableGame."""
    try:
        if path.stat().st_size > _LARGEST_FILE:
            raise UnreadableGame(f"{path.name} is too large")
        return json.loads(path.read_text(encoding="utf-8"), parse_constant=lambda name: None)  # NaN
    except (OSError, ValueError, RecursionError) as error:
        raise UnreadableGame(f"{path.name} is not valid JSON: {error}") from error


class RunFolders:
    """Folders of run folders, and of recipes' folders with runs, which are named RUN@RECIPE. The first has precedence.

    Ids of games: ``run:NAME/step-0001/GAME``, ``run:NAME/eval/…``.
    """

    def __init__(self, *folders: Path):
        self._folders = folders
        self._read: dict[Path, tuple[tuple[int, int], Any]] = {}

    def names(self) -> list[str]:
        """Runs, newest first."""
        found = {}
        for folder in reversed(self._folders):
            found |= {path.parent.name: path for path in folder.glob("*/config.yaml")}
            for path in folder.glob("*/*/config.yaml"):
                recipe = path.parent.parent
                if (recipe / _RECIPE).is_file():
                    found[f"{path.parent.name}@{recipe.name}"] = path
        usable = [name for name in found if self._find(name)]  # a copy may be named "first (copy)"
        return sorted(usable, key=lambda name: found[name].stat().st_mtime, reverse=True)

    def run(self, name: str) -> Path:
        """A run's folder. Raises NotThere."""
        if (path := self._find(name)) is None:
            raise NotThere(f"no run {name!r}")
        return path

    def _find(self, name: str) -> Path | None:
        run, _, recipe = name.rpartition("@")
        named = [parts for parts in ((name,), (recipe, run)) if all(map(_NAME.fullmatch, parts))]
        paths = (folder.joinpath(*parts) for folder in self._folders for parts in named)
        return next((path for path in paths if (path / "config.yaml").is_file()), None)

    def of_recipe(self, name: str) -> list[str]:
        """The runs of the same recipe, this one first."""
        recipe = self.run(name).parent
        others = self.names() if (recipe / _RECIPE).is_file() else []
        return [name, *(other for other in others if other != name and self.run(other).parent == recipe)]

    def reports(self, name: str) -> dict[str, Path]:
        """The reports of a run and of its recipe, by their names in URLs."""
        run = self.run(name)
        found = {path.name: path for path in sorted(run.glob("*.html"))}
        recipes = [path for path in run.parent.glob("*.html") if (run.parent / _RECIPE).is_file()]
        return found | {f"recipe-{path.name}": path for path in recipes}

    def run_of(self, run_id: str) -> Path | None:
        """The folder of the run with this id in games and resources, or None."""
        own = run_id.removesuffix("-evaluation")  # evaluations publish resources under this name
        return next(filter(None, map(self._find, (run_id, own, own.rpartition("-")[0]))), None)

    def config_of(self, run_id: str) -> Mapping[str, Any] | None:
        """The configuration of the run with this id, or None."""
        run = self.run_of(run_id)
        return None if run is None else _config_of(run)

    def evaluation_of(self, game: ShownGame) -> tuple[str, Path] | None:
        """The label of the evaluation by ``algo.evaluate`` that this game belongs to, and the folder of its tokenizer.

        None for a game of training.
        """
        run = self.run_of(str(game.about.get("run", "")))
        # The longer name first: "step-1-" also begins the games of "step 1-b".
        for path in [] if run is None else sorted((run / "evaluated").glob("*/evaluated.json"), reverse=True):
            written = read_file(path)
            if str(game.about.get("game", "")).startswith(written["games"]):
                return written["label"], path.parent
        return None

    def checkpoint_of(self, root: str) -> tuple[Mapping[str, Any], Mapping[str, Any]] | None:
        """(state, configuration) of the checkpoint that contains a model folder, or None."""
        path = Path(root).absolute()  # STEP/huggingface, of a team STEP/policies/NAME/huggingface
        checkpoint = path.parent.parent.parent if path.parent.parent.name == "policies" else path.parent
        run = checkpoint.parent.parent
        known = (self.run(name).absolute() for name in self.names())
        if run not in known or not (checkpoint / "state.json").is_file():
            return None
        return read_file(checkpoint / "state.json"), _config_of(run)

    def samples(self, name: str, most: int) -> list[dict[str, Any]]:
        """Cards (``views.card_of``) of a run's recorded games: of the newest evaluations, then of the newest steps.

        Added fields: when (seconds since the epoch), and the evaluation or step.
        """
        run, cards = self.run(name), []
        for evaluation in reversed(self.evaluations(name)):
            when = (run / "evaluations.jsonl").stat().st_mtime
            for task, row in list(evaluation["samples"].items())[: most - len(cards)]:
                game_id = f"run:{name}/eval/{evaluation['name']}/{task}"
                with suppress(UnreadableGame):
                    card = card_of(_sample_game(game_id, name, evaluation, row))
                    of = {"when": when, "step": evaluation.get("step"), "evaluation": evaluation["label"]}
                    cards.append(card | of)
        for step in sorted((run / "transcripts").glob("step-*"), reverse=True):
            for path in sorted(step.glob("*.json")) if len(cards) < most else ():
                game_id = f"run:{name}/{step.name}/{path.stem}"
                with suppress(UnreadableGame, FileNotFoundError):  # incomplete, or deleted since it was listed
                    cards.append(self.card(path, game_id) | {"step": number_in(step.name.removeprefix("step-"))})
        return cards[:most]

    def card(self, path: Path, game_id: str) -> dict[str, Any]:
        """The card of the game in a file, cached. Raises UnreadableGame."""
        card = self.read_once(path, lambda: card_of(read_game(read_file(path))))
        return card | {"id": game_id, "when": path.stat().st_mtime}

    def read_once(self, path: Path, read: Callable[[], Any]) -> Any:
        """The result of ``read`` for a file, cached until the file changes."""
        stamp = (path.stat().st_size, path.stat().st_mtime_ns)
        if path not in self._read or self._read[path][0] != stamp:
            self._read[path] = stamp, read()
        return self._read[path][1]

    def game(self, game_id: str) -> ShownGame:
        """A recorded game. Raises NotThere and UnreadableGame."""
        name, _, rest = game_id.removeprefix("run:").partition("/")
        run, parts = self.run(name), rest.split("/")
        if not all(_NAME.fullmatch(part) for part in parts):
            raise NotThere(f"no game {game_id}")
        if parts[0] == "eval" and len(parts) == 3:
            for evaluation in self.evaluations(name):
                if evaluation["name"] == parts[1] and parts[2] in evaluation["samples"]:
                    return _sample_game(game_id, name, evaluation, evaluation["samples"][parts[2]])
        elif len(parts) == 2 and (path := run / "transcripts" / parts[0] / f"{parts[1]}.json").is_file():
            about = {"run": name, "step": parts[0], "game": parts[1]}
            return read_game(read_file(path), id=game_id, title=parts[1], about=about)
        raise NotThere(f"no game {game_id}")

    def evaluations(self, name: str) -> list[dict[str, Any]]:
        """A run's evaluations (``_read_evaluations``)."""
        path = self.run(name) / "evaluations.jsonl"
        return self.read_once(path, lambda: _read_evaluations(path)) if path.is_file() else []


def _read_evaluations(path: Path) -> list[dict[str, Any]]:
    """The evaluations in a run's ``evaluations.jsonl`` (format: ``algo.evaluation.record``).

    Each is its header with name (in URLs), figures (empty until it has ended), and samples: rows of games recorded in
    full, by id.
    """
    found: dict[str, dict[str, Any]] = {}
    begun = 0
    with path.open(encoding="utf-8", errors="replace") as lines:
        for line in lines:  # skip most rows without parsing
            if '"row": ' in line and '"sample": {' not in line:
                continue
            with suppress(ValueError, LookupError, TypeError, AttributeError):  # incomplete, or of another version
                entry = json.loads(line, parse_constant=lambda name: None)
                if header := entry.get("evaluation"):
                    parts = (header["label"], header["digest"], header["model"], header.get("weights", ""))
                    key = "|".join(parts).removesuffix("|")
                    name = re.sub(r"[^A-Za-z0-9-]", "-", f"{begun}-{header['label']}")
                    begun += 1
                    # One that is repeated is the newest of its label again.
                    found[key] = found.pop(key, None) or {**header, "name": name, "figures": {}, "samples": {}}
                elif (evaluation := found.get(entry.get("of", ""))) and "row" in entry:
                    evaluation["samples"][entry["row"]["task_id"]] = entry["row"]
                elif evaluation and "end" in entry:
                    evaluation["figures"] = entry["end"]["figures"]
                elif evaluation and "forgotten" in entry:
                    del found[entry["of"]]
    return list({evaluation["label"]: evaluation for evaluation in found.values()}.values())


def _config_of(run: Path) -> Mapping[str, Any]:
    """A run's configuration; its prompts are files in the run's folder or absolute."""
    config = yaml.safe_load((run / "config.yaml").read_text(encoding="utf-8"))
    prompts = (config.get("game") or {}).get("prompts") or {}
    prompts.update({name: str(run / path) for name, path in prompts.items()})
    return config


def _sample_game(game_id: str, run: str, evaluation: Mapping[str, Any], row: Mapping[str, Any]) -> ShownGame:
    """Raises UnreadableGame, e.g. for a row of another version."""
    try:
        data = {
            "preset": evaluation["conditions"].get("preset", ""),
            "seed": row["cluster"],
            "result": row["result"],
            "players": {seat["seat"]: seat["player"] for seat in row["seats"]},
            "events": row["sample"]["events"],
            "turns": row["sample"]["turns"],
        }
        about = {
            "run": run,
            "game": row["task_id"],
            "evaluation": evaluation["label"],
            "version": evaluation["policy_version"],
            "rewards": {str(seat["seat"]): seat["reward"] for seat in row["seats"] if seat["reward"] is not None},
        }
    except (LookupError, TypeError, AttributeError) as error:
        raise UnreadableGame(f"{game_id} is incompatible with this version: {error!r}") from error
    return read_game(data, id=game_id, title=row["task_id"], about=about)
