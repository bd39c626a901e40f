"""The OpenAI-compatible address of an attempt: from messages to exactly the tokens that are sampled and trained on."""
