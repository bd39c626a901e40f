"""The address at which agents call models: from messages to exactly the tokens that are sampled and trained on."""
