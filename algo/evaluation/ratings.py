"""Ratings of players from the games between them, by openskill.

Each game is a match of two teams: a player and the side that it plays, against the other player and the other side. The
sides have ratings of their own, which take up how much easier one of them is to win with; a player's rating is
therefore the same whichever side it happened to play more often.
"""

from collections import Counter
from collections.abc import Iterable

from openskill.models import BradleyTerryFull
from pydantic import BaseModel, ConfigDict

from algo.werewolf.matches import GameRecord

_SIDE = "side:"
"""Begins the name of a side among the rated; no player's name has a colon before an ``@``."""


class Rating(BaseModel):
    """A player's strength on openskill's scale: 25 is what a player without games is taken for.

    sigma: standard deviation of what is known of ``mu``; 25 / 3 without games. games: what it rests on.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    mu: float
    sigma: float
    games: int

    @property
    def low(self) -> float:
        """Lower end of the 95 % interval."""
        return self.mu - 1.96 * self.sigma

    @property
    def high(self) -> float:
        """Upper end of the 95 % interval."""
        return self.mu + 1.96 * self.sigma


class Ratings:
    """Ratings after the games told so far; the same games in the same order give the same ratings.

    Bradley-Terry with full pairing (Weng and Lin, A Bayesian Approximation Method for Online Ranking, JMLR 12, 2011);
    a draw is a tie. Every name stands for weights or rules that do not change, so that skills do not drift (tau 0).
    """

    def __init__(self) -> None:
        self._model = BradleyTerryFull(tau=0.0)
        self._known: dict[str, BradleyTerryFull.rating] = {}
        self._games: Counter[str] = Counter()

    def add(self, games: Iterable[GameRecord], names: dict[str, str] | None = None) -> None:
        """Take up finished games. names: player in the games -> name to rate it by; others keep their own.

        A game of a player against itself tells of the sides alone.
        """
        for game in games:
            wolf, good = ((names or {}).get(game.players[side], game.players[side]) for side in ("wolf", "good"))
            teams = [[_SIDE + "wolf"], [_SIDE + "good"]]
            if wolf != good:
                teams[0].append(wolf)
                teams[1].append(good)
                self._games.update((wolf, good))
            ranks = {"wolf": [0, 1], "good": [1, 0], "draw": [0, 0]}[game.result]
            rated = self._model.rate([[self._rating(name) for name in team] for team in teams], ranks=ranks)
            for team, ratings in zip(teams, rated, strict=True):
                self._known |= zip(team, ratings, strict=True)

    def players(self) -> dict[str, Rating]:
        """All players that met another, by name, the strongest first."""
        ratings = {
            name: Rating(mu=self._known[name].mu, sigma=self._known[name].sigma, games=games)
            for name, games in self._games.items()
        }
        return dict(sorted(ratings.items(), key=lambda item: (-item[1].mu, item[0])))

    def _rating(self, name: str) -> object:
        return self._known.get(name) or self._model.rating(name=name)
