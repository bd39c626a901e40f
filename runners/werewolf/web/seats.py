"""A seat that a person plays in a browser.

The seat is an AgentScope player: its page shows only what the table sent to this player.
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
    """An invalid request; the message says why."""


class NotYourTurn(RuntimeError):
    """The seat's question has changed."""


class AtTable(Protocol):
    """The part of ``tables.Table`` that a seat uses."""

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
    def person_joined(self) -> None: ...


class PacedPlayer(BrainPlayer):
    """A player without a model at a speed that people can follow.

    Only public questions are delayed, since delays of hidden ones would reveal who is asked.
    pace: mean delay in seconds; uniform from half to one and a half of it.
    """

    def __init__(self, seat: int, brain: Brain, pace: float):
        super().__init__(seat, brain)
        self._pace = pace

    async def decide(self, observation: Observation) -> Decided:
        """Wait, then ask the brain."""
        request = observation.request
        if request.is_public or request.decision in _VOTES:
            await asyncio.sleep(self._pace * random.uniform(0.5, 1.5))
        return await super().decide(observation)


class Seat(Player):
    """One seat; the person has joined when the page is read."""

    def __init__(self, seat: int, table: AtTable):
        super().__init__(seat)
        self.table = table
        self.known: list[Event] = []
        self.joined = False
        self.watchers = 0
        self.last_seen = time.monotonic()
        self._observation: Observation | None = None
        self._question = 0  # number of the current or last question, from 1
        self._deadline: float | None = None
        self._answer: asyncio.Future[Action] | None = None
        self._changed = asyncio.Event()

    def notify(self) -> None:
        """Wake the pages of this seat."""
        self._changed.set()
        self._changed = asyncio.Event()

    async def observe(self, msg: Msg | list[Msg] | None) -> None:
        """Receive an announcement, and show it."""
        before = len(self.heard)
        await super().observe(msg)
        self.known += self.heard[before:]
        self.notify()
        if any(event.kind is EventKind.NIGHT_FALLS for event in self.heard[before:]):
            await asyncio.sleep(self.table.nightfall)

    async def decide(self, observation: Observation) -> Decided:
        """Show the question, and wait for an answer; after the timeout take the default."""
        self.heard.clear()
        self._observation, self._question = observation, self._question + 1
        self._answer = asyncio.get_running_loop().create_future()
        self._deadline = time.monotonic() + self.table.clock if self.table.clock else None
        self.notify()
        try:
            await asyncio.wait([self._answer], timeout=self.table.clock or None)
            if self._answer.done():
                return Decided(self._answer.result())
            return Decided(observation.request.default, reasked=True, defaulted=True)
        finally:
            self._answer = self._deadline = None
            self.notify()

    @property
    def request(self) -> Request | None:
        """The pending request, or None."""
        return None if self._answer is None or self._answer.done() else self._observation.request

    def answer(self, given: object) -> None:
        """Accept an answer {question, choice, text}; choice is an index in the list of choices, or None.

        Raises NotYourTurn if another question is pending, UnusableTable for an illegal answer.
        """
        if not isinstance(given, dict):
            raise UnusableTable("an answer must be an object with question, choice and text")
        request, choice, text = self.request, given.get("choice"), given.get("text", "")
        if request is None or given.get("question") != self._question:
            raise NotYourTurn("this question has been answered or has timed out")
        offered = choices(request)
        if choice is not None and (type(choice) is not int or not 0 <= choice < len(offered)):
            raise UnusableTable(f"choose a number from 0 to {len(offered) - 1}")
        if not isinstance(text, str) or len(text) > LONGEST_ANSWER:
            raise UnusableTable(f"a speech must be a text of at most {LONGEST_ANSWER} characters")
        if choice is None and not request.may_pass:
            raise UnusableTable("a choice is required")
        chosen = None if choice is None else offered[choice]
        heard = "" if not request.speaks or chosen is Option.EXPLODE else clean_speech(text, request.speech_chars)
        action = Action(chosen, heard)
        if not legal(request, action):
            raise UnusableTable("the rules do not allow this answer")
        self._answer.set_result(action)
        self.notify()

    def data(self) -> dict[str, Any]:
        """The seat's page as JSON data: its events and its pending request."""
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
        """The page now, and after each change, until the game is over."""
        if not self.joined:
            self.joined = True
            self.table.person_joined()
        self.watchers += 1
        try:
            while True:
                changed, data = self._changed, self.data()
                yield data
                if data["phase"] in ("over", "failed"):  # the state that was sent
                    return
                await changed.wait()
        finally:
            self.watchers -= 1
            self.last_seen = time.monotonic()
