"""The hub's process: what stands between the network and the store, and what looks after what is kept."""
