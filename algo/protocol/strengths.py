"""How strong every player is, by one fit over all games of all settings.

A logistic (Bradley-Terry) model: the log-odds that the good side wins are the good side's advantage, plus the mean
strength of the seats of the good side, less that of the wolves'. A player's strength is its own, more or less by a term
for the side that it plays; the evaluated policy has a term for each role, too, which its single seats tell apart from
its side. Bradley and Terry, Rank Analysis of Incomplete Block Designs, Biometrika 39, 1952. A draw is half a win.

All have a normal prior of mean 0 (a ridge), the advantage a wide one: a player that always wins has a finite strength,
and one that never played has 0. Intervals resample deals, since games of one deal share its cards.
"""

from collections.abc import Sequence

import numpy as np
from pydantic import BaseModel, ConfigDict

from algo.evaluation.statistics import CONFIDENCE, Estimate, Floats, fit_logistic
from algo.protocol.games import ProtocolGame
from store.schema import TRAINED_POLICY

_RESAMPLES = 300


class Strengths(BaseModel):
    """Log-odds with 95 % intervals; the reference is 0 as each side and in every role.

    advantage: of the good side between equals. players: overall, the mean of ``as_wolf`` and ``as_good``.
    roles: of the evaluated policy: how much stronger it is with a role than its side says.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    reference: str
    games: int
    advantage: Estimate
    players: dict[str, Estimate]
    as_wolf: dict[str, Estimate]
    as_good: dict[str, Estimate]
    roles: dict[str, Estimate]


def fit_strengths(games: Sequence[ProtocolGame], reference: str, seed: int) -> Strengths | None:
    """The fit over all of the games; None without any. seed: of the resampling."""
    if not games:
        return None
    names = sorted({seat.player for game in games for seat in game.seats} - {reference})
    roles = sorted({seat.role for game in games for seat in game.seats if seat.player == TRAINED_POLICY})
    table = np.array([_features(game, names, roles) for game in games])
    won = np.array([{"good": 1.0, "draw": 0.5, "wolf": 0.0}[game.result] for game in games])
    numbers = {deal: number for number, deal in enumerate(dict.fromkeys(game.deal for game in games))}
    of_deal = np.array([numbers[game.deal] for game in games])
    best = fit_logistic(table, won, np.ones(len(games)), np.zeros(table.shape[1]))
    drawn = np.random.default_rng(seed).multinomial(len(numbers), np.full(len(numbers), 1 / len(numbers)), _RESAMPLES)
    fits = np.array([fit_logistic(table, won, times[of_deal].astype(float), best) for times in drawn])

    def told(value: float, resampled: Floats) -> Estimate:
        low, high = np.quantile(resampled, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
        return Estimate(value=value, low=min(float(low), value), high=max(float(high), value))

    def of_players(sign: float) -> dict[str, Estimate]:
        found = {}
        for number, name in enumerate(names):
            own, by_side = 1 + number, 1 + len(names) + number
            found[name] = told(float(best[own] + sign * best[by_side]), fits[:, own] + sign * fits[:, by_side])
        return dict(sorted(found.items(), key=lambda item: -item[1].value))

    first_role = 1 + 2 * len(names)
    return Strengths(
        reference=reference,
        games=len(games),
        advantage=told(float(best[0]), fits[:, 0]),
        players=of_players(0.0),
        as_wolf=of_players(-1.0),
        as_good=of_players(1.0),
        roles={
            role: told(float(best[first_role + number]), fits[:, first_role + number])
            for number, role in enumerate(roles)
        },
    )


def _features(game: ProtocolGame, names: Sequence[str], roles: Sequence[str]) -> list[float]:
    """The advantage; of each player its share of the good seats less that of the wolves', and their sum; of each role
    the share of its seats that the policy has, counted against the good side for the wolves'."""
    share: dict[tuple[str, str], float] = {}
    of_role = dict.fromkeys(roles, 0.0)
    for side, sign in (("good", 1.0), ("wolf", -1.0)):
        own = [seat for seat in game.seats if seat.side == side]
        for seat in own:
            share[seat.player, side] = share.get((seat.player, side), 0.0) + 1 / len(own)
            if seat.player == TRAINED_POLICY:
                of_role[seat.role] += sign / len(own)
    pairs = [(share.get((name, "good"), 0.0), share.get((name, "wolf"), 0.0)) for name in names]
    return [1.0, *(good - wolf for good, wolf in pairs), *(good + wolf for good, wolf in pairs), *of_role.values()]
