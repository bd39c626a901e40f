"""Probes seats' beliefs about other seats' roles at moments that the task sets.

Probes never enter a seat's conversation, and the game does not depend on them.
Probes of players' beliefs about roles follow Sarkar et al., Training Language Models for Social
Deduction with Multi-Agent Reinforcement Learning, arXiv 2502.06060.
"""

import asyncio
import random
from collections.abc import Mapping, Sequence

from runners.werewolf.brains.odds import role_odds
from runners.werewolf.game import SPEECHES, Decision, EventKind, GameState, Request, Role
from runners.werewolf.players import BeliefQuestion, Player
from store.werewolf_study import BeliefRecord, Chances, ProbeMoment, Study

_TO_LISTEN_TO = SPEECHES | {EventKind.VOTE}


def moment_of(requests: Sequence[Request]) -> ProbeMoment | None:
    """The moment of a probe before these requests, or None."""
    if any(request.is_public for request in requests):
        return "speech"
    return "vote" if any(request.decision is Decision.EXILE_VOTE for request in requests) else None


class BeliefProbes:
    """Belief probes of one game; ``look`` asks them when due. answers: so far."""

    def __init__(self, wanted: Study, players: Mapping[int, Player]):
        self._wanted = wanted
        self._players = players
        self.answers: list[BeliefRecord] = []

    async def look(self, state: GameState, requests: Sequence[Request]) -> None:
        """Probe every living seat before ``requests`` are asked. Raises errors of players."""
        moment = moment_of(requests)
        if moment in self._wanted.probes:
            self.answers += await asyncio.gather(*(self._ask(state, moment, seat) for seat in sorted(state.living)))

    async def _ask(self, state: GameState, moment: ProbeMoment, seat: int) -> BeliefRecord:
        known = tuple(event for event in state.events if event.visible_to(seat))
        others = sorted(state.living - {seat})
        if self._wanted.questions is not None:
            chance = random.Random(f"{state.seed}/questions/{len(state.events)}/{seat}")
            others = sorted(chance.sample(others, min(self._wanted.questions, len(others))))
        targets = tuple(others)
        question = BeliefQuestion(known, state.preset.deck, targets)
        believed = await self._players[seat].believe(question)
        odds = role_odds(known, seat, state.preset.deck)
        unheard = [event for event in known if event.kind not in _TO_LISTEN_TO]
        deaf = role_odds(unheard, seat, state.preset.deck)
        return BeliefRecord(
            at=len(state.events),
            day=state.day,
            moment=moment,
            seat=seat,
            beliefs=None if believed.chances is None else as_chances(believed.chances),
            mass=believed.mass,
            ceiling=as_chances({target: odds[target] for target in targets}),
            deaf=as_chances({target: deaf[target] for target in targets}),
            asked=believed.asked if self._wanted.with_tokens else (),
        )


def as_chances(odds: Mapping[int, Mapping[Role, float]]) -> Chances:
    """As they are stored."""
    return {seat: {role.value: float(chance) for role, chance in of_role.items()} for seat, of_role in odds.items()}
