"""``python -m runners.agents``: play any agent that speaks to an OpenAI-compatible address, behind a token gateway."""
