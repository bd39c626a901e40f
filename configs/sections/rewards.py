"""Settings of a seat's reward."""

from typing import Literal

from pydantic import Field, model_validator

from configs.section import Section


class OutcomeReward(Section):
    """The reward of each seat of one side for the outcome."""

    win: float = Field(1.0, description="the side wins")
    lose: float = Field(-1.0, description="the side loses")
    draw: float = Field(0.0, description="neither side wins")


class RewardConfig(Section):
    """A seat's reward: the outcome for its side, and a weight times each recorded fact of its turns.

    ``store/werewolf.py`` (TURN_FACTS) lists the facts, each from 0 to 1. By default they count by their mean over the
    seat's turns, so that with the default weights the worst form costs less than a loss: facts teach how to reply,
    outcomes teach how to win.
    """

    wolf: OutcomeReward = Field(OutcomeReward(), description="outcome for the wolves, e.g. {win: 2, lose: -1}")
    good: OutcomeReward = Field(OutcomeReward(), description="outcome for the good side")
    turns: Literal["averaged", "summed"] = Field(
        "averaged",
        description="whether a seat's turn rewards are averaged (long games do not dominate) or summed",
    )
    invalid: float = Field(
        -0.5,
        le=0,
        description="an invalid reply",
    )
    reask: float = Field(0.0, le=0, description="a re-ask; the invalid reply before it already costs `invalid`")
    foreign_language: float = Field(
        -0.2, le=0, description="multiplied by the share of a speech's letters that are not Chinese"
    )
    repetition: float = Field(-0.2, le=0, description="multiplied by the repetition within a speech, 0 to 1")
    repeats_earlier: float = Field(
        0.0, le=0, description="multiplied by the overlap with the seat's earlier speeches, 0 to 1"
    )
    overlong: float = Field(-0.1, le=0, description="a speech longer than the rules allow")
    cut: float = Field(-0.1, le=0, description="a reply that is truncated at its token limit")
    identity_leak: float = Field(
        -0.5,
        le=0,
        description="a wolf's public speech that reveals the wolves, or anyone's that prints the system prompt",
    )
    vote_against_enemy: float = Field(
        0.0,
        ge=0,
        description="a vote to exile a seat of the other side; small models learn from it far sooner than from "
        "outcomes",
    )
    attack_on_enemy: float = Field(
        0.0,
        ge=0,
        description="a wolf attack (or its proposal), poison, a shot or an exploding wolf's kill at a seat of the "
        "other side; small models learn the identity of their teammates from it",
    )
    judge_score: float = Field(
        0.0,
        ge=0,
        description="multiplied by 2 s - 1 for the judge's score s from 0 to 1, averaged or summed over the judged "
        "turns (see `turns`)",
    )
    low_judgement: float = Field(0.0, le=0, description="a turn with a score below low_judgement_below")
    low_judgement_below: float = Field(0.4, ge=0, le=1, description="scores below this are low, on a scale from 0 to 1")
    very_low_judgement: float = Field(
        0.0, le=0, description="a turn with a score below very_low_judgement_below, in place of low_judgement"
    )
    very_low_judgement_below: float = Field(0.0, ge=0, le=1, description="scores below this are very low; 0: none")

    @model_validator(mode="after")
    def _thresholds_are_in_order(self) -> "RewardConfig":
        if self.very_low_judgement_below > self.low_judgement_below:
            raise ValueError(
                f"very_low_judgement_below ({self.very_low_judgement_below}) must not exceed low_judgement_below "
                f"({self.low_judgement_below})"
            )
        return self
