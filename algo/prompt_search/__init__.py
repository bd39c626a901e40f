"""Prompt search: candidates, races, confirmation of the winner, the report."""
