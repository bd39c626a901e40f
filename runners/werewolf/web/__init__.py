"""The browser's side of the game: watch, replay, play and look into the tokens (``python -m runners.werewolf web``)."""
