"""Example agents, each with tasks, a reward, and lessons for the warm start of a tiny model."""
