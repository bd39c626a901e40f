"""Who plays whom in a version of the protocol, and the tasks of its games.

From the first release on a version never changes: what would change a figure is a new version. Ratings in such games
reward little but surviving the errors of opponents, where these make many; hence opponents of every strength, single
seats among mixed players, and all figures once more on games without an error.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

from algo.werewolf.matches import held_out_deals, match_tasks
from algo.werewolf.tasks import derived_seed, token_limits
from configs.roles_and_decks import DECKS
from configs.sections.opponents import INITIAL_POLICY
from configs.werewolf import WerewolfConfig
from store.players import EXPERT_PLAYER, RANDOM_PLAYER, SCRIPTED_PLAYER, TIMID_PLAYER
from store.schema import TRAINED_POLICY
from store.werewolf import GameTask, SeatingRule
from store.werewolf_study import Study

Setting = Literal["sides", "seat"]
"""How a game is seated: the policy has one whole side, or a single seat among mixed players."""


@dataclass(frozen=True)
class Panel:
    """One version. opponents: of whole sides; a run may add others, which are told apart.

    company: who sits round a single seat, drawn for each deal and seat; players without weights, the same for every
    model. reference: who plays each deal in the policy's place, too, in its single seat as in its whole sides, and
    whom strengths are measured from. probed_deals: on how many deals seats are asked what they believe.
    """

    version: str
    opponents: tuple[str, ...]
    company: tuple[str, ...]
    reference: str
    probed_deals: int


PANELS: Mapping[str, Panel] = MappingProxyType(
    {
        "v1": Panel(
            version="v1",
            opponents=(RANDOM_PLAYER, TIMID_PLAYER, SCRIPTED_PLAYER, EXPERT_PLAYER, INITIAL_POLICY),
            company=(RANDOM_PLAYER, TIMID_PLAYER, SCRIPTED_PLAYER, EXPERT_PLAYER),
            reference=SCRIPTED_PLAYER,
            probed_deals=50,
        )
    }
)


def opponents_of(panel: Panel, config: WerewolfConfig) -> tuple[str, ...]:
    """The panel's players, and behind them the run's own of ``evaluation.opponents``: past selves, models of an API."""
    return (*panel.opponents, *(name for name in config.evaluation.opponents if name not in panel.opponents))


def protocol_tasks(
    panel: Panel, opponents: Sequence[str], config: WerewolfConfig, name: str, chance: str
) -> dict[Setting, list[GameTask]]:
    """All games: of each deal both sides against every opponent and a single seat, once more with the reference in it.

    name: names the games. chance: seeds their sampling, with the players: the same for every model.
    """
    deals = held_out_deals(config.evaluation.deals, config.evaluation.seed)
    probed = set(deals[: panel.probed_deals])
    sides = [
        task
        for opponent in opponents
        for player in (TRAINED_POLICY, panel.reference)
        # The reference against itself is both sides at once: one game of each deal.
        for task in match_tasks(player, opponent, deals, config, f"{name}-{panel.version}", chance=chance)[
            :: 2 if player == opponent else 1
        ]
    ]
    seats = [
        task for number, deal in enumerate(deals) for task in _single_seat(panel, config, name, chance, number, deal)
    ]
    return {
        "sides": [_studied(task, task.seed in probed) for task in sides],
        "seat": [_studied(task, task.seed in probed) for task in seats],
    }


def _single_seat(
    panel: Panel, config: WerewolfConfig, name: str, chance: str, number: int, deal: int
) -> list[GameTask]:
    seat = 1 + number % len(DECKS[config.game.preset])
    group_id = f"{name}-{panel.version}-seat-deal{number:03d}"
    company = SeatingRule(players=dict.fromkeys(panel.company, 1.0))
    return [
        GameTask(
            game_id=f"{group_id}-{player}",
            group_id=group_id,
            seed=deal,
            # The same for both, so that the company's own chance is the same, too.
            sampling_seed=derived_seed(f"seat/{chance}", deal),
            preset=config.game.preset,
            rules=config.game.rules.chosen(),
            seating=(SeatingRule(seat=seat, players={player: 1.0}), company),
            trainable=frozenset(),
            limits=token_limits(config.rollout),
        )
        for player in (TRAINED_POLICY, panel.reference)
    ]


def _studied(task: GameTask, probed: bool) -> GameTask:
    moments = frozenset({"speech", "vote"}) if probed else frozenset()
    return task.model_copy(update={"study": Study(probes=moments)})


def single_seat_of(task: GameTask) -> int | None:
    """The seat that a task gives to one player among others; None for whole sides."""
    return next((rule.seat for rule in task.seating if rule.seat is not None), None)
