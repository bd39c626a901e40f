"""What agents gave as rewards -> what each actor earns (``configs.agents.AgentRewardConfig``)."""

import math
from collections import defaultdict
from collections.abc import Mapping

from algo.rollouts.triplets import FinishedRollout
from algo.sequences.trajectories import ActorReward
from configs.agents import AgentRewardConfig
from configs.section import ConfigError
from store.agents import AgentCallSpan, AgentOutcome


def agent_rewards(rollout: FinishedRollout, settings: AgentRewardConfig) -> dict[str, ActorReward]:
    """Name of the actor -> what it earns; it is its own role and side, so that it is compared with itself alone.

    Raises ConfigError where the agent gave no reward of a name that is weighed.
    """
    outcome: AgentOutcome = rollout.outcome
    turns: dict[str, dict[int, float]] = defaultdict(dict)
    for call in rollout.turns:
        assert isinstance(call, AgentCallSpan)
        if invalid := call.facts.get("invalid", 0.0):
            turns[call.actor][call.turn] = settings.invalid_call * invalid
    rewards = {}
    for actor in outcome.actors:
        earned, of_turns = _weighed(outcome, settings.weights_of(actor.name)), turns[actor.name]
        rewards[actor.name] = ActorReward(
            role=actor.name,
            side=actor.name,
            total=earned + math.fsum(of_turns.values()),
            outcome=earned,
            turns=of_turns,
            dimensions=outcome.dimensions | {"invalid_calls": actor.facts.get("invalid", 0.0) / actor.turns},
        )
    return rewards


def _weighed(outcome: AgentOutcome, weights: Mapping[str, float]) -> float:
    given = outcome.dimensions
    if not weights:
        return next(iter(given.values()))
    for name in weights:
        if name not in given:
            raise ConfigError(
                f"reward.weights or reward.actors has {name!r}, which the agent did not give for task "
                f"{outcome.task_id}; it gave {', '.join(given)}"
            )
    return math.fsum(weight * given[name] for name, weight in weights.items())
