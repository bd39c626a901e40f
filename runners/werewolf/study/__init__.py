"""Records of a game for evaluations, independent of the game itself."""
