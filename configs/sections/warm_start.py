"""Settings of the warm start: imitation of demonstrations before reinforcement learning (``algo.werewolf_sft``)."""

from typing import Annotated, Literal

from pydantic import Field, field_validator

from configs.section import Section
from configs.sections.training import SelectionConfig


class WarmStartConfig(Section):
    """Which games are imitated and how. Preset, rules, prompts and token limits are those of the section game; batch
    sizes and all else about the update are those of the section training."""

    demonstrator: str = Field(
        "scripted",
        description="who plays all seats: expert, patient, scripted, timid, random, or a name of the sections players "
        "and frozen; what it does is imitated on game.train_sides",
    )
    games: int = Field(
        64, ge=1, description="games to learn from; of a run that was played already, at most so many of the newest"
    )
    held_out_games: int = Field(8, ge=1, description="further games, on other deals, whose loss is only measured")
    selection: SelectionConfig = Field(
        SelectionConfig(losers=0.0, draws=0.0),
        description="which seats are imitated: by default the winners; replies that could not be used never are",
    )
    weigh: Literal["reply", "token"] = Field(
        "reply",
        description="what weighs the same in the loss: every reply (a vote as much as a speech) or every token",
    )
    question_weights: dict[str, Annotated[float, Field(ge=0)]] = Field(
        {},
        description="weights of replies to these questions, 1 for all others, e.g. {exile_vote: 4, pk_vote: 4}",
    )
    given_weight: float = Field(
        0.0,
        ge=0,
        description="weight of tokens outside the imitated replies: questions, announcements, other speeches. Above "
        "zero the policy also learns to predict these, from which small models learn to look things up",
    )
    epochs: int = Field(3, ge=1, description="passes over the selected sequences")
    learning_rate: float = Field(
        1e-5, gt=0, description="of the imitation; training.lr_schedule and lr_warmup_steps count its optimizer steps"
    )

    dtype: Literal["float32", "bfloat16"] | None = Field(
        None,
        description="precision of the imitation's forward pass, null for model.dtype; bfloat16 is two to three times "
        "as fast on a CPU with its instructions. Weights are written in model.dtype",
    )

    @field_validator("demonstrator")
    @classmethod
    def _policy_is_no_demonstrator(cls, demonstrator: str) -> str:
        if demonstrator == "policy":
            raise ValueError("the policy demonstrates nothing to itself; games of its own are taken by --from-run")
        return demonstrator
