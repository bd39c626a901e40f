"""Does the policy collapse? Numbers of the log that leave their bounds for several steps (``configs.sections.watch``).

Policies that only play against themselves may end in a few phrases, or in replies that nobody can use; win rates
against an opponent that collapses with them do not show it. Numbers about how they reply do.
"""

import logging
from collections.abc import Mapping, Sequence

from configs.sections.watch import BoundConfig

logger = logging.getLogger(__name__)


class Collapsed(Exception):
    """A number has left its bounds, and the configuration says that the run is to end then."""


def out_of_bounds(steps: Sequence[Mapping[str, float]], watched: Mapping[str, BoundConfig]) -> dict[str, list[float]]:
    """The numbers that the last step and as many before it as their bound says have beyond it: name -> their values.

    steps: metrics of all steps so far, the last one at the end. Steps without the number are passed over; a number that
    the last step has not is not asked about.
    """
    found = {}
    for name, bound in watched.items():
        values = [metrics[name] for metrics in steps if name in metrics][-bound.steps :]
        if steps and name in steps[-1] and len(values) == bound.steps and not any(map(bound.holds, values)):
            found[name] = values
    return found


def watch(steps: Sequence[Mapping[str, float]], watched: Mapping[str, BoundConfig]) -> None:
    """Warn of every number that is out of its bounds. Raises Collapsed where one of them is to end the run."""
    ends = []
    for name, values in out_of_bounds(steps, watched).items():
        bound = watched[name]
        limits = {"below": bound.below, "above": bound.above}
        beyond = " or ".join(f"{word} {limit:g}" for word, limit in limits.items() if limit is not None)
        shown = ", ".join(f"{value:.4g}" for value in values)
        told = f"watch.{name}: {shown} in the last {bound.steps} steps, {beyond}"
        if bound.stop:
            ends.append(told)
        else:
            logger.warning("%s: does the policy collapse?", told)
    if ends:
        raise Collapsed("; ".join(ends))
