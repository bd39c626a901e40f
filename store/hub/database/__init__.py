"""The hub's database: agentlightning's store as tables of SQLite or PostgreSQL, with the promises of this hub."""
