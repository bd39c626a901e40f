"""How much a search may spend, and on what."""

from dataclasses import dataclass


@dataclass(frozen=True)
class SearchPlan:
    """budget: rollouts of the whole search. for_search: share of it for races; what they leave confirms the winner.

    until_apart: see ``racing.Confirmation``. generations: rounds of edits for each prompt; edits: of one round.
    error: of every claim; see ``racing``.
    """

    budget: int
    for_search: float = 0.5
    until_apart: bool = False
    generations: int = 2
    edits: int = 3
    error: float = 0.05


@dataclass(frozen=True)
class ProposerBounds:
    """calls: answers asked for in a search. tokens: prompts and answers of all calls together. reply_tokens: of one.

    context_chars: of the attempts shown in one call.
    """

    calls: int = 24
    tokens: int = 200_000
    reply_tokens: int = 1024
    context_chars: int = 8000
