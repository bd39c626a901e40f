"""The search's workload for the game: the same deals for all prompts, mirrored where both sides read the prompt."""

from collections.abc import Collection, Sequence
from typing import get_args

from algo.prompt_search.arena import Stage
from algo.prompt_search.candidates import Candidate
from algo.rollouts.triplets import FinishedRollout
from algo.werewolf.tasks import derived_seed, held_out_deal, token_limits, training_deal
from configs.roles_and_decks import Role
from configs.section import ConfigError
from configs.sections.game import FRAME
from configs.werewolf import WerewolfConfig
from store.schema import PLAYERS_WITHOUT_A_MODEL, PolicyResources, Task
from store.werewolf import GameTask, SeatingRule, SideName

SIDES: tuple[SideName, ...] = get_args(SideName)


def check_players(player: str, opponent: str, varied: Collection[str]) -> None:
    """Raise ConfigError where the opponent would read the prompts that are searched."""
    if player == opponent:
        raise ConfigError(f"the prompts of {player!r} cannot be told from those of its opponent: it is the same")
    if opponent not in PLAYERS_WITHOUT_A_MODEL and (FRAME in varied or len(varied) > 1):
        raise ConfigError(
            f"the opponent {opponent!r} would read the same prompts: one that needs none is wanted for the frame "
            f"of the system prompt, or for several prompts ({', '.join(PLAYERS_WITHOUT_A_MODEL)})"
        )


def sides_of(slot: str | None, varied: Collection[str]) -> tuple[SideName, ...]:
    """The sides of each deal that are played to compare texts for ``slot``; None: for all of ``varied``."""
    varied = varied if slot is None else (slot,)
    if FRAME in varied:
        return SIDES
    return tuple(side for side in SIDES if side in {Role(name).side for name in varied})


class GameTasks:
    """Games of one player, whose prompts are searched, against another. A reward is the share of games won.

    A role's guidance is tried on that role's side; the frame, and several prompts together, on both sides of each deal.
    player, opponent: names as in ``store.werewolf.SeatingRule``. base: resources of which prompts and version are
    replaced. varied: slots that are searched.
    """

    low, high = 0.0, 1.0

    def __init__(
        self, config: WerewolfConfig, player: str, opponent: str, base: PolicyResources, varied: Collection[str]
    ):
        self._config = config
        self._player, self._opponent = player, opponent
        self._base = base
        self._varied = varied

    def rollouts_a_task(self, stage: Stage) -> int:
        """Games of a deal."""
        return len(self._sides(stage))

    def tasks(self, stage: Stage, number: int, candidate: Candidate) -> Sequence[Task]:
        """A deal's games."""
        seed = self._config.run.seed
        deal = held_out_deal(seed, number) if stage.held_out else training_deal(seed, _number_of(stage.name), number)
        group_id = f"{stage.name}-deal{number:05d}"
        games = []
        for side in self._sides(stage):
            other = SIDES[1 - SIDES.index(side)]
            games.append(
                GameTask(
                    game_id=f"{group_id}-prompt{candidate.number:03d}-{side}",
                    group_id=group_id,
                    seed=deal,
                    sampling_seed=derived_seed(f"prompt/{stage.name}/{side}", deal),
                    preset=self._config.game.preset,
                    rules=self._config.game.rules.chosen(),
                    seating=(
                        SeatingRule(side=side, players={self._player: 1.0}),
                        SeatingRule(side=other, players={self._opponent: 1.0}),
                    ),
                    trainable=frozenset(),
                    limits=token_limits(self._config.rollout),
                )
            )
        return games

    def reward(self, task: Task, finished: FinishedRollout) -> float:
        """1 for a game that the player's side won; a draw is no win."""
        assert isinstance(task, GameTask)
        side = next(rule.side for rule in task.seating if self._player in rule.players)
        return float(finished.outcome.result == side)

    def resources(self, candidate: Candidate) -> PolicyResources:
        """With the candidate's prompts in the place of the configured ones."""
        prompts = self._base.prompt_templates | dict(candidate.templates)
        return self._base.model_copy(update={"version": candidate.number, "prompt_templates": prompts})

    def _sides(self, stage: Stage) -> tuple[SideName, ...]:
        return sides_of(stage.slot, self._varied)


def _number_of(stage: str) -> int:
    return derived_seed(f"stage/{stage}")
