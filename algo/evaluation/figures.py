"""All figures of an evaluation, computed from its rows.

The unit is the game, never the seat: all seats of a game share its outcome. Where each deal is played once, every game
is a trial of Wilson's interval; where deals are played more often, as over both sides or several seeds, intervals
resample them.
"""

from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass
from statistics import fmean
from typing import Any, Literal, Self

from algo.evaluation.actions import ODDS_OF_VOTES, VOTES_FOR_WOLVES, Actions, actions_of, seat_actions
from algo.evaluation.beliefs import BeliefReport, belief_report
from algo.evaluation.games import GameEvaluation, GameRow
from algo.evaluation.panel import PANELS
from algo.evaluation.statistics import (
    Estimate,
    Frozen,
    flat_metrics,
    mean_by_cluster,
    paired_difference,
    wilson_interval,
)
from algo.evaluation.strengths import Strengths, fit_strengths
from algo.werewolf.matches import OTHER_SIDE, SIDES
from configs.sections.opponents import INITIAL_POLICY
from store.schema import TRAINED_POLICY
from store.werewolf import SideName

Subset = Literal["all", "without_errors"]
SUBSETS: tuple[Subset, ...] = ("all", "without_errors")
"""Figures are reported of all games, and of the games without an invalid reply."""

BRIER_SCORE, LOG_LOSS = "Brier score of beliefs", "log loss of beliefs, nats"
"""Keys of ``by_game``, besides two of ``algo.evaluation.actions``."""


class Score(Frozen):
    """Results of one player. A draw is no win. win_rate: None without games.

    reference: win rate of the reference in the player's place. difference: player less reference, over shared deals.
    """

    games: int
    wins: int
    draws: int
    win_rate: Estimate | None
    reference: Estimate | None = None
    difference: Estimate | None = None

    @classmethod
    def of(cls, played: Iterable[tuple[str, SideName, Hashable]], seed: int = 1, **compared: Estimate | None) -> Self:
        """played: result, the player's side, and deal of each game. seed: of the resampling of deals."""
        games = list(played)
        won, deals = [float(result == side) for result, side, _ in games], [deal for *_, deal in games]
        if len({*deals}) < len(games):
            rate = mean_by_cluster(deals, won, seed)
        else:
            rate = wilson_interval(sum(won), len(won)) if won else None
        draws = sum(result == "draw" for result, *_ in games)
        return cls(games=len(games), wins=int(sum(won)), draws=draws, win_rate=rate, **compared)

    @classmethod
    def of_rows(cls, rows: Iterable[GameRow], side: SideName, **compared: Estimate | None) -> Self:
        """The same of rows, which may be of several evaluations with the same deals."""
        return cls.of(((row.result, side, row.cluster) for row in rows), **compared)


class AgainstOpponent(Frozen):
    """The policy against one opponent. not_finished: games without a row, those of the reference included."""

    by_side: dict[SideName, Score]
    both_sides: Score
    not_finished: int


class Cell(Frozen):
    """The finished games of one player as the wolves against one as the good side. rate: of the wolves' wins."""

    wolf: str
    good: str
    games: int
    wolf_wins: int
    good_wins: int
    draws: int
    rate: Estimate | None


class Conduct(Frozen):
    """Rule conformity of the policy. Shares are None without games or turns.

    turns: model calls; invalid_replies: share of invalid ones. defaulted_decisions: made by default after two
    invalid replies. games_with_leak: share of games with a speech that names the wolves or prints the system prompt.
    days, turns_per_game: means.
    """

    games: int
    turns: int
    invalid_replies: Estimate | None
    defaulted_decisions: int
    leaks: int
    games_with_leak: Estimate | None
    days: float | None
    turns_per_game: float | None


class Figures(Frozen):
    """Figures of a subset of the games.

    all_games: the policy's win rate over all opponents and sides. conduct: of both sides, and of each.
    cells: win table of games in which each side had one player. single_seats: side -> games in a single seat.
    actions, beliefs: with a panel that has a company, only of games in which no other player is a model, so that models
    can be compared. beliefs: player -> beliefs of its good seats before votes.
    """

    games: int
    all_games: Score
    opponents: dict[str, AgainstOpponent]
    single_seats: dict[SideName, Score]
    cells: tuple[Cell, ...]
    conduct: dict[str, Conduct]
    strengths: Strengths | None
    actions: tuple[Actions, ...]
    beliefs: dict[str, BeliefReport]

    @property
    def strength(self) -> Estimate | None:
        """Overall strength of the policy."""
        return self.strengths and self.strengths.players.get(TRAINED_POLICY)


def figures_of(evaluation: GameEvaluation, among: Subset = "all") -> Figures:
    """All figures of an evaluation, of all games or of those without errors."""
    header, panel = evaluation.header, PANELS[evaluation.header.panel]
    rows, seed, opponents = rows_of(evaluation, among), header.seed, header.conditions["opponents"]
    shared = _without_other_weights(evaluation, among)
    players = sorted({player for row in shared for player in row.players})
    met = (name for name in opponents if name != TRAINED_POLICY and any(name in row.players for row in rows))
    beliefs = {player: belief_report(_answers(shared, player), seed) for player in players}

    def score_with_reference(side: SideName, opponent: str | None) -> Score:
        games, others = (games_of(rows, player, side, opponent) for player in (TRAINED_POLICY, panel.reference))
        reference = Score.of_rows(others, side).win_rate
        difference = paired_difference(won_by_deal(games, side), won_by_deal(others, side), seed)
        return Score.of_rows(games, side, reference=reference, difference=difference)

    return Figures(
        games=len(rows),
        all_games=_both_sides(rows, None, seed),
        opponents={
            name: AgainstOpponent(
                by_side={side: score_with_reference(side, name) for side in SIDES},
                both_sides=_both_sides(rows, name, seed),
                not_finished=missing,
            )
            for name, missing in evaluation.missing().items()
            if name in opponents
        },
        single_seats={side: score_with_reference(side, None) for side in SIDES if panel.company},
        cells=tuple(_cells(rows)),
        conduct={"both": conduct_of(rows, SIDES, seed), **{side: conduct_of(rows, [side], seed) for side in SIDES}},
        strengths=fit_strengths(rows, panel.reference or next(met, None), seed),
        actions=tuple(
            found for player in players for side in SIDES if (found := actions_of(shared, player, side, seed)).games
        ),
        beliefs={player: report for player, report in beliefs.items() if report is not None},
    )


def rows_of(evaluation: GameEvaluation, among: Subset) -> list[GameRow]:
    """The rows of all games, or of those without errors."""
    return [row for row in evaluation.rows if among == "all" or row.without_errors]


def games_of(rows: Iterable[GameRow], player: str, side: SideName, opponent: str | None) -> list[GameRow]:
    """The games in which ``player`` had one whole side and ``opponent`` the other.

    opponent: None for those in which ``player`` had the single seat, and with it a role of ``side``.
    """
    if opponent is None:
        return [row for row in rows if row.single is not None and row.seat(row.single).is_of(player, side)]
    return [row for row in rows if row.is_whole(side, player) and row.is_whole(OTHER_SIDE[side], opponent)]


def won_by_deal(rows: Iterable[GameRow], side: SideName) -> dict[int, float]:
    """Deal -> whether ``side`` won. rows: one of each deal."""
    return {row.cluster: float(row.result == side) for row in rows}


def _both_sides(rows: Iterable[GameRow], opponent: str | None, seed: int) -> Score:
    """Of the policy's games as one of the sides, against one opponent, or all. seed: of the resampling of deals.

    Games against itself, which it always wins and loses, are left out.
    """
    played = (
        (row.result, sides[0], row.cluster)
        for row in rows
        if len(sides := row.sides_of(TRAINED_POLICY)) == 1
        if opponent is None or row.is_whole(OTHER_SIDE[sides[0]], opponent)
    )
    return Score.of(played, seed)


def _cells(rows: Iterable[GameRow]) -> Iterator[Cell]:
    played: defaultdict[tuple[str, str], list[GameRow]] = defaultdict(list)
    for row in rows:
        wolves, good = row.players_of("wolf"), row.players_of("good")
        if row.single is None and len(wolves) == len(good) == 1:
            played[min(wolves), min(good)].append(row)
    for (wolf, good), of in played.items():
        score = Score.of_rows(of, "wolf")
        wins = {"wolf_wins": score.wins, "good_wins": score.games - score.wins - score.draws, "draws": score.draws}
        yield Cell(wolf=wolf, good=good, games=score.games, rate=score.win_rate, **wins)


def conduct_of(rows: Iterable[GameRow], sides: Iterable[SideName], seed: int) -> Conduct:
    """Conduct of the policy where it had one of ``sides`` whole. seed: of the resampling of deals."""
    played = [(row, own) for row in rows if (own := {*sides}.intersection(row.sides_of(TRAINED_POLICY)))]
    deals = [row.cluster for row, _ in played]

    def by_game(name: str) -> list[float]:
        return [float(sum(getattr(seat, name) for seat in row.seats if seat.side in own)) for row, own in played]

    turns, leaks = by_game("turns"), by_game("leaks")
    recorded = [float(made > 0) for made in turns]
    leaky = [float(made > 0 and found > 0) for made, found in zip(turns, leaks, strict=True)]
    return Conduct(
        games=len(played),
        turns=int(sum(turns)),
        invalid_replies=mean_by_cluster(deals, by_game("invalid"), seed, turns) if any(turns) else None,
        defaulted_decisions=int(sum(by_game("defaulted"))),
        leaks=int(sum(leaks)),
        games_with_leak=mean_by_cluster(deals, leaky, seed, recorded) if any(turns) else None,
        days=fmean(row.days for row, _ in played) if played else None,
        turns_per_game=fmean(turns) if played else None,
    )


def _without_other_weights(evaluation: GameEvaluation, among: Subset) -> list[GameRow]:
    company, rows = PANELS[evaluation.header.panel].company, rows_of(evaluation, among)
    return [row for row in rows if not company or row.players <= {TRAINED_POLICY, *company}]


def _answers(rows: Iterable[GameRow], player: str) -> list[tuple[int, Any]]:
    """The deal and each answer of the player's good seats."""
    return [(row.cluster, one) for row in rows for one in row.answers if row.seat(one.seat).is_of(player, "good")]


# --- two evaluations --------------------------------------------------------------------------------------------------


def by_game(evaluation: GameEvaluation, among: Subset) -> dict[str, dict[str, float]]:
    """Votes and beliefs of the policy's good seats, in the games of ``actions``: name -> match key -> mean."""
    found: defaultdict[str, defaultdict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for row in _without_other_weights(evaluation, among):
        for seat, what, value in seat_actions(row):
            if what in (VOTES_FOR_WOLVES, ODDS_OF_VOTES) and seat.is_of(TRAINED_POLICY, "good"):
                found[what][row.match_key].append(float(value))
        for _, answer in _answers([row], TRAINED_POLICY):
            found[BRIER_SCORE][row.match_key].append(answer.squared_error("own"))
            found[LOG_LOSS][row.match_key].append(answer.own.log_loss)
    return {name: {place: fmean(values) for place, values in of.items()} for name, of in found.items()}


@dataclass(frozen=True)
class Difference:
    """One figure of an evaluation less that of another. deals: shared by both. share: shown in points."""

    what: str
    deals: int
    value: Estimate
    share: bool


def differences(ours: GameEvaluation, other: GameEvaluation, among: Subset = "all") -> Iterator[Difference]:
    """``ours`` less ``other``, over the games that both played; intervals by resampling the deals of these games.

    Games against ``initial`` count only where both started from the same weights. Raises ValueError unless the
    conditions are equal.
    """
    if ours.header.digest != other.header.digest:
        raise ValueError(f"{ours.header.label} and {other.header.label} cannot be compared: their conditions differ")
    if ours.header.initial != other.header.initial:
        ours, other = (
            one.model_copy(update={"rows": tuple(row for row in one.rows if INITIAL_POLICY not in row.players)})
            for one in (ours, other)
        )
    seed = ours.header.seed
    own, others = (rows_of(evaluation, among) for evaluation in (ours, other))
    for opponent in (*ours.header.conditions["opponents"], None):
        for side in SIDES:
            where = f"single seat, {side}" if opponent is None else f"side {side} against {opponent}"
            won, of_other = (
                won_by_deal(games_of(rows, TRAINED_POLICY, side, opponent), side) for rows in (own, others)
            )
            if (value := paired_difference(won, of_other, seed)) is not None:
                yield Difference(f"games won, {where}", len(won.keys() & of_other.keys()), value, share=True)
    deal_of = {row.match_key: row.cluster for row in own}
    figures, of_other = (by_game(evaluation, among) for evaluation in (ours, other))
    for name, of in figures.items():
        others_of = of_other.get(name, {})
        if (value := paired_difference(of, others_of, seed, deal_of.__getitem__)) is not None:
            deals = {deal_of[place] for place in of.keys() & others_of.keys()}
            yield Difference(name, len(deals), value, share=name in (VOTES_FOR_WOLVES, ODDS_OF_VOTES))


# --- the log ----------------------------------------------------------------------------------------------------------


def metrics_of(evaluation: GameEvaluation, found: Figures) -> dict[str, float]:
    """The figures as flat numbers, below ``evaluation/``; without games a figure is left out."""
    both = found.conduct["both"]
    named: dict[str, Estimate | float | None] = {
        "win_rate": found.all_games.win_rate,
        "strength": found.strength,
        "days": both.days,
        "turns_per_game": both.turns_per_game,
        "defaulted_decisions": float(both.defaulted_decisions),
        "games/finished": float(len(evaluation.rows)),
        "games/not_finished": float(evaluation.not_finished),
    }
    for opponent, against in found.opponents.items():
        scores = {"both": against.both_sides, **against.by_side}
        named |= {f"win_rate/{what}/vs/{opponent}": score.win_rate for what, score in scores.items()}
        named[f"draws/vs/{opponent}"] = float(against.both_sides.draws)
    for where, conduct in found.conduct.items():
        suffix = "" if where == "both" else f"/{where}"
        named[f"invalid_replies{suffix}"] = conduct.invalid_replies
        named[f"games_with_identity_leak{suffix}"] = conduct.games_with_leak
    return flat_metrics(named)
