"""Settings of what a seat earns."""

from typing import Literal

from pydantic import Field, model_validator

from configs.section import Section


class OutcomeReward(Section):
    """What the end of a game is worth to each seat of one side."""

    win: float = Field(1.0, description="the side wins")
    lose: float = Field(-1.0, description="the side loses")
    draw: float = Field(0.0, description="neither wins: as far from the one as from the other")


class RewardConfig(Section):
    """A seat's reward: the outcome for its side, and a weight times each recorded fact of its turns.

    The facts are those of ``store/werewolf.py`` (TURN_FACTS), each 0 to 1. By default they count by their mean over the
    seat's turns, so that with the default weights even the worst form costs less than losing instead of winning: the
    facts teach how to reply, and how to win is left to winning.
    """

    wolf: OutcomeReward = Field(OutcomeReward(), description="outcome for the wolves, e.g. {win: 2, lose: -1}")
    good: OutcomeReward = Field(OutcomeReward(), description="outcome for the good side")
    turns: Literal["averaged", "summed"] = Field(
        "averaged",
        description="a seat's turn rewards are averaged (long games do not dominate) or summed",
    )
    invalid: float = Field(
        -0.5,
        le=0,
        description="a reply that cannot be used",
    )
    reask: float = Field(
        0.0, le=0, description="a call that repeats a question; its invalid reply has already cost `invalid`"
    )
    foreign_language: float = Field(
        -0.2, le=0, description="times the share of a speech's letters that are not Chinese"
    )
    repetition: float = Field(-0.2, le=0, description="times how much a speech repeats itself")
    repeats_earlier: float = Field(0.0, le=0, description="times how much a speech repeats the seat's own earlier ones")
    overlong: float = Field(-0.1, le=0, description="a speech longer than the rules allow")
    cut: float = Field(-0.1, le=0, description="a reply that ended at its token limit")
    identity_leak: float = Field(-0.5, le=0, description="a public speech that gives the wolves away")
    vote_against_enemy: float = Field(
        0.0,
        ge=0,
        description="a vote to exile a seat of the other side; small models learn far sooner from it than from the "
        "outcome",
    )
    attack_on_enemy: float = Field(
        0.0,
        ge=0,
        description="the wolves' attack (or a proposal of it), poison or a shot at a seat of the other side; small "
        "models learn from it who their mates are",
    )
    judge_score: float = Field(
        0.0, ge=0, description="times the judge's score, -1 to 1, averaged over the judged turns"
    )
    low_judgement: float = Field(0.0, le=0, description="a turn judged below low_judgement_below")
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
