"""An HTTP service with an agent of the OpenAI Agents SDK, in its own environment."""
