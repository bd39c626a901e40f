"""A policy's server, spoken to in token ids: what it samples, and what else it is asked.

A request is retried while the server is away, and an answer may take as long as the server lives: a slow model is no
broken one.

The address comes from a hub, so the server is no friend: its redirects are refused, and of its answer no more is read
than one can need. Compression is not asked for and not undone, so that nothing small becomes large.
"""

import asyncio
import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import aiohttp
from tenacity import AsyncRetrying, retry_if_exception, wait_exponential_jitter

from runners.addresses import Addresses, CheckedResolver
from runners.errors import PolicyUnavailable, RouteRefused

POLICY_VERSION_HEADER = "x-policy-version"
"""Response header by which a server says which version of the weights sampled a completion, at least its beginning."""

POLICY_VERSION_UNTIL_HEADER = "x-policy-version-until"
"""Response header of a completion in whose midst new weights came: the version that may have sampled its end."""

POLICY_PATIENCE_SECONDS = 10.0

MOST_BYTES = 32 * 2**20
"""Of one answer: a million token ids with their log-probs are less."""

_CONNECT_TIMEOUT_SECONDS = 5.0
_SIGN_OF_LIFE_SECONDS = 60.0
_PAUSES = wait_exponential_jitter(multiplier=0.5, max=8.0, jitter=0.5)
_AGAIN = (408, 409, 429)
# vLLM closes a connection that has been idle for 5 s; one that is used at that moment breaks.
_KEEP_ALIVE_SECONDS = 3.0


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


TokenSink = Callable[[Sequence[int]], None]
"""Takes token ids of a reply as they are sampled."""


class Sampler(Protocol):
    """What gives a reply for a prompt of token ids."""

    model: str

    async def complete(self, prompt_ids: Sequence[int], max_tokens: int, seed: int) -> Completion:
        """One reply of at most ``max_tokens`` tokens."""


class PolicyServer:
    """vLLM's completions endpoint, spoken to in token ids. One instance serves a whole runner process.

    stop_token_ids: tokens that end a reply, beside the model's own end of text: a base model's is not the one with
        which its chat template ends a turn.
    addresses: that may be connected to.
    patience_seconds: how long a request is retried that finds no server, or one with an error of its own (only the
        pauses count): one that has died is started again by the algorithm, and the game goes on where it was.
    silence_seconds: after which a server that owes an answer is asked whether it lives.
    """

    def __init__(
        self,
        endpoint: str,
        model: str,
        temperature: float,
        addresses: Addresses,
        patience_seconds: float = POLICY_PATIENCE_SECONDS,
        silence_seconds: float = 60.0,
    ):
        self.endpoint = endpoint
        self.model = model
        self.stop_token_ids: tuple[int, ...] = ()
        self.patience_seconds = patience_seconds
        self._silence = silence_seconds
        self._temperature = temperature
        self._addresses = addresses
        self._session: aiohttp.ClientSession | None = None

    async def complete(
        self,
        prompt_ids: Sequence[int],
        max_tokens: int,
        seed: int,
        stop: Sequence[str] = (),
        on_tokens: TokenSink | None = None,
    ) -> Completion:
        """Sample one reply. Raises PolicyUnavailable when no usable answer comes after bounded retries.

        stop: texts that end a reply, beside the tokens that do; their tokens are sampled ones, too. on_tokens: takes
        the reply's ids as they come; after the first of them nothing is retried.
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
            if on_tokens is None:
                answer, headers = await self._send("POST", "/v1/completions", body)
            else:
                answer, headers = await self._stream(body | {"stream": True}, on_tokens)
            choice = answer["choices"][0]
            found = (choice["token_ids"], choice["prompt_token_ids"], choice["logprobs"]["token_logprobs"])
            token_ids, returned_prompt, logprobs = map(tuple, found)
            finish_reason = choice["finish_reason"]
        except RouteRefused as error:
            raise PolicyUnavailable(f"the policy's server refused a request: {error} {error.detail}") from error
        except (LookupError, TypeError) as error:
            raise self._useless("returns no token ids with log-probs; serve the policy with vLLM 0.28") from error
        if returned_prompt != tuple(prompt_ids):
            raise self._useless("changed the prompt's token ids")
        if len(logprobs) != len(token_ids):
            raise self._useless(f"returned {len(token_ids)} tokens with {len(logprobs)} log-probs")
        if finish_reason not in ("stop", "length") or not token_ids:
            raise self._useless(
                f"broke off a reply (finish reason {finish_reason!r}, {len(token_ids)} tokens); was it paused or "
                f"stopped?"
            )
        versions = []
        for name in (POLICY_VERSION_HEADER, POLICY_VERSION_UNTIL_HEADER):
            told = headers.get(name)
            if told is not None and not told.isdecimal():
                raise self._useless(f"says its policy has version {told!r}, which is no number")
            versions.append(None if told is None else int(told))
        return Completion(token_ids, logprobs, finish_reason, *versions)

    async def model_folder(self) -> str:
        """The folder (or hub name) that the server loaded the policy from."""
        return str(await self._of_model("root"))

    async def context_tokens(self) -> int:
        """The most tokens that one call may have, prompt plus reply."""
        return int(await self._of_model("max_model_len"))

    async def ask(self, route: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        """The JSON answer of a route that vLLM has beside ``/v1``; GET without a body, else POST.

        Raises RouteRefused for a route that is not there for us, PolicyUnavailable when no answer comes.
        """
        sent = None if body is None else {"model": self.model, **body}
        return (await self._send("GET" if body is None else "POST", route, sent))[0]

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()

    def _useless(self, why: str) -> PolicyUnavailable:
        return PolicyUnavailable(f"the server at {self.endpoint} {why}")

    async def _of_model(self, name: str) -> Any:
        """What the model's card says. Raises PolicyUnavailable."""
        try:
            models = {str(model["id"]): model for model in (await self.ask("/v1/models"))["data"]}
        except (RouteRefused, LookupError, TypeError) as error:
            raise PolicyUnavailable(f"no model list from the policy's server at {self.endpoint} ({error})") from error
        if self.model not in models:
            raise self._useless(f"serves {', '.join(models) or 'nothing'}, not {self.model!r}")
        card = models[self.model]
        # An adapter's folder has neither tokenizer nor limit: those are of the model that it is for.
        found = models.get(str(card.get("parent")), card).get(name)
        if not found:
            raise self._useless(f"does not say {name!r} of its model")
        return found

    async def _stream(self, body: dict[str, Any], on_tokens: TokenSink) -> tuple[Any, Mapping[str, str]]:
        """(JSON, headers) of a streamed completion, as they would be of one that comes whole."""
        choice: dict[str, Any] = {"token_ids": [], "logprobs": {"token_logprobs": []}, "finish_reason": None}
        until: dict[str, str] = {}

        def take(line: bytes) -> None:
            if line.startswith(b": " + POLICY_VERSION_UNTIL_HEADER.encode()):
                until[POLICY_VERSION_UNTIL_HEADER] = line.split()[-1].decode()
            if not line.startswith(b"data: {"):
                return
            (part,) = json.loads(line[6:])["choices"]
            choice.update({name: part[name] for name in ("prompt_token_ids", "finish_reason") if part.get(name)})
            if part["token_ids"]:
                choice["token_ids"] += part["token_ids"]
                choice["logprobs"]["token_logprobs"] += part["logprobs"]["token_logprobs"]
                on_tokens(part["token_ids"])

        _, headers = await self._send("POST", "/v1/completions", body, take)
        return {"choices": [choice]}, {**headers, **until}

    async def _send(
        self, method: str, route: str, body: dict[str, Any] | None = None, take: Callable[[bytes], None] | None = None
    ) -> tuple[Any, Mapping[str, str]]:
        """(JSON, headers) of an answer, or (None, headers) of one whose lines ``take`` takes as they come.

        Raises RouteRefused and PolicyUnavailable.
        """
        url = self.endpoint.rstrip("/").removesuffix("/v1") + route
        data = None if body is None else json.dumps(body).encode()
        retrying = AsyncRetrying(
            retry=retry_if_exception(_may_pass),
            wait=_PAUSES,
            stop=lambda state: state.idle_for + state.upcoming_sleep > self.patience_seconds,
            reraise=True,
        )
        try:
            text, headers = await retrying(self._while_it_lives, method, url, data, take)
            return None if take else json.loads(text), headers
        except (RouteRefused, aiohttp.ClientError, TimeoutError) as error:
            if isinstance(error, RouteRefused) and error.status < 500:
                raise
            reason = f"{error.status}: {error.detail}" if isinstance(error, RouteRefused) else str(error)
            raise PolicyUnavailable(
                f"no answer from {url} ({reason or type(error).__name__}). Is vLLM running, and reachable from this "
                f"machine? The algorithm's log says where it started it"
            ) from error
        except ValueError as error:
            raise RouteRefused(f"{url} answers something that is not JSON") from error

    async def _while_it_lives(
        self, method: str, url: str, data: bytes | None, take: Callable[[bytes], None] | None
    ) -> tuple[bytes, Mapping[str, str]]:
        """The answer, waited for as long as the server answers other questions; raises what asking those raises."""
        session = self._opened()
        answering = asyncio.create_task(_ask(session, method, url, data, take))
        try:
            while not (await asyncio.wait({answering}, timeout=self._silence))[0]:
                # One of the few routes that a proxy before a server forwards (``serving.public_urls``).
                sign_of_life = f"{self.endpoint.rstrip('/').removesuffix('/v1')}/v1/models"
                limit = aiohttp.ClientTimeout(total=_SIGN_OF_LIFE_SECONDS)
                async with session.get(sign_of_life, timeout=limit, raise_for_status=True, allow_redirects=False):
                    pass
            return answering.result()
        finally:
            answering.cancel()

    def _opened(self) -> aiohttp.ClientSession:
        if self._session is None:  # in the event loop that first uses it
            resolver = CheckedResolver(self._addresses, self.endpoint)
            self._session = aiohttp.ClientSession(
                trust_env=False,  # a proxy from the environment must not come between a runner and its own cluster
                headers={"Content-Type": "application/json", "Accept-Encoding": "identity"},
                auto_decompress=False,
                connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=_KEEP_ALIVE_SECONDS, resolver=resolver),
                timeout=aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_TIMEOUT_SECONDS),
            )
        return self._session


async def _ask(
    session: aiohttp.ClientSession, method: str, url: str, data: bytes | None, take: Callable[[bytes], None] | None
) -> tuple[bytes, Mapping[str, str]]:
    """(body, headers) of an answer. Raises RouteRefused for all but an answer of the 200s that is not too long.

    take: takes the lines of such an answer as they come. One that breaks off after the first raises PolicyUnavailable.
    """
    async with session.request(method, url, data=data, allow_redirects=False) as answer:

        def refused(detail: str) -> RouteRefused:
            return RouteRefused(f"{url} answers {answer.status}", answer.status, detail)

        text, taken = bytearray(), 0
        try:
            async for part in answer.content.iter_any():
                text += part
                if len(text) > MOST_BYTES:
                    answer.close()
                    raise refused(f"its answer is longer than {MOST_BYTES // 2**20} MiB")
                while take and answer.ok and (end := text.find(b"\n", taken)) >= 0:
                    take(bytes(text[taken:end]))
                    taken = end + 1
        except (aiohttp.ClientError, TimeoutError) as error:
            if not taken:
                raise
            raise PolicyUnavailable(f"{url} broke off in the midst of a reply") from error
        if 300 <= answer.status < 400:
            raise refused("it redirects to another address, which no policy's server may do")
        if answer.status >= 400:
            raise refused(_said(bytes(text)))
        return bytes(text), answer.headers


def _may_pass(error: BaseException) -> bool:
    """Whether the request may succeed when it is made again."""
    if isinstance(error, RouteRefused):
        return error.status in _AGAIN or error.status >= 500
    return isinstance(error, (aiohttp.ClientError, TimeoutError))


def _said(text: bytes) -> str:
    """What an error's answer says is wrong, in the form of vLLM, or as text."""
    try:
        return str(json.loads(text)["error"]["message"])
    except (ValueError, LookupError, TypeError):
        return text[:300].decode(errors="replace")


def seed_of(key: str) -> int:
    """A 31-bit seed that follows from a name, the same on every machine."""
    return int.from_bytes(hashlib.blake2b(key.encode(), digest_size=4).digest(), "big") >> 1
