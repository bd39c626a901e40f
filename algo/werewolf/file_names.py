"""Names of what runs leave behind, for programs that start others and have no use for all that these import."""

WARM_START_SUFFIX = "-warm-start"
"""Of a warm start's name, and so of its folder."""

MODEL_FOLDER = "huggingface"
"""Inside the folder of a warm start."""

SUMMARY_FILE = "summary.json"
"""Likewise."""

PEOPLE_FILE = "people.json"
"""Inside a run's folder: how people fared against its policy."""
