"""The address that OpenAI's and Anthropic's clients know of an attempt: from messages to exactly the tokens that are sampled and trained on."""
