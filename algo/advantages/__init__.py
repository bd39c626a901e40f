"""From rewards to one advantage a token. Read ``baseline``, ``credit``, ``correction``, then ``estimators``."""
