"""The task that crosses from the algorithm to a runner, and the resources it is played with.

A game is one rollout. Its ``input`` is a ``GameTask``; its ``resources_id`` names a
``PolicyResources``: where the trained policy is served, how it is sampled and which version it is.
Both are encoded and decoded here and nowhere else.
"""

from typing import Any, Literal, Self, get_args

from agentlightning import LLM, NamedResources, PromptTemplate, ResourcesUpdate
from pydantic import BaseModel, ConfigDict, Field, model_validator

TRAINED_POLICY = "policy"
"""Name of the trained policy: the resource that serves it, and the value in ``GameTask.seating``."""

SideName = Literal["wolf", "good"]

SCRIPTED_PLAYER = "scripted"
RANDOM_PLAYER = "random"
PROMPT_RESOURCE_PREFIX = "prompt_"
_VERSION_SEPARATOR = ".policy-"


class TokenLimits(BaseModel):
    """Bounds on one seat's tokens.

    context_tokens: prompt plus reply of one call never exceeds this; a seat whose next turn would
        not fit starts a new segment.
    reply_tokens: the most that one reply may sample.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    context_tokens: int = Field(gt=0)
    reply_tokens: int = Field(gt=0)

    @model_validator(mode="after")
    def _reply_fits(self) -> Self:
        if self.reply_tokens >= self.context_tokens:
            raise ValueError(
                f"reply_tokens ({self.reply_tokens}) must be smaller than context_tokens ({self.context_tokens})"
            )
        return self


class GameTask(BaseModel):
    """One game to be played: the ``input`` of a rollout.

    game_id: unique within the run.
    group_id: games with the same id share deal and policy version; baselines are taken over them.
    seed: deals the roles and breaks ties; the same for every game of a group.
    sampling_seed: seeds the sampling and the players' own choices; differs between the games of a
        group, so that they differ while each can be replayed.
    preset: name of the rule preset.
    seating: side -> name of what plays its seats (``TRAINED_POLICY``, ``SCRIPTED_PLAYER``, ``RANDOM_PLAYER``).
        By side and not by seat, since only the referee knows the deal.
    trainable: sides whose turns may be trained on; each must be seated with the trained policy.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    game_id: str = Field(min_length=1)
    group_id: str = Field(min_length=1)
    seed: int = Field(ge=0)
    sampling_seed: int = Field(ge=0)
    preset: str = Field(min_length=1)
    seating: dict[SideName, str]
    trainable: frozenset[SideName]
    limits: TokenLimits

    @model_validator(mode="after")
    def _sides_agree(self) -> Self:
        missing = [side for side in get_args(SideName) if side not in self.seating]
        if missing:
            raise ValueError(f"seating names no player for {missing}")
        stray = [side for side in self.trainable if self.seating[side] != TRAINED_POLICY]
        if stray:
            raise ValueError(f"trainable sides {sorted(stray)} are not played by {TRAINED_POLICY!r}")
        return self

    def encode(self) -> dict[str, Any]:
        """The rollout input, JSON only."""
        payload = self.model_dump(mode="json")
        payload["trainable"] = sorted(self.trainable)
        return payload

    @classmethod
    def decode(cls, rollout_input: Any) -> Self:
        """Read a rollout input back. Raises pydantic's ValidationError, naming every wrong field."""
        return cls.model_validate(rollout_input)


class Sampling(BaseModel):
    """How the trained policy is sampled. The trainer recomputes log-probs with the same temperature.

    top_p and top_k other than their defaults make the sampled distribution differ from the model's
    own, which the update would have to correct for; they are therefore not offered for training.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    temperature: float = Field(default=1.0, gt=0)


class PolicyResources(BaseModel):
    """Everything a runner needs in order to play one version of the trained policy.

    run_name: the run that published it; keeps two runs on one hub apart.
    version: number of updates applied to the weights; 0 is the initial model.
    endpoint: base URL of an OpenAI-compatible server, ending in ``/v1``.
    model: name under which that server serves the policy.
    prompt_templates: Chinese prompts that replace the built-in ones, by name.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    run_name: str = Field(min_length=1)
    version: int = Field(ge=0)
    endpoint: str
    model: str
    sampling: Sampling = Sampling()
    prompt_templates: dict[str, str] = Field(default_factory=dict)

    @property
    def resources_id(self) -> str:
        """The id under which this version is published."""
        return f"{self.run_name}{_VERSION_SEPARATOR}{self.version:06d}"

    def encode(self) -> NamedResources:
        """As agentlightning resources: one ``LLM`` and any number of ``PromptTemplate``."""
        resources: NamedResources = {
            TRAINED_POLICY: LLM(
                endpoint=self.endpoint, model=self.model, sampling_parameters=self.sampling.model_dump()
            )
        }
        for name, template in self.prompt_templates.items():
            resources[PROMPT_RESOURCE_PREFIX + name] = PromptTemplate(template=template, engine="f-string")
        return resources

    @classmethod
    def decode(cls, update: ResourcesUpdate) -> Self:
        """Read published resources back; ValueError names what is missing or malformed."""
        run_name, separator, version = update.resources_id.rpartition(_VERSION_SEPARATOR)
        if not separator or not version.isdigit():
            raise ValueError(
                f"resources {update.resources_id!r} were not published by algo.werewolf_verl "
                f"(expected an id like 'run{_VERSION_SEPARATOR}000001')"
            )
        llm = update.resources.get(TRAINED_POLICY)
        if not isinstance(llm, LLM):
            raise ValueError(f"resources {update.resources_id!r} hold no LLM named {TRAINED_POLICY!r}")
        return cls(
            run_name=run_name,
            version=int(version),
            endpoint=llm.endpoint,
            model=llm.model,
            sampling=Sampling.model_validate(llm.sampling_parameters),
            prompt_templates={
                name.removeprefix(PROMPT_RESOURCE_PREFIX): resource.template
                for name, resource in update.resources.items()
                if name.startswith(PROMPT_RESOURCE_PREFIX) and isinstance(resource, PromptTemplate)
            },
        )
