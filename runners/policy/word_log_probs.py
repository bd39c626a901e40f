"""How likely a policy is to answer with each of a few words: log-probs by token id, nothing sampled that counts."""

from collections.abc import Sequence

from runners.errors import PolicyUnavailable
from runners.policy.server import PolicyServer

_MOST_TOKENS = 128
"""Of one request: vLLM's ``MAX_LOGPROB_TOKEN_IDS``."""


async def word_log_probs(
    server: PolicyServer, prompts: Sequence[Sequence[int]], words: Sequence[Sequence[int]]
) -> list[list[float]]:
    """For each prompt the log-prob (natural, at temperature 1) of each word as its continuation.

    prompts, words: token ids. One request: a prefill for each prompt and each proper beginning of a word, all of them
    served from the prefix cache but for their ends.
    Raises ValueError for words of which one begins with another, PolicyUnavailable when no usable answer comes, and
    RouteRefused where the server does not answer such requests.
    """
    words = [tuple(word) for word in words]
    beginnings = sorted({word[:end] for word in words for end in range(len(word))}, key=lambda each: (len(each), each))
    if len(set(words)) < len(words) or any(not word or word in beginnings for word in words):
        raise ValueError(f"of the words {words} one is empty or begins with another: their log-probs are no choice")
    tokens = sorted({token for word in words for token in word})
    if len(tokens) > _MOST_TOKENS:
        raise ValueError(f"the words have {len(tokens)} different tokens, more than the {_MOST_TOKENS} vLLM tells of")
    if not prompts:
        return []
    answer = await server.ask(
        "/v1/completions",
        {
            "prompt": [[*prompt, *beginning] for prompt in prompts for beginning in beginnings],
            "max_tokens": 1,
            # Said explicitly, as in ``PolicyServer.complete``: these change what the log-probs are of.
            "temperature": 1.0,
            "top_p": 1.0,
            "top_k": -1,
            "min_p": 0.0,
            "repetition_penalty": 1.0,
            "seed": 0,  # of the one token that is thrown away: unseeded it would draw from what others share
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
    except (LookupError, TypeError, ValueError) as error:
        raise PolicyUnavailable(
            f"the server at {server.endpoint} does not tell the log-probs of given tokens; serve the policy with "
            f"vLLM 0.28"
        ) from error


def _by_token(top: dict[str, float]) -> dict[int, float]:
    return {int(name.removeprefix("token_id:")): value for name, value in top.items()}
