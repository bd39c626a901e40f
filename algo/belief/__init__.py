"""What seats believe of each other: scores of it, how speeches move it, and the loss that teaches to listen."""
