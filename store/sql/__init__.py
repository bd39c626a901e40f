"""agentlightning's store as SQL: one set of collections and promises, over SQLite or PostgreSQL."""
