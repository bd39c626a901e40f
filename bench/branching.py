"""How well one game, and branches of one decision, tell what the decision changed; without a model.

Players without a model stand for the policy. One decision of each game is drawn and valued three ways: the game's
outcome less the mean outcome (a running baseline), the recorded game with K branches (``algo.advantages.branching``),
and, as the truth, by many other branches. Decisions that too few of the others make alike are left out.
"""

import copy
import random
from collections.abc import Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import fmean, pvariance

from rich.table import Table

from algo.advantages.branching import Continuation, Decision, branch_credit
from runners.werewolf.brains import BRAINS
from runners.werewolf.game import Action, GameState, Result, Side, apply, get_preset, new_game, observe, pending, winner

GAMES, TRUTH, ALIKE = 60, 40, 4
"""Games, each of its own deal; branches that count as the truth, and how many of them must decide alike."""
_BRANCHES = (4, 8)
_LINE_UPS = [("5p_tiny", "timid", Side.GOOD), ("5p_tiny", "random", Side.GOOD), ("7p", "random", Side.WOLF)]
"""(preset, the policy's stand-in, its side); scripted players are the others."""
_BRANCHED_AT = frozenset({"exile_vote", "pk_vote", "wolf_kill", "seer_check", "witch"})


class _Table:
    """A game in progress: state, players, and their random generators."""

    def __init__(self, preset: str, deal: int, players: Mapping[Side, str]):
        self.state: GameState = new_game(get_preset(preset), deal)
        self.chances = {seat: random.Random(f"{deal}/{seat}") for seat in self.state.preset.seats}
        self.brains = {
            seat: BRAINS[players[self.state.role_of(seat).side]](chance) for seat, chance in self.chances.items()
        }

    def reseed_players(self, seed: str) -> None:
        for seat, chance in self.chances.items():
            chance.seed(f"{seed}/{seat}")

    def answers(self) -> dict[int, Action]:
        return {one.seat: self.brains[one.seat].act(observe(self.state, one.seat)) for one in pending(self.state)}

    def outcome(self, side: Side) -> float:
        while winner(self.state) is None:
            self.state = apply(self.state, self.answers())
        result = winner(self.state)
        return 0.0 if result is Result.DRAW else 1.0 if result.value == side.value else -1.0


@dataclass(frozen=True)
class _Valued:
    """A decision: the recorded game's outcome, its advantage by branches (by their number), and the true one."""

    outcome: float
    branched: dict[int, float]
    true: float


def _decisions(preset: str, deal: int, players: Mapping[Side, str], side: Side) -> list[tuple[int, int]]:
    """(moment, seat) of the side's decisions of the recorded game."""
    table, found, moment = _Table(preset, deal, players), [], 0
    while winner(table.state) is None:
        for request in pending(table.state):
            if table.state.role_of(request.seat).side is side and request.decision in _BRANCHED_AT:
                found.append((moment, request.seat))
        table.state = apply(table.state, table.answers())
        moment += 1
    return found


def _value(deal: int, preset: str, player: str, side: Side) -> _Valued | None:
    players = {**dict.fromkeys(Side, "scripted"), side: player}
    decisions = _decisions(preset, deal, players, side)
    if not decisions:
        return None
    moment, seat = random.Random(deal).choice(decisions)
    before = _Table(preset, deal, players)
    for _ in range(moment):
        before.state = apply(before.state, before.answers())
    games = []
    for number in range(1 + _BRANCHES[-1] + TRUTH):  # the first is the recorded game
        table = copy.deepcopy(before)
        if number:
            table.chances[seat].seed(f"{deal}/{number}")
        answers = table.answers()
        if number:
            table.reseed_players(f"{deal}/{number}")
        table.state = apply(table.state, answers)
        games.append(Continuation(str(number), str(answers[seat]), {"me": table.outcome(side)}, {}))

    def advantage(count: int) -> float:
        found = branch_credit([Decision(moment, "any", "me", 0, tuple(games[: count + 1]))])
        return found.advantage("0", "me", 0) or 0.0

    others = games[1 + _BRANCHES[-1] :]
    alike = [one.outcomes["me"] for one in others if one.choice == games[0].choice]
    if len(alike) < ALIKE:
        return None
    true = fmean(alike) - fmean(one.outcomes["me"] for one in others)
    return _Valued(games[0].outcomes["me"], {count: advantage(count) for count in _BRANCHES}, true)


def measure(_model: Path) -> Table:
    table = Table(title=f"What one decision of each of {GAMES} games changed; outcomes are 1 and -1")
    for name in ("preset, policy, side", "decisions", "way", "variance", "squared error", "of the baseline's"):
        table.add_column(name, justify="left" if name in ("preset, policy, side", "way") else "right")
    for preset, player, side in _LINE_UPS:
        with ProcessPoolExecutor(2) as pool:
            found = pool.map(partial(_value, preset=preset, player=player, side=side), range(GAMES), chunksize=5)
            valued = [one for one in found if one is not None]
        mean = fmean(one.outcome for one in valued)
        ways = {"baseline": [one.outcome - mean for one in valued]}
        ways |= {f"{count} branches": [one.branched[count] for one in valued] for count in _BRANCHES}
        errors = {
            way: fmean((value - one.true) ** 2 for value, one in zip(values, valued, strict=True))
            for way, values in ways.items()
        }
        for way, values in ways.items():
            ratio = errors[way] / errors["baseline"]
            row = f"{preset}, {player}, {side.value}", str(len(valued)), way
            table.add_row(*row, f"{pvariance(values):.3f}", f"{errors[way]:.3f}", f"{ratio:.0%}")
    return table
