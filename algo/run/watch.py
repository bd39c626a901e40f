"""Detects a collapse of the policy: metrics outside their bounds for several steps (``configs.sections.watch``).

In self-play a policy may collapse to a few phrases or to unusable replies. Win rates against an opponent that collapses
with it do not show this, metrics of its replies do.
"""

import logging
from collections.abc import Collection, Mapping, Sequence

from configs.section import nearest_name
from configs.sections.watch import BoundConfig

logger = logging.getLogger(__name__)


class Collapsed(Exception):
    """A metric is outside its bounds, and its ``stop`` is set."""


def watch(
    steps: Sequence[Mapping[str, float]], watched: Mapping[str, BoundConfig], defaults: Collection[str] = ()
) -> None:
    """Warn of every metric that is outside its bounds in its last ``bound.steps`` steps.

    steps: metrics of all steps so far. Skips steps without the metric, and metrics that the last step lacks; warns once
    of a metric that none of the first ``bound.steps`` steps has. Raises Collapsed for a bound with ``stop``.
    defaults: names of metrics that a run may lack, such as those of a side that does not learn.
    """
    for name, bound in watched.items():
        if name not in defaults and len(steps) == bound.steps and not any(name in metrics for metrics in steps):
            hint = nearest_name(name, sorted(set().union(*steps)))
            logger.warning("watch.%s: no step has logged this metric so far; %s", name, hint)
        values = [metrics[name] for metrics in steps if name in metrics][-bound.steps :]
        if name not in steps[-1] or len(values) < bound.steps or any(map(bound.holds, values)):
            continue
        shown = ", ".join(f"{value:.4g}" for value in values)
        limits = {"below": bound.below, "above": bound.above}
        beyond = " or ".join(f"{word} {limit:g}" for word, limit in limits.items() if limit is not None)
        message = f"watch.{name}: {shown} in the last {bound.steps} steps, {beyond}"
        if bound.stop:
            raise Collapsed(message)
        logger.warning("%s: the policy may have collapsed", message)
