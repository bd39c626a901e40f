"""What a player's seats of one side did over a protocol's games: votes against the odds, kills, checks, claims."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from algo.belief.observed import SeatFacts
from algo.evaluation.statistics import Estimate, mean_by_cluster
from algo.protocol.games import StudiedGame
from configs.roles_and_decks import Role, Side
from store.werewolf import SideName
from store.werewolf_study import NotedSpeech

_NOBODY = "nobody"
_SAME = 1e-9


class Votes(BaseModel):
    """Of votes to exile. Intervals by deals; shares are of votes that name a seat, and None without any.

    cast: all, with abstentions. on_wolf: share that name a wolf. odds: mean odds of whom they name, by the expert,
    given what was public; expert: the mean of the best odds there were, which its votes would have hit; chance: what
    votes by chance would. as_expert: share that name a seat of the best odds. pivotal: votes without which the ballot
    would have ended otherwise; pivotal_on_wolf: share of those that name a wolf.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

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
    """Of one player on one side.

    games: in which it had a seat of the side; what it did, these games alone. kills: role of the night's victim, or
    nobody, where it had all living wolves' seats. checks: role of whom its seer checked, or nobody.
    claims: own role -> true, false or none -> speeches, by ``truth_of``.
    reports: own role -> true or false -> checks told of. survival: role -> share of such seats alive at the end.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    player: str
    side: SideName
    games: int
    votes: Votes
    kills: dict[str, int] = Field(default_factory=dict)
    checks: dict[str, int] = Field(default_factory=dict)
    claims: dict[str, dict[str, int]] = Field(default_factory=dict)
    reports: dict[str, dict[str, int]] = Field(default_factory=dict)
    survival: dict[str, Estimate] = Field(default_factory=dict)


def facts_of(game: StudiedGame) -> dict[int, SeatFacts]:
    """Every seat of a game."""
    return {seat.seat: SeatFacts(Role(seat.role), seat.player) for seat in game.game.seats}


def truth_of(speech: NotedSpeech, seats: Mapping[int, SeatFacts]) -> Literal["true", "false", "none"]:
    """Whether the role that a speech claims and the checks that it reports are all true; none: it claims nothing."""
    claims = [] if speech.claimed is None else [speech.claimed == seats[speech.seat].role]
    claims += [seat in seats and seats[seat].role.side == side for seat, side in speech.reports]
    return "none" if not claims else "true" if all(claims) else "false"


def deeds_of(games: Iterable[StudiedGame], player: str, side: SideName, seed: int) -> Deeds:
    """What ``player`` did as ``side``. seed: of the resampling of deals."""
    played = [game for game in games if player in game.game.players_of(side)]
    votes, kills, checks = [], Counter[str](), Counter[str]()
    claims: defaultdict[str, Counter[str]] = defaultdict(Counter)
    reports: defaultdict[str, Counter[str]] = defaultdict(Counter)
    lives: defaultdict[str, list[tuple[int, float]]] = defaultdict(list)
    for one in played:
        seats = facts_of(one)
        own = {number for number, seat in seats.items() if seat.player == player and seat.role.side == side}
        votes += [
            (one.game.deal, vote, vote.target is not None and seats[vote.target].role.side is Side.WOLF)
            for vote in one.study.votes
            if vote.seat in own
        ]
        if side == "wolf" and one.game.players_of("wolf") == {player}:
            kills.update(_NOBODY if kill.target is None else seats[kill.target].role for kill in one.study.kills)
        checks.update(
            _NOBODY if check.target is None else seats[check.target].role
            for check in one.study.checks
            if check.seat in own
        )
        for speech in one.study.speeches:
            if speech.seat in own:
                role = seats[speech.seat].role
                claims[role][truth_of(speech, seats)] += 1
                for seat, found in speech.reports:
                    true = seat in seats and seats[seat].role.side == found
                    reports[role]["true" if true else "false"] += 1
        for number in own:
            lives[seats[number].role].append((one.game.deal, float(number not in one.study.deaths)))
    return Deeds(
        player=player,
        side=side,
        games=len(played),
        votes=_votes(votes, seed),
        kills=dict(sorted(kills.items())),
        checks=dict(sorted(checks.items())),
        claims={role: dict(sorted(claims[role].items())) for role in sorted(claims)},
        reports={role: dict(sorted(reports[role].items())) for role in sorted(reports)},
        survival={
            role: mean_by_cluster([deal for deal, _ in lived], [alive for _, alive in lived], seed)
            for role, lived in sorted(lives.items())
        },
    )


def _votes(votes: Sequence[tuple], seed: int) -> Votes:
    """votes: (deal, ``NotedVote``, whether it names a wolf)."""
    named = [each for each in votes if each[1].target is not None]
    pivotal = [each for each in named if each[1].pivotal]

    def mean(among: Sequence[tuple], values: list[float]) -> Estimate | None:
        return mean_by_cluster([deal for deal, *_ in among], values, seed) if among else None

    return Votes(
        cast=len(votes),
        abstained=len(votes) - len(named),
        on_wolf=mean(named, [float(is_wolf) for *_, is_wolf in named]),
        odds=mean(named, [vote.odds for _, vote, _ in named]),
        expert=mean(named, [vote.best for _, vote, _ in named]),
        chance=mean(named, [vote.chance for _, vote, _ in named]),
        as_expert=mean(named, [float(vote.odds > vote.best - _SAME) for _, vote, _ in named]),
        pivotal=len(pivotal),
        pivotal_on_wolf=mean(pivotal, [float(is_wolf) for *_, is_wolf in pivotal]),
    )
