"""A recipe: stages, settings, criterion. Light to import.

With ``extends: other.yaml`` mappings are merged key by key, everything else replaces the other's value.
"""

from functools import partial
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import Field, ValidationError, model_validator

from configs.agents import AgentConfig
from configs.loading import CONFIG_DIR, config_of, explain, find_input_files, merged, read_document
from configs.schema import Config
from configs.section import ConfigError, Section
from configs.werewolf import WerewolfConfig

RECIPE_FOLDER = CONFIG_DIR / "recipes"


class Stage(Section):
    """One process of a recipe, run once for each seed ("build" once for all)."""

    do: Literal["build", "imitate", "evaluate", "train", "speech"]
    name: str = Field(
        "", pattern=r"^([A-Za-z0-9][A-Za-z0-9-]*)?$", description="unique name of the stage; default: the value of do"
    )
    command: str = Field(
        "",
        description="of build: writes a model into the folder {model}; {python} is this Python",
    )
    panel: Literal["run", "cross", "training", "held-out", "v3"] = Field("run", description="of evaluate: the matches")
    players: tuple[str, ...] = Field((), description="of evaluate with panel cross")
    config: dict[str, Any] = Field({}, description="settings of this stage; override those of the recipe")

    @model_validator(mode="before")
    @classmethod
    def _default_name(cls, given: Any) -> Any:
        return {"name": given.get("do", ""), **given} if isinstance(given, dict) else given

    @model_validator(mode="after")
    def _fits_what_it_does(self) -> Self:
        if bool(self.command) != (self.do == "build"):
            raise ValueError("a build stage needs command, and no other stage may have one")
        if self.players and self.panel != "cross":
            raise ValueError("players needs panel: cross; otherwise set evaluation.opponents")
        return self


class Success(Section):
    """The criterion of training on held-out games or tasks; the intervals before and after must also be disjoint."""

    gain: float = Field(description="least gain of the win rate or mean reward, each from 0 to 1")
    or_beats_opponent: bool = Field(
        False,
        description="or a higher win rate than the opponent has in the same seats (needs a stage with panel cross)",
    )


class Recipe(Section):
    """Contents of a recipe file."""

    name: str = Field(pattern=r"^[A-Za-z0-9_-]+$")
    title: str = Field(description="of the report")
    workload: Literal["werewolf", "agents"] = "werewolf"
    concurrent_games: int = Field(16, ge=1, description="games that the runner plays concurrently")
    seeds: tuple[int, ...] = Field((1,), min_length=1)
    model: Path | None = Field(None, description="folder of the initial model; null: model in the recipe's run folder")
    config_file: Path | None = Field(
        None, description="the configuration that config overrides; relative to the recipe"
    )
    config: dict[str, Any] = Field({}, description="settings of all stages")
    stages: tuple[Stage, ...] = Field(min_length=1)
    success: Success | None = None

    @property
    def schema_of_configs(self) -> type[Config]:
        return AgentConfig if self.workload == "agents" else WerewolfConfig

    @model_validator(mode="after")
    def _check_stages(self) -> Self:
        names = [stage.name for stage in self.stages]
        if len(set(names)) < len(names):
            raise ValueError(f"stages {', '.join(names)}: names must be unique; set name")
        trainings = sum(stage.do == "train" for stage in self.stages)
        if trainings > 1:
            raise ValueError("a recipe has at most one stage train, since the seed names its run")
        if self.workload == "agents" and (trainings == 0 or {stage.do for stage in self.stages} - {"build", "train"}):
            raise ValueError("a recipe of agents has one stage train, and only build stages before it")
        if len(set(self.seeds)) < len(self.seeds) or min(self.seeds) < 0:
            raise ValueError("seeds must be unique and not negative")
        return self


def shipped_recipes() -> str:
    """Their names, with commas between."""
    return ", ".join(sorted(file.stem for file in RECIPE_FOLDER.glob("*.yaml")))


def find_recipe(path: Path) -> Path:
    """The file of that path, or a shipped recipe: ``demo``, ``demo.yaml`` or ``configs/recipes/demo.yaml``.

    Raises ConfigError, naming the shipped recipes.
    """
    if path.is_file():
        return path
    shipped = RECIPE_FOLDER / f"{path.stem}.yaml"
    if path.parent in (Path(), Path("recipes"), Path("configs/recipes")) and shipped.is_file():
        return shipped
    raise ConfigError(f"recipe {path} does not exist; configs/recipes has {shipped_recipes()}")


def read_recipe(path: Path, **changes: Any) -> tuple[Recipe, dict[str, Any]]:
    """The recipe in a file, and the document of its ``config_file``. changes: of the recipe's fields.

    path: see ``find_recipe``. Raises ConfigError, naming the file and the key.
    """
    path = find_recipe(path)
    document = read_document(path, _resolve_paths, find_recipe)
    try:
        recipe = Recipe.model_validate({**document, **changes})
    except ValidationError as error:
        problems = "; ".join(explain(problem, Recipe) for problem in error.errors())
        raise ConfigError(f"recipe {path} is invalid: {problems}") from error
    resolve = partial(find_input_files, schema=recipe.schema_of_configs)
    return recipe, read_document(recipe.config_file, resolve) if recipe.config_file else {}


def _resolve_paths(document: dict[str, Any], folder: Path) -> None:
    """Make the paths of one file of the chain absolute, in place; the document is not validated yet."""
    if document.get("config_file"):
        document["config_file"] = str(folder / str(document["config_file"]))
    stages = document.get("stages")
    for part in (document, *(stages if isinstance(stages, list) else ())):
        if isinstance(part, dict) and isinstance(part.get("config"), dict):
            for schema in (WerewolfConfig, AgentConfig):
                find_input_files(part["config"], folder, schema)


def stage_config(recipe: Recipe, below: dict[str, Any], stage: Stage, overrides: list[str]) -> Config:
    """The configuration of one stage. Raises ConfigError, naming the stage."""
    document = merged(below, recipe.config, stage.config)
    where = f"stage {stage.name} of recipe {recipe.name}"
    return config_of(document, overrides, recipe.schema_of_configs, where)
