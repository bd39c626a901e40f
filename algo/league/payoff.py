"""Who beats whom: the learning policy's games against every opponent, and how often each is to be met for it.

Prioritised fictitious self-play: Vinyals et al., Grandmaster level in StarCraft II using multi-agent reinforcement
learning, Nature 575, 2019 ("squared" among the weightings of its pseudocode, which likewise lets older games decay).
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from algo.league.state import LeagueState, Recent, Tally

DECAY = 0.99
"""What a game against an opponent counts for, beside the next one against it."""
PRIOR_GAMES = 2.0
"""Games, half of them won, that every opponent is credited with before the first."""
EVENLY = 0.1
"""Share of the games that is spread evenly, so that nobody is never met."""
SIDES = ("wolf", "good")


@dataclass(frozen=True)
class Match:
    """A finished game of the learning policy against one other player.

    side: that the policy played. score: 1.0 it won, 0.5 a draw, 0.0 it lost.
    """

    opponent: str
    side: str
    score: float


def count(state: LeagueState, matches: Iterable[Match], version: int) -> None:
    """Add games to the present row. version: of the policy."""
    row = state.rows[-1]
    row.last = version
    for match in matches:
        tally = row.games.setdefault(match.opponent, {}).setdefault(match.side, Tally())
        tally.games += 1
        tally.wins += match.score == 1.0
        tally.draws += match.score == 0.5
        recent = state.recent.setdefault(match.opponent, Recent())
        recent.games = DECAY * recent.games + 1
        recent.score = DECAY * recent.score + match.score


def beats(state: LeagueState, opponent: str) -> float:
    """The share of the games that the policy wins of late, either side; 0.5 against whom it has not met."""
    recent = state.recent.get(opponent, Recent())
    return (recent.score + PRIOR_GAMES / 2) / (recent.games + PRIOR_GAMES)


def pfsp_shares(state: LeagueState, names: Sequence[str]) -> dict[str, float]:
    """Name -> how often it is to be met: as (1 - p)**2, where p is how often it is beaten, and never not at all."""
    weights = {name: (1 - beats(state, name)) ** 2 for name in names}
    total = sum(weights.values())
    return {name: (1 - EVENLY) * weight / total + EVENLY / len(names) for name, weight in weights.items()}


def cells(state: LeagueState) -> list[dict[str, Any]]:
    """Who beat whom, as ``payoff.json`` and a cross table say it: ``wolf`` and ``good`` are the players' names."""
    found = []
    for row in state.rows:
        for opponent, by_side in row.games.items():
            for side, tally in by_side.items():
                lost = tally.games - tally.wins - tally.draws
                as_wolf = side == "wolf"
                found.append(
                    {
                        "wolf": row.name if as_wolf else opponent,
                        "good": opponent if as_wolf else row.name,
                        "games": tally.games,
                        "wolf_wins": tally.wins if as_wolf else lost,
                        "good_wins": lost if as_wolf else tally.wins,
                        "draws": tally.draws,
                    }
                )
    return found
