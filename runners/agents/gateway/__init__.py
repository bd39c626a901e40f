"""An attempt's address for OpenAI's and Anthropic's clients: from messages to exactly the tokens sampled and trained on."""
