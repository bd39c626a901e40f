"""From rewards to advantages: verl's estimators, with a baseline per deal and side.

Werewolf is zero-sum: over both sides of a game the rewards cancel, so a baseline across sides would
compare the luck of the cards. Games of one group share their deal, hence the baseline of a seat is
taken over the seats of its side in all games of its group: verl's group index is "group_id/side".

A seat's game is one row for the estimator, however many segments (token sequences) it was cut into:
its sampled tokens one after another, the seat's reward on the last of them. So a baseline counts
each seat of each game once, and the segments of a seat share its advantage.
"""

import inspect
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from verl.trainer.config import AlgoConfig
from verl.trainer.ppo.core_algos import ADV_ESTIMATOR_REGISTRY, get_adv_estimator_fn

from algo.trajectories import SeatTrajectory
from configs.section import ConfigError
from configs.training import AdvantageConfig

# What an estimator may ask for that a finished game cannot give, and why.
_UNAVAILABLE = {
    "values": "it needs a critic's values, and no critic is trained here",
    "reward_baselines": "it needs the reward of a greedily played copy of every game",
    "sum_pi_squared": "it needs the sum of squared probabilities at every token, which is not recorded",
}
_SeatGame = tuple[str, int]

EQUAL_WITHIN = 1e-6
"""Rewards no further apart than this count as equal: verl's estimators compute in float32, where a smaller difference
is rounding error, and GRPO would divide it by a deviation as small."""


@dataclass(frozen=True)
class SeatAdvantages:
    """Advantages of a step's trajectories.

    per_token: one float32 tensor per trajectory, in their order, aligned with its ``token_ids``;
        0.0 where the loss mask is 0.
    informative: for each trajectory whether its group could tell better from worse. Where False all
        its advantages are zero, and leaving the trajectory out changes no sum of gradients (only
        the number of rows that a sequence mean divides by).
    metrics: numbers to log: groups (deal and side), those of one game, those whose rewards are all
        equal, rows (seats of games), rows without information, mean and spread of rewards.
    """

    per_token: list[torch.Tensor]
    informative: tuple[bool, ...]
    metrics: dict[str, float]


def check_estimator(name: str) -> None:
    """Raise ConfigError, naming what is registered, if verl's estimator cannot be used here."""
    if name not in ADV_ESTIMATOR_REGISTRY:
        raise ConfigError(
            f"advantage.estimator {name!r} is not registered in verl; registered: {', '.join(_usable_estimators())}"
        )
    for parameter, reason in _UNAVAILABLE.items():
        if _requires(name, parameter):
            raise ConfigError(
                f"advantage.estimator {name!r} cannot be used: {reason}. "
                f"Choose one of {', '.join(_usable_estimators())}"
            )


def needs_groups(name: str) -> bool:
    """Whether the estimator compares the games of a group, and so says nothing about a single game."""
    return _takes(name, "index")


def seat_advantages(trajectories: Sequence[SeatTrajectory], config: AdvantageConfig) -> SeatAdvantages:
    """Compute each trajectory's advantages by the estimator that the configuration names.

    Estimators with a baseline (those that take a group index) can say nothing about a group that
    holds only one game, or whose rewards are all equal. Such groups are kept from the estimator and
    get zero: verl's GRPO would give a lone row its bare reward as advantage, and would divide the
    rounding error of equal rewards by a standard deviation of zero.

    Raises ConfigError for an estimator that cannot be used, and ValueError, naming the game and seat,
    when segments of one seat disagree about the reward or two claim the same number.
    """
    check_estimator(config.estimator)
    segments = _segments_by_seat(trajectories)
    seats = list(segments)
    rewards = {seat: trajectories[numbers[0]].reward for seat, numbers in segments.items()}
    groups: dict[str, list[_SeatGame]] = defaultdict(list)
    for seat, numbers in segments.items():
        first = trajectories[numbers[0]]
        groups[f"{first.group_id}/{first.side}"].append(seat)
    one_game = {name for name, members in groups.items() if len({game_id for game_id, _ in members}) == 1}
    equal = {name for name, members in groups.items() if _spread(rewards[seat] for seat in members) <= EQUAL_WITHIN}

    silent: set[_SeatGame] = set()
    if _takes(config.estimator, "index"):
        silent = {seat for name in one_game | equal for seat in groups[name]}
    group_of = {seat: name for name, members in groups.items() for seat in members}
    speaking = [seat for seat in seats if seat not in silent]
    lengths = {seat: sum(sum(trajectories[number].loss_mask) for number in segments[seat]) for seat in seats}
    rows = _estimate(speaking, lengths, rewards, group_of, config)

    per_token = [torch.zeros(len(trajectory.token_ids)) for trajectory in trajectories]
    for seat in speaking:
        start = 0
        for number in segments[seat]:
            sampled = torch.tensor(trajectories[number].loss_mask, dtype=torch.bool)
            count = int(sampled.sum())
            per_token[number][sampled] = rows[seat][start : start + count]
            start += count
    reward_values = torch.tensor([rewards[seat] for seat in seats], dtype=torch.float64)
    metrics = {
        "advantage/groups": len(groups),
        "advantage/groups_of_one_game": len(one_game),
        "advantage/groups_of_equal_rewards": len(equal - one_game),
        "advantage/seats": len(seats),
        "advantage/seats_without_information": len(silent),
        "advantage/reward_mean": reward_values.mean().item() if seats else 0.0,
        "advantage/reward_std": reward_values.std(correction=0).item() if seats else 0.0,
    }
    return SeatAdvantages(
        per_token=per_token,
        informative=tuple((trajectory.game_id, trajectory.seat) not in silent for trajectory in trajectories),
        metrics={name: float(value) for name, value in metrics.items()},
    )


def _spread(values: Iterable[float]) -> float:
    found = list(values)
    return max(found) - min(found)


def _segments_by_seat(trajectories: Sequence[SeatTrajectory]) -> dict[_SeatGame, list[int]]:
    """Positions in ``trajectories`` of each seat's segments, in the order in which they were played."""
    found: dict[_SeatGame, list[int]] = defaultdict(list)
    for number, trajectory in enumerate(trajectories):
        found[trajectory.game_id, trajectory.seat].append(number)
    for (game_id, seat), numbers in found.items():
        numbers.sort(key=lambda number: trajectories[number].segment)
        own = [trajectories[number] for number in numbers]
        if len({trajectory.segment for trajectory in own}) != len(own):
            raise ValueError(f"game {game_id}, seat {seat}: a segment occurs twice")
        if len({(trajectory.group_id, trajectory.side, trajectory.reward) for trajectory in own}) != 1:
            raise ValueError(f"game {game_id}, seat {seat}: its segments differ in group, side or reward")
    return dict(found)


def _estimate(
    seats: Sequence[_SeatGame],
    lengths: dict[_SeatGame, int],
    rewards: dict[_SeatGame, float],
    group_of: dict[_SeatGame, str],
    config: AdvantageConfig,
) -> dict[_SeatGame, torch.Tensor]:
    """Advantages of each seat's sampled tokens, its segments joined: float32, shape (sampled tokens,)."""
    if not seats:
        return {}
    mask = torch.zeros(len(seats), max(lengths[seat] for seat in seats))
    token_level_rewards = torch.zeros_like(mask)
    for row, seat in enumerate(seats):
        mask[row, : lengths[seat]] = 1.0
        token_level_rewards[row, lengths[seat] - 1] = rewards[seat]
    offered: dict[str, Any] = {
        "token_level_rewards": token_level_rewards,
        "response_mask": mask,
        "index": np.array([group_of[seat] for seat in seats], dtype=object),
        "norm_adv_by_std_in_grpo": config.normalize_by_std,
        # No discount: the reward is the game's outcome, and a longer game is not a worse one.
        "config": AlgoConfig(
            adv_estimator=config.estimator, gamma=1.0, lam=1.0, norm_adv_by_std_in_grpo=config.normalize_by_std
        ),
    }
    arguments = {name: value for name, value in offered.items() if _takes(config.estimator, name)}
    advantages, _ = get_adv_estimator_fn(config.estimator)(**arguments)
    return {seat: advantages[row, : lengths[seat]].float() for row, seat in enumerate(seats)}


def _takes(estimator: str, parameter: str) -> bool:
    return parameter in inspect.signature(get_adv_estimator_fn(estimator)).parameters


def _requires(estimator: str, parameter: str) -> bool:
    found = inspect.signature(get_adv_estimator_fn(estimator)).parameters.get(parameter)
    return found is not None and found.default is inspect.Parameter.empty


def _usable_estimators() -> list[str]:
    return sorted(
        name for name in ADV_ESTIMATOR_REGISTRY if not any(_requires(name, parameter) for parameter in _UNAVAILABLE)
    )
