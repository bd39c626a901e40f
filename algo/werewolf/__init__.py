"""The game's part of the algorithm: tasks, rewards, matches, metrics, demonstrations."""
