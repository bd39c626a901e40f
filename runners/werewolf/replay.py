"""Repeats a policy's recorded replies, so that a game can go on from a recorded decision (``store.werewolf.Past``).

The players build every prompt as in the recorded game, so a seat's sequence of tokens, and with it the server's prefix
cache, is that of the recorded game.
"""

from collections.abc import Sequence

from runners.errors import UnusableTask
from runners.policy.client import Completion, Sampler
from store.token_spans import context_digest
from store.werewolf import Past


class RepeatedReplies:
    """A sampler that repeats a seat's recorded replies, and then asks the server.

    The log-probs of repeated replies are 0.0, since they are not trained on.
    """

    def __init__(self, server: Sampler, past: Past, seat: int):
        self.model = server.model
        self._server = server
        self._replies = list(past.replies.get(seat, ()))
        self._prompts = [reply.prompt for reply in self._replies] + ([past.prompt] if seat == past.seat else [])
        self._seat = seat

    async def complete(self, prompt_ids: Sequence[int], max_tokens: int, seed: int) -> Completion:
        """The next recorded reply, else a sampled one. Raises UnusableTask for another prompt than the recorded one."""
        if self._prompts and self._prompts.pop(0) != context_digest(prompt_ids):
            raise UnusableTask(
                f"seat {self._seat} gets another prompt than in the recorded game: all runners of a run need the same "
                f"version"
            )
        if not self._replies:
            return await self._server.complete(prompt_ids, max_tokens, seed)
        reply = self._replies.pop(0)
        return Completion(reply.token_ids, (0.0,) * len(reply.token_ids), reply.finish_reason)
