"""Models behind an API, which are not trained: players, and the judge."""
