"""How far a speech moves what good listeners believe, by the speaker's role and by whether its claims are true.

Two answers of one listener between which nothing happened but one speech are compared; what the expert's odds make of
the same speech stands beside it. A deception then shows: a lie that lowers the suspicion of a wolf by more than it
lowers an expert's. That words are to be judged by what they do to listeners: Zheng et al., The Stackelberg Speaker,
arXiv 2510.09087, and Sarkar et al., arXiv 2502.06060.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from pydantic import BaseModel, ConfigDict

from algo.belief.observed import SeatFacts, around_speeches, wolf_chance
from algo.evaluation.statistics import Estimate, mean_by_cluster
from configs.roles_and_decks import Side
from store.werewolf_study import Chances, NotedSpeech, StudySpan

Truth = Literal["true", "false", "none"]
"""Of a speech: all of its claims are true, one is not, or it claims nothing."""


@dataclass(frozen=True)
class Moved:
    """What one speech did to one listener's belief; differences of chances, after less before.

    at, seat: of the speech: events before it, its speaker. suspicion: of the speaker being a wolf. towards_reports: of
    the seats that it reports on, towards what it says of them; None without. expert_*: the same, of the expert's odds.
    """

    deal: int
    at: int
    seat: int
    speaker: SeatFacts
    listener: SeatFacts
    truth: Truth
    suspicion: float
    expert_suspicion: float
    towards_reports: float | None
    expert_towards_reports: float | None


class Persuasion(BaseModel):
    """Speeches of one kind as listeners heard them. pairs: of a speech and a listener. Means of what ``Moved`` says."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    speaker: str
    listener: str
    role: str
    truth: Truth
    pairs: int
    suspicion: Estimate
    expert_suspicion: Estimate
    towards_reports: Estimate | None
    expert_towards_reports: Estimate | None


def truth_of(speech: NotedSpeech, seats: Mapping[int, SeatFacts]) -> Truth:
    """Whether the role that a speech claims and the checks that it reports are true; those of no seat are not."""
    claims = [] if speech.claimed is None else [speech.claimed == seats[speech.seat].role]
    claims += [seat in seats and seats[seat].role.side == side for seat, side in speech.reports]
    return "none" if not claims else "true" if all(claims) else "false"


def moved(study: StudySpan, deal: int, seats: Mapping[int, SeatFacts]) -> Iterator[Moved]:
    """What the speeches of one game did to those of the good side who heard them and could be asked."""
    for speech, before, after in around_speeches(study):
        listener = before.seat
        if seats[listener].role.side is not Side.GOOD:
            continue
        if speech.seat not in (before.beliefs or {}) or speech.seat not in (after.beliefs or {}):
            continue  # last words: the dead are not asked about
        pairs = {
            "own": (before.beliefs or {}, after.beliefs or {}),
            "expert": (before.ceiling, after.ceiling),
        }
        suspicion = {who: _rise(*pair, speech.seat) for who, pair in pairs.items()}
        reports = {who: _towards(*pair, speech) for who, pair in pairs.items()}
        yield Moved(
            deal=deal,
            at=speech.at,
            seat=speech.seat,
            speaker=seats[speech.seat],
            listener=seats[listener],
            truth=truth_of(speech, seats),
            suspicion=suspicion["own"],
            expert_suspicion=suspicion["expert"],
            towards_reports=reports["own"],
            expert_towards_reports=reports["expert"],
        )


def persuasion(found: Iterable[Moved], seed: int) -> list[Persuasion]:
    """By speaker, listener, role and truth, in that order. seed: of the resampling of deals."""
    kinds: dict[tuple[str, str, str, Truth], list[Moved]] = defaultdict(list)
    for each in found:
        kinds[each.speaker.player, each.listener.player, each.speaker.role.value, each.truth].append(each)
    rows = []
    for (speaker, listener, role, truth), of_kind in sorted(kinds.items()):
        reporting = [each for each in of_kind if each.towards_reports is not None]

        def mean(name: str, among: list[Moved]) -> Estimate | None:
            values = [float(getattr(each, name)) for each in among]
            return mean_by_cluster([each.deal for each in among], values, seed) if among else None

        rows.append(
            Persuasion(
                speaker=speaker,
                listener=listener,
                role=role,
                truth=truth,
                pairs=len(of_kind),
                suspicion=mean("suspicion", of_kind),
                expert_suspicion=mean("expert_suspicion", of_kind),
                towards_reports=mean("towards_reports", reporting),
                expert_towards_reports=mean("expert_towards_reports", reporting),
            )
        )
    return rows


def _rise(before: Chances, after: Chances, seat: int) -> float:
    return wolf_chance(after[seat]) - wolf_chance(before[seat])


def _towards(before: Chances, after: Chances, speech: NotedSpeech) -> float | None:
    rises = [
        _rise(before, after, seat) * (1.0 if side == "wolf" else -1.0)
        for seat, side in speech.reports
        if seat in before and seat in after
    ]
    return sum(rises) / len(rises) if rises else None
