"""Settings of the warm start: imitation of demonstrations before reinforcement learning (``algo.werewolf_sft``)."""

from typing import Annotated, Literal

from pydantic import Field, field_validator

from configs.section import Section
from configs.sections.training import SelectionConfig, of_this_cpu
from store.players import NAMES_WITHOUT_A_MODEL


class ImitatedConfig(SelectionConfig):
    """Which seats are imitated: by default those of winners only."""

    losers: float = Field(0.0, ge=0, le=1, description="share of the losing seats")
    draws: float = Field(0.0, ge=0, le=1, description="share of the seats of drawn games")


class WarmStartConfig(Section):
    """Which games are imitated and how. The game itself is set in the section game, the update in the section
    training."""

    demonstrator: str | Annotated[dict[str, Annotated[float, Field(gt=0)]], Field(min_length=1)] = Field(
        "scripted",
        description=f"the player of all seats: {NAMES_WITHOUT_A_MODEL}, or a name from the sections "
        "players and frozen, or several with their shares, drawn seat by seat: {timid: 3, scripted: 1}; its turns on "
        "game.train_sides are imitated",
    )
    games: int = Field(64, ge=1, description="games to imitate; with --from-run the newest ones, at most this many")
    held_out_games: int = Field(8, ge=1, description="games on other deals for the validation loss")
    selection: ImitatedConfig = Field(
        ImitatedConfig(), description="which seats are imitated, by default winners; invalid replies never are"
    )
    weigh: Literal["reply", "token"] = Field(
        "reply",
        description="unit of equal weight in the loss: the reply (a vote as much as a speech) or the token",
    )
    question_weights: dict[str, Annotated[float, Field(ge=0)]] = Field(
        {},
        description="question -> weight of its replies, e.g. {exile_vote: 4, pk_vote: 4}; 1 for all others",
    )
    prompt_weight: float = Field(
        0.0,
        ge=0,
        description="loss weight of prompt tokens: questions, announcements, other speeches. Small models learn from "
        "them to recall earlier text",
    )
    epochs: int = Field(3, ge=1, description="passes over the selected sequences")
    learning_rate: float = Field(
        1e-5, gt=0, description="learning rate; training.lr_schedule and lr_warmup_steps count optimizer steps here"
    )

    dtype: Literal["float32", "bfloat16", "auto"] | None = Field(
        None,
        description="precision of the forward pass, null for model.dtype; auto as in model.dtype. Weights are written "
        "in model.dtype",
    )

    _dtype = field_validator("dtype")(of_this_cpu)

    @field_validator("demonstrator")
    @classmethod
    def _policy_is_no_demonstrator(cls, demonstrator: str | dict[str, float]) -> str | dict[str, float]:
        if "policy" in ([demonstrator] if isinstance(demonstrator, str) else demonstrator):
            raise ValueError("the policy cannot demonstrate to itself; use --from-run to imitate its own games")
        return demonstrator

    @property
    def demonstrators(self) -> dict[str, float]:
        return {self.demonstrator: 1.0} if isinstance(self.demonstrator, str) else self.demonstrator
