"""A policy, trained or frozen, as an AgentScope chat model: called with token ids, answering with token ids.

One instance is one seat of one game. It holds the seat's growing sequence of token ids, sends it
whole to vLLM's completions endpoint (whose prefix cache has seen nearly all of it before), and keeps
for every call exactly what was added, what was sampled and with which log-probs.
"""

import hashlib
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from agentscope.message import TextBlock
from agentscope.model import ChatModelBase, ChatResponse

from runners.errors import PolicyUnavailable, RouteRefused
from runners.policy.chat_tokens import ChatMessage, ChatTokens
from runners.policy.transport import NoAnswer, Refused, Transport
from runners.policy.word_log_probs import word_log_probs
from store.schema import TokenLimits
from store.token_spans import context_digest

POLICY_VERSION_HEADER = "x-policy-version"
"""Response header by which a server says which version of the weights sampled a completion."""

POLICY_PATIENCE_SECONDS = 10.0


class ContextFull(Exception):
    """The next turn does not fit the seat's context budget; nothing was sent."""


@dataclass(frozen=True, slots=True)
class SampledTurn:
    """One call in tokens; the fields mean what they mean in ``store.werewolf.TurnSpan``.

    policy_version: None where the server does not say.
    """

    segment: int
    context_tokens: int
    context_digest: str
    prompt_ids: tuple[int, ...]
    response_ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    finish_reason: str
    started: float
    ended: float
    policy_version: int | None = None


@dataclass(frozen=True, slots=True)
class Completion:
    """What the server sampled: ids, one log-prob for each (natural logarithm), and why it stopped.

    policy_version: of the weights that sampled it; None where the server does not say (``POLICY_VERSION_HEADER``).
    """

    token_ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    finish_reason: str
    policy_version: int | None = None


@dataclass(frozen=True, slots=True)
class AskedPrompt:
    """A prompt that was asked about and not answered; the fields mean what they mean in ``SampledTurn``."""

    segment: int
    context_tokens: int
    prompt_ids: tuple[int, ...]


class Sampler(Protocol):
    """What gives a reply for a prompt of token ids."""

    model: str

    async def complete(self, prompt_ids: Sequence[int], max_tokens: int, seed: int) -> Completion:
        """One reply of at most ``max_tokens`` tokens."""


class PolicyServer:
    """vLLM's completions endpoint, spoken to in token ids. One instance serves a whole runner process.

    stop_token_ids: tokens that end a reply, beside the model's own end of text: a base model's is not the one with
        which its chat template ends a turn.
    patience_seconds: how long about a server is asked again that refuses connections or answers with an error of its
        own: one that has died is started again by the algorithm, and the game goes on where it was.
    """

    def __init__(
        self, endpoint: str, model: str, temperature: float, patience_seconds: float = POLICY_PATIENCE_SECONDS
    ):
        self.endpoint = endpoint
        self.model = model
        self.stop_token_ids: tuple[int, ...] = ()
        self._temperature = temperature
        self._transport = Transport(patience_seconds)

    async def complete(
        self, prompt_ids: Sequence[int], max_tokens: int, seed: int, stop: Sequence[str] = ()
    ) -> Completion:
        """Sample one reply. Raises PolicyUnavailable when no usable answer comes after bounded retries.

        stop: texts that end a reply, beside the tokens that do; their tokens are sampled ones, too.
        """
        body = {
            "model": self.model,
            "prompt": list(prompt_ids),
            "max_tokens": max_tokens,
            "temperature": self._temperature,
            # Said explicitly: a server's own defaults (a model folder's top_k, say) would change the distribution.
            "top_p": 1.0,
            "top_k": -1,
            "min_p": 0.0,
            "repetition_penalty": 1.0,
            "stop_token_ids": list(self.stop_token_ids),
            "seed": seed,
            "logprobs": 0,
            "return_token_ids": True,
        }
        if stop:
            body["stop"] = list(stop)
        try:
            answer, headers = await self._transport.send("POST", f"{self.endpoint.rstrip('/')}/completions", body)
            choice = answer["choices"][0]
            if not isinstance(choice, dict):
                raise TypeError("no choice")
        except NoAnswer as error:
            raise PolicyUnavailable(
                f"no answer from the policy's server at {self.endpoint} ({error}). Is vLLM running, and reachable "
                f"from this machine? The algorithm's log says where it started it"
            ) from error
        except Refused as error:
            raise PolicyUnavailable(f"the policy's server at {self.endpoint} refused a request: {error}") from error
        except (LookupError, TypeError, ValueError) as error:
            raise PolicyUnavailable(f"the server at {self.endpoint} answers otherwise than vLLM does") from error
        return self._read(choice, prompt_ids, headers.get(POLICY_VERSION_HEADER))

    async def model_folder(self) -> str:
        """The folder (or hub name) that the server loaded the policy from."""
        folder = (await self._model_card()).get("root")
        if not folder:
            raise PolicyUnavailable(f"the server at {self.endpoint} does not say where its model lies")
        return str(folder)

    async def context_tokens(self) -> int:
        """The most tokens that one call may have, prompt plus reply."""
        limit = (await self._model_card()).get("max_model_len")
        if not limit:
            raise PolicyUnavailable(f"the server at {self.endpoint} does not say how long its model's context is")
        return int(limit)

    async def ask(self, route: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        """The JSON answer of a route that vLLM has beside ``/v1``; GET without a body, else POST.

        Raises RouteRefused for a route that is not there for us, PolicyUnavailable when no answer comes.
        """
        url = self.endpoint.rstrip("/").removesuffix("/v1") + route
        try:
            if body is None:
                answer, _ = await self._transport.send("GET", url)
            else:
                answer, _ = await self._transport.send("POST", url, {"model": self.model, **body})
        except NoAnswer as error:
            raise PolicyUnavailable(f"no answer from {url} ({error})") from error
        except Refused as error:
            raise RouteRefused(f"{url} answers {error.status}", error.status, error.detail) from error
        except ValueError as error:
            raise RouteRefused(f"{url} answers something that is not JSON") from error
        return answer

    async def _model_card(self) -> dict[str, Any]:
        url = f"{self.endpoint.rstrip('/')}/models"
        try:
            answer, _ = await self._transport.send("GET", url)
            models = {str(model["id"]): model for model in answer["data"]}
        except (NoAnswer, Refused, LookupError, TypeError, ValueError) as error:
            raise PolicyUnavailable(f"no model list from the policy's server at {self.endpoint} ({error})") from error
        if self.model in models:
            return models[self.model]
        served = ", ".join(models)
        raise PolicyUnavailable(f"the server at {self.endpoint} serves {served or 'nothing'}, not {self.model!r}")

    async def close(self) -> None:
        """Close the connections."""
        await self._transport.close()

    def _read(self, choice: dict[str, Any], prompt_ids: Sequence[int], version: str | None = None) -> Completion:
        token_ids, returned_prompt = choice.get("token_ids"), choice.get("prompt_token_ids")
        logprobs = (choice.get("logprobs") or {}).get("token_logprobs")
        if token_ids is None or returned_prompt is None or logprobs is None:
            raise PolicyUnavailable(
                f"the server at {self.endpoint} returns no token ids with log-probs; serve the policy with vLLM 0.28"
            )
        if list(returned_prompt) != list(prompt_ids):
            raise PolicyUnavailable(f"the server at {self.endpoint} changed the prompt's token ids")
        if len(logprobs) != len(token_ids):
            raise PolicyUnavailable(
                f"the server at {self.endpoint} returned {len(token_ids)} tokens with {len(logprobs)} log-probs"
            )
        finish_reason = choice.get("finish_reason")
        if finish_reason not in ("stop", "length") or not token_ids:
            raise PolicyUnavailable(
                f"the server at {self.endpoint} broke off a reply (finish reason {finish_reason!r}, {len(token_ids)} "
                f"tokens); was it paused or stopped?"
            )
        if version is not None and not version.isdecimal():
            raise PolicyUnavailable(
                f"the server at {self.endpoint} gives its policy's version as {version!r}, which is no number"
            )
        return Completion(tuple(token_ids), tuple(logprobs), finish_reason, None if version is None else int(version))


class TokenExactChatModel(ChatModelBase):
    """An AgentScope chat model whose conversation is one append-only list of token ids.

    Called, as any AgentScope model, with the whole conversation. As long as that extends the
    previous call's (its messages, then the reply, then new messages), only the new messages are
    encoded. Any other conversation starts a new segment.
    """

    def __init__(self, server: Sampler, tokens: ChatTokens, limits: TokenLimits, sampling_key: str):
        """sampling_key: with the call's number it seeds the sampling, so that a game can be replayed."""
        super().__init__(server.model, stream=False)
        self._server = server
        self._tokens = tokens
        self._limits = limits
        self._sampling_key = sampling_key
        self._conversation: list[ChatMessage] = []
        self._ids: list[int] = []
        self._last_response: tuple[int, ...] = ()
        self._calls = 0
        self._segment = -1

    async def __call__(self, messages: list[ChatMessage], *args: Any, **kwargs: Any) -> ChatResponse:
        """Sample a reply. ``metadata["sampled"]`` of the response is the call's ``SampledTurn``.

        Raises ContextFull before anything is sent if prompt plus reply would pass the budget, and
        PolicyUnavailable if the server does not answer.
        """
        context, prompt_ids = await self._prompt(messages)
        excess = self._excess(context, prompt_ids, self._limits.context_tokens)
        if excess > 0:
            raise ContextFull(
                f"{len(context)} + {len(prompt_ids)} prompt tokens and a reply of {self._limits.reply_tokens} "
                f"pass the budget of {self._limits.context_tokens} by {excess}"
            )
        started = time.time()
        completion = await self._server.complete(
            [*context, *prompt_ids], self._limits.reply_tokens, seed_of(f"{self._sampling_key}/{self._calls}")
        )
        ended = time.time()
        self._calls += 1
        self._segment += 0 if context else 1
        sampled = SampledTurn(
            segment=self._segment,
            context_tokens=len(context),
            context_digest=context_digest(context),
            prompt_ids=tuple(prompt_ids),
            response_ids=completion.token_ids,
            logprobs=completion.logprobs,
            finish_reason=completion.finish_reason,
            started=started,
            ended=ended,
            policy_version=completion.policy_version,
        )
        text = await self._tokens.decode_reply(completion.token_ids)
        self._ids = [*context, *prompt_ids, *completion.token_ids]
        self._last_response = completion.token_ids
        self._conversation = [*messages, {"role": "assistant", "content": text}]
        return ChatResponse(
            content=[TextBlock(type="text", text=text)],
            metadata={"sampled": sampled},
        )

    async def word_log_probs(
        self, conversations: Sequence[list[ChatMessage]], words: Sequence[Sequence[int]]
    ) -> tuple[list[AskedPrompt], list[list[float]]]:
        """How likely each of ``words`` would be as the reply to each conversation; nothing of it is remembered.

        words: token ids (``encode_words``). Returns what was asked, and for each the words' log-probs
        (``runners.policy.word_log_probs``). Raises ContextFull before anything is sent, and what that raises.
        """
        asked = []
        for messages in conversations:
            context, prompt_ids = await self._prompt(messages)
            if (excess := self._excess(context, prompt_ids, self._limits.context_tokens)) > 0:
                raise ContextFull(f"a question beside the game passes the budget by {excess} tokens")
            segment = self._segment if context else self._segment + 1
            asked.append(AskedPrompt(segment, len(context), tuple(prompt_ids)))
        prompts = [[*self._ids[: prompt.context_tokens], *prompt.prompt_ids] for prompt in asked]
        return asked, await word_log_probs(self._server, prompts, words)

    async def encode_words(self, text: str) -> tuple[int, ...]:
        """Token ids of a reply's first words, without the end of its turn."""
        return tuple((await self._tokens.encode_reply(text))[:-1])

    async def excess(self, messages: list[ChatMessage], share: float = 1.0) -> int:
        """Tokens by which a call with ``messages`` would pass ``share`` of the budget; not above 0 where it would not.

        Sends nothing.
        """
        return self._excess(*await self._prompt(messages), int(share * self._limits.context_tokens))

    def _excess(self, context: list[int], prompt_ids: list[int], budget: int) -> int:
        return len(context) + len(prompt_ids) + self._limits.reply_tokens - budget

    async def _prompt(self, messages: list[ChatMessage]) -> tuple[list[int], list[int]]:
        """(ids known already, ids to add); none are known where ``messages`` do not extend the last call's."""
        known = len(self._conversation)
        if known > 0 and messages[:known] == self._conversation:
            return self._ids, await self._tokens.next_prompt(self._last_response, messages[known:])
        return [], await self._tokens.first_prompt(messages)


def seed_of(key: str) -> int:
    """A 31-bit seed that follows from a name, the same on every machine."""
    return int.from_bytes(hashlib.blake2b(key.encode(), digest_size=4).digest(), "big") >> 1
