"""Log-probs of a few words as a policy's reply, by token id, without sampling."""

from collections.abc import Sequence

from runners.errors import PolicyUnavailable
from runners.policy.client import PolicyClient

_MAX_TOKENS = 128
"""vLLM's ``MAX_LOGPROB_TOKEN_IDS`` per request."""


async def word_log_probs(
    server: PolicyClient, prompts: Sequence[Sequence[int]], words: Sequence[Sequence[int]]
) -> list[list[float]]:
    """For each prompt the log-prob (natural, at temperature 1) of each word as its continuation.

    prompts, words: token ids. One request: a prefill for each prompt and each proper beginning of a word, all of them
    served from the prefix cache but for their ends.
    Raises ValueError if one word is a prefix of another, PolicyUnavailable without a usable answer, and RouteRefused if
    the server rejects such requests.
    """
    words = [tuple(word) for word in words]
    beginnings = sorted({word[:end] for word in words for end in range(len(word))}, key=lambda each: (len(each), each))
    if len(set(words)) < len(words) or any(not word or word in beginnings for word in words):
        raise ValueError(f"of the words {words} one is empty or a prefix of another, so they are no alternatives")
    tokens = sorted({token for word in words for token in word})
    if len(tokens) > _MAX_TOKENS:
        raise ValueError(f"the words have {len(tokens)} different tokens, more than vLLM's limit of {_MAX_TOKENS}")
    if not prompts:
        return []
    answer = await server.ask(
        "/v1/completions",
        {
            "model": server.model,
            "prompt": [[*prompt, *beginning] for prompt in prompts for beginning in beginnings],
            "max_tokens": 1,
            # Explicit, as in ``PolicyClient.complete``: they change the distribution.
            "temperature": 1.0,
            "top_p": 1.0,
            "top_k": -1,
            "min_p": 0.0,
            "repetition_penalty": 1.0,
            "seed": 0,  # of the discarded token: unseeded it would draw from shared state
            "logprobs": 1,
            "logprob_token_ids": tokens,
            "return_tokens_as_token_ids": True,
        },
    )
    try:
        choices = sorted(answer["choices"], key=lambda choice: choice["index"])
        found = [_by_token(choice["logprobs"]["top_logprobs"][0]) for choice in choices]
        table = [
            dict(zip(beginnings, found[first : first + len(beginnings)], strict=True))
            for first in range(0, len(prompts) * len(beginnings), len(beginnings))
        ]
        return [[sum(at[word[:end]][word[end]] for end in range(len(word))) for word in words] for at in table]
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise PolicyUnavailable(
            f"the server at {server.endpoint} does not return log-probs of given tokens; serve the policy with vLLM "
            f"0.28"
        ) from error


def _by_token(top: dict[str, float]) -> dict[int, float]:
    return {int(name.removeprefix("token_id:")): value for name, value in top.items()}
