"""The policy's tokenizer where it is served: for a runner that has no copy of the model's files.

Messages become token ids through vLLM's render route, words and ids through ``/tokenize`` and ``/detokenize``: the
template is somebody else's program, and runs on their machine. The added vocabulary comes from ``/tokenizer_info``,
once: it has to be known, or a player's words could be taken for control tokens. vLLM offers that route only when
started with ``--enable-tokenizer-info-endpoint``.
"""

from collections.abc import Mapping, Sequence

from runners.errors import RouteRefused, UnusableTokenizer
from runners.policy.chat_tokens import ChatMessage, ChatTokens, ControlTokens, opens_thought, template_variables
from runners.policy.served_template import DETOKENIZE_ROUTE, RENDER_ROUTE, ServedTemplate
from runners.policy.server import PolicyServer

INFO_ROUTE, TOKENIZE_ROUTE = "/tokenizer_info", "/tokenize"

_REMEDY = (
    f"start vLLM 0.28 with --enable-tokenizer-info-endpoint, let a proxy before it forward {RENDER_ROUTE}, "
    f"{INFO_ROUTE}, {TOKENIZE_ROUTE} and {DETOKENIZE_ROUTE}, or copy the model's tokenizer files here and "
    f"name their folder with --tokenizer"
)
_RULES, _QUESTION, _REPLY = "你是3号玩家，身份是预言家。", "第1夜，请选择。", "决定：5号"


class ServedTokens(ChatTokens):
    """The tokenizer of a policy, through its server: the same ids as with the tokenizer's files.

    All its methods raise RouteRefused and PolicyUnavailable.
    """

    def __init__(self, server: PolicyServer, added: Mapping[str, int], thinking: bool):
        """added: the added vocabulary, by text. Use ``of``, which also asks the server for the rest."""
        self._server = server
        self._template = ServedTemplate(server)
        self._variables = template_variables(thinking)
        self._control = ControlTokens(added)

    @classmethod
    async def of(cls, server: PolicyServer, thinking: bool = False) -> "ServedTokens":
        """Ask the server. Raises UnusableTokenizer where it does not offer what is needed, or nothing fits."""
        try:
            added = (await server.ask(INFO_ROUTE))["added_tokens_decoder"]
            tokens = cls(server, {str(token): int(token_id) for token_id, token in added.items()}, thinking)
            await tokens._learn()
        except RouteRefused as error:
            raise UnusableTokenizer(
                f"the policy's tokenizer is not on this machine, and its server does not offer it ({error}): {_REMEDY}"
            ) from error
        except (AttributeError, LookupError, TypeError, ValueError) as error:  # answers of another shape, too
            raise UnusableTokenizer(
                f"the tokenizer that the server at {server.endpoint} describes cannot be used: {error}"
            ) from error
        return tokens

    async def first_prompt(self, messages: Sequence[ChatMessage]) -> list[int]:
        """As of the files."""
        return await self._template.render(self._as_data(messages), self._variables)

    async def next_prompt(self, last_response: Sequence[int], messages: Sequence[ChatMessage]) -> list[int]:
        """As of the files."""
        last_id = last_response[-1] if last_response else None
        return await self._template.after_reply(last_id, self._as_data(messages), self._variables)

    async def decode(self, token_ids: Sequence[int]) -> str:
        """As of the files."""
        return await self._template.text(token_ids)

    async def _encode(self, text: str) -> list[int]:
        body = {"prompt": text, "add_special_tokens": False}
        return (await self._server.ask(TOKENIZE_ROUTE, body))["tokens"]

    async def _learn(self) -> None:
        """Find out what ends a reply and what begins it. Raises ValueError for a template that does not fit."""
        self.end_of_turn = await self._template.end_of_turn(self._variables)
        if self.end_of_turn not in self._control.ids.values():
            raise ValueError("the chat template marks the end of a reply with no control token")
        question: ChatMessage = {"role": "user", "content": _QUESTION}
        rules: ChatMessage = {"role": "system", "content": _RULES}
        prompt = await self.decode(await self.first_prompt([rules, question]))
        if _RULES not in prompt or _QUESTION not in prompt:
            raise ValueError("the chat template drops system prompts or questions, or changes their text")
        asking = await self.decode(await self.first_prompt([question]))
        answered = await self._template.render(
            [question, {"role": "assistant", "content": _REPLY}], self._variables, add_generation_prompt=False
        )
        self._control.check_head(asking, await self.decode(answered), _QUESTION, _REPLY)
        self._opens_thought = opens_thought(asking)
