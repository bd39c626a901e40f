"""What training any agent adds to the loop: its tasks, their rewards, how it is evaluated."""
