"""The matches of an evaluation, and the tasks of its games.

A panel selects the matches. ``run``: the policy against ``evaluation.opponents``. ``cross``: every player against
every other and itself, as either side. ``training`` and ``held-out``: the opponents that a run may train against, and
those that none trains against. In ``run``, ``training`` and ``held-out`` the policy plays the sides that it trains.
``v3`` is fixed: from the first release on a version never changes; a change of figures needs a new version. Against
opponents that make many errors a win rate measures little else; hence v3 has opponents of every strength, single seats
among mixed players, and repeats every figure for games without errors.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations_with_replacement
from types import MappingProxyType
from typing import Any

from algo.evaluation.statistics import POWER, deals_needed, detectable_difference, half_width
from algo.run.checkpoints import digest_of_weights
from algo.werewolf.matches import SIDES, held_out_deals
from algo.werewolf.tasks import derived_seed, game_task
from configs.roles_and_decks import DECKS, Role, Side
from configs.sections.opponents import INITIAL_POLICY
from configs.sections.serving import FrozenPolicyConfig
from configs.werewolf import WerewolfConfig
from store.players import TRAINED_POLICY, ChatEndpoint
from store.werewolf import GameTask, SeatingRule, SideName
from store.werewolf_study import Study


@dataclass(frozen=True)
class Panel:
    """A selection of matches. opponents: of whole sides, before a run's own opponents.

    company: players around a single seat, drawn for each deal and seat, equal for every model; empty: no such games.
    reference: player that also plays each deal in the policy's place, and has strength 0; empty: none.
    probed_deals: number of deals on which seats are probed for their beliefs before votes.
    """

    name: str
    opponents: tuple[str, ...] = ()
    company: tuple[str, ...] = ()
    reference: str = ""
    probed_deals: int = 0


RUN, CROSS = "run", "cross"
_ALL = ("random", "timid", "scripted", "expert")
_V3 = Panel("v3", (*_ALL, INITIAL_POLICY), company=_ALL, reference="scripted", probed_deals=50)
PANELS: Mapping[str, Panel] = MappingProxyType(
    {
        RUN: Panel(RUN),
        CROSS: Panel(CROSS),
        "training": Panel("training", ("scripted", "timid", "patient")),
        "held-out": Panel("held-out", ("expert", "poser", "follower")),
        # Only for reading recorded games: its scripted players spoke differently.
        "v2": replace(_V3, name="v2"),
        "v3": _V3,
    }
)


@dataclass(frozen=True)
class Matches:
    """All matches of an evaluation, and its conditions (``Header.conditions``).

    digest: hash of the conditions, 8 hexadecimal digits.
    by_name: of the opponent, of both players, or "single seat" -> games.
    """

    deals: tuple[int, ...]
    conditions: dict[str, Any]
    digest: str
    by_name: Mapping[str, Sequence[GameTask]]

    @property
    def tasks(self) -> list[GameTask]:
        return [task for tasks in self.by_name.values() for task in tasks]


def matches_of(config: WerewolfConfig, panel: Panel, prefix: str, model: str, players: Sequence[str] = ()) -> Matches:
    """The matches of a panel. prefix: of the game ids. model: of the policy, part of the ids' hash.

    players: of the panel "cross". Sampling seeds derive from the conditions, so that every model gets the same seeds.
    No side is trainable, so these games are never trained on.
    """
    own = tuple(name for name in config.evaluation.opponents if name not in panel.opponents)
    opponents = () if panel.name == CROSS else (*panel.opponents, *own)
    sides = SIDES if panel.reference or panel.name == CROSS else tuple(config.game.train_sides)
    conditions = {
        "panel": panel.name,
        "preset": config.game.preset,
        "rules": config.game.rules.chosen(),
        "seed": config.evaluation.seed,
        "deals": config.evaluation.deals,
        "opponents": list(opponents or players),
        "own": {
            name: _digest(_how_it_plays(chosen))
            for name, chosen in sorted({**config.players, **config.frozen}.items())
            if name in (*opponents, *players)
        },
        "temperature": config.evaluation.temperature or config.rollout.temperature,
        "context_tokens": config.rollout.context_tokens,
        "reply_tokens": config.rollout.reply_tokens,
        "thinking": config.rollout.thinking,
        "prompts": {name: _digest(path.read_bytes()) for name, path in sorted(config.game.prompts.items())},
    }
    if len(sides) < len(SIDES):
        conditions["sides"] = list(sides)
    chance = _digest(str(conditions))
    ids = f"{prefix}-{_digest(f'{chance}/{model}')}"
    deals = held_out_deals(config.evaluation.deals, config.evaluation.seed)

    def game(number: int, group: str, who: str, seating: Sequence[SeatingRule], sampled_for: str) -> GameTask:
        group_id = f"{ids}-{group}-deal{number:03d}"
        return game_task(
            config,
            game_id=f"{group_id}-{who}",
            group_id=group_id,
            seed=deals[number],
            sampling_seed=derived_seed(sampled_for, deals[number]),
            seating=tuple(seating),
            trainable=frozenset(),
            study=Study(probes=frozenset({"vote"} if number < panel.probed_deals else ())),
        )

    def whole_sides(first: str, second: str, sides: Sequence[SideName] = SIDES) -> list[GameTask]:
        """For each deal a game with ``first`` as each of the sides; against itself one game."""
        return [
            game(
                number,
                f"{first}.{second}",  # names have no dot
                side,
                [SeatingRule(side=side, players={first: 1.0}), SeatingRule(side=other, players={second: 1.0})],
                f"match/{chance}/{second}/{side}",  # the same for every ``first``
            )
            for number in range(len(deals))
            for side, other in (SIDES, SIDES[::-1])[: 1 if first == second else 2]
            if side in sides
        ]

    def single_seats() -> list[GameTask]:
        """For each deal one seat, in turn, played by the policy and again by the reference, in the same company."""
        company = SeatingRule(players=dict.fromkeys(panel.company, 1.0))
        seats = len(DECKS[config.game.preset])
        return [
            game(
                number,
                "seat",
                player,
                [SeatingRule(seat=1 + number % seats, players={player: 1.0}), company],
                f"seat/{chance}",
            )
            for number in range(len(deals))
            for player in (TRAINED_POLICY, panel.reference)
        ]

    if panel.name == CROSS:
        by_name = {
            f"{one}, {other}": whole_sides(one, other) for one, other in combinations_with_replacement(players, 2)
        }
    else:
        places = dict.fromkeys((TRAINED_POLICY, panel.reference or TRAINED_POLICY))
        by_name = {name: [task for one in places for task in whole_sides(one, name, sides)] for name in opponents}
        if panel.company:
            by_name["single seat"] = single_seats()
    return Matches(tuple(deals), conditions, chance, by_name)


def power_text(panel: Panel, deals: int, deck: Sequence[Role]) -> str:
    """The differences that so many deals can detect. deck: the roles dealt."""
    text = (
        f"{deals} deals: a win rate of one side against one opponent is known to ± {100 * half_width(deals):.0f} "
        f"points, and a difference of two such rates is detected with power {POWER:.0%} if it is "
        f"{100 * detectable_difference(deals):.0f} points; 5 points need {deals_needed(0.05)} deals, 10 points "
        f"{deals_needed(0.1)}, fewer where both play the same deals"
    )
    if panel.company:
        wolves = deals * sum(role.side is Side.WOLF for role in deck) / len(deck)
        widths = " and ".join(
            f"of the {side} side (about {count:.0f} deals) to ± {100 * half_width(max(1, count)):.0f}"
            for side, count in (("good", deals - wolves), ("wolf", wolves))
        )
        text += f"; single seats {widths} points; beliefs are probed on {min(deals, panel.probed_deals)} deals"
    return text


def _how_it_plays(player: ChatEndpoint | FrozenPolicyConfig) -> str:
    """What games depend on, not what calls and servers may take; of a model's folder its weights."""
    if isinstance(player, ChatEndpoint):
        how = player.model, player.temperature, player.max_tokens, player.history_chars
        return f"{player.provider} {player.url} {how}"
    if player.path is not None:
        return digest_of_weights(player.path) or str(player.path)
    return f"{player.model} {player.url}"


def _digest(what: str | bytes) -> str:
    return hashlib.blake2b(what if isinstance(what, bytes) else what.encode(), digest_size=4).hexdigest()
