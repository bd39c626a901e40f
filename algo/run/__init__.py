"""One run of any program: its folder and checkpoints, how it begins and ends, its numbers, records and summary."""
