"""Records a demonstrator's decisions as turns of the policy, for the warm start.

The demonstrator decides; the policy's player (``runners.werewolf.players.PolicyPlayer``) builds the prompt. So a turn
holds exactly the tokens that the policy would receive in that seat, and the demonstrator's words as its reply.
"""

from collections.abc import Sequence
from dataclasses import replace

from agentscope.message import Msg

from runners.policy.chat_tokens import ChatTokens
from runners.policy.client import Completion
from runners.policy.model import TokenExactChatModel
from runners.werewolf.game import Observation
from runners.werewolf.language.replies import render_reply
from runners.werewolf.players import BeliefQuestion, Believed, Decided, Player, PolicyPlayer, Reminder
from store.schema import TokenLimits

DEFAULTED = "defaulted"
"""Error of a turn in which the demonstrator gave no valid reply, so that it is not imitated."""


class DemonstratedReplies:
    """A sampler that returns a given reply.

    Its log-probs are 0.0, since no policy sampled the reply.
    """

    model = "demonstration"

    def __init__(self, tokens: ChatTokens):
        self._tokens = tokens
        self.reply = ""

    async def complete(self, prompt_ids: Sequence[int], max_tokens: int, seed: int) -> Completion:
        """The reply and the end of its turn, truncated at ``max_tokens``."""
        token_ids = await self._tokens.encode_reply(self.reply)
        kept = tuple(token_ids[:max_tokens])
        return Completion(kept, (0.0,) * len(kept), "stop" if len(token_ids) <= max_tokens else "length")


class DemonstratingPlayer(PolicyPlayer):
    """A seat that plays its demonstrator's decisions.

    The game uses the recorded reply, so that conversation and game agree: a speech longer than the reply's token limit
    is truncated in both.
    """

    def __init__(
        self, demonstrator: Player, tokens: ChatTokens, limits: TokenLimits, system_prompt: str, reminder: Reminder
    ):
        self._replies = DemonstratedReplies(tokens)
        model = TokenExactChatModel(self._replies, tokens, limits, "")
        super().__init__(demonstrator.seat, model, system_prompt, reminder)
        self._demonstrator = demonstrator

    async def observe(self, msg: Msg | list[Msg] | None) -> None:
        await super().observe(msg)
        await self._demonstrator.observe(msg)

    async def believe(self, question: BeliefQuestion) -> Believed:
        """The demonstrator's belief, if it has one, with the question in the policy's tokens."""
        believed = await self._demonstrator.believe(question)
        return replace(believed, asked=await self.questions_in_tokens(question))

    async def decide(self, observation: Observation) -> Decided:
        request = observation.question
        shown = await self._demonstrator.decide(observation)
        self._replies.reply = render_reply(shown.action, request)
        decided = await super().decide(observation)
        if not shown.defaulted:
            return decided
        turns = tuple(replace(turn, error=DEFAULTED) for turn in decided.turns)
        return replace(decided, reasked=True, defaulted=True, turns=turns)
