"""``python -m runners.agents``: runs agents that use OpenAI's or Anthropic's API, behind a token gateway."""
