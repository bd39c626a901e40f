"""A seat that a person plays in a browser: what its page shows, and what it answers.

The seat is an AgentScope player like any other: what its page knows is what the table told this player, so there is
nothing here that could show more.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

from agentscope.message import Msg

from runners.werewolf.game import Action, Event, Observation, Option, Preset, Request, choices, legal
from runners.werewolf.language.replies import clean_speech
from runners.werewolf.players import Decided, Player
from runners.werewolf.prompts_zh.names import REFEREE, choice_name
from runners.werewolf.prompts_zh.questions import render_question
from runners.werewolf.transcript import event_data
from runners.werewolf.web.views import ShownGame, shown

LONGEST_ANSWER = 4000


class UnusableTable(ValueError):
    """What was asked for cannot be done; the message says why."""


class NotYourTurn(RuntimeError):
    """The seat is not asked this any more; the page shows what is asked now."""


class Person(Player):
    """Answers what its page sends. clock_seconds: then the declared default is taken; 0 waits for ever."""

    def __init__(self, seat: int, clock_seconds: float, changed: Callable[[], None]):
        super().__init__(seat)
        self._clock = clock_seconds
        self._changed = changed
        self.known: list[Event] = []
        self.observation: Observation | None = None
        self.question = 0
        """Number of the question that is put, counted from 1; of the last one where none is."""
        self.deadline: float | None = None
        self._answer: asyncio.Future[Action] | None = None

    async def observe(self, msg: Msg | list[Msg] | None) -> None:
        """Hear an announcement, and show it at once."""
        before = len(self.heard)
        await super().observe(msg)
        self.known += self.heard[before:]
        self._changed()

    async def decide(self, observation: Observation) -> Decided:
        """Show the question, and wait for the page's answer or the clock."""
        request = observation.request
        if request is None:
            raise ValueError(f"{self.name} was asked without a request")
        self.heard.clear()
        self.observation, self.question = observation, self.question + 1
        self._answer = asyncio.get_running_loop().create_future()
        self.deadline = time.monotonic() + self._clock if self._clock else None
        self._changed()
        try:
            async with asyncio.timeout(self._clock or None):
                return Decided(await self._answer)
        except TimeoutError:
            return Decided(request.default, reasked=True, defaulted=True)
        finally:
            self._answer = self.deadline = None
            self._changed()

    @property
    def request(self) -> Request | None:
        """What the seat is asked now."""
        return None if self._answer is None or self._answer.done() else self.observation.request

    def answer(self, question: object, choice: object, text: object) -> None:
        """Take an answer. choice: number in the list of choices, None where nothing is chosen.

        Raises NotYourTurn for another question than the one that is put, UnusableTable for what is not legal.
        """
        request = self.request
        if request is None or question != self.question:
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
        self._changed()


class SeatView:
    """The page of one seat, opened by a secret link. Reading it tells that the person has come."""

    def __init__(self, preset: Preset, seat: int, clock_seconds: float, joined: Callable[[], None]):
        self.preset = preset
        self.seat = seat
        self._changed = asyncio.Event()
        self._versions = 0
        self.player = Person(seat, clock_seconds, self.notify)
        self._clock = clock_seconds
        self._joined = joined
        self.joined = False
        self.watchers = 0
        self.last_seen = time.monotonic()
        self.phase = "waiting"
        self.problem = ""
        self.result: str | None = None
        self.replay = ""

    def notify(self) -> None:
        """Something changed that this seat may see."""
        self._versions += 1
        self._changed.set()
        self._changed = asyncio.Event()

    def data(self) -> dict[str, Any]:
        """What the seat's page shows, JSON only: what this seat was told, and what it is asked."""
        events = tuple(event_data(event) for event in self.player.known)
        game = ShownGame("", "", self.preset.name, len(self.preset.seats), events, self.result)
        return {
            "seat": self.seat,
            "phase": self.phase,
            "problem": self.problem,
            "deck": sorted(role.value for role in self.preset.deck),
            "clock": self._clock,
            "game": shown(game, self.seat),
            "request": self._request_data(),
            "replay": self.replay,
        }

    def _request_data(self) -> dict[str, Any] | None:
        request = self.player.request
        if request is None:
            return None
        deadline = self.player.deadline
        return {
            "question": self.player.question,
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
            "left": None if deadline is None else max(0.0, round(deadline - time.monotonic(), 1)),
        }

    def answer(self, given: object) -> None:
        """Take what the page sent. Raises NotYourTurn and UnusableTable."""
        if not isinstance(given, dict):
            raise UnusableTable("an answer is an object with question, choice and text")
        self.player.answer(given.get("question"), given.get("choice"), given.get("text", ""))

    async def follow(self) -> AsyncIterator[dict[str, Any]]:
        """The page at once, and whenever something of it changed, until the game is over."""
        if not self.joined:
            self.joined = True
            self._joined()
        seen = -1
        self.watchers += 1
        try:
            while True:
                changed = self._changed
                if self._versions != seen:
                    seen = self._versions
                    data = self.data()
                    yield data
                    if data["phase"] in ("over", "failed"):  # as it was sent: it may have ended meanwhile
                        return
                    continue
                await changed.wait()
        finally:
            self.watchers -= 1
            self.last_seen = time.monotonic()
