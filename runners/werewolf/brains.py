"""Players that need no model: decisions as functions of what a seat was told, and a given generator.

A brain sees only Observations. These carry only what is new, so a brain remembers; asked again with the
same observation it learns nothing twice. Scripted players understand each other through the words of
public speeches alone, read with the patterns of ``prompts_zh``.
"""

import random
from collections import Counter
from collections.abc import Collection

from runners.werewolf.game import Action, Decision, Event, EventKind, Observation, Request, Side, choices
from runners.werewolf.prompts_zh import (
    ACCUSATION,
    CHECK_CLAIM,
    CHECK_NAMES,
    KILL_PROPOSAL,
    SEER_CLAIM,
    SMALL_TALK,
    say_accusation,
    say_following,
    say_kill_proposal,
    say_seer_claim,
)

FAKE_CLAIM_RATE = 0.3
"""How likely a wolf that no seer has named poses as the seer in a speech."""

_PUBLIC_SPEECHES = (EventKind.SPEECH, EventKind.PK_SPEECH, EventKind.LAST_WORDS)
_NAMED_SIDES = {name: side for side, name in CHECK_NAMES.items()}


class RandomBrain:
    """Picks every choice uniformly, choosing nobody included, and talks at random."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng

    def act(self, observation: Observation) -> Action:
        """A legal answer to ``observation.request``; ValueError without a request."""
        request = _request_of(observation)
        if not request.speaks:
            return Action(target=self._rng.choice(choices(request)))
        others = [seat for seat in observation.living if seat != observation.seat]
        lines = [*SMALL_TALK, *(say_accusation(seat) for seat in others)]
        return Action(text=self._rng.choice(lines))


class ScriptedBrain:
    """Plays sensibly: the seer reports, villagers follow a credible seer, wolves hide and hunt the seer."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._wolves: set[int] = set()  # known for sure; a wolf knows its team, a seer its finds
        self._cleared: set[int] = set()  # known for sure to be good: a seer's finds
        self._checks: list[tuple[int, int, Side]] = []  # what this seat claims: true checks, or a wolf's made-up ones
        self._claims: dict[int, dict[int, Side]] = {}  # seat that called itself seer -> its reports
        self._night_deaths: set[int] = set()
        self._accusations: set[tuple[int, int]] = set()  # heard today: (speaker, accused)
        self._proposals: set[int] = set()  # victims proposed by fellow wolves tonight
        self._suspect: int | None = None  # whom this seat accused today

    def act(self, observation: Observation) -> Action:
        """A legal answer to ``observation.request``; ValueError without a request."""
        request = _request_of(observation)
        for event in observation.events:
            self._learn(event, observation)
        match request.decision:
            case Decision.WOLF_TALK:
                return Action(text=say_kill_proposal(self._prey(observation, observation.living)))
            case Decision.WOLF_KILL:
                return Action(target=self._prey(observation, request.targets))
            case Decision.SEER_CHECK:
                return Action(target=self._unchecked(request.targets))
            case Decision.EXILE_VOTE | Decision.PK_VOTE:
                return Action(target=self._vote(observation, request))
            case Decision.SPEECH | Decision.PK_SPEECH | Decision.LAST_WORDS:
                return Action(text=self._speech(observation))

    # --- what it learns -----------------------------------------------------------------------------------------------

    def _learn(self, event: Event, observation: Observation) -> None:
        match event.kind:
            case EventKind.NIGHT_FALLS:
                self._accusations.clear()
                self._proposals.clear()
                self._suspect = None
            case EventKind.WOLF_TEAM:
                self._wolves.update(_seats(event))
            case EventKind.WOLF_SAYS if event.seat != observation.seat:
                self._proposals.update(int(seat) for seat in KILL_PROPOSAL.findall(event.text))
            case EventKind.SEER_RESULT:
                side = Side(event.data["side"])
                (self._wolves if side is Side.WOLF else self._cleared).add(event.target)
                if (report := (event.day, event.target, side)) not in self._checks:
                    self._checks.append(report)
            case EventKind.DEATHS_ANNOUNCED:
                self._night_deaths.update(_seats(event))
            case kind if kind in _PUBLIC_SPEECHES and event.seat != observation.seat:
                self._listen(event.seat, event.text)

    def _listen(self, speaker: int, text: str) -> None:
        self._accusations.update((speaker, int(seat)) for seat in ACCUSATION.findall(text))
        if SEER_CLAIM in text:
            reports = self._claims.setdefault(speaker, {})
            for _day, target, found in CHECK_CLAIM.findall(text):
                reports[int(target)] = _NAMED_SIDES[found]

    # --- whom it believes ---------------------------------------------------------------------------------------------

    def _believed_seer(self, observation: Observation) -> int | None:
        """The seer claim that a good seat other than the seer follows, if any stands out."""
        credible = {
            seat: reports
            for seat, reports in self._claims.items()
            # It knows itself to be good.
            if reports.get(observation.seat) is not Side.WOLF
        }
        killed = [seat for seat in credible if seat in self._night_deaths]
        if killed:  # Wolves seldom kill their own.
            return killed[0]
        # Between rival claims it cannot tell; the one that named a wolf first put more at stake.
        bold = [seat for seat, reports in credible.items() if Side.WOLF in reports.values()]
        return next(iter(bold or credible), None)

    def _suspects(self, observation: Observation, targets: Collection[int]) -> list[int]:
        """Those of ``targets`` that it would like to see exiled, all alike; empty if it would spare everyone."""
        if observation.side is Side.WOLF:
            prey = [seat for seat in targets if seat not in self._wolves]
            framed = [seat for seat in prey if any(target == seat for _, target, _ in self._checks)]
            seers = [seat for seat in prey if seat in self._claims]
            return framed or seers or self._most_accused(prey)
        known = [seat for seat in targets if seat in self._wolves]
        if known:
            return known
        if self._checks:  # The seer: whoever else claims to be it lies.
            liars = [seat for seat in targets if seat in self._claims]
            return liars or [seat for seat in targets if seat not in self._cleared]
        seer = self._believed_seer(observation)
        reports = self._claims.get(seer, {}) if seer is not None else {}
        named = [seat for seat in targets if reports.get(seat) is Side.WOLF]
        rivals = [seat for seat in targets if seat in self._claims and seat != seer]
        unclear = [seat for seat in targets if seat != seer and seat not in reports]
        return named or rivals or unclear

    def _most_accused(self, seats: Collection[int]) -> list[int]:
        """Votes count only together, so players join the accusation heard most often."""
        heard = Counter(accused for _, accused in self._accusations)
        most = max((heard[seat] for seat in seats), default=0)
        return [seat for seat in seats if heard[seat] == most]

    # --- what it does -------------------------------------------------------------------------------------------------

    def _prey(self, observation: Observation, targets: Collection[int]) -> int | None:
        prey = [seat for seat in targets if seat not in self._wolves and seat != observation.seat]
        proposed = [seat for seat in prey if seat in self._proposals]
        seers = [seat for seat in prey if seat in self._claims]
        vouched = [seat for seat in prey if any(reports.get(seat) is Side.GOOD for reports in self._claims.values())]
        return self._rng.choice(proposed or seers or vouched or prey)

    def _unchecked(self, targets: Collection[int]) -> int | None:
        unknown = [seat for seat in targets if seat not in self._wolves | self._cleared]
        return self._rng.choice(unknown) if unknown else None

    def _vote(self, observation: Observation, request: Request) -> int | None:
        suspects = self._suspects(observation, request.targets)
        if self._suspect in suspects:
            return self._suspect
        if suspects:
            return self._rng.choice(self._most_accused(suspects))
        return self._rng.choice(choices(request)) if not request.may_pass else None

    def _speech(self, observation: Observation) -> str:
        if observation.side is Side.WOLF:
            self._maybe_pose_as_seer(observation)
        if self._checks:
            return say_seer_claim(self._checks)
        others = [seat for seat in observation.living if seat != observation.seat]
        suspects = self._suspects(observation, others)
        if not suspects:
            return self._rng.choice(SMALL_TALK)
        self._suspect = self._rng.choice(self._most_accused(suspects))
        seer = None if observation.side is Side.WOLF else self._believed_seer(observation)
        if seer is not None and self._claims[seer].get(self._suspect) is Side.WOLF:
            return say_following(seer, self._suspect)
        return say_accusation(self._suspect)

    def _maybe_pose_as_seer(self, observation: Observation) -> None:
        exposed = any(reports.get(observation.seat) is Side.WOLF for reports in self._claims.values())
        if any(day == observation.day for day, _, _ in self._checks):
            return
        if not self._checks and not exposed and self._rng.random() >= FAKE_CLAIM_RATE:
            return
        framed = {target for _, target, _ in self._checks}
        victims = [seat for seat in observation.living if seat not in self._wolves | framed]
        rivals = [seat for seat in victims if seat in self._claims]
        if victims:
            self._checks.append((observation.day, self._rng.choice(rivals or victims), Side.WOLF))


def _request_of(observation: Observation) -> Request:
    if observation.request is None:
        raise ValueError(f"seat {observation.seat} is not asked anything")
    return observation.request


def _seats(event: Event) -> list[int]:
    return [int(seat) for seat in event.data["seats"].split(",") if seat]
