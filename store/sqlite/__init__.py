"""agentlightning's storage contract on SQLite: one file, a write-ahead log, nothing lost when the process is killed."""
