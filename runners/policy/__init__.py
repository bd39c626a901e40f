"""The policy as any workload calls it: its servers, its tokens, its resources."""
