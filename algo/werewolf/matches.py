"""Games between two named players: which deals, who sits where, and what is kept of each game for statistics."""

from collections.abc import Iterable, Sequence
from typing import Literal, get_args

from pydantic import BaseModel, ConfigDict, Field

from algo.league.results import Match
from algo.rollouts.triplets import FinishedRollout
from algo.werewolf.tasks import derived_seed, held_out_deal, token_limits
from configs.werewolf import WerewolfConfig
from store.schema import TRAINED_POLICY
from store.werewolf import GameTask, ResultSpan, SeatingRule, SideName, TurnSpan

SIDES: tuple[SideName, ...] = get_args(SideName)


class SeatRecord(BaseModel):
    """What one seat did in a game.

    turns: model calls made; 0 for players without tokens of their own, such as scripted ones.
    invalid_turns: those whose reply could not be used.
    defaulted_decisions: decisions taken by the declared default action, after two such replies.
    leaks: public speeches that gave the wolves away or printed the system prompt.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    role: str
    side: SideName
    turns: int = Field(ge=0)
    invalid_turns: int = Field(ge=0)
    defaulted_decisions: int = Field(ge=0)
    leaks: int = Field(ge=0)


class GameRecord(BaseModel):
    """A finished game between two players, each of whom plays all the seats of one side.

    deal: the seed of the deal; games with the same deal were dealt the same cards.
    players: side -> name of its player.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    game_id: str
    deal: int
    players: dict[SideName, str]
    result: Literal["wolf", "good", "draw"]
    days: int
    seats: tuple[SeatRecord, ...]

    @property
    def without_errors(self) -> bool:
        """Whether every reply of a policy could be used, and nobody's decision was taken by default."""
        return not any(seat.invalid_turns or seat.defaulted_decisions for seat in self.seats)

    def sides_of(self, player: str) -> list[SideName]:
        """The sides that a player plays: one of them, or both where it plays itself."""
        return [side for side in SIDES if self.players[side] == player]


def held_out_deals(count: int, seed: int) -> list[int]:
    """Seeds of ``count`` different deals, none of which any training run plays (``algo.werewolf.tasks.held_out_deal``).

    A seed decides who is dealt which role, and how ties fall. Different seeds may deal the same roles: there are 20
    ways to deal 5p_tiny, and millions of 12p_sheriff.
    """
    deals: dict[int, None] = {}
    number = 0
    while len(deals) < count:
        deals[held_out_deal(seed, number)] = None
        number += 1
    return list(deals)


def match_tasks(
    first: str, second: str, deals: Sequence[int], config: WerewolfConfig, name: str, *, chance: str | None = None
) -> list[GameTask]:
    """Two games for each deal: ``first`` as the wolves against ``second``, and with sides swapped.

    first, second: names as in ``store.werewolf.SeatingRule``. A player may meet itself.
    deals: seeds of the deals.
    name: names the games and, with the players, seeds their sampling: the same name gives the same tasks.
    chance: seeds the sampling in place of ``name`` and ``first``, so that a place against ``second`` has the same
        chances whoever takes it.

    Nothing of such a game is ever trained on: no side of it is trainable.
    """
    tasks, seeded_by = [], chance or f"{name}/{first}"
    for number, deal in enumerate(deals):
        group_id = f"{name}-{first}-{second}-deal{number:03d}"
        for side, other in (SIDES, SIDES[::-1]):
            tasks.append(
                GameTask(
                    game_id=f"{group_id}-{side}",
                    group_id=group_id,
                    seed=deal,
                    sampling_seed=derived_seed(f"match/{seeded_by}/{second}/{side}", deal),
                    preset=config.game.preset,
                    rules=config.game.rules.chosen(),
                    seating=(
                        SeatingRule(side=side, players={first: 1.0}),
                        SeatingRule(side=other, players={second: 1.0}),
                    ),
                    trainable=frozenset(),
                    limits=token_limits(config.rollout),
                )
            )
    return tasks


def record_games(tasks: Iterable[GameTask], games: Iterable[FinishedRollout]) -> list[GameRecord]:
    """What is kept of the finished games of ``match_tasks``, in the order in which they came back.

    Raises ValueError for a game that was dealt or seated otherwise than its task says.
    """
    by_id = {task.game_id: task for task in tasks}
    return [_record(by_id[game.outcome.game_id], game) for game in games]


def league_match(result: ResultSpan) -> Match | None:
    """What a game says of the learning policy and one other player, each of whom played a whole side; else None."""
    players = {side: {seat.policy for seat in result.seats if seat.side == side} for side in SIDES}
    for own, other in (SIDES, SIDES[::-1]):
        if players[own] == {TRAINED_POLICY} and len(players[other]) == 1 and players[other] != {TRAINED_POLICY}:
            score = 0.5 if result.result == "draw" else float(result.result == own)
            return Match(opponent=next(iter(players[other])), side=own, score=score)
    return None


def players_by_side(task: GameTask) -> dict[SideName, str]:
    """Who plays each side in a game of ``match_tasks``."""
    return {rule.side: next(iter(rule.players)) for rule in task.seating if rule.side is not None}


def _record(task: GameTask, game: FinishedRollout) -> GameRecord:
    players = players_by_side(task)
    result = game.outcome
    strangers = [seat for seat in result.seats if seat.policy != players[seat.side]]
    if result.seed != task.seed or strangers:
        raise ValueError(
            f"game {task.game_id} was played with deal {result.seed} and players "
            f"{sorted({seat.policy for seat in result.seats})}; its task says deal {task.seed} and {players}"
        )
    return GameRecord(
        game_id=task.game_id,
        deal=task.seed,
        players=players,
        result=result.result,
        days=result.days,
        seats=tuple(
            SeatRecord(
                role=seat.role,
                side=seat.side,
                turns=seat.turns,
                invalid_turns=seat.invalid_turns,
                defaulted_decisions=seat.defaulted_decisions,
                leaks=_leaks(game.turns, seat.seat),
            )
            for seat in result.seats
        ),
    )


def _leaks(turns: Iterable[TurnSpan], seat: int) -> int:
    return sum(turn.facts.get("identity_leak", 0.0) > 0 for turn in turns if turn.seat == seat)
