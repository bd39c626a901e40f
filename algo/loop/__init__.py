"""The training loop for any workload: start-up, steps, updates, pushes."""
