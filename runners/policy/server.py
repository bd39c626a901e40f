"""A policy's server, spoken to in token ids: what it samples, and what else it is asked."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from runners.addresses import Addresses, CheckedResolver
from runners.errors import PolicyUnavailable, RouteRefused
from runners.policy.transport import NoAnswer, Refused, Transport

POLICY_VERSION_HEADER = "x-policy-version"
"""Response header by which a server says which version of the weights sampled a completion, at least its beginning."""

POLICY_VERSION_UNTIL_HEADER = "x-policy-version-until"
"""Response header of a completion in whose midst new weights came: the version that may have sampled its end."""

POLICY_PATIENCE_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class Completion:
    """What the server sampled: ids, one log-prob for each (natural logarithm), and why it stopped.

    policy_version: of the weights that sampled it; None where the server does not say (``POLICY_VERSION_HEADER``).
    version_until: where new weights came in its midst, their version (``POLICY_VERSION_UNTIL_HEADER``).
    """

    token_ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    finish_reason: str
    policy_version: int | None = None
    version_until: int | None = None


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
    addresses: that may be connected to.
    """

    def __init__(
        self,
        endpoint: str,
        model: str,
        temperature: float,
        addresses: Addresses,
        patience_seconds: float = POLICY_PATIENCE_SECONDS,
    ):
        self.endpoint = endpoint
        self.model = model
        self.stop_token_ids: tuple[int, ...] = ()
        self._temperature = temperature
        self._transport = Transport(patience_seconds, CheckedResolver(addresses, endpoint))

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
            answer, headers = await self._send("POST", "/v1/completions", body)
            choice = answer["choices"][0]
            if not isinstance(choice, dict):
                raise TypeError("no choice")
        except RouteRefused as error:
            raise PolicyUnavailable(f"the policy's server refused a request: {error} {error.detail}") from error
        except (LookupError, TypeError) as error:
            raise PolicyUnavailable(f"the server at {self.endpoint} answers otherwise than vLLM does") from error
        versions = headers.get(POLICY_VERSION_HEADER), headers.get(POLICY_VERSION_UNTIL_HEADER)
        return self._read(choice, prompt_ids, *versions)

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
        sent = None if body is None else {"model": self.model, **body}
        answer, _ = await self._send("GET" if body is None else "POST", route, sent)
        return answer

    async def _send(self, method: str, route: str, body: dict[str, Any] | None = None) -> tuple[Any, Mapping[str, str]]:
        """(JSON, headers) of an answer. Raises RouteRefused and PolicyUnavailable."""
        url = self.endpoint.rstrip("/").removesuffix("/v1") + route
        try:
            return await self._transport.send(method, url, body)
        except NoAnswer as error:
            raise PolicyUnavailable(
                f"no answer from {url} ({error}). Is vLLM running, and reachable from this machine? The algorithm's "
                f"log says where it started it"
            ) from error
        except Refused as error:
            raise RouteRefused(f"{url} answers {error.status}", error.status, error.detail) from error
        except ValueError as error:
            raise RouteRefused(f"{url} answers something that is not JSON") from error

    async def _model_card(self) -> dict[str, Any]:
        try:
            answer, _ = await self._send("GET", "/v1/models")
            models = {str(model["id"]): model for model in answer["data"]}
        except (RouteRefused, LookupError, TypeError) as error:
            raise PolicyUnavailable(f"no model list from the policy's server at {self.endpoint} ({error})") from error
        if self.model in models:
            card = models[self.model]
            # An adapter's folder has neither tokenizer nor limit: those are of the model that it is for.
            return models.get(str(card.get("parent")), card)
        served = ", ".join(models)
        raise PolicyUnavailable(f"the server at {self.endpoint} serves {served or 'nothing'}, not {self.model!r}")

    async def close(self) -> None:
        await self._transport.close()

    def _read(
        self, choice: dict[str, Any], prompt_ids: Sequence[int], version: str | None = None, until: str | None = None
    ) -> Completion:
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
        for told in (version, until):
            if told is not None and not told.isdecimal():
                raise PolicyUnavailable(
                    f"the server at {self.endpoint} gives its policy's version as {told!r}, which is no number"
                )
        first, last = (None if told is None else int(told) for told in (version, until))
        return Completion(tuple(token_ids), tuple(logprobs), finish_reason, first, last)


def seed_of(key: str) -> int:
    """A 31-bit seed that follows from a name, the same on every machine."""
    return int.from_bytes(hashlib.blake2b(key.encode(), digest_size=4).digest(), "big") >> 1
