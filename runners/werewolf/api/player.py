"""A seat played by a model that is not trained, called by messages through AgentScope's multi-agent formatter.

The formatter writes the history of all speakers into one user message between <history> tags, a line ``who: what``
each: a speech of seat 3 under ``3号发言``, the referee's lines under its name, in the words of ``prompts_zh.record``.
The seat's own replies appear as events only, so the model sees neither their form nor its thoughts again. The question
follows the history in the same message, since many chat templates reject two messages of one role in a row. Contents
are plain strings, which every compatible endpoint accepts. Prompts of one seat share a prefix, for a provider's cache.
"""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from agentscope.message import Msg

from runners.werewolf.game import Event, Observation
from runners.werewolf.language.replies import ReplyError, parse_reply
from runners.werewolf.players import NO_REMINDER, Decided, Player, Reminder, log_refusal
from runners.werewolf.prompts_zh.history import answer_line, said_lines
from runners.werewolf.prompts_zh.questions import render_question, render_reply_error
from runners.werewolf.prompts_zh.record import RECAP_SPEECH_CHARS, render_events, render_recap

if TYPE_CHECKING:
    from runners.werewolf.api.models import ApiModel

_Line = tuple[str, str]
"""(who, what)"""


class ApiPlayer(Player):
    """Calls ``model`` once per decision, and once more after an invalid reply.

    ``model.endpoint.history_chars`` bounds the history: in a longer one, all events but the latest become a recap, and
    later events are added in full. Decisions leave no turns, since there are no token ids.
    reminder: ends each question, made of the known events.
    """

    def __init__(self, seat: int, model: "ApiModel", system_prompt: str, reminder: Reminder = NO_REMINDER):
        super().__init__(seat)
        self._model, self._reminder = model, reminder
        self._system = Msg("system", system_prompt, "system")
        self._known: list[Event] = []
        self._recapped = 0
        """Number of known events in the recap."""
        self._recap_speech_chars = RECAP_SPEECH_CHARS

    async def decide(self, observation: Observation) -> Decided:
        """Ask, parse, and re-ask at most once. Raises EndpointUnavailable if the model is unreachable."""
        request = observation.question
        news, self.heard = self.heard, []
        self._known += news
        history = list(said_lines(self._history(len(news))))
        reminder = self._reminder(self._known)
        question = render_question(request) + reminder
        for is_reask in (False, True):
            reply = await self._model.reply(await self._messages(history, question))
            try:
                return Decided(parse_reply(reply.text, request, cut=reply.cut), reasked=is_reask)
            except ReplyError as error:
                log_refusal(self.name, request.decision, error, reply.text)
                history += [*said_lines(question), answer_line(self.seat, reply.text)]
                question = render_reply_error(error, request) + reminder
        return Decided(request.default, reasked=True, defaulted=True)

    def _history(self, news: int) -> str:
        """The game so far, within the bound if a recap suffices. news: number of new events."""
        limit, known = self._model.endpoint.history_chars, len(self._known)
        for recapped, speech_chars in (
            (self._recapped, self._recap_speech_chars),
            (known - news, RECAP_SPEECH_CHARS),
            (known, RECAP_SPEECH_CHARS),
            (known, 0),
        ):
            recap = render_recap(self._known[:recapped], self.seat, speech_chars) if recapped else ""
            history = "\n".join(part for part in (recap, render_events(self._known[recapped:])) if part)
            if len(history) <= limit:
                break
        self._recapped, self._recap_speech_chars = recapped, speech_chars
        return history

    async def _messages(self, history: Iterable[_Line], question: str) -> list[dict[str, str]]:
        heard = [Msg(who, what, "user") for who, what in history]
        system, *conversation = await self._model.formatter.format([self._system, *heard])
        parts = [*(_text(message["content"]) for message in conversation), question]
        return [
            {"role": "system", "content": _text(system["content"])},
            {"role": "user", "content": "\n".join(parts)},
        ]


def _text(content: str | Sequence[dict[str, str]]) -> str:
    """A formatted message's content: text, or blocks of text."""
    return content if isinstance(content, str) else "\n".join(block["text"] for block in content)
