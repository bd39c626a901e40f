"""Evaluation for all workloads: matches, rows of finished games, figures, the page."""
