"""verl's workers on Ray, on GPU or CPU, and how their weights leave."""

import os

os.environ.setdefault("VERL_LOGGING_LEVEL", "WARNING")  # read when verl is imported; its INFO repeats our own settings
