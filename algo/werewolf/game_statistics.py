"""Win rates and shares over finished games, with 95 % confidence intervals.

The unit is the game, never the seat: all seats of a game share its outcome, so that counting them one by one would
make an interval look several times narrower than it is. Two games of one deal share the cards; what is taken over both
sides is therefore resampled deal by deal.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from statistics import fmean

from pydantic import BaseModel, ConfigDict

from algo.evaluation.statistics import Estimate, clustered_share, sums_by_cluster, wilson_interval
from algo.werewolf.matches import GameRecord, SideName


class Score(BaseModel):
    """How the games of one player ended. A draw is no win: ``win_rate`` is wins / games, and draws are shown apart.

    win_rate: None without games.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    games: int
    wins: int
    draws: int
    win_rate: Estimate | None

    @property
    def losses(self) -> int:
        """Games that the other side won."""
        return self.games - self.wins - self.draws


class Conduct(BaseModel):
    """How well a player keeps to the game. Shares are None where there is nothing to take them of.

    turns: model calls made; invalid_replies: the share of them that could not be used.
    defaulted_decisions: decisions taken by the declared default action, after two replies that could not be used.
    leaks: public speeches that gave the wolves away or printed the system prompt; games_with_leak: the share of
        games with one.
    days: mean days of a game; turns_per_game: mean model calls of the player in a game.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    games: int
    turns: int
    invalid_replies: Estimate | None
    defaulted_decisions: int
    leaks: int
    games_with_leak: Estimate | None
    days: float | None
    turns_per_game: float | None


def shares_won(games: Iterable[GameRecord], player: str, side: SideName) -> dict[int, float]:
    """Deal -> share of its games that a player won as one side."""
    won: dict[int, list[float]] = defaultdict(list)
    for game in games:
        if game.players[side] == player:
            won[game.deal].append(float(game.result == side))
    return {deal: fmean(found) for deal, found in won.items()}


def score_of_side(games: Iterable[GameRecord], player: str, side: SideName) -> Score:
    """How a player fared as one side; each game is one trial of Wilson's interval."""
    of_side = [game for game in games if game.players[side] == player]
    return _score([(game, side) for game in of_side], None)


def score_of_role(games: Iterable[GameRecord], player: str, role: str) -> Score:
    """How the games ended in which a player had a seat of this role. However many such seats, a game counts once."""
    played = [
        (game, side)
        for game in games
        for side in game.sides_of(player)
        if any(seat.role == role and seat.side == side for seat in game.seats)
    ]
    return _score(played, None)


def score_of_both_sides(games: Iterable[GameRecord], player: str, seed: int) -> Score:
    """How a player fared on either side. seed: of the resampling of deals (``clustered_share``)."""
    return _score([(game, side) for game in games for side in game.sides_of(player)], seed)


def _score(played: Sequence[tuple[GameRecord, SideName]], seed: int | None) -> Score:
    wins = [float(game.result == side) for game, side in played]
    if not played:
        win_rate = None
    elif seed is None:
        win_rate = wilson_interval(sum(wins), len(wins))
    else:
        won, of_deal = sums_by_cluster([game.deal for game, _ in played], wins)
        win_rate = clustered_share(won, of_deal, seed)
    draws = sum(game.result == "draw" for game, _ in played)
    return Score(games=len(played), wins=int(sum(wins)), draws=draws, win_rate=win_rate)


def conduct_of(games: Iterable[GameRecord], player: str, seed: int, *, sides: Iterable[SideName]) -> Conduct:
    """How a player behaved when it played one of ``sides``. seed: of the resampling of deals."""
    sides = set(sides)
    played = [(game, sides.intersection(game.sides_of(player))) for game in games]
    played = [(game, own) for game, own in played if own]
    seats = [[seat for seat in game.seats if seat.side in own] for game, own in played]
    deals = [game.deal for game, _ in played]
    turns = [float(sum(seat.turns for seat in of_game)) for of_game in seats]
    invalid = [float(sum(seat.invalid_turns for seat in of_game)) for of_game in seats]
    leaks = [sum(seat.leaks for seat in of_game) for of_game in seats]
    # Of players that are not asked token by token nothing is recorded, rather than that nothing happened.
    recorded = [number for number, count in enumerate(turns) if count]
    return Conduct(
        games=len(played),
        turns=int(sum(turns)),
        invalid_replies=clustered_share(*sums_by_cluster(deals, invalid, turns), seed) if recorded else None,
        defaulted_decisions=sum(seat.defaulted_decisions for of_game in seats for seat in of_game),
        leaks=sum(leaks),
        games_with_leak=clustered_share(
            *sums_by_cluster([deals[number] for number in recorded], [float(leaks[number] > 0) for number in recorded]),
            seed,
        )
        if recorded
        else None,
        days=fmean(game.days for game, _ in played) if played else None,
        turns_per_game=fmean(turns) if played else None,
    )
