"""Chinese Werewolf (狼人杀): the game, the table, the players and their words."""
