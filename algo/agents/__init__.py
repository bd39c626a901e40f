"""The agents' part of the algorithm: tasks, rewards, evaluation."""
