"""What one seat believed at one moment, beside what was true and what could have been known."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from configs.roles_and_decks import DECKS, Role, Side
from store.werewolf_study import Chances, NotedBelief, StudySpan


@dataclass(frozen=True)
class SeatFacts:
    """A seat as the referee knows it. player: who had it."""

    role: Role
    player: str


@dataclass(frozen=True)
class Observed:
    """One answer. deal: the cluster that it belongs to. truth: seat -> role, of those that were asked about.

    floor: what the deck alone says to a seat of its role: to a wolf, with its mates.
    """

    deal: int
    listener: SeatFacts
    belief: NotedBelief
    truth: Mapping[int, Role]
    floor: Chances

    def wolf_chances(self, chances: Chances) -> list[tuple[float, bool]]:
        """(how likely a wolf, whether it is one) of each seat asked about."""
        return [
            (wolf_chance(chances[seat]), role.side is Side.WOLF) for seat, role in self.truth.items() if seat in chances
        ]


def observed(study: StudySpan, deal: int, preset: str, seats: Mapping[int, SeatFacts]) -> Iterator[Observed]:
    """The answers of one game, of seats that could be asked. seats: all of the game."""
    roles = {number: seat.role for number, seat in seats.items()}
    for belief in study.beliefs:
        if belief.beliefs is not None:
            yield Observed(
                deal=deal,
                listener=seats[belief.seat],
                belief=belief,
                truth={seat: roles[seat] for seat in belief.beliefs},
                floor=deck_chances(DECKS[preset], belief.seat, roles, belief.beliefs),
            )


def deck_chances(deck: Sequence[Role], seat: int, roles: Mapping[int, Role], targets: Iterable[int]) -> Chances:
    """What the deck says of ``targets`` to a seat that knows its own card, and its mates if it is a wolf."""
    known = {seat}
    if roles[seat].side is Side.WOLF:
        known |= {other for other, role in roles.items() if role.side is Side.WOLF}
    left = Counter(deck) - Counter(roles[each] for each in known)
    return {
        target: {
            role.value: float(role is roles[target]) if target in known else left[role] / left.total()
            for role in sorted(set(deck))
        }
        for target in targets
    }


def wolf_chance(of_role: Mapping[str, float]) -> float:
    """How likely one of the wolves' roles."""
    return sum(chance for role, chance in of_role.items() if Role(role).side is Side.WOLF)
