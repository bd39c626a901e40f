"""Players whose decisions are written down as turns of the policy: what a warm start learns from.

The demonstrator decides; the policy's own player (``runners.werewolf.players.PolicyPlayer``) asks. So a turn holds the
very tokens that the policy would have been sent in that seat, and as its reply those of the demonstrator's words.
"""

from collections.abc import Sequence
from dataclasses import replace

from agentscope.message import Msg

from runners.policy.chat_tokens import ChatTokens
from runners.policy.client import Completion
from runners.policy.model import TokenExactChatModel
from runners.werewolf.game import Observation
from runners.werewolf.language.replies import render_reply
from runners.werewolf.players import BeliefQuestion, Believed, Decided, Player, PolicyPlayer
from store.schema import TokenLimits

DEFAULTED = "defaulted"
"""Error of a turn whose demonstrator gave no usable reply itself, so that there is nothing to learn from it."""


class DemonstratedReplies:
    """Stands where a policy's server does: what it "samples" is the reply that was put there.

    Its log-probs are all 0.0: no policy sampled the reply.
    """

    model = "demonstration"

    def __init__(self, tokens: ChatTokens):
        self._tokens = tokens
        self.reply = ""

    async def complete(self, prompt_ids: Sequence[int], max_tokens: int, seed: int) -> Completion:
        """The reply and the end of its turn; cut like any other where it is longer than a reply may be."""
        token_ids = await self._tokens.encode_reply(self.reply)
        kept = tuple(token_ids[:max_tokens])
        return Completion(kept, (0.0,) * len(kept), "stop" if len(token_ids) <= max_tokens else "length")


class DemonstratingPlayer(PolicyPlayer):
    """A seat that plays what its demonstrator decides, as far as the policy could have said it.

    The seat does what the recorded reply says, so that the recorded conversation and the game never disagree: a speech
    that does not fit the reply's token limit is heard as far as it fits, and recorded as cut.
    """

    def __init__(self, demonstrator: Player, tokens: ChatTokens, limits: TokenLimits, system_prompt: str):
        self._replies = DemonstratedReplies(tokens)
        super().__init__(demonstrator.seat, TokenExactChatModel(self._replies, tokens, limits, ""), system_prompt)
        self._demonstrator = demonstrator

    async def observe(self, msg: Msg | list[Msg] | None) -> None:
        """Hear an announcement, and let the demonstrator hear it."""
        await super().observe(msg)
        await self._demonstrator.observe(msg)

    async def believe(self, question: BeliefQuestion) -> Believed | None:
        """What the demonstrator believes, if it can be asked, with the question as the policy would be asked it."""
        believed = await self._demonstrator.believe(question) or Believed(None)
        return replace(believed, asked=await self.questions_in_tokens(question))

    async def decide(self, observation: Observation) -> Decided:
        """Let the demonstrator decide, then ask as the policy is asked and answer in the demonstrator's words."""
        request = observation.question
        shown = await self._demonstrator.decide(observation)
        self._replies.reply = render_reply(shown.action, request)
        decided = await super().decide(observation)
        if not shown.defaulted:
            return decided
        turns = tuple(replace(turn, error=DEFAULTED) for turn in decided.turns)
        return replace(decided, reasked=True, defaulted=True, turns=turns)
