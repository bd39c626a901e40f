"""The configuration of a run that plays Werewolf: what it adds to that of any workload."""

from collections.abc import Iterator, Mapping
from pathlib import Path
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
from store.players import PAST_SELVES, ChatEndpoint


class GameEvaluationConfig(EvaluationConfig):
    """Games on deals that are never trained on, against opponents that never learn, each deal with sides swapped."""

    deals: int = Field(0, ge=0, description="deals for each opponent; two games of each, one a side; 0: no evaluation")
    opponents: tuple[str, ...] = Field(
        ("scripted", "random"),
        min_length=1,
        description="expert, patient, scripted, timid, random, initial (the weights that the run started from), or "
        "names of the sections players and frozen",
    )

    @property
    def wanted(self) -> bool:
        return self.deals > 0

    @field_validator("opponents")
    @classmethod
    def _are_different_players(cls, opponents: tuple[str, ...]) -> tuple[str, ...]:
        if "policy" in opponents:
            raise ValueError("the policy cannot be its own opponent; initial is the policy as the run started")
        if len(set(opponents)) < len(opponents):
            raise ValueError("an opponent is named twice")
        return opponents


class ProbeConfig(Section):
    """Learning to listen: questions outside the game about other seats' roles, trained towards the true roles.

    Off by default. The questions change no turn of the game. The loss is lowest where an answer is as certain as the
    speeches allow.
    """

    listening: float = Field(
        0.0,
        ge=0,
        description="weight of the listening loss, added to the policy's; 0: none",
    )
    moments: tuple[Literal["speech", "vote"], ...] = Field(
        ("vote",), min_length=1, description="when: before each public speech, before each vote to exile"
    )
    questions: int | None = Field(
        1, ge=1, description="questions at each moment, about seats drawn by the deal's seed; null: about all others"
    )
    share_of_deals: float = Field(
        1.0, gt=0, le=1, description="share of the deals with questions, drawn by the deal's seed"
    )


class WerewolfConfig(Config):
    """Everything that a run of the game can be told."""

    fixed: ClassVar[Mapping[str, str]] = Config.fixed | {"game": "the games in flight were enqueued with it"}
    input_files: ClassVar[tuple[str, ...]] = ("game.prompts",)

    game: GameConfig = GameConfig()
    policies: dict[str, LearnerConfig] = Field(
        {},
        description="several policies that learn at one table, by name: together they are the player policy, and a "
        "seat of it is played by the first of them that its side and role match; empty: one policy learns",
    )
    players: dict[str, ChatEndpoint] = Field({}, description="models behind an API that may sit at the table, by name")
    judge: ChatEndpoint | None = Field(None, description="the model that judges what trained seats say")
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
        """The policies that learn side by side, by name; empty where one policy learns."""
        return self.policies

    @property
    def fixed_files(self) -> Mapping[str, Path]:
        return {f"game.prompts.{name}": path for name, path in self.game.prompts.items()}

    @model_validator(mode="after")
    def _seated_players_exist(self) -> "WerewolfConfig":
        for where, name in self._named_players():
            if name == PAST_SELVES and where.startswith("game."):
                if self.pool is None:
                    raise ValueError(f"{where}: {name!r} is drawn from a pool: set league.every_steps, e.g. to 10")
            elif problem := unknown_player(name, [*self.players, *self.frozen]):
                raise ValueError(f"{where}: {problem}")
        return self

    def _named_players(self) -> Iterator[tuple[str, str]]:
        yield "game.opponent", self.game.opponent
        yield "warm_start.demonstrator", self.warm_start.demonstrator
        for number, rule in enumerate(self.game.seating):
            yield from ((f"game.seating.{number}.players", name) for name in rule.players)
        yield from (("evaluation.opponents", name) for name in self.evaluation.opponents if name != INITIAL_POLICY)

    @model_validator(mode="after")
    def _pool_can_be_met(self) -> "WerewolfConfig":
        if self.pool is None:
            return self
        if PAST_SELVES not in {name for where, name in self._named_players() if where.startswith("game.")}:
            raise ValueError(
                f"league.every_steps={self.pool.every_steps} would keep a pool that nobody meets: name {PAST_SELVES!r} "
                f"in game.opponent or game.seating, or set it to null"
            )
        if self.rollout.max_policy_lag and not self.model.lora_rank:
            raise ValueError(
                f"rollout.max_policy_lag={self.rollout.max_policy_lag}: a server of the pool changes its member "
                f"between two steps, and games would be in flight then. Set it to 0, or train adapters "
                f"(model.lora_rank), of which the policy's servers hold all members"
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
            raise ValueError(f"players and frozen both have {both[0]!r}")
        return self

    @model_validator(mode="after")
    def _policies_can_learn_together(self) -> "WerewolfConfig":
        if not self.policies:
            return self
        for name in self.policies:
            if name in self.players or name in self.frozen or name == f"{SOLE_LEARNER}-base":
                raise ValueError(f"policies has {name!r}, which names something in players, frozen or serving already")
        deck = DECKS[self.game.preset]
        seated = deck if self.evaluation.wanted else filter(self.game.policy_may_play, deck)
        if problem := problem_with_team(self.policies, deck, seated):
            raise ValueError(problem)
        if self.model.lora_rank == 0:
            self._check_whole_weights_of_several()
        return self

    def _check_whole_weights_of_several(self) -> None:
        """Each policy of the team has vLLM servers of its own then."""
        serving = self.serving
        remedy = "train adapters (model.lora_rank), which one vLLM serves side by side"
        if self.pool is not None:
            raise ValueError(
                f"league.every_steps={self.pool.every_steps}: a past self of several policies would need servers for "
                f"each of them; set it to null, or {remedy}"
            )
        if serving.mode == "attach" or serving.public_urls:
            raise ValueError(
                f"policies with whole weights are served by vLLMs that the run starts, each by its own: leave out "
                f"serving.urls and serving.public_urls, or {remedy}"
            )
        if serving.weight_transfer != "folder":
            raise ValueError(
                f"serving.weight_transfer={serving.weight_transfer} carries the weights of one policy: set it to "
                f"folder, or {remedy}"
            )
        if serving.port + serving.servers * len(self.policies) > 65536:
            raise ValueError("serving.port is too high for the servers of that many policies")

    @model_validator(mode="after")
    def _nothing_is_set_in_vain(self) -> "WerewolfConfig":
        for where, selection in (("selection", self.selection), ("warm_start.selection", self.warm_start.selection)):
            for role in selection.roles or ():
                if role not in DECKS[self.game.preset]:
                    raise ValueError(f"{where}.roles has {role!r}, which preset {self.game.preset!r} does not deal")
                if Role(role).side not in self.game.train_sides:
                    raise ValueError(f"{where}.roles has {role!r}, whose side game.train_sides leaves out")
        weighed = self.reward.judge_score or self.reward.low_judgement or self.reward.very_low_judgement
        if self.judge is not None and not weighed:
            raise ValueError(
                "the judge would be asked in vain: set reward.judge_score, low_judgement or very_low_judgement"
            )
        return self
