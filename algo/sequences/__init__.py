"""Triplets -> trajectories -> selection -> rows -> verl's batch."""
