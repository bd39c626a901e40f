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


def watch(steps: Sequence[Mapping[str, float]], watched: Mapping[str, BoundConfig]) -> None:
    """Warn of every number that the last step, and as many before it as its bound says, have beyond it.

    steps: metrics of all steps so far, the last one at the end. Steps without the number are passed over; a number that
    the last step has not is not asked about. Raises Collapsed where the bound is to end the run.
    """
    for name, bound in watched.items():
        values = [metrics[name] for metrics in steps if name in metrics][-bound.steps :]
        if name not in steps[-1] or len(values) < bound.steps or any(map(bound.holds, values)):
            continue
        shown = ", ".join(f"{value:.4g}" for value in values)
        limits = {"below": bound.below, "above": bound.above}
        beyond = " or ".join(f"{word} {limit:g}" for word, limit in limits.items() if limit is not None)
        told = f"watch.{name}: {shown} in the last {bound.steps} steps, {beyond}"
        if bound.stop:
            raise Collapsed(told)
        logger.warning("%s: does the policy collapse?", told)
