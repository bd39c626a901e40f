"""What agents give as rewards, and what agentlightning's emitters say of them, as named dimensions."""

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from agentlightning import DummyTracer, Span, SpanCoreFields, get_active_tracer, set_active_tracer
from agentlightning.emitter import get_rewards_from_span

from runners.errors import CannotPlay

_emitted: ContextVar[list[Mapping[str, float]]] = ContextVar("emitted")


class UnusableReward(CannotPlay):
    """What an agent, or the function that judges it, gave is no reward; the message says what is."""


class EmittedRewards(DummyTracer):
    """Takes what agents emit (``agentlightning.emit_reward``) to the attempt that emits it, many at once.

    agentlightning keeps one tracer for a process, and its own allow one attempt at a time.
    """

    def create_span(self, *args: Any, **kwargs: Any) -> SpanCoreFields:
        """Note the rewards of a span; other spans go nowhere."""
        span = super().create_span(*args, **kwargs)
        noted = _emitted.get(None)
        if noted is not None and (dimensions := _of_span(span)):
            noted.append(dimensions)
        return span


@contextmanager
def emitted_rewards() -> Iterator[list[Mapping[str, float]]]:
    """Rewards that are emitted in this context, and in tasks and threads begun within it with their context."""
    if get_active_tracer() is None:
        set_active_tracer(EmittedRewards())
    noted: list[Mapping[str, float]] = []
    token = _emitted.set(noted)
    try:
        yield noted
    finally:
        _emitted.reset(token)


def dimensions_of(
    given: Any, emitted: Sequence[Mapping[str, float]] = (), where: str = "the agent"
) -> dict[str, float]:
    """Rewards by name, the primary one first: of a number, of named numbers, of spans, or else the last emitted ones.

    Raises UnusableReward.
    """
    if given is None and emitted:
        return dict(emitted[-1])
    if isinstance(given, (int, float)):
        given = {"reward": given}
    elif isinstance(given, list) and given and all(isinstance(span, Span) for span in given):
        found = [dimensions for span in given if (dimensions := _of_span(span))]
        given = found[-1] if found else None
    if not isinstance(given, Mapping) or not given:
        raise UnusableReward(
            f"{where} gave no reward ({given!r}): return a number, a dictionary of named numbers with the primary one "
            f"first, or call agentlightning.emit_reward"
        )
    dimensions = {}
    for name, value in given.items():
        if not isinstance(value, (int, float)) or not math.isfinite(value):
            raise UnusableReward(f"{where} gave {value!r} as the reward {name!r}, which is no finite number")
        dimensions[str(name)] = float(value)
    return dimensions


def _of_span(span: Span | SpanCoreFields) -> dict[str, float]:
    return {reward.name: reward.value for reward in get_rewards_from_span(span)}
