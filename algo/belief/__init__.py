"""What seats believe of each other: scores of it, and the loss that teaches to listen."""
