"""An actor's rollout as one row for estimators: the concatenated sampled tokens of all its segments."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch

from algo.sequences.batch import PerToken, row_of
from algo.sequences.trajectories import Trajectory


class TurnReward(NamedTuple):
    """One turn's part of its actor's reward.

    end: position after its last token. question: kind of decision. number: of the turn in the rollout; -1 if unknown.
    """

    end: int
    reward: float
    question: str
    number: int = -1


@dataclass(frozen=True)
class ActorRow:
    """One actor of one rollout. Positions count its sampled tokens only, from 0, over all its segments.

    segments: indices of its trajectories, in order.
    group: deal and side.
    reward: of the whole rollout.
    outcome: ``reward`` less the rewards in ``turns``.
    tokens: number of sampled tokens, at least 1.
    turns: turn rewards, in order; empty without ``by_turn``.
    kl: penalty at each token, shape (tokens,); None without.
    values: the critic's value at each token, shape (tokens,); None without.
    branch_gain: by how much the value before its first decision with branches exceeds ``outcome``; 0 without one.
    """

    task_id: str
    actor: str
    side: str
    role: str
    group: str
    segments: tuple[int, ...]
    reward: float
    outcome: float
    tokens: int
    turns: tuple[TurnReward, ...]
    kl: torch.Tensor | None
    values: torch.Tensor | None
    branch_gain: float = 0.0

    @property
    def valued_outcome(self) -> float:
        """The outcome that turns before the first decision with branches are compared by."""
        return self.outcome + self.branch_gain

    @property
    def kl_penalty(self) -> float:
        """Sum over all its tokens."""
        return 0.0 if self.kl is None else self.kl.sum().item()

    def token_rewards(self, with_turns: bool) -> torch.Tensor:
        """Reward at each token: the outcome at the last, less the penalties; turn rewards at each turn's last token."""
        rewards = torch.zeros(self.tokens)
        rewards[-1] = self.outcome
        if with_turns:
            for turn in self.turns:
                rewards[turn.end - 1] += turn.reward
        return rewards if self.kl is None else rewards - self.kl

    def gains_of_turns(self, expected: Mapping[str, float]) -> torch.Tensor:
        """At each token the reward of its turn less the mean of its question; 0.0 without a turn or a mean."""
        gains = torch.zeros(self.tokens)
        for turn, tokens in self.tokens_of_turns():
            gains[tokens] = turn.reward - expected.get(turn.question, turn.reward)
        return gains

    def tokens_of_turns(self) -> Iterator[tuple[TurnReward, slice]]:
        starts = (0, *(turn.end for turn in self.turns))
        return ((turn, slice(start, turn.end)) for start, turn in zip(starts, self.turns, strict=False))


def actor_rows(
    trajectories: Sequence[Trajectory],
    *,
    by_turn: bool,
    kl_penalties: PerToken | None,
    values: PerToken | None,
) -> list[ActorRow]:
    """The rows of all actors of all rollouts, in the order of their first trajectories.

    by_turn: whether turn rewards are separate.

    Raises ValueError, naming the rollout and actor, for a per-token row that does not fit its trajectory.
    """
    found: dict[tuple[str, str], list[int]] = defaultdict(list)
    for number, trajectory in enumerate(trajectories):
        found[trajectory.task_id, trajectory.actor].append(number)
    rows = []
    for (task_id, actor), numbers in found.items():
        numbers.sort(key=lambda number: trajectories[number].segment)
        own = [trajectories[number] for number in numbers]
        turns = _turns(own) if by_turn else ()
        rows.append(
            ActorRow(
                task_id=task_id,
                actor=actor,
                side=own[0].side,
                role=own[0].role,
                group=f"{own[0].group_id}/{own[0].side}",
                segments=tuple(numbers),
                reward=own[0].reward,
                outcome=own[0].reward - sum(turn.reward for turn in turns),
                tokens=sum(sum(trajectory.loss_mask) for trajectory in own),
                turns=turns,
                kl=_sampled("kl_penalties", kl_penalties, numbers, trajectories),
                values=_sampled("values", values, numbers, trajectories),
            )
        )
    return rows


def spread_over_tokens(
    trajectories: Sequence[Trajectory], rows: Sequence[ActorRow], per_row: Sequence[torch.Tensor]
) -> list[torch.Tensor]:
    """Rows over sampled tokens -> one row per trajectory over its ``token_ids``, 0.0 at given tokens."""
    per_token = [torch.zeros(len(trajectory.token_ids)) for trajectory in trajectories]
    for row, found in zip(rows, per_row, strict=True):
        start = 0
        for number in row.segments:
            sampled = torch.tensor(trajectories[number].loss_mask, dtype=torch.bool)
            count = int(sampled.sum())
            per_token[number][sampled] = found[start : start + count]
            start += count
    return per_token


def _turns(segments: Sequence[Trajectory]) -> tuple[TurnReward, ...]:
    found: list[TurnReward] = []
    before = 0
    for trajectory in segments:
        if trajectory.turn_rewards:
            ends = [before + sum(trajectory.loss_mask[:end]) for end in trajectory.turn_ends]
            questions = trajectory.turn_questions or ("",) * len(ends)
            numbers = trajectory.turn_numbers or (-1,) * len(ends)
            found += map(TurnReward, ends, trajectory.turn_rewards, questions, numbers)
        before += sum(trajectory.loss_mask)
    return tuple(found)


def _sampled(
    name: str, given: PerToken | None, numbers: Sequence[int], trajectories: Sequence[Trajectory]
) -> torch.Tensor | None:
    if given is None:
        return None
    rows = [(trajectories[number], row_of(trajectories[number], name, given[number])) for number in numbers]
    return torch.cat([row[torch.tensor(trajectory.loss_mask, dtype=torch.bool)] for trajectory, row in rows])
