"""A seat that a person plays in a browser: what its page shows, and what it answers.

The seat is an AgentScope player like any other: what its page knows is what the table told this player, so there is
nothing here that could show more.
"""

import asyncio
import random
import time
from collections.abc import AsyncGenerator
from typing import Any, Protocol

from agentscope.message import Msg

from runners.werewolf.brains import Brain
from runners.werewolf.game import (
    Action,
    Decision,
    Event,
    EventKind,
    Observation,
    Option,
    Preset,
    Request,
    choices,
    legal,
)
from runners.werewolf.language.replies import clean_speech
from runners.werewolf.players import BrainPlayer, Decided, Player
from runners.werewolf.prompts_zh.names import REFEREE, choice_name
from runners.werewolf.prompts_zh.questions import render_question
from runners.werewolf.transcript import event_data
from runners.werewolf.web.views import ShownGame, shown

LONGEST_ANSWER = 4000
_VOTES = (Decision.EXILE_VOTE, Decision.PK_VOTE, Decision.SHERIFF_VOTE, Decision.SHERIFF_PK_VOTE)


class UnusableTable(ValueError):
    """What was asked for cannot be done; the message says why."""


class NotYourTurn(RuntimeError):
    """The seat is not asked this any more; the page shows what is asked now."""


class AtTable(Protocol):
    """What a seat shows of its ``tables.Table``."""

    preset: Preset
    clock: float
    roles: dict[int, str]
    again: dict[str, Any]
    phase: str
    problem: str
    result: str | None
    replay: str

    @property
    def nightfall(self) -> float: ...
    def somebody_came(self) -> None: ...


class PacedPlayer(BrainPlayer):
    """A player without a model that people can follow: it takes a moment over what all know it is asked.

    Over nothing else, since how long a night or a hidden question takes would tell who is asked.
    pace: mean seconds of a moment, which is half of it to half as much again.
    """

    def __init__(self, seat: int, brain: Brain, pace: float):
        super().__init__(seat, brain)
        self._pace = pace

    async def decide(self, observation: Observation) -> Decided:
        """Take the moment, and ask the brain."""
        request = observation.request
        if request.is_public or request.decision in _VOTES:
            await asyncio.sleep(self._pace * random.uniform(0.5, 1.5))
        return await super().decide(observation)


class Seat(Player):
    """One seat; reading its page tells that the person has come."""

    def __init__(self, seat: int, table: AtTable):
        super().__init__(seat)
        self.table = table
        self.known: list[Event] = []
        self.joined = False
        self.watchers = 0
        self.last_seen = time.monotonic()
        self._observation: Observation | None = None
        self._question = 0  # number of the question that is put, from 1; of the last one where none is
        self._deadline: float | None = None
        self._answer: asyncio.Future[Action] | None = None
        self._changed = asyncio.Event()

    def notify(self) -> None:
        """Something changed that this seat may see."""
        self._changed.set()
        self._changed = asyncio.Event()

    async def observe(self, msg: Msg | list[Msg] | None) -> None:
        """Hear an announcement, and show it at once."""
        before = len(self.heard)
        await super().observe(msg)
        self.known += self.heard[before:]
        self.notify()
        if any(event.kind is EventKind.NIGHT_FALLS for event in self.heard[before:]):
            await asyncio.sleep(self.table.nightfall)

    async def decide(self, observation: Observation) -> Decided:
        """Show the question, and wait for the page's answer, or until the clock takes the declared default."""
        self.heard.clear()
        self._observation, self._question = observation, self._question + 1
        self._answer = asyncio.get_running_loop().create_future()
        self._deadline = time.monotonic() + self.table.clock if self.table.clock else None
        self.notify()
        try:
            async with asyncio.timeout(self.table.clock or None):
                return Decided(await self._answer)
        except TimeoutError:
            return Decided(observation.request.default, reasked=True, defaulted=True)
        finally:
            self._answer = self._deadline = None
            self.notify()

    @property
    def request(self) -> Request | None:
        """What the seat is asked now."""
        return None if self._answer is None or self._answer.done() else self._observation.request

    def answer(self, given: object) -> None:
        """Take what the page sent: {question, choice, text}; choice is a number in the list of choices, or None.

        Raises NotYourTurn for another question than the one that is put, UnusableTable for what is not legal.
        """
        if not isinstance(given, dict):
            raise UnusableTable("an answer is an object with question, choice and text")
        request, choice, text = self.request, given.get("choice"), given.get("text", "")
        if request is None or given.get("question") != self._question:
            raise NotYourTurn("this question has been answered, or its time was up")
        offered = choices(request)
        if choice is not None and (type(choice) is not int or not 0 <= choice < len(offered)):
            raise UnusableTable(f"choose a number from 0 to {len(offered) - 1}")
        if not isinstance(text, str) or len(text) > LONGEST_ANSWER:
            raise UnusableTable(f"a speech is a text of at most {LONGEST_ANSWER} characters")
        if choice is None and not request.may_pass:
            raise UnusableTable("something must be chosen")
        chosen = None if choice is None else offered[choice]
        heard = "" if not request.speaks or chosen is Option.EXPLODE else clean_speech(text, request.speech_chars)
        action = Action(chosen, heard)
        if not legal(request, action):
            raise UnusableTable("the rules do not allow this answer")
        self._answer.set_result(action)
        self.notify()

    def data(self) -> dict[str, Any]:
        """What the seat's page shows, JSON only: what this seat was told, and what it is asked."""
        table, preset = self.table, self.table.preset
        game = ShownGame(preset=preset.name, events=list(map(event_data, self.known)), result=table.result)
        return {
            "seat": self.seat,
            "phase": table.phase,
            "problem": table.problem,
            "deck": sorted(role.value for role in preset.deck),
            "clock": table.clock,
            "game": shown(game, self.seat) | {"seats": len(preset.seats)},
            "request": self._request_data(),
            "replay": table.replay,
            "roles": table.roles,
            "again": table.again,
        }

    def _request_data(self) -> dict[str, Any] | None:
        request = self.request
        if request is None:
            return None
        return {
            "question": self._question,
            "decision": request.decision.value,
            "text": render_question(request).removeprefix(REFEREE),
            "choices": [
                {"value": getattr(choice, "value", choice), "name": choice_name(choice, request.decision)}
                for choice in choices(request)
                if choice is not None
            ],
            "mayPass": request.may_pass,
            "passName": choice_name(None, request.decision) if request.may_pass else "",
            "speechChars": request.speech_chars,
            "subject": request.subject,
            "left": None if self._deadline is None else max(0.0, round(self._deadline - time.monotonic(), 1)),
        }

    async def follow(self) -> AsyncGenerator[dict[str, Any]]:
        """The page at once, and whenever something of it changed, until the game is over."""
        if not self.joined:
            self.joined = True
            self.table.somebody_came()
        self.watchers += 1
        try:
            while True:
                changed, data = self._changed, self.data()
                yield data
                if data["phase"] in ("over", "failed"):  # as it was sent: it may have ended meanwhile
                    return
                await changed.wait()
        finally:
            self.watchers -= 1
            self.last_seen = time.monotonic()
