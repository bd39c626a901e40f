"""What is noted of a game for those who judge it afterwards; no part of the game."""
