"""``python -m runners.agents``: play any agent that speaks OpenAI's or Anthropic's protocol, behind a token gateway."""
