"""The hub's database: agentlightning's store in SQLite or PostgreSQL, with this hub's guarantees."""
