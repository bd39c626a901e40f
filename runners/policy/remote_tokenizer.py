"""The policy's tokenizer where it is served: for a runner that has no copy of the model's files.

Text becomes token ids, and ids text, through vLLM's own ``/tokenize`` and ``/detokenize``. Chat template and added
vocabulary come from ``/tokenizer_info``, once: the vocabulary has to be known, or a player's words could be taken for
control tokens. The template is somebody else's program, and rendered as one (``runners.policy.foreign_template``).
vLLM offers that route only when started with ``--enable-tokenizer-info-endpoint``.
"""

import asyncio
import contextlib
from collections.abc import Sequence
from typing import Any

from jinja2 import TemplateError

from runners.errors import RouteRefused, UnusableTokenizer
from runners.policy.chat_tokens import ChatMessage, ChatTokens
from runners.policy.foreign_template import ForeignTemplate
from runners.policy.server import PolicyServer

INFO_ROUTE, TOKENIZE_ROUTE, DETOKENIZE_ROUTE = "/tokenizer_info", "/tokenize", "/detokenize"

_REMEDY = (
    f"start vLLM with --enable-tokenizer-info-endpoint, let a proxy before it forward {INFO_ROUTE}, {TOKENIZE_ROUTE} "
    f"and {DETOKENIZE_ROUTE}, or copy the model's tokenizer files here and name their folder with --tokenizer"
)
# Rendered here and there when the tokenizer is first used: a dialogue with everything that a game's has.
_SAMPLE: list[ChatMessage] = [
    {"role": "system", "content": "你是3号玩家，身份是预言家。"},
    {"role": "user", "content": "第1夜，请选择。"},
    {"role": "assistant", "content": "决定：5号"},
    {"role": "user", "content": "第1天，请发言。"},
]


class RemoteTokenizer:
    """A ``runners.policy.chat_tokens.Tokenizer`` behind vLLM; ``encode`` and ``decode`` are coroutines.

    info: what ``/tokenizer_info`` says. Raises ValueError for one without chat template or added vocabulary.
    """

    def __init__(self, server: PolicyServer, info: dict[str, Any]):
        template, added = info.get("chat_template"), info.get("added_tokens_decoder")
        if isinstance(template, dict):
            template = template.get("default")
        if not isinstance(template, str) or not isinstance(added, dict):
            raise ValueError("it has no chat template, or does not tell its added vocabulary")
        self._server = server
        self._added_vocabulary = {str(token): int(token_id) for token_id, token in added.items()}
        special = {name: token for name, token in info.items() if name.endswith("_token") and isinstance(token, str)}
        self.template = ForeignTemplate(template, special)

    def apply_chat_template(self, conversation: list[ChatMessage], tokenize: bool = False, **variables: Any) -> str:
        """Render messages as text, on this machine and as transformers does; see ``ForeignTemplate.render``."""
        assert not tokenize
        return self.template.render(messages=conversation, tools=None, documents=None, **variables)

    def get_added_vocab(self) -> dict[str, int]:
        """Added tokens with their ids."""
        return self._added_vocabulary

    async def encode(self, text: str, add_special_tokens: bool = False) -> list[int]:
        """Text to token ids."""
        return await self.tokenize({"prompt": text, "add_special_tokens": add_special_tokens})

    async def decode(self, token_ids: Sequence[int], skip_special_tokens: bool = False) -> str:
        """Token ids to text. ValueError if control tokens are to be skipped: vLLM always gives them."""
        if skip_special_tokens:
            raise ValueError(f"vLLM's {DETOKENIZE_ROUTE} cannot skip special tokens")
        return (await self._server.ask(DETOKENIZE_ROUTE, {"tokens": list(token_ids)}))["prompt"]

    async def tokenize(self, body: dict[str, Any]) -> list[int]:
        """Token ids of a prompt or of messages, as ``/tokenize`` takes them."""
        return (await self._server.ask(TOKENIZE_ROUTE, body))["tokens"]


async def remote_chat_tokens(server: PolicyServer, thinking: bool = False) -> ChatTokens:
    """The tokenizer of a policy, through its server.

    Raises UnusableTokenizer where the server does not offer what is needed, or renders messages otherwise than this
    machine does, so that ids are the same as with the tokenizer's files, or there are none.
    """
    try:
        with contextlib.ExitStack() as unless_usable:
            tokenizer = RemoteTokenizer(server, await server.ask(INFO_ROUTE))
            unless_usable.callback(tokenizer.template.close)
            loop, thread = asyncio.get_running_loop(), tokenizer.template.executor
            tokens = await loop.run_in_executor(thread, ChatTokens, tokenizer, thinking, thread)
            theirs = await tokenizer.tokenize(
                {
                    "messages": _SAMPLE,
                    "add_generation_prompt": True,
                    "add_special_tokens": False,
                    "chat_template_kwargs": {"enable_thinking": thinking, "thinking": thinking},
                }
            )
            ours = await tokens.first_prompt(_SAMPLE)
            if ours != theirs or _SAMPLE[0]["content"] not in await tokens.decode(ours):
                raise ValueError("messages become other tokens there than here, or tokens another text")
            unless_usable.pop_all()
    except RouteRefused as error:
        raise UnusableTokenizer(
            f"the policy's tokenizer is not on this machine, and its server does not offer it ({error}): {_REMEDY}"
        ) from error
    except (
        AttributeError,
        LookupError,
        TemplateError,
        TypeError,
        ValueError,
    ) as error:  # answers of another shape, too
        raise UnusableTokenizer(
            f"the tokenizer that the server at {server.endpoint} describes cannot be used: {error}"
        ) from error
    return tokens
