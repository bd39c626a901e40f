"""What is published for any workload: where the policy is served, how it is sampled, which version it is.

A rollout's ``input`` is a task of its workload (``store.werewolf.GameTask``); its ``resources_id`` names a
``PolicyResources``, which is encoded and decoded here and nowhere else.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Protocol, Self

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, model_validator

from store.endpoints import ServedPolicy
from store.players import PLAYERS_WITHOUT_A_MODEL, TRAINED_POLICY, ChatEndpoint
from store.protocol import LLM, NamedResources, PromptTemplate, ResourcesUpdate

IDEMPOTENCY_KEY = "idempotency_key"
"""Name of the entry of a task's ``metadata`` by which ``python -m store`` recognises a repeated enqueue.

Any text that is different for every task ever sent to this hub. Enqueueing a task whose key the hub knows adds nothing
and returns the rollout that is there, as it is now; with another ``input`` it is refused. Keys are forgotten
together with their games, when those are deleted.
"""

PROMPT_RESOURCE_PREFIX = "prompt_"
TABLE_RESOURCE = "table"
VERSION_SEPARATOR = ".policy-"
"""Stands between the run's name and the policy's version in ``PolicyResources.resources_id``."""


class Task(Protocol):
    """What any workload's task tells the rooms that know no workload."""

    @property
    def task_id(self) -> str:
        """Unlike all others of its run."""
        ...

    @property
    def group_id(self) -> str:
        """Its group: tasks whose rollouts are compared with each other."""
        ...

    def encode(self) -> dict[str, Any]:
        """As a rollout's input, JSON only."""
        ...


class WrongKind(ValueError):
    """A task of another workload than the one that was to read it."""


def check_kind(rollout_input: Any, kind: str) -> None:
    """Raise WrongKind, naming both, for a task that says it is of another kind; one that says nothing may be read."""
    found = rollout_input.get("kind", kind) if isinstance(rollout_input, dict) else kind
    if found != kind:
        raise WrongKind(f"its task is of kind {found!r}, and this runner plays {kind!r}")


class TokenLimits(BaseModel):
    """Bounds on one actor's tokens.

    context_tokens: prompt plus reply of one call never exceeds this; an actor whose next turn would
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


class Sampling(BaseModel):
    """How the trained policy is sampled. The trainer recomputes log-probs with the same temperature.

    thinking: whether a model that can is to think before it answers (Qwen3's ``enable_thinking``).
    top_p and top_k other than their defaults make the sampled distribution differ from the model's
    own, which the update would have to correct for; they are therefore not offered for training.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    temperature: float = Field(default=1.0, gt=0)
    thinking: bool = False


class PolicyResources(BaseModel):
    """Everything a runner needs in order to play one version of the trained policy.

    run_name: the run that published it; keeps two runs on one hub apart.
    version: number of updates applied to the weights; 0 is the initial model. A server that says which version
        sampled a reply knows better: games may outlast a version.
    endpoints: base URLs of OpenAI-compatible servers, each ending in ``/v1``; all serve the same weights. Each seat of
        a game stays with one of them. None for a policy that is not served, whose demonstrations are wanted.
    model: name under which those servers serve the policy; without servers, the folder of its tokenizer.
    sampling: of the trained policy and of the frozen ones.
    prompt_templates: Chinese prompts that replace the built-in ones, by name.
    players: models that may sit at the table beside the policy, by the name that tasks use.
    policies: the run's table of policies: those that learn, where they have names of their own, frozen ones and past
        selves. ``endpoints`` and ``model`` are those of the first that learns, and ``version`` is that of all that do.
    judge: the model that judges what trained seats say; None for no judge.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    run_name: str = Field(min_length=1)
    version: int = Field(ge=0)
    endpoints: tuple[Annotated[str, Field(min_length=1)], ...]
    model: str
    sampling: Sampling = Sampling()
    prompt_templates: dict[str, str] = Field(default_factory=dict)
    players: dict[str, ChatEndpoint] = Field(default_factory=dict)
    policies: tuple[ServedPolicy, ...] = ()
    judge: ChatEndpoint | None = None

    @model_validator(mode="after")
    def _names_are_distinct(self) -> Self:
        names = [TRAINED_POLICY, *PLAYERS_WITHOUT_A_MODEL, *self.players, *(policy.name for policy in self.policies)]
        clashing = {name for name in names if names.count(name) > 1} | {*self.frozen}.intersection(
            [TRAINED_POLICY, *PLAYERS_WITHOUT_A_MODEL, *self.players, *(learner.name for learner in self.learners)]
        )
        if clashing:
            raise ValueError(f"more than one player is named {', '.join(sorted(clashing))}")
        return self

    @model_validator(mode="after")
    def _first_learner_stands_for_all(self) -> Self:
        first = next(iter(self.learners), None)
        if first is not None and (self.endpoints, self.model) != (first.endpoints, first.model):
            raise ValueError(f"{TRAINED_POLICY!r} must be served where {first.name!r}, the first that learns, is")
        return self

    @property
    def learners(self) -> tuple[ServedPolicy, ...]:
        """The policies that learn and have names of their own."""
        return tuple(policy for policy in self.policies if policy.seated_as == TRAINED_POLICY)

    @property
    def frozen(self) -> tuple[str, ...]:
        """Players that are policies with frozen weights, past selves among them, by the names that tasks use."""
        others = (policy.seated_as for policy in self.policies if policy.seated_as != TRAINED_POLICY)
        return tuple(dict.fromkeys(others))

    def policy_of(self, player: str, role: str, side: str) -> str | None:
        """Name of the policy that plays a player's seat; None for the only one that learns.

        Raises ValueError where none of the player's policies plays such a seat.
        """
        own = [policy for policy in self.policies if policy.seated_as == player]
        for policy in own:
            if policy.plays(role, side):
                return policy.name
        if not own:
            return None
        names = ", ".join(policy.name for policy in own)
        raise ValueError(f"none of the policies of {player!r} ({names}) plays the role {role!r} of side {side!r}")

    def with_endpoints(self, endpoints: tuple[str, ...], policies: Mapping[str, tuple[str, ...]]) -> Self:
        """The same policies, served elsewhere. policies: new endpoints by name; those left out stay."""
        moved = [one.model_copy(update={"endpoints": policies.get(one.name, one.endpoints)}) for one in self.policies]
        return self.model_copy(update={"endpoints": endpoints, "policies": tuple(moved)})

    @property
    def past_selves(self) -> dict[str, float]:
        """Of whom a seat for ``PAST_SELVES`` is drawn: player -> share."""
        return {policy.seated_as: policy.share for policy in self.policies if policy.share}

    @property
    def resources_id(self) -> str:
        """The id under which this version is published."""
        return f"{self.run_name}{VERSION_SEPARATOR}{self.version:06d}"

    def encode(self) -> NamedResources:
        """As agentlightning resources: ``policy``, the ``LLM`` that stock programs use, a ``PromptTemplate`` for each
        prompt, and the table of who else plays and where, for which there is no kind: a text of JSON.

        A policy that is not served has no address.
        """
        address = next(iter(self.endpoints), "")
        resources: NamedResources = {
            TRAINED_POLICY: LLM(endpoint=address, model=self.model, sampling_parameters=self.sampling.model_dump()),
            TABLE_RESOURCE: PromptTemplate(template=self.model_dump_json(include=_OF_THE_TABLE), engine="f-string"),
        }
        for name, template in self.prompt_templates.items():
            resources[PROMPT_RESOURCE_PREFIX + name] = PromptTemplate(template=template, engine="f-string")
        return resources

    @classmethod
    def decode(cls, update: ResourcesUpdate) -> Self:
        """Read published resources back; ValueError names what is missing or malformed."""
        run_name, separator, version = update.resources_id.rpartition(VERSION_SEPARATOR)
        if not separator or not version.isdigit():
            raise ValueError(
                f"resources {update.resources_id!r} were not published by algo.werewolf_verl or algo.agent_verl "
                f"(expected an id like 'run{VERSION_SEPARATOR}000001')"
            )
        policy, table = update.resources.get(TRAINED_POLICY), update.resources.get(TABLE_RESOURCE)
        if not isinstance(policy, LLM):
            raise ValueError(f"resources {update.resources_id!r} hold no LLM named {TRAINED_POLICY!r}")
        fields: dict[str, Any] = {"endpoints": [policy.endpoint] if policy.endpoint else []}
        if isinstance(table, PromptTemplate):
            fields = _TABLE.validate_json(table.template)
        fields |= {
            "run_name": run_name,
            "version": int(version),
            "model": policy.model,
            "sampling": policy.sampling_parameters,
            "prompt_templates": {
                name.removeprefix(PROMPT_RESOURCE_PREFIX): resource.template
                for name, resource in update.resources.items()
                if name.startswith(PROMPT_RESOURCE_PREFIX) and isinstance(resource, PromptTemplate)
            },
        }
        return cls.model_validate(fields)


_OF_THE_TABLE = {"endpoints", "players", "policies", "judge"}
_TABLE = TypeAdapter(dict[str, Any])
