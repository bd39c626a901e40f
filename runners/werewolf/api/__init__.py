"""Models behind an API, which are not trained: opponents and the judge."""
