"""The resources of any workload: endpoints, sampling and version of the policy.

A rollout's ``input`` is a task of its workload (``store.werewolf.GameTask``); its ``resources_id`` is that of a
``PolicyResources``, which only this module encodes and decodes.
"""

from collections.abc import Mapping
from typing import Any, Protocol, Self

from pydantic import ConfigDict, Field, TypeAdapter, model_validator

from store.endpoints import BaseUrl, ServedPolicy
from store.players import PLAYERS_WITHOUT_A_MODEL, TRAINED_POLICY, ChatEndpoint
from store.protocol import LLM, NamedResources, PromptTemplate, ResourcesUpdate
from store.strict import Strict

IDEMPOTENCY_KEY = "idempotency_key"
"""Entry of a task's ``metadata`` that makes ``enqueue`` idempotent in ``python -m store``.

A text that is unique among all tasks of the hub. Enqueueing a task with a known key returns the existing rollout, and
is rejected with another ``input``. A key is deleted with its rollout.
"""

PROMPT_RESOURCE_PREFIX = "prompt_"
TABLE_RESOURCE = "table"
VERSION_SEPARATOR = ".policy-"
"""Separates the run's name and the policy version in ``PolicyResources.resources_id``."""


class Task(Protocol):
    """The task of any workload."""

    @property
    def task_id(self) -> str:
        """Unique within its run."""
        ...

    @property
    def group_id(self) -> str:
        """Its group: tasks with rollouts that are compared with each other."""
        ...

    def encode(self) -> dict[str, Any]:
        """As a rollout's input, JSON only."""
        ...


class WrongKind(ValueError):
    """A task of another workload."""


def check_kind(rollout_input: Any, kind: str) -> None:
    """Raise WrongKind for a task of another kind; a task without a kind passes."""
    found = rollout_input.get("kind", kind) if isinstance(rollout_input, dict) else kind
    if found != kind:
        raise WrongKind(f"the task is of kind {found!r}, and this runner plays {kind!r}")


class TokenLimits(Strict):
    """Bounds on one actor's tokens.

    context_tokens: maximum of prompt plus reply of one call; an actor starts a new segment before it is exceeded.
    reply_tokens: maximum of sampled tokens of one reply.
    """

    context_tokens: int = Field(gt=0)
    reply_tokens: int = Field(gt=0)

    @model_validator(mode="after")
    def _reply_fits(self) -> Self:
        if self.reply_tokens >= self.context_tokens:
            raise ValueError(
                f"reply_tokens ({self.reply_tokens}) must be smaller than context_tokens ({self.context_tokens})"
            )
        return self


class Sampling(Strict):
    """Sampling of the trained policy. The trainer recomputes log-probs with the same temperature.

    thinking: whether the model thinks before it answers, if it can (Qwen3's ``enable_thinking``).
    There is no top_p or top_k: the sampled distribution would differ from the model's, and the update would need a
    correction.
    """

    temperature: float = Field(default=1.0, gt=0)
    thinking: bool = False


class PolicyResources(Strict):
    """Everything that a runner needs to play one version of the trained policy.

    run_name: of the run that published it; distinguishes runs on one hub.
    version: number of updates applied to the weights; 0 is the initial model. A server's version header takes
        precedence, since rollouts may outlast a version.
    endpoints: base URLs of OpenAI-compatible servers, each ending in ``/v1``; all serve the same weights. Each seat of
        a game stays with one of them. Empty for demonstrations only, without a served policy.
    model: name of the policy on those servers; without servers, the folder of its tokenizer.
    sampling: of the trained policy and of the frozen ones.
    prompt_templates: Chinese prompts that replace the built-in ones, by name.
    players: other models that may play, by their names in tasks.
    policies: the run's table of policies: learning ones with names of their own, frozen ones and past selves.
        ``endpoints`` and ``model`` are those of the first that learns, ``version`` is the same for all that learn.
    judge: the model that judges speeches of trained seats; None for no judge.
    """

    model_config = ConfigDict(hide_input_in_errors=True)

    run_name: str = Field(min_length=1)
    version: int = Field(ge=0, lt=2**63)
    endpoints: tuple[BaseUrl, ...]
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
            raise ValueError(f"endpoints and model must be those of {first.name!r}, the first policy that learns")
        return self

    @property
    def learners(self) -> tuple[ServedPolicy, ...]:
        """The learning policies with names of their own."""
        return tuple(policy for policy in self.policies if policy.seated_as == TRAINED_POLICY)

    @property
    def frozen(self) -> tuple[str, ...]:
        """Players that are frozen policies or past selves, by their names in tasks."""
        others = (policy.seated_as for policy in self.policies if policy.seated_as != TRAINED_POLICY)
        return tuple(dict.fromkeys(others))

    def policy_of(self, player: str, role: str, side: str) -> str | None:
        """Name of the policy that plays a player's seat; None for a sole learning policy.

        Raises ValueError if none of the player's policies plays such a seat.
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
        """A copy with new endpoints. policies: by name; others keep theirs."""
        moved = [one.model_copy(update={"endpoints": policies.get(one.name, one.endpoints)}) for one in self.policies]
        return self.model_copy(update={"endpoints": endpoints, "policies": tuple(moved)})

    @property
    def past_selves(self) -> dict[str, float]:
        """The draw for ``PAST_SELVES``: player -> share."""
        return {policy.seated_as: policy.share for policy in self.policies if policy.share}

    @property
    def resources_id(self) -> str:
        """Id of this version in the hub."""
        return f"{self.run_name}{VERSION_SEPARATOR}{self.version:06d}"

    def encode(self) -> NamedResources:
        """As agentlightning resources: an ``LLM`` named ``policy``, as stock programs expect it, a ``PromptTemplate``
        for each prompt, and one with the table of other players and policies as JSON. The ``LLM`` of a policy without
        servers has no address.
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
        """Read published resources. Raises ValueError, naming the missing or malformed part."""
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
