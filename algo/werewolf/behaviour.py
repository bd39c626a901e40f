"""How a policy plays one side: whom it kills, checks and votes for, and what it claims to be, counted over games."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from algo.rollouts.triplets import FinishedRollout
from store.schema import TRAINED_POLICY
from store.werewolf import SideName

NOBODY = "nobody"
"""Counted for a decision that chose no seat."""
NO_CLAIM = "none"
"""Counted for a speech that claims no role."""

_WOLF_TALK, _KILL, _CHECK = "wolf_talk", "wolf_kill", "seer_check"
_VOTES = frozenset({"exile_vote", "pk_vote"})
_SPEECHES = frozenset(
    {"campaign_speech", "sheriff_pk_speech", "speech", "closing_speech", "pk_speech", "last_words"},
)


class Behaviour(BaseModel):
    """What a player's seats of one side did, in counts. Replies that could not be used are not among them.

    games: finished games in which the player had seats of the side.
    kills: role of the seat that a wolf chose to kill, or ``NOBODY`` -> decisions. Where the wolves agree in their talk
        and are not asked, the victim is the one that each proposed last.
    checks: side of the seat that the seer checked, or ``NOBODY`` -> decisions.
    votes: side of the seat voted for in exile and PK votes, or ``NOBODY`` -> votes.
    claims: own role -> role claimed in public, or ``NO_CLAIM`` -> speeches; silence claims nothing, either.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    games: int = 0
    kills: dict[str, int] = Field(default_factory=dict)
    checks: dict[str, int] = Field(default_factory=dict)
    votes: dict[str, int] = Field(default_factory=dict)
    claims: dict[str, dict[str, int]] = Field(default_factory=dict)

    def counts(self) -> dict[str, dict[str, int]]:
        """All of it by what is counted, for those who show it; what never happened is left out."""
        of_speeches = {f"claims as {role}": claimed for role, claimed in self.claims.items()}
        named = {"kills": self.kills, "checks": self.checks, "votes": self.votes, **of_speeches}
        return {name: counts for name, counts in named.items() if counts}


def behaviour_of(games: Iterable[FinishedRollout], side: SideName, player: str = TRAINED_POLICY) -> Behaviour:
    """What the seats of one side did that ``player`` had.

    Counted over model turns that gave a triplet; players without tokens of their own leave none.
    """
    played = 0
    kills, checks, votes = Counter[str](), Counter[str](), Counter[str]()
    claims: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for game in games:
        seats = {seat.seat: seat for seat in game.outcome.seats}
        own = {number for number, seat in seats.items() if (seat.side, seat.policy) == (side, player)}
        played += bool(own)
        turns = [triplet.metadata for triplet in game.triplets if triplet.metadata["seat"] in own]
        kills.update(NOBODY if target is None else seats[target].role for target in _kill_targets(turns))
        for turn in turns:
            if not turn["valid"]:
                continue
            decision, target = turn["decision"], turn["target"]
            side_of_target = NOBODY if target is None else seats[target].side
            if decision == _CHECK:
                checks[side_of_target] += 1
            elif decision in _VOTES:
                votes[side_of_target] += 1
            elif decision in _SPEECHES:
                claims[turn["role"]][turn["claimed_role"] or NO_CLAIM] += 1
    return Behaviour(
        games=played,
        kills=_sorted(kills),
        checks=_sorted(checks),
        votes=_sorted(votes),
        claims={role: _sorted(claims[role]) for role in sorted(claims)},
    )


def _kill_targets(turns: Sequence[Mapping[str, Any]]) -> list[int | None]:
    """Of each wolf and night the seat that it chose last; nothing where its last reply could not be used.

    turns: in the order of (seat, turn).
    """
    last: dict[tuple[int, int], Mapping[str, Any]] = {}
    for turn in turns:
        if turn["decision"] in (_KILL, _WOLF_TALK):
            last[turn["seat"], turn["day"]] = turn
    return [turn["target"] for turn in last.values() if turn["valid"]]


def _sorted(counts: Counter[str]) -> dict[str, int]:
    """The most frequent first; names decide between equals, so that the same games give the same order."""
    return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))
