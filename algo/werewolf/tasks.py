"""The games of a step, a function of the configuration: deals, seating, seeds."""

import hashlib
from collections import Counter
from collections.abc import Collection
from typing import Any, get_args

from configs.roles_and_decks import DECKS, Role, deal_roles
from configs.sections.game import GameConfig
from configs.werewolf import WerewolfConfig
from store.schema import TRAINED_POLICY, TokenLimits
from store.werewolf import GameTask, SeatingRule, SideName
from store.werewolf_study import Study

SEEDS = 2**31
"""Range of ``derived_seed``."""
_CANDIDATES = 64


def step_tasks(config: WerewolfConfig, step: int) -> list[GameTask]:
    """The games of one step: ``groups_per_step`` deals without ``branched_groups``, each played ``rollouts_per_group``
    times."""
    tasks, groups = [], config.rollout.groups_per_step - config.branched_groups
    for group, deal in enumerate(training_deals(config, step, groups)):
        sides = _trained_sides(config.game, (step - 1) * groups + group)
        group_id = f"{config.run.name}-step{step:04d}-deal{group:02d}"
        tasks += [
            game_task(
                config,
                game_id=f"{group_id}-game{game:02d}",
                group_id=group_id,
                seed=deal,
                sampling_seed=derived_seed("sampling", config.run.seed, step, group, game),
                seating=seating_rules(config.game, sides),
                trainable=frozenset(sides),
                study=study_of_training(config, deal),
            )
            for game in range(config.rollout.rollouts_per_group)
        ]
    return tasks


def game_task(config: WerewolfConfig, **fields: Any) -> GameTask:
    """A game of the configured preset, rules and token limits. fields: the others of ``GameTask``."""
    game, rollout = config.game, config.rollout
    limits = TokenLimits(context_tokens=rollout.context_tokens, reply_tokens=rollout.reply_tokens)
    return GameTask(preset=game.preset, rules=game.rules.chosen(), limits=limits, **fields)


def study_of_training(config: WerewolfConfig, deal: int) -> Study | None:
    """Probes of a training deal's games; None without ``probes.listening``."""
    probes = config.probes
    if not probes.listening:
        return None
    if derived_seed("asked", deal) >= probes.share_of_deals * SEEDS:
        return None
    return Study(probes=frozenset(probes.moments), questions=probes.questions, with_tokens=True)


def _trained_sides(config: GameConfig, deal: int) -> tuple[SideName, ...]:
    """The trained sides of a deal: all, or with another opponent one of them in turn.

    deal: its index in the run.
    """
    if config.opponent == TRAINED_POLICY:
        return config.train_sides
    return (config.train_sides[deal % len(config.train_sides)],)


def seating_rules(config: GameConfig, sides: Collection[SideName]) -> tuple[SeatingRule, ...]:
    """The configured seating rules, then one for each side, so that every seat has a player.

    sides: played by the policy where no configured rule applies.
    """
    by_side = (
        SeatingRule(side=side, players={TRAINED_POLICY if side in sides else config.opponent: 1.0})
        for side in get_args(SideName)
    )
    return (*(SeatingRule(**rule.model_dump()) for rule in config.seating), *by_side)


def training_deals(config: WerewolfConfig, step: int, count: int) -> list[int]:
    """Seeds of a step's deals.

    With ``game.balanced_deals`` each is, of some candidates, the one whose roles the deals before it gave to the same
    seats least often.
    """
    # The first candidate is the deal without this setting.
    numbers = range(_CANDIDATES if config.game.balanced_deals else 1)
    deck, dealt, deals = DECKS[config.game.preset], Counter[tuple[int, Role]](), []
    for group in range(count):
        candidates = [training_deal(config.run.seed, step, group, *([number] if number else [])) for number in numbers]
        roles = {seed: [*enumerate(deal_roles(deck, seed))] for seed in candidates}
        deals.append(min(candidates, key=lambda seed: sum(dealt[place] for place in roles[seed])))
        dealt.update(roles[deals[-1]])
    return deals


def training_deal(run_seed: int, step: int, *position: int) -> int:
    """Seed of a training deal: always even, so that it never equals a ``held_out_deal``."""
    return derived_seed("deal", run_seed, step, *position) & ~1


def held_out_deal(seed: int, number: int) -> int:
    """Seed of a held-out deal: always odd, so that it is never trained on."""
    return derived_seed("held-out deal", seed, number) | 1


def derived_seed(purpose: str, *numbers: int) -> int:
    """A 31-bit seed from the run's seed and a position in the run, so that games can be replayed."""
    digest = hashlib.blake2b(f"{purpose}/{'/'.join(map(str, numbers))}".encode(), digest_size=4).digest()
    return int.from_bytes(digest, "big") >> 1
