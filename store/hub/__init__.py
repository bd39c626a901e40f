"""The hub's process: access control, limits and routes of its server, its store, retention."""
