"""The gateway through which agents call models: messages to exactly the tokens that are sampled and trained on."""
