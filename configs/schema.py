"""The configuration of a training run: what may be set, its default, and what each setting means.

Loaded from a YAML file, then overridden by ``section.key=value`` strings. An unknown key is refused
with the nearest valid name, so that a typing mistake never trains for a day with a default.
"""

import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import yaml
from pydantic import BaseModel, Field, FilePath, ValidationError, field_validator, model_validator

from configs.opponents import EndpointConfig, SeatingRuleConfig, SideName, check_player_names, unknown_player
from configs.section import Section, nearest_name

CONFIG_DIR = Path(__file__).parent
DEFAULT_CONFIG = CONFIG_DIR / "tiny_cpu.yaml"


_NEVER_SHOWN = ("api_key_env", "endpoint")
"""Settings into which a secret may have been written by mistake."""

PromptName = Literal["system", "wolf", "wolf_king", "villager", "seer", "witch", "hunter", "guard"]


class ConfigError(ValueError):
    """A configuration that cannot be used; the message names the file, the key and the remedy."""


class RunConfig(Section):
    """The run as a whole. Everything it writes lies under ``dir/name``."""

    name: str = Field(
        "werewolf", pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]*$", description="names the run's folder and resources"
    )
    dir: Path = Field(Path("runs"), description="parent of the run's folder")
    steps: int = Field(3, ge=1, description="updates to make")
    seed: int = Field(1, ge=0, description="deals, sampling and mini-batch order all follow from it")


class StoreConfig(Section):
    """The hub."""

    url: str = Field("http://127.0.0.1:4747", pattern=r"^https?://", description="address of `agl store`")
    patience_seconds: float = Field(120, gt=0, description="how long an unreachable hub is waited for before giving up")


class RulesConfig(Section):
    """Rules to play otherwise than the preset has them; null keeps the preset's own.

    The fields are those of ``runners/werewolf/game/presets.py``, which says what each means.
    """

    win_rule: Literal["wipe_a_kind", "parity"] | None = Field(
        None, description="the wolves win when a kind is wiped out (屠边), or when they are as many as the others"
    )
    round_limit: int | None = Field(None, ge=1, description="days until a game is a draw")
    speech_chars: int | None = Field(None, ge=1, description="longest speech that is heard, in characters")
    sheriff: bool | None = Field(None, description="a sheriff is elected")
    wolf_talk_rounds: int | None = Field(None, ge=0, description="how often each wolf speaks in a night, at most")
    wolves_may_pass: bool | None = Field(None, description="空刀")
    wolves_may_hit_wolves: bool | None = Field(None, description="自刀")
    wolves_may_explode: bool | None = Field(None, description="自爆")
    wolf_king_may_explode: bool | None = Field(None, description="狼王自爆; needs wolves_may_explode")
    witch_self_save: bool | None = Field(None, description="女巫自救")
    may_abstain: bool | None = Field(None, description="弃票")

    def chosen(self) -> dict[str, bool | int | str]:
        """The rules that are set, by name."""
        return self.model_dump(exclude_none=True)


class GameConfig(Section):
    """What is played and how many games make a step."""

    preset: Literal["12p_sheriff", "9p", "7p", "5p_tiny"] = Field("5p_tiny", description="rule preset")
    rules: RulesConfig = Field(RulesConfig(), description="rules to play otherwise, e.g. {win_rule: parity}")
    prompts: dict[PromptName, FilePath] = Field(
        {},
        description="text files that replace the frame of the system prompt (system) or a role's guidance (wolf, …)",
    )
    groups_per_step: int = Field(4, ge=1, description="deals per step")
    games_per_group: int = Field(4, ge=1, description="games played from each deal; a baseline needs at least two")
    train_sides: tuple[SideName, ...] = Field(
        ("wolf", "good"), min_length=1, description="sides whose turns are trained on, where the policy plays them"
    )
    opponent: str = Field(
        "policy",
        description="who plays the seats of a side that is not trained: policy, scripted, random, or a name of the "
        "section players",
    )
    seating: tuple[SeatingRuleConfig, ...] = Field(
        (),
        description="who plays which seats; the first rule that matches a seat decides, and where none does, the "
        "policy plays trained sides and game.opponent the others",
    )
    context_tokens: int = Field(4096, gt=0, description="most tokens of one call: prompt plus reply")
    reply_tokens: int = Field(64, gt=0, description="most tokens sampled for one reply")
    temperature: float = Field(1.0, gt=0, description="sampling temperature of the trained policy")
    thinking: bool = Field(False, description="whether a model that can think (Qwen3) does, before it answers")
    timeout_seconds: float = Field(600, gt=0, description="a game that takes longer is played again")
    unresponsive_seconds: float = Field(
        120, gt=0, description="a game without a new span for this long is played again"
    )
    max_attempts: int = Field(3, ge=1, description="times that a game is tried before it counts as failed")

    @model_validator(mode="after")
    def _reply_fits(self) -> "GameConfig":
        if self.reply_tokens >= self.context_tokens:
            raise ValueError(f"reply_tokens ({self.reply_tokens}) must be below context_tokens ({self.context_tokens})")
        return self

    @model_validator(mode="after")
    def _rules_can_match(self) -> "GameConfig":
        for number, rule in enumerate(self.seating):
            if problem := rule.problem_with(self.preset):
                raise ValueError(f"game.seating.{number}: {problem}")
        return self

    @model_validator(mode="after")
    def _policy_plays_what_is_trained(self) -> "GameConfig":
        for side in self.train_sides:
            for rule in self.seating:
                if rule.may_concern(side) and "policy" in rule.players:
                    break
                if rule.covers(side):
                    raise ValueError(f"game.train_sides has {side!r}, but game.seating never lets the policy play it")
        return self


class OutcomeReward(Section):
    """What the end of a game is worth to each seat of one side."""

    win: float = Field(1.0, description="the side wins")
    lose: float = Field(-1.0, description="the side loses")
    draw: float = Field(0.0, description="neither wins: as far from the one as from the other")


class RewardConfig(Section):
    """A seat's reward: the outcome for its side, and a weight times each recorded fact of its turns.

    The facts are those of ``store/spans.py`` (TURN_FACTS), each 0 to 1. By default they count by their mean over the
    seat's turns, so that with the default weights even the worst form costs less than losing instead of winning: the
    facts teach how to reply, and how to win is left to winning.
    """

    wolf: OutcomeReward = Field(OutcomeReward(), description="outcome for the wolves, e.g. {win: 2, lose: -1}")
    good: OutcomeReward = Field(OutcomeReward(), description="outcome for the good side")
    turns: Literal["averaged", "summed"] = Field(
        "averaged",
        description="whether a seat's turn rewards are averaged, so that long games and talkative roles do not "
        "dominate, or summed",
    )
    invalid: float = Field(
        -0.5,
        le=0,
        description="a reply that cannot be used; if all are, a draw is worth half a loss: form is learnt early",
    )
    reask: float = Field(
        0.0, le=0, description="a call that repeats a question; zero, since the reply before it has paid as invalid"
    )
    foreign_language: float = Field(
        -0.2, le=0, description="times the share of a speech's letters that are not Chinese: the table speaks Chinese"
    )
    repetition: float = Field(
        -0.2, le=0, description="times how much a speech repeats itself: repetition is how sampling degenerates"
    )
    repeats_earlier: float = Field(
        0.0,
        le=0,
        description="times how much a speech repeats the seat's own earlier ones; zero: claims may be repeated",
    )
    overlong: float = Field(
        -0.1, le=0, description="a speech longer than the rules allow; small, since nobody hears its end anyway"
    )
    cut: float = Field(
        -0.1, le=0, description="a reply that ended at its token limit; small, since what is lost is lost already"
    )
    identity_leak: float = Field(
        -0.5, le=0, description="a public speech that gives the wolves away: a table of beginners would not punish it"
    )
    judge_score: float = Field(
        0.0,
        ge=0,
        description="times the judge's score, from -1 (worthless) to 1 (excellent), averaged over the judged turns "
        "alone; zero: taste is no outcome",
    )
    low_judgement: float = Field(
        0.0, le=0, description="a turn judged below low_judgement_below; zero: only what a run asks for is judged"
    )
    low_judgement_below: float = Field(0.4, ge=0, le=1, description="scores below this, of 0 to 1, are low")
    very_low_judgement: float = Field(
        0.0, le=0, description="a turn judged below very_low_judgement_below, instead of low_judgement"
    )
    very_low_judgement_below: float = Field(0.0, ge=0, le=1, description="scores below this are very low; 0: none is")

    @model_validator(mode="after")
    def _thresholds_are_in_order(self) -> "RewardConfig":
        if self.very_low_judgement_below > self.low_judgement_below:
            raise ValueError(
                f"very_low_judgement_below ({self.very_low_judgement_below}) must not be above low_judgement_below "
                f"({self.low_judgement_below})"
            )
        return self


class AdvantageConfig(Section):
    """From rewards to advantages: verl's estimators, with a baseline per deal and side."""

    estimator: str = Field("grpo", description="name of an advantage estimator that verl registers")
    normalize_by_std: bool = Field(
        True, description="divide by the group's standard deviation (GRPO) or not (Dr. GRPO)"
    )


class ModelConfig(Section):
    """The model to train."""

    path: Path = Field(Path("runs/tiny_model"), description="Hugging Face model folder: weights, config, tokenizer")
    attn_implementation: str = Field("sdpa", description="sdpa everywhere; flash_attention_2 on GPUs with flash-attn")
    dtype: Literal["float32", "bfloat16"] = Field("float32", description="precision of serving and of the forward pass")


class TrainingConfig(Section):
    """The update, by verl's TrainingWorkers on Ray."""

    device: Literal["cpu", "cuda"] = Field("cpu", description="where the update runs")
    ranks: int = Field(1, ge=1, description="data-parallel workers")
    learning_rate: float = Field(1e-3, gt=0)
    grad_clip: float = Field(1.0, gt=0)
    mini_batch_size: int = Field(32, ge=1, description="sequences per optimizer step, over all ranks")
    micro_batch_size: int = Field(4, ge=1, description="sequences per forward pass, on each rank")
    epochs: int = Field(1, ge=1, description="passes over a step's batch")
    policy_loss: str = Field("vanilla", description="name of a policy loss that verl registers")
    clip_ratio_low: float = Field(0.2, ge=0)
    clip_ratio_high: float = Field(0.3, ge=0)
    entropy_coeff: float = Field(0.0, ge=0)
    loss_agg_mode: str = Field(
        "seq-mean-token-mean",
        description="verl's aggregation; the default weighs every sequence alike, however much its seat talks",
    )
    max_sequence_tokens: int = Field(8192, gt=0, description="longer sequences are left out of the update, and counted")
    max_sequences_per_game: int | None = Field(
        None,
        ge=1,
        description="most sequences of one game in an update, a seeded sample of whole seats; the others still count "
        "in the baselines; null: all",
    )


class ServingConfig(Section):
    """vLLM, which plays the trained policy."""

    mode: Literal["start", "attach"] = Field("start", description="start vLLM here, or use one that runs already")
    host: Literal["127.0.0.1", "localhost", "::1"] = Field(
        "127.0.0.1",
        description="where the started vLLM listens; loopback only, since its weight-update endpoints have no "
        "authentication",
    )
    port: int = Field(8000, ge=1, le=65535, description="port of the started vLLM")
    url: str | None = Field(None, description="base URL, without /v1, of the vLLM to attach to")
    public_url: str | None = Field(
        None,
        description="base URL, without /v1, that runners are told; for runners on other machines name a reverse "
        "proxy that forwards only /v1/, /tokenize, /detokenize and /tokenizer_info",
    )
    served_model_name: str = Field("policy", description="model name in requests")
    kv_cache_gb: float = Field(1.0, gt=0, description="memory of the KV cache on CPU, in GiB")
    gpu_memory_utilization: float = Field(0.4, gt=0, le=1, description="share of each GPU's memory that vLLM may take")
    max_concurrent_sequences: int = Field(64, ge=1, description="sequences that vLLM decodes at once")
    start_timeout_seconds: float = Field(600, gt=0, description="how long vLLM may take to become healthy")
    logprob_tolerance: float | None = Field(
        None,
        gt=0,
        description="largest difference, in nats per token, between vLLM's log-probs and the trainer's, of what was "
        "played and of a probe sequence after a push; beyond it the run stops, since it would not train what was "
        "sampled. By default 0.001 in float32 and 1.0 in bfloat16",
    )

    @field_validator("url", "public_url")
    @classmethod
    def _is_a_base_url(cls, url: str | None) -> str | None:
        if url is not None:
            if not url.startswith(("http://", "https://")):
                raise ValueError("must begin with http:// or https://")
            if url.rstrip("/").endswith("/v1"):
                raise ValueError("leave out /v1, which is added")
        return url

    @model_validator(mode="after")
    def _attach_needs_url(self) -> "ServingConfig":
        if self.mode == "attach" and not self.url:
            raise ValueError(
                "serving.mode is 'attach': set serving.url to the running vLLM, e.g. http://127.0.0.1:8000"
            )
        return self


class CheckpointConfig(Section):
    """What is kept on disk."""

    every_steps: int = Field(1, ge=1, description="steps between checkpoints; the last step always has one")
    keep: int = Field(2, ge=1, description="newest checkpoints kept")


class LogConfig(Section):
    """What a person can look at afterwards."""

    backends: tuple[str, ...] = Field(
        ("file", "tensorboard"),
        description="backends of verl's Tracking: file, tensorboard, console, wandb …",
    )
    transcripts_per_step: int = Field(2, ge=0, description="games per step written out as readable text")
    save_batches: bool = Field(
        False, description="also write each step's training batch, token by token, as JSON Lines"
    )


class Config(Section):
    """Everything that a run can be told."""

    run: RunConfig = RunConfig()
    store: StoreConfig = StoreConfig()
    game: GameConfig = GameConfig()
    players: dict[str, EndpointConfig] = Field(
        {}, description="models that may sit at the table, by the names that game.seating and game.opponent use"
    )
    judge: EndpointConfig | None = Field(None, description="the model that judges what trained seats say")
    reward: RewardConfig = RewardConfig()
    advantage: AdvantageConfig = AdvantageConfig()
    model: ModelConfig = ModelConfig()
    training: TrainingConfig = TrainingConfig()
    serving: ServingConfig = ServingConfig()
    checkpoint: CheckpointConfig = CheckpointConfig()
    log: LogConfig = LogConfig()

    @field_validator("players")
    @classmethod
    def _names_are_free(cls, players: dict[str, EndpointConfig]) -> dict[str, EndpointConfig]:
        check_player_names(players)
        return players

    @model_validator(mode="after")
    def _seated_players_exist(self) -> "Config":
        seated = [("game.opponent", self.game.opponent)]
        for number, rule in enumerate(self.game.seating):
            seated += [(f"game.seating.{number}.players", name) for name in rule.players]
        for where, name in seated:
            if problem := unknown_player(name, self.players):
                raise ValueError(f"{where}: {problem}")
        return self

    @model_validator(mode="after")
    def _endpoints_answer_or_fail_in_time(self) -> "Config":
        # Else a game would be taken from its runner as unresponsive, and its failure would lose its reason.
        endpoints = {f"players.{name}": endpoint for name, endpoint in self.players.items()}
        for where, endpoint in (endpoints | ({"judge": self.judge} if self.judge else {})).items():
            if endpoint.patience_seconds >= self.game.unresponsive_seconds:
                raise ValueError(
                    f"{where}: {endpoint.tries} tries of {endpoint.timeout_seconds:g} s each must take less than "
                    f"game.unresponsive_seconds ({self.game.unresponsive_seconds:g}); raise that, or lower tries or "
                    f"timeout_seconds"
                )
        return self

    @model_validator(mode="after")
    def _nothing_is_set_in_vain(self) -> "Config":
        if self.game.opponent != "policy" and set(self.game.train_sides) == {"wolf", "good"}:
            raise ValueError(
                "game.opponent plays only a side that is not trained, and both are: set game.train_sides, or seat "
                "opponents among the trained by game.seating"
            )
        weighed = self.reward.judge_score or self.reward.low_judgement or self.reward.very_low_judgement
        if self.judge is not None and not weighed:
            raise ValueError("the judge would be asked in vain: set reward.judge_score or reward.low_judgement")
        if self.serving.url is not None and self.serving.mode != "attach":
            raise ValueError("serving.url is used with serving.mode=attach only; a vLLM started here has serving.port")
        if self.game.context_tokens > self.training.max_sequence_tokens:
            raise ValueError(
                f"training.max_sequence_tokens ({self.training.max_sequence_tokens}) must not be below "
                f"game.context_tokens ({self.game.context_tokens}): long games would be played and then left out"
            )
        return self

    @property
    def logprob_tolerance(self) -> float:
        """``serving.logprob_tolerance``, or its default for the model's precision."""
        default = 1e-3 if self.model.dtype == "float32" else 1.0
        return self.serving.logprob_tolerance or default

    @property
    def run_dir(self) -> Path:
        """Folder that holds everything this run writes."""
        return self.run.dir / self.run.name


def load_config(path: Path | None = None, overrides: Iterable[str] = ()) -> Config:
    """Read a configuration file (the tiny CPU one by default) and apply ``section.key=value`` overrides.

    Values of overrides are read as YAML, so ``run.steps=5`` is a number and ``serving.url=null`` is none.
    Raises ConfigError for a file that cannot be read, an unknown key or a value that does not fit.
    """
    path = path or DEFAULT_CONFIG
    try:
        document = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        shipped = ", ".join(sorted(file.name for file in CONFIG_DIR.glob("*.yaml")))
        raise ConfigError(
            f"cannot read configuration {path}: {getattr(error, 'strerror', error)}. Shipped in configs/: {shipped}"
        ) from error
    except yaml.YAMLError as error:
        raise ConfigError(f"configuration {path} is not valid YAML: {error}") from error
    if document is None:
        document = {}
    if not isinstance(document, dict):
        raise ConfigError(f"configuration {path} must be a mapping of sections, got {type(document).__name__}")
    for override in overrides:
        _apply_override(document, override)
    try:
        return Config.model_validate(document)
    except ValidationError as error:
        problems = "\n".join(f"  {_explain(problem)}" for problem in error.errors())
        raise ConfigError(f"configuration {path} cannot be used:\n{problems}") from error


def _apply_override(document: dict[str, Any], override: str) -> None:
    key, separator, value = override.partition("=")
    section, dot, name = key.strip().partition(".")
    if not (separator and dot and section and name) or "." in name:
        raise ConfigError(f"override {override!r} is not of the form section.key=value, e.g. run.steps=5")
    target = document.get(section)
    if target is None:  # absent, or written with nothing in it
        target = document[section] = {}
    if not isinstance(target, dict):
        raise ConfigError(f"configuration section {section!r} must be a mapping, got {target!r}")
    try:
        target[name] = yaml.safe_load(value)
    except yaml.YAMLError as error:
        raise ConfigError(f"override {override!r}: the value is not valid YAML: {error}") from error


def _explain(problem: Any) -> str:
    location = ".".join(str(part) for part in problem["loc"])
    *parents, name = problem["loc"] or ("",)
    if problem["type"] == "extra_forbidden":
        return f"unknown key {location!r}: {nearest_name(str(name), _keys_in(parents), 'keys here')}"
    shown = problem["input"]
    if isinstance(shown, float) and math.isnan(shown):
        shown = "NaN"
    # A whole section says less than the message, and more than it should.
    got = "" if name in _NEVER_SHOWN or isinstance(shown, dict | BaseModel) else f" (got {shown!r})"
    return f"{location or 'configuration'}: {problem['msg']}{got}"


def _keys_in(path: Iterable[str | int]) -> list[str]:
    """The keys that the section at ``path`` may have; the path goes through mappings and lists of sections too."""
    annotation: Any = Config
    for part in path:
        if get_origin(annotation) in (dict, tuple):  # ``part`` is a key or an index
            annotation = next(inner for inner in reversed(get_args(annotation)) if inner is not Ellipsis)
        else:
            annotation = _section_in(annotation).model_fields[str(part)].annotation
    return list(_section_in(annotation).model_fields)


def _section_in(annotation: Any) -> type[BaseModel]:
    """A section, also where it may be None."""
    return next(inner for inner in (annotation, *get_args(annotation)) if isinstance(inner, type))
