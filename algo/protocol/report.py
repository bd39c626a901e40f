"""Everything that the protocol says of one policy, and the file that it is kept in."""

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, Field

from algo.belief.observed import observed
from algo.belief.persuasion import Persuasion, moved, persuasion
from algo.belief.scores import BeliefReport, belief_report
from algo.machine.whole_files import write_whole
from algo.protocol.deeds import Deeds, deeds_of, facts_of
from algo.protocol.games import ProtocolGame, StudiedGame
from algo.protocol.strengths import Strengths, fit_strengths
from algo.reports.intervals import Estimate
from algo.werewolf.game_statistics import mean_over_deals
from algo.werewolf.matches import SIDES
from configs.roles_and_decks import Side
from store.schema import TRAINED_POLICY
from store.werewolf import SideName

Among = Literal["all", "without_errors"]
AMONG: tuple[Among, ...] = ("all", "without_errors")
"""Every figure is told twice: of all games, and of those in which every reply of every seat could be used."""

FOLDER = "protocol"
"""Inside the run's folder."""


class Terms(BaseModel):
    """What figures hang on; reports whose terms are equal can be compared.

    seed: of the deals, and of all resampling. opponents: the version's, and the run's own behind them.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    version: str
    preset: str
    rules: dict[str, bool | int | str] = Field(default_factory=dict)
    seed: int
    deals: int
    opponents: tuple[str, ...]
    company: tuple[str, ...]
    reference: str
    temperature: float
    context_tokens: int
    reply_tokens: int

    @property
    def digest(self) -> str:
        """Eight digits that stand for all of them."""
        return hashlib.blake2b(self.model_dump_json().encode(), digest_size=4).hexdigest()


class WinRate(BaseModel):
    """Of the policy on a side against an opponent, or in a single seat against the reference in the same seat.

    rate: of the games that it won; a draw is nobody's win. difference: from the reference's; None for whole sides.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    against: str
    side: SideName
    games: int
    draws: int
    rate: Estimate | None
    difference: Estimate | None = None


class Figures(BaseModel):
    """What is counted over some of the games.

    sides, seats: win rates of whole sides and of single seats. beliefs: player -> its good seats' before votes.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    games: int
    strengths: Strengths | None
    sides: tuple[WinRate, ...]
    seats: tuple[WinRate, ...]
    deeds: tuple[Deeds, ...]
    beliefs: dict[str, BeliefReport]
    persuasion: tuple[Persuasion, ...]


class ProtocolReport(BaseModel):
    """One policy by the protocol. power: what so many deals can show, as said before the run. failures: as counted by
    reason, of games that are in no figure."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    label: str
    model: str
    terms: Terms
    digest: str
    power: str
    planned: int
    failures: dict[str, int] = Field(default_factory=dict)
    figures: dict[Among, Figures]
    games: tuple[ProtocolGame, ...]

    def write(self, path: Path) -> None:
        """Write it as JSON. A file that is there is replaced whole."""
        write_whole(path, self.model_dump_json(indent=1) + "\n")

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read what ``write`` wrote. Raises ValueError, naming the file and what is wrong with it."""
        try:
            return cls.model_validate_json(path.read_text(encoding="utf-8"))
        except ValueError as error:
            raise ValueError(f"{path} is no protocol report that this version can read: {error}") from error


def figures_of(games: Sequence[StudiedGame], terms: Terms) -> dict[Among, Figures]:
    """All figures, of all games and of those without errors."""
    chosen = {"all": list(games), "without_errors": [one for one in games if one.game.without_errors]}
    return {among: _figures(chosen[among], terms) for among in AMONG}


def _figures(games: Sequence[StudiedGame], terms: Terms) -> Figures:
    seed, players = terms.seed, sorted({seat.player for one in games for seat in one.game.seats})
    seats = {one.game.game_id: facts_of(one) for one in games}
    answers = [
        answer
        for one in games
        for answer in observed(one.study, one.game.deal, terms.preset, seats[one.game.game_id])
        if answer.belief.moment == "vote" and answer.listener.role.side is Side.GOOD
    ]
    beliefs = {
        player: belief_report([each for each in answers if each.listener.player == player], seed) for player in players
    }
    heard = [each for one in games for each in moved(one.study, one.game.deal, seats[one.game.game_id])]
    return Figures(
        games=len(games),
        strengths=fit_strengths([one.game for one in games], terms.reference, seed),
        sides=tuple(_side(games, opponent, side, seed) for opponent in terms.opponents for side in SIDES),
        seats=tuple(_seat(games, terms.reference, side, seed) for side in SIDES),
        deeds=tuple(
            deeds for player in players for side in SIDES if (deeds := deeds_of(games, player, side, seed)).games
        ),
        beliefs={player: report for player, report in beliefs.items() if report is not None},
        persuasion=tuple(persuasion(heard, seed)),
    )


def _side(games: Sequence[StudiedGame], opponent: str, side: SideName, seed: int) -> WinRate:
    other: SideName = "good" if side == "wolf" else "wolf"
    played = [
        one.game
        for one in games
        if one.game.setting == "sides"
        and (one.game.players_of(side), one.game.players_of(other)) == ({TRAINED_POLICY}, {opponent})
    ]
    return _win_rate(opponent, side, played, seed)


def _seat(games: Sequence[StudiedGame], reference: str, side: SideName, seed: int) -> WinRate:
    by_deal: dict[int, dict[str, ProtocolGame]] = {}
    for one in games:
        if one.game.single is not None and one.game.seat(one.game.single).side == side:
            by_deal.setdefault(one.game.deal, {})[_who_sits_alone(one.game)] = one.game
    pairs = {deal: pair for deal, pair in by_deal.items() if {TRAINED_POLICY, reference} <= pair.keys()}
    gained = [
        float(pair[TRAINED_POLICY].result == side) - float(pair[reference].result == side) for pair in pairs.values()
    ]
    rate = _win_rate(
        reference, side, [pair[TRAINED_POLICY] for pair in by_deal.values() if TRAINED_POLICY in pair], seed
    )
    return rate.model_copy(update={"difference": mean_over_deals(list(pairs), gained, seed) if gained else None})


def _who_sits_alone(game: ProtocolGame) -> str:
    assert game.single is not None
    return game.seat(game.single).player


def _win_rate(against: str, side: SideName, games: Sequence[ProtocolGame], seed: int) -> WinRate:
    won = [float(game.result == side) for game in games]
    return WinRate(
        against=against,
        side=side,
        games=len(games),
        draws=sum(game.result == "draw" for game in games),
        rate=mean_over_deals([game.deal for game in games], won, seed) if won else None,
    )
