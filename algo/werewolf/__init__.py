"""What training the game adds: tasks, rewards, matches, what players do, demonstrations."""
