"""Evaluations of agents, made up."""

from algo.agents.outcomes import AgentEvaluation, AttemptRecord


def evaluation_of(step, rewards, attempts=1, invalid=0, failed=0, **changes):
    """rewards: of each task's attempts, in turn; the first ``failed`` of them failed, ``invalid`` calls were broken."""
    records = tuple(
        AttemptRecord(
            task=number // attempts,
            rewards={"right": reward, "short": 0.5},
            failure="RuntimeError: no" if number < failed else "",
            calls=2,
            invalid=int(number < invalid),
        )
        for number, reward in enumerate(rewards)
    )
    fields = dict(
        label=f"step {step}", step=step, policy_version=step, seed=1, temperature=1.0, tasks=len(rewards) // attempts,
        attempts_at_each=attempts, attempts=records,
    )  # fmt: skip
    return AgentEvaluation.model_validate(fields | changes)


def ones(count, of):
    return [1.0] * count + [0.0] * (of - count)
