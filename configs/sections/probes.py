"""Settings of what seats are asked beside the game: which role they take another seat for."""

from typing import Literal

from pydantic import Field

from configs.section import Section


class ProbeConfig(Section):
    """Learning to listen: the true roles, which the referee knows after the game, as answers to questions beside it.

    Off by default. The questions are no part of the game, and no turn is changed by them. What a seat takes the others
    for is then trained towards the truth, wherever it could not know it, too: the loss is lowest where the answer is as
    sure as what was said allows.
    """

    listening: float = Field(
        0.0,
        ge=0,
        description="weight of the listening loss beside the policy's; 0: no answer is learned from",
    )
    moments: tuple[Literal["speech", "vote"], ...] = Field(
        ("vote",), min_length=1, description="when: before each public speech, before each vote to exile"
    )
    questions: int | None = Field(
        1, ge=1, description="seats that a seat is asked about each time, drawn by the deal's seed; null: all others"
    )
    share_of_deals: float = Field(
        1.0, gt=0, le=1, description="of the deals to learn from, those whose seats are asked, drawn by the deal's seed"
    )
