"""Agents to try training with, each with its tasks, its reward, and lessons for a tiny model that starts it off."""
