"""Settings of the game: preset, rules, prompts, and who sits where."""

import re
from typing import Literal

from pydantic import Field, FilePath, field_validator, model_validator

from configs.roles_and_decks import DECKS, Role, SideName
from configs.section import Section
from configs.sections.opponents import SeatingRuleConfig
from store.players import NAMES_WITHOUT_A_MODEL

FRAME: Literal["system"] = "system"
REMINDER: Literal["reminder"] = "reminder"

_NAME = re.compile(r"\{\{[^\W\d]\w*\}\}|\{([^\W\d]\w*)\}")


def placeholders(text: str) -> frozenset[str]:
    """The placeholders ``{name}`` of a prompt; ``{{name}}`` and other braces are literal."""
    return frozenset(match[1] for match in _NAME.finditer(text) if match[1])


class RulesConfig(Section):
    """Overrides of the preset's rules; null keeps the preset's value.

    ``runners/werewolf/game/presets.py`` documents each field.
    """

    win_rule: Literal["wipe_a_kind", "parity"] | None = Field(
        None,
        description="wipe_a_kind (屠边): the wolves win when all special roles (神职) or all villagers are dead; "
        "parity: when at least as many wolves as others live",
    )
    round_limit: int | None = Field(None, ge=1, description="days until a game is a draw")
    speech_chars: int | None = Field(None, ge=1, description="length at which a speech is truncated, in characters")
    sheriff: bool | None = Field(None, description="a sheriff is elected")
    wolf_talk_rounds: int | None = Field(None, ge=0, description="maximal speeches of each wolf in a night")
    wolves_may_pass: bool | None = Field(None, description="the wolves may attack nobody (空刀)")
    wolves_may_hit_wolves: bool | None = Field(None, description="the wolves may attack one of their own (自刀)")
    wolves_may_explode: bool | None = Field(
        None, description="a wolf may reveal itself by day, which ends its life and the day (自爆)"
    )
    wolf_king_may_explode: bool | None = Field(None, description="so may the wolf king; needs wolves_may_explode")
    witch_self_save: bool | None = Field(None, description="the witch may save herself (女巫自救)")
    may_abstain: bool | None = Field(None, description="a vote may name nobody (弃票)")

    def chosen(self) -> dict[str, bool | int | str]:
        return self.model_dump(exclude_none=True)


class GameConfig(Section):
    """Preset, rules, prompts and players of the games."""

    preset: str = Field("5p_tiny", description=f"rule preset: {', '.join(DECKS)}")
    rules: RulesConfig = Field(RulesConfig(), description="overrides of the preset's rules, e.g. {win_rule: parity}")
    prompts: dict[Literal["system", "reminder"] | Role, FilePath] = Field(
        {},
        description="text files that replace the system prompt (system) or a role's guidance (wolf, …), or are added "
        "to the end of each question (reminder)",
    )
    train_sides: tuple[SideName, ...] = Field(
        ("wolf", "good"), min_length=1, description="sides to train; only turns of the policy are trained on"
    )
    opponent: str = Field(
        "policy",
        description=f"who plays against the trained side: policy, {NAMES_WITHOUT_A_MODEL}, past (section league), "
        "or a name from the sections players and frozen. If both sides are trained and this is not "
        "the policy, deals alternate between training the wolves and training the good side",
    )
    balanced_deals: bool = Field(
        False,
        description="in a step each seat has each role about equally often; else deals are drawn freely",
    )
    seating: tuple[SeatingRuleConfig, ...] = Field(
        (),
        description="who plays which seats; the first rule that matches a seat decides. Without a match the policy "
        "plays the sides trained in this game, and game.opponent the others",
    )

    @field_validator("preset")
    @classmethod
    def _preset_exists(cls, preset: str) -> str:
        if preset not in DECKS:
            raise ValueError(f"unknown preset; valid presets: {', '.join(DECKS)}")
        return preset

    @model_validator(mode="after")
    def _prompts_reach_players(self) -> "GameConfig":
        frame, guidance = self.prompts.get(FRAME), [name for name in self.prompts if name not in (FRAME, REMINDER)]
        if frame is not None and guidance:
            try:
                read = placeholders(frame.read_text(encoding="utf-8"))
            except (OSError, UnicodeDecodeError) as error:
                raise ValueError(f"prompts.{FRAME}: cannot read {frame}: {error}") from error
            if "guidance" not in read:
                raise ValueError(
                    f"prompts: {', '.join(guidance)} would not be used, since the system prompt {frame} lacks "
                    f"{{guidance}}; add {{guidance}} there, or remove one of the two"
                )
        return self

    @model_validator(mode="after")
    def _rules_can_match(self) -> "GameConfig":
        for number, rule in enumerate(self.seating):
            if problem := rule.problem_with(self.preset):
                raise ValueError(f"game.seating.{number}: {problem}")
        return self

    @field_validator("train_sides")
    @classmethod
    def _sides_are_distinct(cls, sides: tuple[SideName, ...]) -> tuple[SideName, ...]:
        if len(set(sides)) < len(sides):
            raise ValueError("names a side twice")
        return sides

    @model_validator(mode="after")
    def _policy_plays_what_is_trained(self) -> "GameConfig":
        for side in self.train_sides:
            if not any(self.policy_may_play(role) for role in DECKS[self.preset] if role.side == side):
                raise ValueError(f"game.train_sides has {side!r}, but game.seating never lets the policy play it")
        return self

    def policy_may_play(self, role: Role) -> bool:
        """Whether training may seat ``policy`` as this role, trained or not."""
        for rule in self.seating:
            if rule.side in (None, role.side) and rule.role in (None, role):
                if "policy" in rule.players:
                    return True
                if rule.seat is None:  # it takes all seats of the role
                    return False
        return role.side in self.train_sides or self.opponent == "policy"
