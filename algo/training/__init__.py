"""verl's training workers on Ray, on GPU or CPU, and the export of their weights."""

import os

os.environ.setdefault("VERL_LOGGING_LEVEL", "WARNING")  # read when verl is imported; its INFO repeats our own settings
