"""Runs of any program: folder, checkpoints, start and end, metrics, records, summary."""
