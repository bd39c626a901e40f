"""The games of a step: which deals, who sits where, with which seeds. All of it follows from the configuration."""

import hashlib
from collections.abc import Collection
from typing import get_args

from configs.game import GameConfig
from configs.opponents import EndpointConfig
from store.schema import TRAINED_POLICY, ChatEndpoint, GameTask, SeatingRule, SideName, TokenLimits


def step_tasks(config: GameConfig, run_name: str, run_seed: int, step: int) -> list[GameTask]:
    """The games of one step: ``groups_per_step`` deals, each played ``games_per_group`` times."""
    tasks = []
    for group in range(config.groups_per_step):
        sides = _learning_sides(config, (step - 1) * config.groups_per_step + group)
        group_id = f"{run_name}-step{step:04d}-deal{group:02d}"
        for game in range(config.games_per_group):
            tasks.append(
                GameTask(
                    game_id=f"{group_id}-game{game:02d}",
                    group_id=group_id,
                    seed=training_deal(run_seed, step, group),
                    sampling_seed=derived_seed("sampling", run_seed, step, group, game),
                    preset=config.preset,
                    rules=config.rules.chosen(),
                    seating=seating_rules(config, sides),
                    trainable=frozenset(sides),
                    limits=TokenLimits(context_tokens=config.context_tokens, reply_tokens=config.reply_tokens),
                )
            )
    return tasks


def _learning_sides(config: GameConfig, deal: int) -> tuple[SideName, ...]:
    """The sides that learn from a deal: all trained ones, unless another player opposes them, who then takes turns.

    deal: its number in the run, from 0.
    """
    if config.opponent == TRAINED_POLICY:
        return config.train_sides
    return (config.train_sides[deal % len(config.train_sides)],)


def seating_rules(config: GameConfig, sides: Collection[SideName]) -> tuple[SeatingRule, ...]:
    """Who plays which seat: the configured rules, and behind them one for each side, so that no seat is left out.

    sides: those that the policy plays where no configured rule says otherwise.
    """
    by_side = (
        SeatingRule(side=side, players={TRAINED_POLICY if side in sides else config.opponent: 1.0})
        for side in get_args(SideName)
    )
    return (*(SeatingRule(**rule.model_dump()) for rule in config.seating), *by_side)


def chat_endpoint(config: EndpointConfig) -> ChatEndpoint:
    """A configured model behind an API, as runners are told of it (``PolicyResources.players`` and ``judge``)."""
    return ChatEndpoint(**config.model_dump())


def training_deal(run_seed: int, step: int, group: int) -> int:
    """The seed of a deal to train on: always even, so that it is never one of ``held_out_deal``."""
    return derived_seed("deal", run_seed, step, group) & ~1


def held_out_deal(seed: int, number: int) -> int:
    """The seed of a deal that is never trained on: always odd."""
    return derived_seed("held-out deal", seed, number) | 1


def derived_seed(purpose: str, *numbers: int) -> int:
    """A 31-bit seed that follows from the run's seed and a position in the run alone, so that it can be replayed."""
    digest = hashlib.blake2b(f"{purpose}/{'/'.join(map(str, numbers))}".encode(), digest_size=4).digest()
    return int.from_bytes(digest, "big") >> 1
