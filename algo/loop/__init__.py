"""The training loop, top to bottom, for any workload: run folder, start-up, update, push, checkpoint, report."""
