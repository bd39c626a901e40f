"""Metrics of a step's tasks."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from statistics import fmean

from algo.rollouts.played import AllRolloutsFailed, PlayedRollouts
from algo.run.summary import failure_summary
from store.agents import ActorResult, AgentOutcome
from store.schema import TRAINED_POLICY


def agent_metrics(played: PlayedRollouts) -> dict[str, float]:
    """Metrics of a step's tasks; those that ``RunSummary`` sums up have the names of the game's metrics."""
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
        "agents/rejected_calls": float(sum(outcome.refused for outcome in outcomes)),
        "agents/seconds_mean": fmean(outcome.seconds for outcome in outcomes),
    }
    rewards = rewards_by_name((outcome.dimensions, outcome.failure) for outcome in outcomes)
    for name in dict.fromkeys(name for given in rewards for name in given):
        metrics[f"agents/reward/{name}"] = fmean(given[name] for given in rewards if name in given)
    if turns:
        metrics["turns/valid_share"] = 1.0 - sum(map(invalid_calls, actors)) / turns
        metrics["turns/cut_share"] = sum(actor.facts.get("cut", 0.0) for actor in actors) / turns
        metrics["turns/segments_per_actor"] = fmean(actor.segments for actor in actors)
    return metrics


def rewards_by_name(attempts: Iterable[tuple[Mapping[str, float], str]]) -> list[Mapping[str, float]]:
    """The rewards of attempts, given as (rewards, failure), the primary one first; a failure's under the agent's names.

    Names that a failure lacks have 0 (``configs.agents.AgentRewardConfig.failure``). If it has none of the agent's, its
    first reward is the primary one, as in training.
    """
    attempts = list(attempts)
    names = list(dict.fromkeys(name for given, failure in attempts if not failure for name in given))

    def of_failure(given: Mapping[str, float]) -> Mapping[str, float]:
        known = {names[0]: next(iter(given.values()))} if given.keys().isdisjoint(names) else given
        return {name: known.get(name, 0.0) for name in names}

    return [of_failure(given) if failure and names else given for given, failure in attempts]


def check_attempts(outcomes: Sequence[AgentOutcome], trained: Collection[str] | None = None) -> None:
    """Raise AllRolloutsFailed if every attempt failed or has no answered call of the policy, or no call is by a trained
    actor (``agents.trained_actors``).

    Training would continue without data, and look healthy.
    """
    actors = {actor.name for outcome in outcomes for actor in of_policy(outcome)}
    if actors and trained is not None and actors.isdisjoint(trained):
        raise AllRolloutsFailed(
            f"agents.trained_actors names {', '.join(trained)}, but the policy was called as "
            f"{', '.join(sorted(actors))}; correct it in a new run"
        )
    if any(not outcome.failure and of_policy(outcome) for outcome in outcomes):
        return
    count, rejected = len(outcomes), sum(outcome.refused for outcome in outcomes)
    failures = Counter(outcome.own_failure for outcome in outcomes if outcome.own_failure)
    found = [failure_summary(failures, count)] if failures else []
    if failures.total() < count:
        found.append(
            f"{count - failures.total()} of {count} ended without an answered call of the policy ({rejected} calls "
            f"were rejected): the agent must call the base URL and model of its resources"
        )
    if not found:
        found = ["an earlier process played all of them, and they failed"]
    raise AllRolloutsFailed(
        f"no usable attempt: {'; '.join(found)}. See the runners' logs. Once the agent is fixed, a "
        f"resumed run (--resume auto) retries these attempts"
    )


def of_policy(outcome: AgentOutcome) -> list[ActorResult]:
    """The actors of the trained policy; errors of frozen policies do not count."""
    return [actor for actor in outcome.actors if actor.policy == TRAINED_POLICY]


def invalid_calls(actor: ActorResult) -> float:
    """Number of an actor's calls with an invalid tool call."""
    return actor.facts.get("invalid", 0.0)
