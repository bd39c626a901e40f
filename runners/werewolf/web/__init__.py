"""The browser interface: watch, replay, play and inspect tokens (``python -m runners.werewolf web``)."""
