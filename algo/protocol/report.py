"""Everything that the protocol says of one policy, and the file that it is kept in."""

import hashlib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from statistics import fmean
from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, Field

from algo.belief.observed import Observed, observed
from algo.belief.scores import BeliefReport, belief_report, log_loss, squared_error
from algo.evaluation.statistics import Estimate, mean_by_cluster
from algo.machine.whole_files import write_whole
from algo.protocol.deeds import Deeds, deeds_of, facts_of
from algo.protocol.games import ProtocolGame, StudiedGame
from algo.protocol.strengths import Strengths, fit_strengths
from algo.werewolf.matches import SIDES
from configs.roles_and_decks import Side
from store.schema import TRAINED_POLICY
from store.werewolf import SideName

Among = Literal["all", "without_errors"]
AMONG: tuple[Among, ...] = ("all", "without_errors")
"""Every figure is told twice: of all games, and of those in which every reply of every seat could be used."""

FOLDER = "protocol"
"""Inside the run's folder."""

VOTES_FOR_WOLVES, ODDS_OF_VOTES = "votes for a wolf, of those that name somebody", "the expert's odds of whom they name"
BRIER_SCORE, LOG_LOSS = "Brier score of beliefs", "log loss of beliefs, nats"
"""Names in ``Figures.by_game``."""


class Terms(BaseModel):
    """What figures hang on; reports whose terms are equal can be compared, whatever model they are of.

    seed: of the deals, and of all resampling. opponents: the version's, and the run's own behind them. own: digests of
    the settings of these. prompts: name -> digest of what replaces it (``game.prompts``).
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    version: str
    preset: str
    rules: dict[str, bool | int | str] = Field(default_factory=dict)
    seed: int
    deals: int
    opponents: tuple[str, ...]
    own: dict[str, str]
    company: tuple[str, ...]
    reference: str
    temperature: float
    context_tokens: int
    reply_tokens: int
    thinking: bool
    prompts: dict[str, str]

    @property
    def digest(self) -> str:
        """Eight digits that stand for all of them."""
        return hashlib.blake2b(self.model_dump_json().encode(), digest_size=4).hexdigest()


class WinRate(BaseModel):
    """Of the policy on a side against an opponent, or in a single seat.

    rate: of the games that it won; a draw is nobody's win. reference: the same of the reference's games in its place.
    difference: between them, over the deals that both have played.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    against: str
    side: SideName
    games: int
    draws: int
    rate: Estimate | None
    reference: Estimate | None
    difference: Estimate | None


class Figures(BaseModel):
    """What is counted over some of the games.

    sides, seats: win rates of whole sides and of single seats. deeds, beliefs: of the games in which nobody
    but the policy has weights, so that they can be compared between models. beliefs: player -> its good seats' before
    votes. by_game: of the policy's good seats in these games, what -> ``ProtocolGame.place`` -> its mean.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    games: int
    strengths: Strengths | None
    sides: tuple[WinRate, ...]
    seats: tuple[WinRate, ...]
    deeds: tuple[Deeds, ...]
    beliefs: dict[str, BeliefReport]
    by_game: dict[str, dict[str, float]]


class ProtocolReport(BaseModel):
    """One policy by the protocol.

    initial: the weights that the opponent of this name had. power: what so many deals can show, as said before the run.
    failures: as counted by reason, of games that are in no figure.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    label: str
    model: str
    initial: str
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
    seed, fixed = terms.seed, {TRAINED_POLICY, *terms.company}
    among_fixed = [one for one in games if {seat.player for seat in one.game.seats} <= fixed]
    players = sorted({seat.player for one in among_fixed for seat in one.game.seats})
    answers = [answer for one in among_fixed for answer in _vote_beliefs(one, terms.preset)]
    beliefs = {
        player: belief_report([each for each in answers if each.listener.player == player], seed) for player in players
    }
    return Figures(
        games=len(games),
        strengths=fit_strengths([one.game for one in games], terms.reference, seed),
        sides=tuple(
            _side(games, opponent, terms.reference, side, seed) for opponent in terms.opponents for side in SIDES
        ),
        seats=tuple(_seat(games, terms.reference, side, seed) for side in SIDES),
        deeds=tuple(
            deeds for player in players for side in SIDES if (deeds := deeds_of(among_fixed, player, side, seed)).games
        ),
        beliefs={player: report for player, report in beliefs.items() if report is not None},
        by_game=_by_game(among_fixed, terms.preset),
    )


def _vote_beliefs(one: StudiedGame, preset: str) -> Iterator[Observed]:
    """What good seats that can be asked believed before votes."""
    for answer in observed(one.study, one.game.deal, preset, facts_of(one)):
        if answer.belief.moment == "vote" and answer.listener.role.side is Side.GOOD:
            yield answer


def _by_game(games: Iterable[StudiedGame], preset: str) -> dict[str, dict[str, float]]:
    found: defaultdict[str, defaultdict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for one in games:
        seats, place = facts_of(one), one.game.place
        for vote in one.study.votes:
            voter = seats[vote.seat]
            if vote.target is not None and (voter.player, voter.role.side) == (TRAINED_POLICY, Side.GOOD):
                found[VOTES_FOR_WOLVES][place].append(float(seats[vote.target].role.side is Side.WOLF))
                found[ODDS_OF_VOTES][place].append(vote.odds)
        for answer in _vote_beliefs(one, preset):
            if answer.listener.player == TRAINED_POLICY:
                believed = answer.belief.beliefs or {}
                found[BRIER_SCORE][place].append(squared_error(answer.wolf_chances(believed)))
                found[LOG_LOSS][place].append(log_loss(answer, believed))
    return {name: {place: fmean(values) for place, values in of.items()} for name, of in found.items()}


def whole_side_games(games: Iterable[ProtocolGame], player: str, opponent: str, side: SideName) -> list[ProtocolGame]:
    """The games in which ``player`` had one whole side and ``opponent`` the other."""
    other: SideName = "good" if side == "wolf" else "wolf"
    return [
        game
        for game in games
        if game.setting == "sides" and (game.players_of(side), game.players_of(other)) == ({player}, {opponent})
    ]


def single_seat_games(games: Iterable[ProtocolGame], player: str, side: SideName) -> list[ProtocolGame]:
    """The games in which ``player`` had the single seat, and with it a role of ``side``."""
    return [
        game
        for game in games
        if game.single is not None and (game.seat(game.single).player, game.seat(game.single).side) == (player, side)
    ]


def paired_difference(
    games: Iterable[ProtocolGame], others: Iterable[ProtocolGame], side: SideName, seed: int
) -> Estimate | None:
    """How much more often ``side`` won in ``games`` than in ``others``, over the deals of both; None without any."""
    won, won_by_others = ({game.deal: float(game.result == side) for game in each} for each in (games, others))
    deals = [deal for deal in won if deal in won_by_others]
    return mean_by_cluster(deals, [won[deal] - won_by_others[deal] for deal in deals], seed) if deals else None


def _side(games: Sequence[StudiedGame], opponent: str, reference: str, side: SideName, seed: int) -> WinRate:
    own, its = (
        whole_side_games([one.game for one in games], player, opponent, side) for player in (TRAINED_POLICY, reference)
    )
    return _win_rate(opponent, side, own, its, seed)


def _seat(games: Sequence[StudiedGame], reference: str, side: SideName, seed: int) -> WinRate:
    own, its = (single_seat_games([one.game for one in games], player, side) for player in (TRAINED_POLICY, reference))
    return _win_rate(reference, side, own, its, seed)


def _win_rate(
    against: str, side: SideName, games: Sequence[ProtocolGame], others: Sequence[ProtocolGame], seed: int
) -> WinRate:
    """others: those of the reference."""
    rates = [
        mean_by_cluster([game.deal for game in each], [float(game.result == side) for game in each], seed)
        if each
        else None
        for each in (games, others)
    ]
    return WinRate(
        against=against,
        side=side,
        games=len(games),
        draws=sum(game.result == "draw" for game in games),
        rate=rates[0],
        reference=rates[1],
        difference=paired_difference(games, others, side, seed),
    )
