"""The hub's side: rollouts enqueued, adopted, collected; their spans read as triplets."""
