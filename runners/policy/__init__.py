"""Access to policies for any workload: servers, tokens, resources."""
