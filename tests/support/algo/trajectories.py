"""Trajectories for unit tests; a test passes only the fields that matter."""

from algo.sequences.trajectories import Trajectory


def made_trajectory(loss_mask, **changes):
    """Every run of sampled tokens is a turn, of version 0; the log-prob of each sampled token is -1."""
    mask = tuple(loss_mask)
    ends = tuple(end for end in range(1, len(mask) + 1) if mask[end - 1] and not any(mask[end : end + 1]))
    fields = dict(
        task_id="g", group_id="deal", actor="seat 01", role="seer", side="good", segment=0,
        token_ids=tuple(range(len(mask))), loss_mask=mask, logprobs=tuple(-float(sampled) for sampled in mask),
        turn_ends=ends, reward=1.0,
    ) | changes  # fmt: skip
    return Trajectory(**{"turn_versions": (0,) * len(fields["turn_ends"])} | fields)
