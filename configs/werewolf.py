"""The configuration of a run that plays Werewolf: the settings added to ``configs.schema``."""

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, Literal

from pydantic import Field, field_validator, model_validator

from configs.roles_and_decks import DECKS, Role
from configs.schema import Config, EvaluationConfig
from configs.section import Section
from configs.sections.game import GameConfig
from configs.sections.league import LeagueConfig
from configs.sections.opponents import (
    INITIAL_POLICY,
    check_player_names,
    unknown_player,
)
from configs.sections.policies import SOLE_LEARNER, LearnerConfig, problem_with_team
from configs.sections.rewards import RewardConfig
from configs.sections.warm_start import WarmStartConfig
from configs.sections.watch import BoundConfig
from store.players import NAMES_WITHOUT_A_MODEL, PAST_SELVES, ChatEndpoint


class GameEvaluationConfig(EvaluationConfig):
    """Evaluation on held-out deals against fixed opponents; each deal is played on every trained side."""

    deals: int = Field(0, ge=0, description="deals for each opponent, a game for each trained side; 0: no evaluation")
    opponents: tuple[str, ...] = Field(
        ("scripted", "random"),
        min_length=1,
        description=f"{NAMES_WITHOUT_A_MODEL}, initial (the weights that the run started from), or names "
        "from the sections players and frozen",
    )
    sample_deals: int = Field(2, ge=0, description="deals of each match whose transcripts are kept, for the report")

    @property
    def enabled(self) -> bool:
        return self.deals > 0

    @field_validator("opponents")
    @classmethod
    def _are_different_players(cls, opponents: tuple[str, ...]) -> tuple[str, ...]:
        if "policy" in opponents:
            raise ValueError("the policy cannot be its own opponent; use initial, the policy before training")
        if len(set(opponents)) < len(opponents):
            raise ValueError("duplicate opponents")
        return opponents


class ProbeConfig(Section):
    """Auxiliary listening loss: questions outside the game about other seats' roles, trained towards the true roles.

    Off by default. The questions do not change the game. The loss is minimal for calibrated answers.
    """

    listening: float = Field(
        0.0,
        ge=0,
        description="weight of the listening loss, added to the policy's; 0: none",
    )
    moments: tuple[Literal["speech", "vote"], ...] = Field(
        ("vote",), min_length=1, description="when to ask: before each public speech, before each exile vote"
    )
    questions: int | None = Field(
        1, ge=1, description="questions at each moment, about seats drawn with the deal's seed; null: about all others"
    )
    share_of_deals: float = Field(
        1.0, gt=0, le=1, description="share of deals with questions, drawn with the deal's seed"
    )


class WerewolfConfig(Config):
    """All settings of a run that plays Werewolf."""

    fixed: ClassVar[Mapping[str, str]] = Config.fixed | {"game": "games in flight were enqueued with it"}
    input_files: ClassVar[tuple[str, ...]] = ("game.prompts",)

    game: GameConfig = GameConfig()
    policies: dict[str, LearnerConfig] = Field(
        {},
        description="several policies that learn together, by name: they share the seats of the player policy; the "
        "first that matches a seat's side and role plays it. Empty: one policy learns",
    )
    players: dict[str, ChatEndpoint] = Field({}, description="models behind an API that can be seated, by name")
    judge: ChatEndpoint | None = Field(None, description="the model that scores speeches of trained seats")
    reward: RewardConfig = RewardConfig()
    warm_start: WarmStartConfig = WarmStartConfig()
    probes: ProbeConfig = ProbeConfig()
    league: LeagueConfig = LeagueConfig()
    evaluation: GameEvaluationConfig = GameEvaluationConfig()
    watch: dict[str, BoundConfig] = Field(
        {
            "turns/valid_share": BoundConfig(below=0.5),
            "speech/good/distinct_share": BoundConfig(below=0.1),
            "speech/wolf/distinct_share": BoundConfig(below=0.1),
        }
    )

    def endpoints(self) -> dict[str, ChatEndpoint]:
        named = {f"players.{name}": endpoint for name, endpoint in self.players.items()}
        return named | ({"judge": self.judge} if self.judge else {})

    @property
    def pool(self) -> LeagueConfig | None:
        return self.league if self.league.every_steps else None

    @property
    def team(self) -> Mapping[str, LearnerConfig]:
        return self.policies

    @model_validator(mode="after")
    def _seated_players_exist(self) -> "WerewolfConfig":
        for where, name in self._named_players():
            if name == PAST_SELVES and where.startswith("game."):
                if self.pool is None:
                    raise ValueError(
                        f"{where}: {name!r} needs a pool of past selves: set league.every_steps, e.g. to 10"
                    )
            elif problem := unknown_player(name, [*self.players, *self.frozen]):
                raise ValueError(f"{where}: {problem}")
        return self

    def _named_players(self) -> Iterator[tuple[str, str]]:
        yield "game.opponent", self.game.opponent
        yield from (("warm_start.demonstrator", name) for name in self.warm_start.demonstrators)
        for number, rule in enumerate(self.game.seating):
            yield from ((f"game.seating.{number}.players", name) for name in rule.players)
        yield from (("evaluation.opponents", name) for name in self.evaluation.opponents if name != INITIAL_POLICY)

    @model_validator(mode="after")
    def _pool_is_used(self) -> "WerewolfConfig":
        if self.pool is None:
            return self
        if PAST_SELVES not in {name for where, name in self._named_players() if where.startswith("game.")}:
            raise ValueError(
                f"league.every_steps={self.pool.every_steps} keeps a pool that no game uses: name {PAST_SELVES!r} "
                f"in game.opponent or game.seating, or set it to null"
            )
        if self.rollout.max_policy_lag and not self.model.lora_rank:
            raise ValueError(
                f"rollout.max_policy_lag={self.rollout.max_policy_lag}: a server of the pool changes its member "
                f"between steps, when no game may be in flight. Set it to 0, or train adapters (model.lora_rank): "
                f"the policy's servers hold all members then"
            )
        return self

    @field_validator("players", "policies")
    @classmethod
    def _names_of_players_are_free(cls, named: dict[str, Any]) -> dict[str, Any]:
        check_player_names(named)
        return named

    @model_validator(mode="after")
    def _players_and_frozen_differ(self) -> "WerewolfConfig":
        if both := sorted(self.players.keys() & self.frozen.keys()):
            raise ValueError(f"players and frozen both define {both[0]!r}; rename one")
        return self

    @model_validator(mode="after")
    def _policies_can_learn_together(self) -> "WerewolfConfig":
        if not self.policies:
            return self
        for name in self.policies:
            if name in self.players or name in self.frozen or name == f"{SOLE_LEARNER}-base":
                raise ValueError(
                    f"policies has {name!r}, a name that players, frozen or serving already uses; rename it"
                )
        deck = DECKS[self.game.preset]
        seated = deck if self.evaluation.enabled else filter(self.game.policy_may_play, deck)
        if problem := problem_with_team(self.policies, deck, seated):
            raise ValueError(problem)
        if self.model.lora_rank == 0:
            self._check_servers_of_team()
        return self

    def _check_servers_of_team(self) -> None:
        """Without adapters each policy of the team has its own vLLM servers."""
        serving = self.serving
        remedy = "train adapters (model.lora_rank), which one vLLM serves side by side"
        if self.pool is not None:
            raise ValueError(
                f"league.every_steps={self.pool.every_steps}: past selves of several policies would need servers for "
                f"each; set it to null, or {remedy}"
            )
        if serving.mode == "attach" or serving.public_urls:
            raise ValueError(
                f"policies with whole weights need vLLM servers that the run starts: remove serving.urls and "
                f"serving.public_urls, or {remedy}"
            )
        if serving.weight_transfer != "folder":
            raise ValueError(
                f"serving.weight_transfer={serving.weight_transfer} sends the weights of one policy only: set it to "
                f"folder, or {remedy}"
            )
        if serving.port + serving.servers * len(self.policies) > 65536:
            raise ValueError("serving.port is too high for the servers of all policies; lower it")

    @model_validator(mode="after")
    def _pasts_can_be_repeated(self) -> "WerewolfConfig":
        if self.advantage.credit != "branch":
            return self
        for where, name in self._named_players():
            if where.startswith("game.") and name in self.players:
                raise ValueError(
                    f"{where}: advantage.credit=branch repeats recorded games, but {name!r}, a model behind "
                    f"an API, does not repeat its replies"
                )
        if self.judge is not None:
            raise ValueError(
                "advantage.credit=branch and a judge exclude each other: a branch has fewer speeches to judge"
            )
        return self

    @model_validator(mode="after")
    def _reject_unused_settings(self) -> "WerewolfConfig":
        for where, selection in (("selection", self.selection), ("warm_start.selection", self.warm_start.selection)):
            for role in selection.roles or ():
                if role not in DECKS[self.game.preset]:
                    raise ValueError(
                        f"{where}.roles has {role!r}, a role that preset {self.game.preset!r} does not deal"
                    )
                if Role(role).side not in self.game.train_sides:
                    raise ValueError(f"{where}.roles has {role!r}, a role of a side that game.train_sides excludes")
        weighed = self.reward.judge_score or self.reward.low_judgement or self.reward.very_low_judgement
        if self.judge is not None and not weighed:
            raise ValueError("no reward uses the judge: set reward.judge_score, low_judgement or very_low_judgement")
        return self
