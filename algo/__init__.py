"""The algorithm: from games in the store to an update of the policy. Never imports ``runners``."""
