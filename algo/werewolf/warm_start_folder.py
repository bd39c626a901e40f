"""What a warm start leaves behind, by name: for programs that run one, and have no use for all that it imports."""

SUFFIX = "-warm-start"
"""Of its run's name, and so of its folder."""

MODEL_FOLDER = "huggingface"
SUMMARY_FILE = "summary.json"
