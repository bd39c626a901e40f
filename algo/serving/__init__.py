"""vLLM: launch, servers, groups of servers, versions, frozen policies."""
