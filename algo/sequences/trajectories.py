"""Triplets -> trajectories: one token sequence per actor and segment of a rollout."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from algo.rollouts.triplets import FinishedRollout, Triplet


@dataclass(frozen=True)
class Trajectory:
    """One segment of one actor's rollout: prompts and sampled replies interleaved, exactly as in vLLM.

    Everything per token is aligned with ``token_ids``.

    task_id: of the rollout; with ``actor`` and ``segment`` it identifies the trajectory.
    group_id: of rollouts with the same task or the same cards.
    actor: unique name within the rollout; names sort in the order of the actors.
    role: of the actor, such as its role card. side: its side; baselines never mix sides. An agent without them has its
        name as both.
    segment: number of the actor's growing sequence within the rollout, from 0; a new one begins with a
        recap when the context is full.
    token_ids: the whole sequence, from the first prompt token to the last token of the segment.
    loss_mask: 1 where the policy sampled the token, 0 where it was given; aligned with ``token_ids``.
        The first token is always given.
    logprobs: natural log-probs that vLLM returned for the sampled tokens, at the sampling
        temperature; aligned with ``token_ids``, 0.0 where ``loss_mask`` is 0.
    turn_ends: for each turn, in order, the index in ``token_ids`` one past its last sampled token.
    turn_versions: for each turn, the version of the weights that sampled it, aligned with ``turn_ends``; a running
        rollout continues with new weights.
    turn_questions: ``CallSpan.question`` of each turn, aligned with ``turn_ends``; empty if unknown.
    reward: of the actor in the whole rollout; the same for all its segments.
    turn_rewards: each turn's part of ``reward``, aligned with ``turn_ends``; empty without turn rewards.
    turn_numbers: ``CallSpan.turn`` of each turn, aligned with ``turn_ends``; empty if unknown.
    dimensions: the actor's reward dimensions (``ActorReward``), the same for all its segments.
    learner: the learning policy that sampled it, if the run has several; else None.
    """

    task_id: str
    group_id: str
    actor: str
    role: str
    side: str
    segment: int
    token_ids: tuple[int, ...]
    loss_mask: tuple[int, ...]
    logprobs: tuple[float, ...]
    turn_ends: tuple[int, ...]
    turn_versions: tuple[int, ...]
    reward: float
    turn_questions: tuple[str, ...] = ()
    turn_rewards: tuple[float, ...] = ()
    turn_numbers: tuple[int, ...] = ()
    dimensions: Mapping[str, float] = field(default_factory=dict)
    learner: str | None = None

    def __post_init__(self) -> None:
        if problem := self._problem():
            raise ValueError(f"{self.task_id}, {self.actor}, segment {self.segment}: {problem}")

    def _problem(self) -> str | None:
        length, mask, ends = len(self.token_ids), self.loss_mask, self.turn_ends
        if len(mask) != length or len(self.logprobs) != length:
            return f"{length} tokens, but {len(mask)} in the loss mask and {len(self.logprobs)} log-probs"
        if not set(mask) <= {0, 1}:
            return "the loss mask has values other than 0 and 1"
        if length and mask[0] != 0:
            return "the first token cannot be sampled, since it has no context"
        if not any(mask):
            return "no sampled token"
        if any(value != 0.0 and not sampled for value, sampled in zip(self.logprobs, mask, strict=True)):
            return "a token that was not sampled has a log-prob"
        if any(not 0 < end <= length or not mask[end - 1] for end in ends) or list(ends) != sorted(set(ends)):
            return f"turn ends {ends} must be ascending, each after a sampled token"
        if len(self.turn_versions) != len(ends):
            return f"{len(self.turn_versions)} policy versions for {len(ends)} turns"
        named = {"questions": self.turn_questions, "turn rewards": self.turn_rewards, "numbers": self.turn_numbers}
        for name, values in named.items():
            if values and len(values) != len(ends):
                return f"{len(values)} {name} for {len(ends)} turns"
        return None

    @property
    def oldest_version(self) -> int:
        return min(self.turn_versions)

    def turn_spans(self) -> Iterator[tuple[int, int]]:
        """For each turn its range in ``token_ids``, from the end of the previous turn."""
        return pairwise((0, *self.turn_ends))

    def turn_shares(self) -> list[float]:
        """For each token 1 / the number of sampled tokens of its turn; 0.0 for given tokens."""
        shares = [0.0] * len(self.token_ids)
        for start, end in self.turn_spans():
            sampled = [place for place in range(start, end) if self.loss_mask[place]]
            for place in sampled:
                shares[place] = 1.0 / len(sampled)
        return shares


def synthetic_trajectory(name: str, token_ids: tuple[int, ...], loss_mask: tuple[int, ...]) -> Trajectory:
    """A sequence without a rollout, for computing log-probs of the tokens in the mask."""
    return Trajectory(
        task_id=name,
        group_id=name,
        actor=name,
        role="none",
        side="none",
        segment=0,
        token_ids=token_ids,
        loss_mask=loss_mask,
        logprobs=(0.0,) * len(token_ids),
        turn_ends=(len(token_ids),),
        turn_versions=(0,),
        reward=0.0,
    )


@dataclass(frozen=True)
class ActorReward:
    """The reward of one actor in one rollout.

    role, side: as in ``Trajectory``.
    total: ``outcome`` plus the sum of ``turns``.
    outcome: reward for the outcome of the rollout.
    turns: number of the turn -> its reward; 0 for absent ones.
    dimensions: unweighted facts by name, for the log and for selection.
    """

    role: str
    side: str
    total: float
    outcome: float
    turns: Mapping[int, float]
    dimensions: Mapping[str, float]


RewardsOf = Callable[[FinishedRollout], Mapping[str, ActorReward]]
"""Function of the workload: the reward of each actor of a finished rollout, by its name."""

NOT_TRAINABLE = "not_trainable"
TOO_LONG = "too_long"
NOTHING_SAMPLED = "nothing_sampled"


@dataclass(frozen=True)
class TrajectorySet:
    """The trajectories of a step.

    left_out: model turns that are in none, counted by reason.
    """

    trajectories: tuple[Trajectory, ...]
    left_out: Counter[str]


def build_trajectories(
    rollouts: Iterable[FinishedRollout], rewards_of: RewardsOf, max_sequence_tokens: int
) -> TrajectorySet:
    """One sequence per trainable actor and segment of every rollout.

    max_sequence_tokens: longer sequences are left out, and their turns counted.
    """
    trajectories: list[Trajectory] = []
    left_out: Counter[str] = Counter()
    for rollout in rollouts:
        left_out += rollout.left_out
        left_out[NOT_TRAINABLE] += sum(not triplet.metadata["trainable"] for triplet in rollout.triplets)
        rewards = rewards_of(rollout)
        for (actor, segment), chain in _by_segment(rollout.triplets).items():
            length = len(chain[-1].prompt["token_ids"]) + len(chain[-1].response["token_ids"])
            if length > max_sequence_tokens:
                left_out[TOO_LONG] += len(chain)
                continue
            sampled_turns = sum(bool(triplet.response["token_ids"]) for triplet in chain)
            left_out[NOTHING_SAMPLED] += len(chain) - sampled_turns
            if sampled_turns:
                trajectories.append(_trajectory(chain, segment, rollout.outcome.group_id, rewards[actor]))
    return TrajectorySet(tuple(trajectories), left_out=+left_out)


def _by_segment(triplets: Iterable[Triplet]) -> dict[tuple[str, int], list[Triplet]]:
    """Turns to train on by (actor, segment), in order; each prompt extends, token by token, everything before it.

    Turns of several segments may alternate, for an agent with concurrent conversations.
    """
    segments: dict[tuple[str, int], list[Triplet]] = defaultdict(list)
    for triplet in triplets:
        if triplet.metadata["trainable"]:
            segments[triplet.metadata["actor"], triplet.metadata["segment"]].append(triplet)
    return segments


def _trajectory(chain: Sequence[Triplet], segment: int, group_id: str, reward: ActorReward) -> Trajectory:
    token_ids: list[int] = []
    loss_mask: list[int] = []
    logprobs: list[float] = []
    turn_ends: list[int] = []
    turns = [triplet.metadata for triplet in chain if triplet.response["token_ids"]]
    for triplet in chain:
        new_prompt, sampled = triplet.prompt["token_ids"][len(token_ids) :], triplet.response["token_ids"]
        token_ids += [*new_prompt, *sampled]
        loss_mask += [0] * len(new_prompt) + [1] * len(sampled)
        logprobs += [0.0] * len(new_prompt) + list(triplet.response["logprobs"])
        if sampled:
            turn_ends.append(len(token_ids))
    facts = chain[0].metadata
    return Trajectory(
        task_id=facts["task"],
        group_id=group_id,
        actor=facts["actor"],
        role=reward.role,
        side=reward.side,
        segment=segment,
        token_ids=tuple(token_ids),
        loss_mask=tuple(loss_mask),
        logprobs=tuple(logprobs),
        turn_ends=tuple(turn_ends),
        turn_versions=tuple(turn["policy_version"] for turn in turns),
        reward=reward.total,
        turn_questions=tuple(turn["question"] for turn in turns),
        turn_rewards=tuple(reward.turns.get(turn["turn"], 0.0) for turn in turns),
        turn_numbers=tuple(turn["turn"] for turn in turns),
        dimensions=reward.dimensions,
        learner=facts["learner"],
    )
