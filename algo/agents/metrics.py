"""Numbers about a step's tasks, for the log."""

from collections import Counter
from collections.abc import Sequence
from statistics import fmean

from algo.rollouts.played import AllRolloutsFailed, PlayedRollouts
from algo.run.summary import failure_summary
from store.agents import ActorResult, AgentOutcome
from store.schema import TRAINED_POLICY


def agent_metrics(played: PlayedRollouts) -> dict[str, float]:
    """Numbers about a step's tasks; those that ``RunSummary`` adds up have the names that games have, too."""
    outcomes: list[AgentOutcome] = [rollout.outcome for rollout in played.finished]
    actors = [actor for outcome in outcomes for actor in of_policy(outcome)]
    turns = sum(actor.turns for actor in actors)
    metrics = {
        "rollouts/finished": float(len(outcomes)),
        **played.failure_metrics(),
        "turns/played": float(sum(outcome.turns for outcome in outcomes)),
        "turns/per_rollout": fmean(outcome.turns for outcome in outcomes),
        "turns/stored": float(played.turns_stored),
        "turns/of_policy": float(turns),
        "agents/failed_share": fmean(bool(outcome.failure) for outcome in outcomes),
        "agents/refused_calls": float(sum(outcome.refused for outcome in outcomes)),
        "agents/seconds_mean": fmean(outcome.seconds for outcome in outcomes),
    }
    for name in dict.fromkeys(name for outcome in outcomes for name in outcome.dimensions):
        given = [outcome.dimensions[name] for outcome in outcomes if name in outcome.dimensions]
        metrics[f"agents/reward/{name}"] = fmean(given)
    if turns:
        metrics["turns/valid_share"] = 1.0 - sum(map(invalid_calls, actors)) / turns
        metrics["turns/cut_share"] = sum(actor.facts.get("cut", 0.0) for actor in actors) / turns
        metrics["turns/segments_per_actor"] = fmean(actor.segments for actor in actors)
    return metrics


def check_attempts(outcomes: Sequence[AgentOutcome]) -> None:
    """Raise AllRolloutsFailed where nothing can be learned: every attempt failed or got no reply of the policy.

    Going on would train on nothing, and look healthy.
    """
    if any(not outcome.failure and of_policy(outcome) for outcome in outcomes):
        return
    count, refused = len(outcomes), sum(outcome.refused for outcome in outcomes)
    failures = Counter(outcome.own_failure for outcome in outcomes if outcome.own_failure)
    found = [failure_summary(failures, count)] if failures else []
    if failures.total() < count:
        found.append(
            f"{count - failures.total()} of {count} ended without an answered call of the policy ({refused} calls were "
            f"refused): the agent must call the base URL and the model that it is given"
        )
    if not found:
        found = ["an earlier process saw them fail"]
    raise AllRolloutsFailed(
        f"no attempt shows anything: {'; '.join(found)}. The runners' logs say more. When the agent is mended, a "
        f"resumed run (--resume auto) makes these attempts again"
    )


def of_policy(outcome: AgentOutcome) -> list[ActorResult]:
    """The actors that the trained policy answered: what frozen policies do badly is no news of it."""
    return [actor for actor in outcome.actors if actor.policy == TRAINED_POLICY]


def invalid_calls(actor: ActorResult) -> float:
    """Calls of an actor whose reply holds a tool call that cannot be used."""
    return actor.facts.get("invalid", 0.0)
