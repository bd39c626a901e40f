"""Everything that is counted over an evaluation's games; all of it follows from its rows.

The unit is the game, never the seat: all seats of a game share its outcome. One side against one opponent plays each
deal once, so that every game is a trial of Wilson's interval; what is taken over both sides resamples deals.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from algo.evaluation.beliefs import BeliefReport, belief_report
from algo.evaluation.games import GameRow, SeatRow
from algo.evaluation.panel import PANELS
from algo.evaluation.record import Evaluation
from algo.evaluation.statistics import (
    Estimate,
    bootstrap_fits,
    clustered_share,
    mean_by_cluster,
    paired_difference,
    percentile_interval,
    sums_by_cluster,
    wilson_interval,
)
from algo.werewolf.matches import SIDES
from configs.sections.opponents import INITIAL_POLICY
from store.schema import TRAINED_POLICY
from store.werewolf import SideName
from store.werewolf_study import NotedSpeech, NotedVote

Among = Literal["all", "without_errors"]
AMONG: tuple[Among, ...] = ("all", "without_errors")
"""Figures are told twice: of all games, and of those in which every reply of every seat could be used."""

VOTES_FOR_WOLVES, ODDS_OF_VOTES = "votes for a wolf, of those that name somebody", "the expert's odds of whom they name"
BRIER_SCORE, LOG_LOSS = "Brier score of beliefs", "log loss of beliefs, nats"
"""Names in ``by_game``."""
_NOBODY = "nobody"
_SAME = 1e-9
_FROZEN = ConfigDict(extra="forbid", frozen=True)


class Score(BaseModel):
    """How some games ended for one player. A draw is no win. win_rate: None without games."""

    model_config = _FROZEN

    games: int
    wins: int
    draws: int
    win_rate: Estimate | None


class SideScore(Score):
    """Of one side or one seat. reference: how often the reference won in its place.

    difference: between them, over the deals that both played; None where there is no reference.
    """

    reference: Estimate | None = None
    difference: Estimate | None = None


class AgainstOpponent(BaseModel):
    """How the policy fared against one opponent. both_sides: by deals. by_role: of the roles that it was dealt.

    not_finished: games against it, also of the reference, that have no row.
    """

    model_config = _FROZEN

    by_side: dict[SideName, SideScore]
    both_sides: Score
    by_role: dict[str, Score]
    not_finished: int


class Cell(BaseModel):
    """The finished games of one player as the wolves against one as the good side."""

    model_config = _FROZEN

    wolf: str
    good: str
    games: int
    wolf_wins: int
    good_wins: int
    draws: int

    def win_rate(self, side: SideName) -> Estimate | None:
        """The share of the games that a side won; None without games."""
        return wilson_interval(self.wolf_wins if side == "wolf" else self.good_wins, self.games) if self.games else None


class Conduct(BaseModel):
    """How well the policy keeps to the game. Shares are None where there is nothing to take them of.

    turns: model calls made; invalid_replies: the share of them that could not be used. defaulted_decisions: those taken
    by the declared default action, after two such replies. games_with_leak: the share of games with a speech that gave
    the wolves away or printed the system prompt. days, turns_per_game: means.
    """

    model_config = _FROZEN

    games: int
    turns: int
    invalid_replies: Estimate | None
    defaulted_decisions: int
    leaks: int
    games_with_leak: Estimate | None
    days: float | None
    turns_per_game: float | None


class Strengths(BaseModel):
    """Log-odds of one joint fit; the reference is 0 as each side and in every role.

    advantage: of the good side between equals. players: overall, the mean of ``as_wolf`` and ``as_good``.
    roles: of the policy: how much stronger it is with a role than its side says.
    """

    model_config = _FROZEN

    reference: str
    games: int
    advantage: Estimate
    players: dict[str, Estimate]
    as_wolf: dict[str, Estimate]
    as_good: dict[str, Estimate]
    roles: dict[str, Estimate]


class Votes(BaseModel):
    """Of votes to exile. Shares are of votes that name a seat, by deals, and None without any.

    cast: all, with abstentions. on_wolf: share that name a wolf. odds: mean odds of whom they name, by the expert,
    given what was public; expert: the mean of the best odds there were; chance: what votes by chance would hit.
    as_expert: share that name a seat of the best odds. pivotal: votes without which the ballot would have ended
    otherwise; pivotal_on_wolf: share of those that name a wolf.
    """

    model_config = _FROZEN

    cast: int
    abstained: int
    on_wolf: Estimate | None
    odds: Estimate | None
    expert: Estimate | None
    chance: Estimate | None
    as_expert: Estimate | None
    pivotal: int
    pivotal_on_wolf: Estimate | None


class Deeds(BaseModel):
    """What one player's seats of one side did. games: in which it had a seat of the side.

    kills: role of the night's victim, or nobody, where it had all wolves' seats. checks: side of whom its seer checked,
    or nobody. claimed: own role -> role claimed in public, or none -> speeches. claims: own role -> true, false or none
    -> speeches. reports: own role -> true or false -> checks told of. survival: role -> share alive at the end.
    """

    model_config = _FROZEN

    player: str
    side: SideName
    games: int
    votes: Votes
    kills: dict[str, int] = Field(default_factory=dict)
    checks: dict[str, int] = Field(default_factory=dict)
    claimed: dict[str, dict[str, int]] = Field(default_factory=dict)
    claims: dict[str, dict[str, int]] = Field(default_factory=dict)
    reports: dict[str, dict[str, int]] = Field(default_factory=dict)
    survival: dict[str, Estimate] = Field(default_factory=dict)

    def counts(self) -> dict[str, dict[str, int]]:
        """All that is counted, by what it is; what never happened is left out."""
        found = {"kills": self.kills, "checks": self.checks}
        found |= {f"roles that the {role} claims": counts for role, counts in self.claimed.items()}
        found |= {f"claims of the {role}": counts for role, counts in self.claims.items()}
        found |= {f"checks told by the {role}": counts for role, counts in self.reports.items()}
        return {name: counts for name, counts in found.items() if counts}


class Figures(BaseModel):
    """What is counted over some of the games, from the policy's view.

    all_games: its win rate over all opponents and sides. conduct: of both sides, and of each.
    cells: who beats whom, of games in which each side had one player. single_seats: side -> games in a single seat.
    deeds, beliefs: with a panel that has a company, of the games alone in which nobody but the policy has weights, so
    that they can be compared between models. beliefs: player -> its good seats' before votes.
    by_game: of the policy's good seats in these games, what -> ``GameRow.place`` -> its mean.
    """

    model_config = _FROZEN

    games: int
    all_games: Score
    opponents: dict[str, AgainstOpponent]
    single_seats: dict[SideName, SideScore]
    cells: tuple[Cell, ...]
    conduct: dict[str, Conduct]
    strengths: Strengths | None
    deeds: tuple[Deeds, ...]
    beliefs: dict[str, BeliefReport]
    by_game: dict[str, dict[str, float]]


GameEvaluation = Evaluation[GameRow]


def figures_of(evaluation: GameEvaluation, among: Among = "all") -> Figures:
    """All figures of an evaluation, of all its games or of those without errors."""
    header, panel = evaluation.header, PANELS[evaluation.header.panel]
    rows = rows_among(evaluation, among)
    seed, reference = header.seed, panel.reference or None
    own = [(row, side) for row in rows for side in row.sides_of(TRAINED_POLICY)]
    fixed = {TRAINED_POLICY, *panel.company}
    shared = [row for row in rows if not panel.company or {seat.player for seat in row.seats} <= fixed]
    players = sorted({seat.player for row in shared for seat in row.seats})
    answers = [(row.cluster, answer, row.seat(answer.seat)) for row in shared for answer in row.answers]
    beliefs = {
        player: belief_report(
            [(deal, each) for deal, each, seat in answers if (seat.player, seat.side) == (player, "good")], seed
        )
        for player in players
    }
    return Figures(
        games=len(rows),
        all_games=_score(own, seed),
        opponents={
            name: _against(rows, name, missing, reference, seed)
            for name, missing in evaluation.missing().items()
            if name in header.terms["opponents"]
        },
        single_seats={side: _single(rows, reference, side, seed) for side in SIDES} if panel.company else {},
        cells=tuple(_cells(rows)),
        conduct={"both": conduct_of(rows, SIDES, seed), **{side: conduct_of(rows, [side], seed) for side in SIDES}},
        strengths=fit_strengths(rows, reference or _reference_among(rows, header.terms["opponents"]), seed),
        deeds=tuple(
            deeds for player in players for side in SIDES if (deeds := deeds_of(shared, player, side, seed)).games
        ),
        beliefs={player: report for player, report in beliefs.items() if report is not None},
        by_game=_by_game(shared),
    )


def rows_among(evaluation: GameEvaluation, among: Among) -> list[GameRow]:
    """The rows of all games, or of those without errors."""
    return [row for row in evaluation.rows if among == "all" or row.without_errors]


# --- win rates --------------------------------------------------------------------------------------------------------


def whole_side_games(rows: Iterable[GameRow], player: str, opponent: str, side: SideName) -> list[GameRow]:
    """The games in which ``player`` had one whole side and ``opponent`` the other."""
    other: SideName = "good" if side == "wolf" else "wolf"
    return [
        row
        for row in rows
        if row.single is None and (row.players_of(side), row.players_of(other)) == ({player}, {opponent})
    ]


def single_seat_games(rows: Iterable[GameRow], player: str, side: SideName) -> list[GameRow]:
    """The games in which ``player`` had the single seat, and with it a role of ``side``."""
    alone = [(row, row.seat(row.single)) for row in rows if row.single is not None]
    return [row for row, seat in alone if (seat.player, seat.side) == (player, side)]


def won_by_deal(rows: Iterable[GameRow], side: SideName) -> dict[int, float]:
    """Deal -> whether ``side`` won. rows: one of each deal."""
    return {row.cluster: float(row.result == side) for row in rows}


def _against(rows: Sequence[GameRow], opponent: str, missing: int, reference: str | None, seed: int) -> AgainstOpponent:
    by_side, own = {}, []
    for side in SIDES:
        games = whole_side_games(rows, TRAINED_POLICY, opponent, side)
        others = whole_side_games(rows, reference, opponent, side) if reference else []
        by_side[side] = _side_score(games, others, side, seed)
        own += [(row, side) for row in games]
    own.sort(key=lambda each: each[0].number)
    roles = sorted({seat.role for row, side in own for seat in row.seats if seat.side == side})
    with_role = {
        role: [(row, side) for row, side in own if any((s.role, s.side) == (role, side) for s in row.seats)]
        for role in roles
    }
    return AgainstOpponent(
        by_side=by_side,
        both_sides=_score(own, seed),
        by_role={role: _score(played, None) for role, played in with_role.items()},
        not_finished=missing,
    )


def _single(rows: Sequence[GameRow], reference: str | None, side: SideName, seed: int) -> SideScore:
    own, others = (single_seat_games(rows, player, side) for player in (TRAINED_POLICY, reference or ""))
    return _side_score(own, others, side, seed)


def _side_score(games: Sequence[GameRow], others: Sequence[GameRow], side: SideName, seed: int) -> SideScore:
    score = _score([(row, side) for row in games], None)
    return SideScore(
        **score.model_dump(exclude={"win_rate"}),
        win_rate=score.win_rate,
        reference=_score([(row, side) for row in others], None).win_rate,
        difference=paired_difference(won_by_deal(games, side), won_by_deal(others, side), seed),
    )


def _score(played: Sequence[tuple[GameRow, SideName]], seed: int | None) -> Score:
    """played: games and the sides looked at. seed: of the resampling of deals; None: each game is a trial."""
    wins = [float(row.result == side) for row, side in played]
    rate = None
    if played:
        rate = (
            wilson_interval(sum(wins), len(wins))
            if seed is None
            else clustered_share(*sums_by_cluster([row.cluster for row, _ in played], wins), seed)
        )
    draws = sum(row.result == "draw" for row, _ in played)
    return Score(games=len(played), wins=int(sum(wins)), draws=draws, win_rate=rate)


def _cells(rows: Iterable[GameRow]) -> Iterator[Cell]:
    results: dict[tuple[str, str], Counter[str]] = defaultdict(Counter)
    for row in rows:
        wolves, good = row.players_of("wolf"), row.players_of("good")
        if row.single is None and len(wolves) == len(good) == 1:
            results[wolves.copy().pop(), good.copy().pop()][row.result] += 1
    for (wolf, good), of in results.items():
        yield Cell(wolf=wolf, good=good, games=of.total(), wolf_wins=of["wolf"], good_wins=of["good"], draws=of["draw"])


def conduct_of(rows: Iterable[GameRow], sides: Iterable[SideName], seed: int) -> Conduct:
    """How the policy behaved when it had one of ``sides`` whole. seed: of the resampling of deals."""
    wanted = set(sides)
    played = [(row, wanted.intersection(row.sides_of(TRAINED_POLICY))) for row in rows]
    played = [(row, own) for row, own in played if own]
    seats = [[seat for seat in row.seats if seat.side in own] for row, own in played]
    deals = [row.cluster for row, _ in played]
    turns = [float(sum(seat.turns for seat in of_game)) for of_game in seats]
    invalid = [float(sum(seat.invalid for seat in of_game)) for of_game in seats]
    leaks = [sum(seat.leaks for seat in of_game) for of_game in seats]
    recorded = [number for number, count in enumerate(turns) if count]
    leaky = [float(leaks[number] > 0) for number in recorded]
    return Conduct(
        games=len(played),
        turns=int(sum(turns)),
        invalid_replies=clustered_share(*sums_by_cluster(deals, invalid, turns), seed) if recorded else None,
        defaulted_decisions=sum(seat.defaulted for of_game in seats for seat in of_game),
        leaks=sum(leaks),
        games_with_leak=clustered_share(*sums_by_cluster([deals[number] for number in recorded], leaky), seed)
        if recorded
        else None,
        days=fmean(row.days for row, _ in played) if played else None,
        turns_per_game=fmean(turns) if played else None,
    )


# --- strengths --------------------------------------------------------------------------------------------------------


def fit_strengths(rows: Sequence[GameRow], reference: str | None, seed: int) -> Strengths | None:
    """The joint fit over all of the games; None without any. seed: of the resampling.

    The log-odds that the good side wins are the good side's advantage, plus the mean strength of the seats of the good
    side, less that of the wolves'. A player's strength is its own, more or less by a term for the side that it plays;
    the policy has a term for each role, too, which its single seats tell apart from its side.
    """
    if not rows or reference is None:
        return None
    names = sorted({seat.player for row in rows for seat in row.seats} - {reference})
    roles = sorted({seat.role for row in rows for seat in row.seats if seat.player == TRAINED_POLICY})
    table = np.array([_features(row, names, roles) for row in rows])
    won = np.array([{"good": 1.0, "draw": 0.5, "wolf": 0.0}[row.result] for row in rows])
    best, fits = bootstrap_fits(table, won, [row.cluster for row in rows], seed)

    def of_players(sign: float) -> dict[str, Estimate]:
        found = {}
        for number, name in enumerate(names):
            own, by_side = 1 + number, 1 + len(names) + number
            value = float(best[own] + sign * best[by_side])
            found[name] = percentile_interval(value, fits[:, own] + sign * fits[:, by_side])
        return dict(sorted(found.items(), key=lambda item: -item[1].value))

    first_role = 1 + 2 * len(names)
    return Strengths(
        reference=reference,
        games=len(rows),
        advantage=percentile_interval(float(best[0]), fits[:, 0]),
        players=of_players(0.0),
        as_wolf=of_players(-1.0),
        as_good=of_players(1.0),
        roles={
            role: percentile_interval(float(best[first_role + number]), fits[:, first_role + number])
            for number, role in enumerate(roles)
        },
    )


def _features(row: GameRow, names: Sequence[str], roles: Sequence[str]) -> list[float]:
    """The advantage; of each player its share of the good seats less that of the wolves', and their sum; of each role
    the share of its seats that the policy has, counted against the good side for the wolves'."""
    share: dict[tuple[str, str], float] = {}
    of_role = dict.fromkeys(roles, 0.0)
    for side, sign in (("good", 1.0), ("wolf", -1.0)):
        own = [seat for seat in row.seats if seat.side == side]
        for seat in own:
            share[seat.player, side] = share.get((seat.player, side), 0.0) + 1 / len(own)
            if seat.player == TRAINED_POLICY:
                of_role[seat.role] += sign / len(own)
    pairs = [(share.get((name, "good"), 0.0), share.get((name, "wolf"), 0.0)) for name in names]
    return [1.0, *(good - wolf for good, wolf in pairs), *(good + wolf for good, wolf in pairs), *of_role.values()]


def _reference_among(rows: Iterable[GameRow], opponents: Sequence[str]) -> str | None:
    met = {seat.player for row in rows for seat in row.seats} - {TRAINED_POLICY}
    return next((name for name in opponents if name in met), None)


# --- what seats did ---------------------------------------------------------------------------------------------------


def truth_of(speech: NotedSpeech, row: GameRow) -> Literal["true", "false", "none"]:
    """Whether the role that a speech claims and the checks that it reports are all true; none: it claims nothing."""
    seats: Mapping[int, SeatRow] = {seat.seat: seat for seat in row.seats}
    claims = [] if speech.claimed is None else [speech.claimed == seats[speech.seat].role]
    claims += [seat in seats and seats[seat].side == side for seat, side in speech.reports]
    return "none" if not claims else "true" if all(claims) else "false"


def deeds_of(rows: Iterable[GameRow], player: str, side: SideName, seed: int) -> Deeds:
    """What ``player`` did as ``side``. seed: of the resampling of deals."""
    played = [row for row in rows if player in row.players_of(side)]
    votes: list[tuple[int, NotedVote, bool]] = []
    kills, checks = Counter[str](), Counter[str]()
    claimed, claims, reports = (defaultdict[str, Counter[str]](Counter) for _ in range(3))
    lives: defaultdict[str, list[tuple[int, float]]] = defaultdict(list)
    for row in played:
        seats = {seat.seat: seat for seat in row.seats}
        own = {number for number, seat in seats.items() if (seat.player, seat.side) == (player, side)}
        votes += [
            (row.cluster, vote, vote.target is not None and row.is_wolf(vote.target))
            for vote in row.votes
            if vote.seat in own
        ]
        if side == "wolf" and row.players_of("wolf") == {player}:
            kills.update(_NOBODY if kill.target is None else seats[kill.target].role for kill in row.kills)
        checks.update(
            _NOBODY if check.target is None else seats[check.target].role for check in row.checks if check.seat in own
        )
        for speech in row.speeches:
            if speech.seat in own:
                role = seats[speech.seat].role
                claims[role][truth_of(speech, row)] += 1
                claimed[role][speech.claimed or "none"] += 1
                for seat, found in speech.reports:
                    reports[role]["true" if seat in seats and seats[seat].side == found else "false"] += 1
        for number in own:
            lives[seats[number].role].append((row.cluster, float(number not in row.deaths)))
    return Deeds(
        player=player,
        side=side,
        games=len(played),
        votes=_votes(votes, seed),
        kills=dict(sorted(kills.items())),
        checks=dict(sorted(checks.items())),
        claimed={role: dict(sorted(claimed[role].items())) for role in sorted(claimed)},
        claims={role: dict(sorted(claims[role].items())) for role in sorted(claims)},
        reports={role: dict(sorted(reports[role].items())) for role in sorted(reports)},
        survival={
            role: mean_by_cluster([deal for deal, _ in lived], [alive for _, alive in lived], seed)
            for role, lived in sorted(lives.items())
        },
    )


def _votes(votes: Sequence[tuple[int, NotedVote, bool]], seed: int) -> Votes:
    """votes: deal, vote, and whether it names a wolf."""
    named = [each for each in votes if each[1].target is not None]
    pivotal = [each for each in named if each[1].pivotal]

    def mean(among: Sequence[tuple[int, NotedVote, bool]], value: Callable[[NotedVote, bool], float | None]):
        values = [value(vote, is_wolf) or 0.0 for _, vote, is_wolf in among]
        return mean_by_cluster([deal for deal, *_ in among], values, seed) if among else None

    return Votes(
        cast=len(votes),
        abstained=len(votes) - len(named),
        on_wolf=mean(named, lambda vote, is_wolf: float(is_wolf)),
        odds=mean(named, lambda vote, _: vote.odds),
        expert=mean(named, lambda vote, _: vote.best),
        chance=mean(named, lambda vote, _: vote.chance),
        as_expert=mean(named, lambda vote, _: float((vote.odds or 0.0) > vote.best - _SAME)),
        pivotal=len(pivotal),
        pivotal_on_wolf=mean(pivotal, lambda vote, is_wolf: float(is_wolf)),
    )


def _by_game(rows: Iterable[GameRow]) -> dict[str, dict[str, float]]:
    found: defaultdict[str, defaultdict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for row in rows:
        own = {seat.seat for seat in row.seats if (seat.player, seat.side) == (TRAINED_POLICY, "good")}
        for vote in row.votes:
            if vote.target is not None and vote.seat in own:
                found[VOTES_FOR_WOLVES][row.place].append(float(row.is_wolf(vote.target)))
                found[ODDS_OF_VOTES][row.place].append(vote.odds or 0.0)
        for answer in row.answers:
            if answer.seat in own:
                found[BRIER_SCORE][row.place].append(answer.squared_error("own"))
                found[LOG_LOSS][row.place].append(answer.own.log_loss)
    return {name: {place: fmean(values) for place, values in of.items()} for name, of in found.items()}


# --- two evaluations --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Difference:
    """One figure of an evaluation less that of another. deals: on which both have it. share: told in points."""

    what: str
    deals: int
    value: Estimate
    share: bool


def differences(ours: GameEvaluation, other: GameEvaluation, among: Among = "all") -> Iterator[Difference]:
    """``ours`` less ``other``, game by game where both played it; intervals by resampling the deals of these games.

    Games against ``initial`` only where that was the same weights. Raises ValueError unless the terms are equal.
    """
    if ours.header.digest != other.header.digest:
        raise ValueError(f"{ours.header.label} and {other.header.label} differ in their terms: they cannot be compared")
    seed = ours.header.seed
    own, others = (rows_among(evaluation, among) for evaluation in (ours, other))
    for opponent in ours.header.terms["opponents"]:
        if opponent != INITIAL_POLICY or ours.header.initial == other.header.initial:
            for side in SIDES:
                games = [whole_side_games(rows, TRAINED_POLICY, opponent, side) for rows in (own, others)]
                yield from _difference(f"games won, side {side} against {opponent}", side, *games, seed)
    for side in SIDES:
        games = [single_seat_games(rows, TRAINED_POLICY, side) for rows in (own, others)]
        yield from _difference(f"games won, single seat, {side}", side, *games, seed)
    deal_of = {row.place: row.cluster for row in own}
    figures, of_other = (figures_of(evaluation, among).by_game for evaluation in (ours, other))
    for name, of in figures.items():
        both = [place for place in of if place in of_other.get(name, {})]
        if both:
            deals = [deal_of[place] for place in both]
            value = mean_by_cluster(deals, [of[place] - of_other[name][place] for place in both], seed)
            yield Difference(name, len(set(deals)), value, share=name in (VOTES_FOR_WOLVES, ODDS_OF_VOTES))


def _difference(
    what: str, side: SideName, games: Sequence[GameRow], others: Sequence[GameRow], seed: int
) -> Iterator[Difference]:
    won, won_by_other = (won_by_deal(each, side) for each in (games, others))
    value = paired_difference(won, won_by_other, seed)
    if value is not None:
        yield Difference(what, len(won.keys() & won_by_other.keys()), value, share=True)


# --- the log ----------------------------------------------------------------------------------------------------------


def metrics_of(evaluation: GameEvaluation, found: Figures) -> dict[str, float]:
    """The figures as flat numbers, below ``evaluation/``. What has no games has no numbers."""
    estimates: dict[str, Estimate | None] = {"win_rate": found.all_games.win_rate}
    numbers: dict[str, float | None] = {}
    for opponent, against in found.opponents.items():
        estimates[f"win_rate/both/vs/{opponent}"] = against.both_sides.win_rate
        estimates |= {f"win_rate/{side}/vs/{opponent}": score.win_rate for side, score in against.by_side.items()}
        estimates |= {f"win_rate/role/{role}/vs/{opponent}": score.win_rate for role, score in against.by_role.items()}
        numbers[f"draws/vs/{opponent}"] = float(against.both_sides.draws)
    for where, conduct in found.conduct.items():
        suffix = "" if where == "both" else f"/{where}"
        estimates[f"invalid_replies{suffix}"] = conduct.invalid_replies
        estimates[f"games_with_identity_leak{suffix}"] = conduct.games_with_leak
    if found.strengths is not None:
        estimates["strength"] = found.strengths.players.get(TRAINED_POLICY)
    both = found.conduct["both"]
    numbers |= {
        "days": both.days,
        "turns_per_game": both.turns_per_game,
        "defaulted_decisions": float(both.defaulted_decisions),
        "games/finished": float(len(evaluation.rows)),
        "games/not_finished": float(evaluation.not_finished),
    }
    metrics = {name: value for name, value in numbers.items() if value is not None}
    for name, estimate in estimates.items():
        if estimate is not None:
            metrics |= {name: estimate.value, f"{name}/low": estimate.low, f"{name}/high": estimate.high}
    return {f"evaluation/{name}": value for name, value in metrics.items()}
