"""The smallest agent for prompt search; see docs/guides/prompts.md."""
