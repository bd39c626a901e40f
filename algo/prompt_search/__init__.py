"""Which prompt is best: candidates, the race between them, what confirms a winner, and what is shown of it."""
